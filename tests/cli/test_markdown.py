"""Formatted markdown, as a terminal shows it while it comes."""

import io
from contextlib import closing

import pyte
import pytest
from rich.console import Console
from rich.markdown import Markdown

from specgguf.cli.terminal.markdown import MarkdownView

ANSWER = """# A title

Some *emphasis* and `code`, in a paragraph that is long enough to be wrapped on a narrow terminal.

- one
- two
  continued

```python
def double(x):
    return 2 * x
```

| a | b |
|---|---|
| 1 | 2 |

See [the page](https://example.org/page), and \x1b]0;title\x07 no more.
"""
WIDTH, HEIGHT = 60, 100


def console(height):
    return Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=WIDTH, height=height)


def screen(written):
    """The lines that a terminal shows."""
    display = pyte.Screen(WIDTH, HEIGHT)
    pyte.Stream(display).feed(written.replace("\n", "\r\n"))
    return "\n".join(line.rstrip() for line in display.display).rstrip("\n")


def said(console):
    """What is shown, without the blank lines between."""
    return [line for line in screen(console.file.getvalue()).split("\n") if line]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("height", [6, 50])
def test_what_is_shown_at_last_is_the_whole_formatted(size, height):
    shown, whole = console(height), console(height)
    with closing(MarkdownView(shown)) as view:
        for start in range(0, len(ANSWER), size):
            view.feed(ANSWER[start : start + size])
    whole.print(Markdown(ANSWER.replace("\x1b", "␛").replace("\x07", "␇"), hyperlinks=False))
    assert said(shown) == said(whole)
    assert "\x1b]" not in shown.file.getvalue()


def test_finished_blocks_are_formatted_at_once_and_the_last_one_is_there_as_it_comes():
    shown = console(50)
    view = MarkdownView(shown)
    view.feed("**bold**\n\nand **so")
    assert screen(shown.file.getvalue()) == "bold\nand **so"
    view.feed(" on**")
    view.close()
    assert screen(shown.file.getvalue()) == "bold\n\nand so on"
