import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgguf.text.thought import Said, ThoughtStream, opens_thought, split


@pytest.mark.parametrize(
    ("text", "inside", "thought", "answer"),
    [
        ("<think>\nhm, 2.\n</think>\n\nTwo.", False, "hm, 2.", "Two."),
        ("hm, 2.\n</think>\n\nTwo.", True, "hm, 2.", "Two."),
        ("\n<think>\n\n</think>\n\nTwo.", False, "", "Two."),
        ("Two.", False, "", "Two."),
        ("Write <think>x</think>.", False, "", "Write <think>x</think>."),
        ("<think>a</think>Write </think> or <think>.", False, "a", "Write </think> or <think>."),
        ("<think>cut off </th", False, "cut off </th", ""),
        ("never closed", True, "never closed", ""),
        ("<thin", False, "", "<thin"),
        ("<thinking> is no tag", False, "", "<thinking> is no tag"),
        ("<think><think>a</think>b", False, "<think>a", "b"),
        ("", True, "", ""),
        ("<think>a</think>b", None, "", "<think>a</think>b"),
    ],
)
def test_thought_and_answer(text, inside, thought, answer):
    assert split(text, inside) == (thought, answer)
    for size in (1, 2, 3):
        stream = ThoughtStream(inside)
        parts = [stream.feed(text[i : i + size]) for i in range(0, len(text), size)]
        parts.append(stream.flush())
        assert tuple("".join(part).strip() for part in zip(*parts, strict=True)) == (thought, answer)


def test_only_what_may_be_a_tag_is_held_back():
    stream = ThoughtStream(inside=False)
    assert stream.feed("<think>so") == Said("so", "")
    assert stream.feed(" be it</") == Said(" be it", "")
    assert stream.feed("b></think>\n\n") == Said("</b>", "")
    assert stream.feed("\nYes") == Said("", "Yes")
    assert stream.feed(" <think>") == Said("", " <think>")


@given(st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "</", "a", " ", "\n", "<"])), st.booleans())
def test_any_cut_gives_the_same(pieces, inside):
    stream = ThoughtStream(inside)
    parts = [*map(stream.feed, pieces), stream.flush()]
    assert Said(*("".join(part).strip() for part in zip(*parts, strict=True))) == split("".join(pieces), inside)


@pytest.mark.parametrize(
    ("prompt", "opened"), [("<|im_start|>assistant\n<think>\n", True), ("<think>\n\n</think>\n\n", False), ("", False)]
)
def test_a_prompt_that_opens_the_tag(prompt, opened):
    assert opens_thought(prompt) is opened
