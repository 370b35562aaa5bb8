"""Text from strangers, made safe for a terminal."""

from collections.abc import Iterable, Mapping

_PASS = "\n\t"
_PICTURES = 0x2400
"""Where Unicode has pictures of the control characters: U+241B is one of ESC."""


def _escaped(codes: Iterable[int]) -> Mapping[int, str]:
    return {code: f"\\u{code:04x}" for code in codes}


_SHOWN: Mapping[int, str] = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in _PASS},
    **_escaped(range(0x7F, 0xA0)),  # delete, and the C1 controls: some terminals take U+009B for ESC [
    **_escaped(range(0x202A, 0x202F)),  # embeddings and overrides of the direction of writing
    **_escaped(range(0x2066, 0x206A)),  # isolates
}


def visible(text: str) -> str:
    """`text` with everything shown that a terminal would obey, newlines and tabs excepted.

    Without control characters there are no titles, links, colours or clipboards to set, and nothing already shown can
    be overwritten; without the others no text runs backwards. Joiners pass: emoji are made with them. What has no
    picture is shown as JSON would escape it, so JSON on a terminal stays JSON.
    """
    return text.translate(_SHOWN)
