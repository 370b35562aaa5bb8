import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgguf.text.printable import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;a title\x07", "␛]0;a title␇"),
        ("\x1b]52;c;cm0gLXJm\x1b\\", "␛]52;c;cm0gLXJm␛\\"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "␛]8;;http://x␛\\link␛]8;;␛\\"),
        ("\x9b31mred\x9d0;title\x9c", "\\u009b31mred\\u009d0;title\\u009c"),
        ("right\rwrong", "right␍wrong"),
        ("wrong\b\b\b\b\bright\x7f", "wrong␈␈␈␈␈right\\u007f"),
        ("if \u202e} {\u2066\u2069:", "if \\u202e} {\\u2066\\u2069:"),
        ("a\tb\nc", "a\tb\nc"),
        (
            "👩\u200d💻 naïve שלום\u200f 東京 🏴\U000e0067\U000e007f",
            "👩\u200d💻 naïve שלום\u200f 東京 🏴\U000e0067\U000e007f",
        ),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text, shown):
    assert visible(text) == shown


@given(st.text())
def test_no_control_character_is_left_and_pieces_make_the_whole(text):
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    assert not [c for c in shown if unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF"}]
    assert not [c for c in shown if unicodedata.bidirectional(c) in {"LRI", "RLI", "FSI", "PDI"}]
    assert "".join(map(visible, text)) == shown


@given(st.text())
def test_json_stays_the_same_json(text):
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text
