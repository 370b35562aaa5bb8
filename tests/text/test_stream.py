import codecs
import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from specgguf.text.stream import TextStream


def whole_text(data):
    """Without a character at the end that was cut."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def feed(pieces, stops=()):
    stream = TextStream(stops)
    shown = []
    for piece in pieces:
        shown.append(stream.feed(piece))
        if stream.stopped:
            break
    shown.append(stream.flush())
    return shown, stream.stopped


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


cuts = st.lists(st.integers(0, 200), max_size=20)


@settings(max_examples=500)
@given(st.binary(max_size=80), cuts)
def test_any_bytes_become_the_text_of_the_whole(data, places):
    shown, _ = feed(cut(data, places))
    assert "".join(shown) == whole_text(data)
    "".join(shown).encode()


@settings(max_examples=500)
@given(st.text("ab🙂é", max_size=60), st.lists(st.text("ab🙂é", min_size=1, max_size=5), max_size=3), cuts)
@example("beta delta beta gamma.", ["beta gamma"], [3, 13, 17])
def test_the_text_ends_before_the_first_stop_and_nothing_else_is_lost(text, stops, places):
    shown, stopped = feed(cut(text.encode(), places), stops)
    assert stopped == any(stop in text for stop in stops)
    result = "".join(shown)
    if not stopped:
        assert result == text
    else:
        assert text.startswith(result)
        assert not any(stop in result for stop in stops)
        assert any(text[len(result) :].startswith(stop) for stop in stops)


PIECES = [
    b"a",
    b"beta gamma",
    "é".encode(),
    "🙂".encode(),
    "👩‍👩‍👧‍👦".encode(),
    "e\u0301".encode(),
    "汉字".encode(),
    b"\xff",
    b"\xc3",
    b"\x80\r\n",
]
streams = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4)), max_size=12).map(b"".join)

spans = st.tuples(st.integers(0, 60), st.integers(1, 6), st.sampled_from(["", "§"]))


@settings(max_examples=5000, deadline=None)
@given(streams, st.lists(spans, max_size=3), cuts)
def test_fuzzed_token_streams(data, spans, places):
    """Bytes of all kinds, cut anywhere; the stops are parts of the very text, or only begin like it."""
    whole = whole_text(data)
    stops = [part + rest for start, length, rest in spans if (part := whole[start : start + length])]
    shown, stopped = feed(cut(data, places), stops)
    result = "".join(shown)
    assert all(piece.encode().decode() == piece for piece in shown)  # nothing that is no character by itself
    assert whole.startswith(result)
    assert not any(stop in result for stop in stops)
    assert stopped == any(stop in whole for stop in stops)
    assert any(whole.startswith(stop, len(result)) for stop in stops) if stopped else result == whole


def test_text_is_held_back_only_while_it_may_become_a_stop():
    stream = TextStream(["beta gamma"])
    assert stream.feed(b"alpha beta") == "alpha "
    assert stream.feed(b" del") == "beta del"
    assert stream.feed(b"ta b") == "ta "
    assert stream.flush() == "b"
    assert not stream.stopped


def test_a_character_is_shown_when_it_is_whole():
    stream = TextStream()
    emoji = "🙂".encode()
    assert [stream.feed(emoji[i : i + 1]) for i in range(4)] == ["", "", "", "🙂"]
    assert stream.feed(emoji[:2]) == ""
    assert stream.flush() == ""  # the rest of it never came
