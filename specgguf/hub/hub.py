"""Files from the Hugging Face hub."""

import logging
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from huggingface_hub import get_hf_file_metadata, get_token, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import http_get
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


def download(file: HubFile, partial: PartialFile) -> None:
    """Append the rest of `file`; raises FetchError if the hub cannot be reached or does not have it."""
    disable_progress_bars()
    set_verbosity(logging.ERROR)
    url = hf_hub_url(file.repo, file.path, revision=file.revision)
    try:
        metadata = get_hf_file_metadata(url, timeout=CONNECT_TIMEOUT_S)
        if metadata.size != file.size:
            raise FetchError(
                f"{url} is {metadata.size} bytes long, models.toml says {file.size}",
                "is HF_ENDPOINT a true mirror?",
            )
        http_get(
            metadata.location,
            cast("BinaryIO", partial),
            resume_size=partial.tell(),
            headers=_headers(url, metadata.location),
            expected_size=file.size,
        )
    except (GatedRepoError, RepositoryNotFoundError) as error:
        raise FetchError(
            f"{file.repo}: the hub refuses access ({error.response.status_code})",
            "accept its licence on the hub and set HF_TOKEN to a token that may read it",
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
