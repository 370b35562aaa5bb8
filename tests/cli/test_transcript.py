import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgguf.conversation.transcript import Exchange, Transcript, load
from specgguf.errors import UsageError

TEXT = st.text(min_size=1)
EXCHANGES = st.lists(st.builds(Exchange, TEXT, TEXT, st.text()))


@given(
    system=st.text(),
    exchanges=EXCHANGES,
    unanswered=st.lists(st.builds(Exchange, TEXT), max_size=1),
    temperature=st.floats(0, 2),
)
def test_what_is_written_is_read_again(tmp_path_factory, system, exchanges, unanswered, temperature):
    path = tmp_path_factory.mktemp("chat") / "chat.json"
    written = Transcript(system, [*exchanges, *unanswered], {"temperature": temperature, "seed": 3}, {"pair": "tiny"})
    path.write_text(written.dump())
    assert load(path) == written


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda content: content[: len(content) // 2], "no transcript"),
        (lambda content: content.replace('"format": 1', '"format": 9'), "format 9"),
        (lambda content: content.replace('"role": "user"', '"role": "assistant"'), r"messages\[0\]"),
        (lambda content: content.replace('"role": "assistant"', '"role": "tool"'), r"messages\[1\]"),
        (lambda content: content.replace('"content"', '"contents"'), "it has no 'content'"),
        (lambda content: content.replace("0.5", '"x"'), "sampling.temperature"),
        (lambda content: content.replace("temperature", "logits"), "sampling.logits"),
        (lambda content: content.replace("1+1?", "\\ud800"), "no transcript"),
        (lambda content: "[]", "no transcript"),
        (lambda content: "[" * 100_000, "no transcript"),
        (lambda content: "\udcff", "no transcript"),
    ],
)
def test_a_damaged_file(tmp_path, damage, named):
    path = tmp_path / "chat.json"
    content = Transcript("", [Exchange("1+1?", "2.")], {"temperature": 0.5}).dump()
    path.write_bytes(damage(content).encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=named):
        load(path)


def test_messages_are_those_of_other_programs():
    transcript = Transcript("Be brief.", [Exchange("1+1?", "2.", "hm"), Exchange("Sure?")])
    assert json.loads(transcript.dump())["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2.", "reasoning_content": "hm"},
        {"role": "user", "content": "Sure?"},
    ]
