"""How an answer is written piece by piece."""

import pytest

from specgguf.cli.answer import AnswerWriter
from specgguf.cli.terminal import output
from specgguf.text.thought import Said

PIECES = [("one ", "model"), ("two ", "ngram"), ("three ", "another"), ("four", "")]


@pytest.fixture
def written(monkeypatch):
    pieces = []
    monkeypatch.setattr(output, "answers_on_terminal", lambda: True)
    monkeypatch.setattr(output, "write", lambda text, style="": pieces.append((text, style)))
    return pieces


@pytest.mark.parametrize(
    ("styled", "shown"),
    [
        (False, [("[one ]", ""), ("{two }", ""), ("<three >", ""), ("four", "")]),
        (True, [("one ", "green"), ("two ", "magenta"), ("three ", "cyan"), ("four", "")]),
    ],
)
def test_what_any_drafter_got_right_is_marked(written, monkeypatch, styled, shown):
    monkeypatch.setattr(output, "has_styles", lambda: styled)
    writer = AnswerWriter(show_draft=True, end_line=False)
    for text, source in PIECES:
        writer.write(Said("", text), source)
    writer.close()
    assert written == shown
