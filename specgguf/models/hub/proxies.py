"""The proxies that the environment names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from specgguf.errors import UnreachableError

_VARIABLES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")


@contextmanager
def named_in_errors() -> Iterator[None]:
    """Raises UnreachableError if a client that is made inside cannot use its proxies."""
    try:
        yield
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        given = " or ".join(name for name in os.environ if name.upper() in _VARIABLES)
        if isinstance(error, ImportError):  # it is about the library's own extras
            raise UnreachableError(
                f"the SOCKS proxy in {given} cannot be used: the Python package socksio is not here",
                f"install socksio beside specgguf, or unset {given}",
            ) from None
        raise UnreachableError(f"the proxy in {given} cannot be used: {error}", f"correct or unset {given}") from None
