"""Why the hub does not deliver: gated, misspelt, overloaded, out of reach."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import httpx2
from huggingface_hub import HfApi, constants, get_session, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from specgguf.errors import FetchError, UnreachableError
from specgguf.models.hub import proxies
from specgguf.text.suggestions import did_you_mean

_TIMEOUT_S = 4.0
_MAX_NAMES = 200


@contextmanager
def map_hub_errors(repo: str, revision: str | None, path: str | None) -> Iterator[None]:
    """Turn whatever goes wrong in a request for a repository, or for the file `path` in it, into a FetchError."""
    url = hf_hub_url(repo, path, revision=revision) if path else f"{HfApi().endpoint}/{repo}"
    with proxies.named_in_errors():
        get_session()
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise UnreachableError(
            f"{url} cannot be requested while working offline", "leave out --offline, or unset HF_HUB_OFFLINE"
        ) from error
    except HfHubHTTPError as error:
        raise _http_error(error, url, repo, revision, path) from error
    except httpx2.TransportError as error:
        raise UnreachableError(f"cannot reach {url}: {error}", "check the network, or HF_ENDPOINT") from error
    # Anything can come of an answer that is not from a hub, such as a hotel's log-in page. But an OSError with a number
    # is about writing files, and a FetchError is already ours.
    except Exception as error:
        if isinstance(error, FetchError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise UnreachableError(
            f"{url}: the answer does not come from a hub",
            "check HF_ENDPOINT, and whether the network wants you to log in",
        ) from error


def _http_error(error: HfHubHTTPError, url: str, repo: str, revision: str | None, path: str | None) -> FetchError:
    status = error.response.status_code
    page = f"{HfApi().endpoint}/{repo}"
    if isinstance(error, GatedRepoError):
        return FetchError(f"{repo} is gated: the hub answered {status}", f"accept its licence at {page}; {_token()}")
    if isinstance(error, RevisionNotFoundError):
        return FetchError(f"{repo} has no revision {revision or 'main'} ({status})", f"see {page}/tree/main")
    if isinstance(error, RemoteEntryNotFoundError) and path:
        hint = did_you_mean(path, _files(repo, revision)) or f"see {page}/tree/main"
        return FetchError(f"{repo} has no file {path} ({status})", hint)
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        hint = _similar_repos(repo) or f"check the name; if the repository is private: {_token()}"
        return FetchError(f"{url}: no such repository on the hub, or a private one ({status})", hint)
    if status in (401, 403):
        return FetchError(f"{url}: the hub refuses access ({status})", f"see {page}; {_token()}")
    if status == 429:
        return FetchError(f"{url}: the hub received too many requests (429)", f"wait a few minutes; {_token()}")
    return FetchError(f"{url}: the hub answered {status}", "try again later")


def _token() -> str:
    """Which access token the hub got, or how to give one."""
    if get_token() is None:
        return "set HF_TOKEN to an access token of your account"
    place = "HF_TOKEN" if os.environ.get("HF_TOKEN") else constants.HF_TOKEN_PATH
    return f"the hub knows you by the token in {place}"


def _similar_repos(repo: str) -> str:
    """Suggests GGUF repositories with a similar name, from the same owner or another."""
    owner, _, name = repo.partition("/")
    return did_you_mean(repo, [*_repos(author=owner), *_repos(search=name)])


def _repos(author: str | None = None, search: str | None = None) -> list[str]:
    try:
        found = HfApi().list_models(filter="gguf", author=author, search=search, limit=_MAX_NAMES)
        return [model.id for model in islice(found, _MAX_NAMES)]
    except Exception:  # a hint is not worth a second failure
        return []


def _files(repo: str, revision: str | None) -> list[str]:
    try:
        info = HfApi().model_info(repo, revision=revision, timeout=_TIMEOUT_S)
        return [sibling.rfilename for sibling in info.siblings or []]
    except Exception:  # as above
        return []
