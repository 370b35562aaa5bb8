"""Why the hub does not give what is asked for: gated, misspelt, overloaded, out of reach."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice

import httpx2
from huggingface_hub import HfApi, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from specgguf.errors import FetchError, UnreachableError

_TIMEOUT_S = 4.0
_MOST_NAMES = 200


@contextmanager
def told_apart(repo: str, revision: str | None, path: str | None) -> Iterator[None]:
    """What can go wrong while a repository, or the file `path` in it, is asked for, as FetchError."""
    url = hf_hub_url(repo, path, revision=revision) if path else f"{HfApi().endpoint}/{repo}"
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise UnreachableError(
            f"{url} is not asked for: working offline", "leave out --offline, or unset HF_HUB_OFFLINE"
        ) from error
    except HfHubHTTPError as error:
        raise _refused(error, url, repo, revision, path) from error
    except httpx2.TransportError as error:
        raise UnreachableError(f"cannot reach {url}: {error}", "check the network, or HF_ENDPOINT") from error
    # What the hub's library makes of an answer that is none of the hub's, such as the page of a hotel's network; an
    # OSError with a number is about writing, and FetchError is ours.
    except Exception as error:
        if isinstance(error, FetchError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise UnreachableError(
            f"{url}: the answer is not that of a hub", "check HF_ENDPOINT, and whether the network wants you to log in"
        ) from error


def _refused(error: HfHubHTTPError, url: str, repo: str, revision: str | None, path: str | None) -> FetchError:
    status = error.response.status_code
    page = f"{HfApi().endpoint}/{repo}"
    if isinstance(error, GatedRepoError):
        return FetchError(f"{repo} is gated: the hub answered {status}", f"accept its licence at {page}, {_token()}")
    if isinstance(error, RevisionNotFoundError):
        return FetchError(
            f"{repo} has no revision {revision or 'main'} ({status})", f"see {page}/tree/main for what there is"
        )
    if isinstance(error, RemoteEntryNotFoundError) and path:
        return FetchError(f"{repo} has no file {path} ({status})", _nearest(path, _files(repo, revision)))
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return FetchError(f"{url}: no such repository on the hub, or a private one ({status})", _nearest_repo(repo))
    if status in (401, 403):
        return FetchError(f"{url}: the hub refuses access ({status})", f"see {page}, {_token()}")
    if status == 429:
        return FetchError(f"{url}: the hub limits how much may be asked (429)", f"wait some minutes; {_token()}")
    return FetchError(f"{url}: the hub answered {status}", "try again later")


def _token() -> str:
    """Which token was used, or how to give one."""
    if get_token() is None:
        return "and set HF_TOKEN to a token of your account"
    where = "HF_TOKEN" if os.environ.get("HF_TOKEN") else constants.HF_TOKEN_PATH
    return f"with the account that the token in {where} belongs to"


def _nearest_repo(repo: str) -> str:
    """Repositories with models of the same owner, or of that name elsewhere, whose names are close to `repo`."""
    owner, _, name = repo.partition("/")
    names = {candidate.lower(): candidate for candidate in [*_repos(author=owner), *_repos(search=name)]}
    near = [names[match] for match in get_close_matches(repo.lower(), names, n=3)]
    return _did_you_mean(near) or f"check the name; if the repository is private, {_token().removeprefix('and ')}"


def _repos(author: str | None = None, search: str | None = None) -> list[str]:
    try:
        found = HfApi().list_models(filter="gguf", author=author, search=search, limit=_MOST_NAMES)
        return [model.id for model in islice(found, _MOST_NAMES)]
    except Exception:  # a hint is not worth a second failure
        return []


def _files(repo: str, revision: str | None) -> list[str]:
    try:
        info = HfApi().model_info(repo, revision=revision, timeout=_TIMEOUT_S)
        return [sibling.rfilename for sibling in info.siblings or []]
    except Exception:  # as above
        return []


def _nearest(path: str, known: list[str]) -> str:
    return _did_you_mean(get_close_matches(path, known, n=3)) or "see the repository for what there is"


def _did_you_mean(names: list[str]) -> str:
    return f"did you mean {' or '.join(names)}?" if names else ""
