import json

from hypothesis import given
from hypothesis import strategies as st

from specgguf.transcript import Exchange, Transcript, load

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


def test_messages_are_those_of_other_programs():
    transcript = Transcript("Be brief.", [Exchange("1+1?", "2.", "hm"), Exchange("Sure?")])
    assert json.loads(transcript.dump())["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2.", "reasoning_content": "hm"},
        {"role": "user", "content": "Sure?"},
    ]
