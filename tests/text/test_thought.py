import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgguf.text.thought import FORMATS, Said, ThoughtStream, opened, split

FINAL = "<|channel|>final<|message|>Two."
COMMENT = "<|start|>assistant<|channel|>commentary<|message|>So.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("text", "prompt", "thought", "answer"),
    [
        ("<think>\nhm, 2.\n</think>\n\nTwo.", "", "hm, 2.", "Two."),
        ("hm, 2.\n</think>\n\nTwo.", "<think>", "hm, 2.", "Two."),
        ("\n<think>\n\n</think>\n\nTwo.", "", "", "Two."),
        ("Two.", "", "", "Two."),
        ("Write <think>x</think>.", "", "", "Write <think>x</think>."),
        ("<think>a</think>Write </think> or <think>.", "", "a", "Write </think> or <think>."),
        ("<think>cut off </th", "", "cut off </th", ""),
        ("never closed", "<think>", "never closed", ""),
        ("<thin", "", "", "<thin"),
        ("<thinking> is no tag", "", "", "<thinking> is no tag"),
        ("<think><think>a</think>b", "", "<think>a", "b"),
        ("", "<think>", "", ""),
        ("[THINK]hm, 2.[/THINK]Two.", "", "hm, 2.", "Two."),
        ("[THINK] is a <think>", "", "is a <think>", ""),
        ("hm, 2.[/THINK]Two.</think>", "[INST]1+1?[/INST][THINK]", "hm, 2.", "Two.</think>"),
        ("<|channel>thought\nhm, 2.\n<channel|>Two.", "<|turn>model\n", "hm, 2.", "Two."),
        ("<|channel>thought\n<channel|>Two.", "<|turn>model\n", "", "Two."),
        ("Two.", "<|turn>model\n<|channel>thought\n<channel|>", "", "Two."),
        ("<|channel>final", "", "", "<|channel>final"),
        ("<|START_THINKING|>hm<|END_THINKING|>Two.", "", "hm", "Two."),
        (
            "<|channel|>analysis<|message|>hm, 2.<|end|><|start|>assistant" + FINAL,
            "<|start|>assistant",
            "hm, 2.",
            "Two.",
        ),
        (FINAL, "<|start|>assistant", "", "Two."),
        (
            "hm, 2.<|end|><|start|>assistant" + FINAL,
            "<|start|>assistant<|channel|>analysis<|message|>",
            "hm, 2.",
            "Two.",
        ),
        ("<|channel|>analysis<|message|>hm<|end|>" + COMMENT + FINAL, "", "hmSo.", "Two."),
        ("<|channel|>analysis<|message|>the final word", "", "the final word", ""),
        ("<think>a</think>b", None, "", "<think>a</think>b"),
    ],
)
def test_thought_and_answer(text, prompt, thought, answer):
    assert split(text, prompt) == (thought, answer)
    for size in (1, 2, 3):
        stream = ThoughtStream(prompt)
        parts = [stream.feed(text[i : i + size]) for i in range(0, len(text), size)]
        parts.append(stream.flush())
        assert tuple("".join(part).strip() for part in zip(*parts, strict=True)) == (thought, answer)


def test_only_what_may_be_a_tag_is_held_back():
    stream = ThoughtStream("")
    assert stream.feed("<think>so") == Said("so", "")
    assert stream.feed(" be it</") == Said(" be it", "")
    assert stream.feed("b></think>\n\n") == Said("</b>", "")
    assert stream.feed("\nYes") == Said("", "Yes")
    assert stream.feed(" <think>") == Said("", " <think>")


PIECES = ["<think>", "</think>", "<th", "ink>", "</", "a", " ", "\n", "<", "[THINK]", "[/THINK]", "<|channel>thought"]
CHANNELS = ["<|channel|>", "final", "<|message|>", "analysis", "<|end|>", "<|start|>assistant", "<|", "a", " "]


@given(
    st.one_of(*(st.lists(st.sampled_from(pieces)) for pieces in (PIECES, CHANNELS))),
    st.sampled_from(["", *(marks.opening for marks in FORMATS)]),
)
def test_any_cut_gives_the_same(pieces, prompt):
    stream = ThoughtStream(prompt)
    parts = [*map(stream.feed, pieces), stream.flush()]
    assert Said(*("".join(part).strip() for part in zip(*parts, strict=True))) == split("".join(pieces), prompt)


@pytest.mark.parametrize(
    ("prompt", "is_open"), [("<|im_start|>assistant\n<think>\n", True), ("<think>\n\n</think>\n\n", False), ("", False)]
)
def test_a_prompt_that_opens_the_tag(prompt, is_open):
    assert (opened(prompt) is not None) is is_open
