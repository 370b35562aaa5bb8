"""A server with OpenAI's API, such as llama-server, vLLM, SGLang or Ollama."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from specgguf.errors import EndpointError
from specgguf.models.hub import proxies
from specgguf.text import jsontext

_TIMEOUT = httpx2.Timeout(600, connect=10)
"""Seconds. A slow machine may need minutes for a long prompt."""

_DATA, _DONE = "data:", "[DONE]"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: how many tokens it has, and when the first and last piece came, in seconds after the request."""

    num_tokens: int
    counted_by: str
    """usage: the server reported the number of tokens; pieces: it did not, and the pieces it sent were counted."""
    first_s: float
    last_s: float


class Endpoint:
    """One model on a server. Requests carry the key in OPENAI_API_KEY, if it is set. Close it after use."""

    def __init__(self, url: str, model: str | None) -> None:
        """`url` may end in /v1 or not. For None, `model` is the first model that the server lists.

        This and `ask` raise EndpointError if the server cannot be reached, refuses, or breaks the protocol.
        """
        url = url.rstrip("/")
        self.url = url if url.endswith("/v1") else f"{url}/v1"
        key = os.environ.get("OPENAI_API_KEY")
        with proxies.named_in_errors():
            self._client = httpx2.Client(timeout=_TIMEOUT)
        try:
            self._client.headers |= {"Authorization": f"Bearer {key}"} if key else {}
            if httpx2.URL(self.url).scheme not in ("http", "https"):
                raise httpx2.InvalidURL("it does not start with http:// or https://")
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise EndpointError(
                f"{url} is not the address of a server: {error}", "give one like http://localhost:8080"
            ) from None
        self.model = self._first_model() if model is None else model

    def ask(self, prompt: str, max_tokens: int, temperature: float, seed: int) -> Answer:
        """Send a prompt, and time the answer."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        url = f"{self.url}/chat/completions"
        num_pieces, num_reported, finished = 0, None, False
        begin = time.perf_counter()
        first_s = last_s = 0.0
        with self._map_errors(url), self._client.stream("POST", url, json=body) as response:
            self._check(response)
            for event in self._events(response):
                choice: dict[str, Any] = next(iter(event.get("choices") or ()), {})
                if any((choice.get("delta") or {}).get(part) for part in ("content", "reasoning_content", "reasoning")):
                    last_s = time.perf_counter() - begin
                    first_s = first_s or last_s
                    num_pieces += 1
                finished = finished or bool(choice.get("finish_reason"))
                num_reported = (event.get("usage") or {}).get("completion_tokens", num_reported)
        if not finished:
            raise EndpointError(f"{url}: the answer was cut off", "see the server's log")
        if num_reported:
            return Answer(num_reported, "usage", first_s, last_s)
        return Answer(num_pieces, "pieces", first_s, last_s)

    def _first_model(self) -> str:
        url = f"{self.url}/models"
        with self._map_errors(url):
            response = self._client.get(url)
            self._check(response)
            return str(response.json()["data"][0]["id"])

    def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        status, text = response.status_code, " ".join(response.read().decode("utf-8", "replace").split())[:200]
        hints = {
            401: "set OPENAI_API_KEY to the server's key",
            403: "set OPENAI_API_KEY to a key with the rights for this",
            404: "check the address; if it is right, name the model with --model",
        }
        raise EndpointError(
            f"{response.url} answered {status}{f': {text}' if text else ''}",
            hints.get(status, "see the server's log"),
        )

    def _events(self, response: httpx2.Response) -> Iterator[dict[str, Any]]:
        """The JSON objects in a stream of server-sent events."""
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise EndpointError(
                f"{response.url} sent {kind or 'something'} instead of a stream of events",
                "the server must support streaming",
            )
        for line in response.iter_lines():
            if line.startswith(_DATA) and (data := line.removeprefix(_DATA).strip()) != _DONE:
                event = jsontext.parse(data)
                if event.get("error"):
                    raise EndpointError(f"{response.url} failed: {event['error']}", "see the server's log")
                yield event

    @contextmanager
    def _map_errors(self, url: str) -> Iterator[None]:
        """Turn whatever goes wrong in a request into an EndpointError."""
        try:
            yield
        except httpx2.ConnectError as error:
            raise EndpointError(
                f"cannot reach {url}: {error}", "check that the server is running, and its address"
            ) from None
        except httpx2.TimeoutException:
            raise EndpointError(f"{url} does not answer", "see the server's log") from None
        except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError) as error:
            raise EndpointError(f"{url}: the answer was cut off: {error}", "see the server's log") from None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise EndpointError(
                f"{url}: the answer does not follow OpenAI's API", "check that this is the address of such an API"
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
