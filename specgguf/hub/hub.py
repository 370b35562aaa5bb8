"""Files from the Hugging Face hub."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import urlsplit

from huggingface_hub import HfApi, get_hf_file_metadata, get_token, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._http import hf_raise_for_status, http_stream_backoff
from huggingface_hub.utils.logging import set_verbosity
from huggingface_hub.utils.tqdm import disable_progress_bars

from specgguf.config import HubFile
from specgguf.errors import FetchError
from specgguf.hub.partial import PartialFile

CONNECT_TIMEOUT_S = 4.0


def cached(file: HubFile) -> Path | None:
    """The file in the hub's own cache, where another program put it."""
    path = try_to_load_from_cache(file.repo, file.path, revision=file.revision)
    return Path(path) if isinstance(path, str) else None


class Entry(NamedTuple):
    """A file in a repository."""

    path: str
    size: int
    sha256: str


def list_files(repo: str, revision: str | None) -> tuple[str, list[Entry]]:
    """The commit that `revision` (the main branch if None) is now, and its large files.

    Raises FetchError if the hub cannot be reached or has no such repository.
    """
    with _told_apart(f"{HfApi().endpoint}/{repo}", repo):
        commit = str(HfApi().repo_info(repo, revision=revision, timeout=CONNECT_TIMEOUT_S).sha)
        tree = HfApi().list_repo_tree(repo, revision=commit, recursive=True)
        files = [item for item in tree if isinstance(item, RepoFile) and item.lfs]
        return commit, [Entry(file.path, file.size, file.lfs.sha256) for file in files if file.lfs]


def beginning(file: HubFile, num_bytes: int) -> bytes:
    """The first `num_bytes` of a file, or all of it, by one range request."""
    url = hf_hub_url(file.repo, file.path, revision=file.revision)
    with _told_apart(url, file.repo):
        headers = {**_headers(url, url), "Range": f"bytes=0-{num_bytes - 1}"}
        with http_stream_backoff("GET", url, headers=headers, timeout=CONNECT_TIMEOUT_S, max_retries=1) as response:
            hf_raise_for_status(response)
            data = b""
            for block in response.iter_bytes():
                data += block
                if len(data) >= num_bytes:  # a server without ranges would send the whole file
                    break
            return data[:num_bytes]


def download(file: HubFile, partial: PartialFile) -> None:
    """Append the rest of `file`; raises FetchError if the hub cannot be reached or does not have it."""
    disable_progress_bars()
    set_verbosity(logging.ERROR)
    url = hf_hub_url(file.repo, file.path, revision=file.revision)
    with _told_apart(url, file.repo):
        metadata = get_hf_file_metadata(url, timeout=CONNECT_TIMEOUT_S)
        if metadata.size != file.size:
            raise FetchError(
                f"{url} is {metadata.size} bytes long, not {file.size} as it should be",
                "is HF_ENDPOINT a true mirror?",
            )
        http_get(
            metadata.location,
            cast("BinaryIO", partial),
            resume_size=partial.tell(),
            headers=_headers(url, metadata.location),
            expected_size=file.size,
        )


@contextlib.contextmanager
def _told_apart(url: str, repo: str) -> Iterator[None]:
    """What can go wrong with the hub, as FetchError."""
    try:
        yield
    except (GatedRepoError, RepositoryNotFoundError) as error:
        raise FetchError(
            f"{repo}: the hub refuses access ({error.response.status_code})",
            "check the name; if it is right, accept its licence on the hub and set HF_TOKEN",
        ) from error
    except HfHubHTTPError as error:
        raise FetchError(f"{url}: the hub answered {error.response.status_code}", "try again later") from error
    except OfflineModeIsEnabled as error:
        raise FetchError("the hub is not asked: HF_HUB_OFFLINE is set", "unset it to download") from error
    # Whatever the HTTP library raises when it cannot connect, and the hub's library when it gives up; an OSError
    # with a number is about writing, and FetchError is ours.
    except Exception as error:
        if isinstance(error, FetchError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise FetchError(f"cannot reach {url}: {error}", "check the network, or HF_ENDPOINT") from error


def _headers(url: str, location: str) -> dict[str, str]:
    """The user's token, for the hub itself only: a redirection elsewhere carries its own permission."""
    token = get_token()
    if token is None or urlsplit(url).netloc != urlsplit(location).netloc:
        return {}
    return {"authorization": f"Bearer {token}"}
