"""Text that others wrote, made safe for a terminal."""

from collections.abc import Iterable, Mapping

_UNCHANGED = "\n\t"
_PICTURES = 0x2400
"""Unicode has a picture of each control character: U+241B for ESC, and so on."""


def _escaped(codes: Iterable[int]) -> Mapping[int, str]:
    return {code: f"\\u{code:04x}" for code in codes}


_SHOWN: Mapping[int, str] = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in _UNCHANGED},
    **_escaped(range(0x7F, 0xA0)),  # delete, and the C1 controls: some terminals take U+009B for ESC [
    **_escaped(range(0x202A, 0x202F)),  # embeddings and overrides of the writing direction
    **_escaped(range(0x2066, 0x206A)),  # isolates
}


def visible(text: str) -> str:
    """`text` with visible signs in place of all characters that a terminal would obey, except newlines and tabs.

    Without control characters no text can set titles, links, colours or the clipboard, or overwrite what is already
    shown; without the others no text runs backwards. Joiners stay: emoji are made with them. Characters without a
    picture are escaped as in JSON, so JSON on a terminal stays JSON.
    """
    return text.translate(_SHOWN)
