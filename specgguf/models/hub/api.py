"""Requests to the Hugging Face hub: lists of files, and their bytes.

`hf_hub_download` is not used for the bytes: it checks a file's size, but not its hash.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx2
import tenacity
from huggingface_hub import HfApi, get_session, hf_hub_url, hf_raise_for_status
from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers

from specgguf.errors import FetchError
from specgguf.models.files import HubFile
from specgguf.models.hub.errors import map_hub_errors
from specgguf.models.hub.partial import PartialFile

_CONNECT_TIMEOUT_S = 4.0
_BLOCK = 1 << 20
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_MAX_WAIT_S = 10.0
"""If the hub wants a longer pause than this, there is no second attempt."""


def _is_transient(error: BaseException) -> bool:
    """Whether it makes sense to try again soon. If the hub cannot be reached at all, mirrors are tried instead."""
    if isinstance(error, HfHubHTTPError):
        pause = error.response.headers.get("Retry-After", "0")
        return error.response.status_code in _TRANSIENT and pause.isdigit() and int(pause) <= _MAX_WAIT_S
    return isinstance(error, httpx2.TransportError) and not isinstance(
        error, httpx2.ConnectError | httpx2.ConnectTimeout
    )


def _wait_s(state: tenacity.RetryCallState) -> float:
    """The pause that the hub asks for, else half a second, doubled with every attempt."""
    error = state.outcome.exception() if state.outcome else None
    pause = error.response.headers.get("Retry-After") if isinstance(error, HfHubHTTPError) else None
    return float(pause) if pause else 0.25 * 2**state.attempt_number


_retrying = tenacity.retry(
    retry=tenacity.retry_if_exception(_is_transient),
    wait=_wait_s,
    stop=tenacity.stop_after_attempt(4),
    reraise=True,
)


class Entry(NamedTuple):
    """A file in a repository."""

    path: str
    size: int
    sha256: str


def list_files(repo: str, revision: str | None) -> tuple[str, list[Entry]]:
    """The commit that `revision` stands for now (None: the main branch), and the large files in it.

    Raises FetchError if the hub cannot be reached or has no such repository.
    """
    with map_hub_errors(repo, revision, None):
        return _list_files(repo, revision)


@_retrying
def _list_files(repo: str, revision: str | None) -> tuple[str, list[Entry]]:
    commit = str(HfApi().model_info(repo, revision=revision, timeout=_CONNECT_TIMEOUT_S).sha)
    tree = HfApi().list_repo_tree(repo, revision=commit, recursive=True)
    files = [item for item in tree if isinstance(item, RepoFile) and item.lfs]
    return commit, [Entry(file.path, file.size, file.lfs.sha256) for file in files if file.lfs]


def fetch_beginning(file: HubFile, num_bytes: int) -> bytes:
    """The first `num_bytes` of a file, or all of it if it is shorter, by one range request.

    Raises FetchError if the hub cannot be reached or does not have it.
    """
    with map_hub_errors(file.repo, file.revision, file.path):
        return _fetch_beginning(file, num_bytes)


@_retrying
def _fetch_beginning(file: HubFile, num_bytes: int) -> bytes:
    with _get(file, f"bytes=0-{num_bytes - 1}") as response:
        data = b""
        for block in response.iter_bytes(_BLOCK):
            data += block
            if len(data) >= num_bytes:  # a server that ignores ranges sends the whole file
                break
        return data[:num_bytes]


def download(file: HubFile, partial: PartialFile) -> None:
    """Append the rest of `file`. Raises FetchError if the hub cannot be reached or does not have it."""
    with map_hub_errors(file.repo, file.revision, file.path):
        while partial.tell() < file.size:
            _append(file, partial)


@_retrying
def _append(file: HubFile, partial: PartialFile) -> None:
    """Append what one response brings. If the connection breaks after some bytes, those count."""
    begin = partial.tell()
    try:
        with _get(file, f"bytes={begin}-" if begin else None) as response:
            if response.status_code != httpx2.codes.PARTIAL_CONTENT:  # the server ignores ranges: start over
                partial.clear()
            _check_length(file, response, partial.tell())
            for block in response.iter_bytes(_BLOCK):
                partial.write(block)
            if partial.tell() == begin:
                raise FetchError(f"{response.url} sent no content", "is HF_ENDPOINT a faithful mirror?")
    except httpx2.TransportError:
        if partial.tell() <= begin:
            raise
    except HfHubHTTPError as error:
        if not begin or error.response.status_code != httpx2.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        partial.clear()


def _check_length(file: HubFile, response: httpx2.Response, begin: int) -> None:
    length = begin + int(response.headers.get("Content-Length", file.size - begin))
    if length != file.size:
        raise FetchError(
            f"{response.url} has {length} bytes, it should have {file.size}", "is HF_ENDPOINT a faithful mirror?"
        )


@contextmanager
def _get(file: HubFile, byte_range: str | None) -> Iterator[httpx2.Response]:
    """A response to be read piece by piece. Raises HfHubHTTPError if the hub answers with an error."""
    url = hf_hub_url(file.repo, file.path, revision=file.revision)
    headers = build_hf_headers() | {"Accept-Encoding": "identity"} | ({"Range": byte_range} if byte_range else {})
    timeout = httpx2.Timeout(HF_HUB_DOWNLOAD_TIMEOUT, connect=_CONNECT_TIMEOUT_S)
    # The session drops the token when a redirect leads away from the hub.
    with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        hf_raise_for_status(response)
        yield response
