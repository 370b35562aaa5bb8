"""Hints for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches

_MANY = 12
"""This many names are too many to list."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the known names most like `name`, whatever their case; empty if there are none."""
    by_lower = {other.lower(): other for other in known}
    similar = [by_lower[match] for match in get_close_matches(name.lower(), by_lower, n=3)]
    return f"did you mean {' or '.join(similar)}?" if similar else ""


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Similar names, or else all names if they are few, or else `otherwise`."""
    known = list(known)
    listed = f"choose from {', '.join(known)}" if 0 < len(known) < _MANY else otherwise
    return did_you_mean(name, known) or listed
