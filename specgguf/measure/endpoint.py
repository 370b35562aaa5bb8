"""A server that speaks OpenAI's protocol, as llama-server, vLLM, SGLang, Ollama and others do."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from specgguf.errors import EndpointError
from specgguf.text import jsontext
from specgguf.text.closing import Closing

_TIMEOUT = httpx2.Timeout(600, connect=10)
"""A slow machine may think for minutes about a long prompt."""
_DATA, _DONE = "data:", "[DONE]"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: how many tokens, and when they came, in seconds since it was asked for."""

    num_tokens: int
    counted_by: str
    """usage: the server has told their number; pieces: it has not, and what it sent was counted."""
    first_s: float
    last_s: float


class Endpoint(Closing):
    """One model of a server, asked with the key in OPENAI_API_KEY if there is one."""

    def __init__(self, url: str, model: str | None) -> None:
        """`url` with or without the /v1 at its end; `model`: the first that the server lists if None.

        Raises EndpointError, here as later, if it cannot be reached, refuses, or answers otherwise than it should.
        """
        url = url.rstrip("/")
        self.url = url if url.endswith("/v1") else f"{url}/v1"
        key = os.environ.get("OPENAI_API_KEY")
        try:
            self._client = httpx2.Client(timeout=_TIMEOUT, headers={"Authorization": f"Bearer {key}"} if key else {})
            if httpx2.URL(self.url).scheme not in ("http", "https"):
                raise httpx2.InvalidURL("it does not begin with http:// or https://")
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise EndpointError(
                f"{url} is no address of a server: {error}", "give one like http://localhost:8080"
            ) from None
        self.model = self._first_model() if model is None else model

    def ask(self, prompt: str, max_tokens: int, temperature: float, seed: int) -> Answer:
        """Have a prompt answered."""
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
        num_pieces, num_told, finished = 0, None, False
        begin = time.perf_counter()
        first_s = last_s = 0.0
        with self._failures_told(url), self._client.stream("POST", url, json=body) as response:
            self._check(response)
            for event in self._events(response):
                choice: dict[str, Any] = next(iter(event.get("choices") or ()), {})
                if any((choice.get("delta") or {}).get(part) for part in ("content", "reasoning_content", "reasoning")):
                    last_s = time.perf_counter() - begin
                    first_s = first_s or last_s
                    num_pieces += 1
                finished = finished or bool(choice.get("finish_reason"))
                num_told = (event.get("usage") or {}).get("completion_tokens", num_told)
        if not finished:
            raise EndpointError(f"{url}: the answer was cut off", "what does the server's log say?")
        if num_told:
            return Answer(num_told, "usage", first_s, last_s)
        return Answer(num_pieces, "pieces", first_s, last_s)

    def _first_model(self) -> str:
        url = f"{self.url}/models"
        with self._failures_told(url):
            response = self._client.get(url)
            self._check(response)
            return str(response.json()["data"][0]["id"])

    def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        status, said = response.status_code, " ".join(response.read().decode("utf-8", "replace").split())[:200]
        hints = {
            401: "put the server's key into OPENAI_API_KEY",
            403: "put a key that may do this into OPENAI_API_KEY",
            404: "check the address and, if it is right, name the model with --model",
        }
        raise EndpointError(
            f"{response.url} answered {status}{f': {said}' if said else ''}",
            hints.get(status, "what does the server's log say?"),
        )

    def _events(self, response: httpx2.Response) -> Iterator[dict[str, Any]]:
        """The objects of a stream of server-sent events."""
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise EndpointError(
                f"{response.url} sent {kind or 'something'} instead of a stream of events", "it must be able to stream"
            )
        for line in response.iter_lines():
            if line.startswith(_DATA) and (data := line.removeprefix(_DATA).strip()) != _DONE:
                event = jsontext.parse(data)
                if event.get("error"):
                    raise EndpointError(f"{response.url} gave up: {event['error']}", "what does the server's log say?")
                yield event

    @contextmanager
    def _failures_told(self, url: str) -> Iterator[None]:
        try:
            yield
        except httpx2.ConnectError as error:
            raise EndpointError(
                f"cannot reach {url}: {error}", "is the server running, and is this its address?"
            ) from None
        except httpx2.TimeoutException:
            raise EndpointError(f"{url} does not answer", "what does the server's log say?") from None
        except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError) as error:
            raise EndpointError(f"{url}: the answer was cut off: {error}", "what does the server's log say?") from None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise EndpointError(
                f"{url}: the answer is not of OpenAI's form", "is this the address of its API?"
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
