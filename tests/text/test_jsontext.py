import pytest

from specgguf.text import jsontext


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "Expecting"), ("[" * 100_000, "recursion"), ("1" * 5000, "digits"), (r'{"\ud83d": 1}', "surrogate")],
)
def test_what_cannot_be_read_is_a_value_error(text, why):
    with pytest.raises(ValueError, match=why):
        jsontext.parse(text)


def test_a_whole_pair_of_surrogates_is_a_character():
    assert jsontext.parse(r'["\ud83d\ude00"]') == ["😀"]
