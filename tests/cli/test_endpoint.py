"""`specgguf bench --endpoint`: llama-cpp-python's own server, and one that misbehaves."""

import json
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.program import failure, specgguf

DONE = "data: [DONE]\n\n"


def piece(text=None, reason=None, **more):
    choice = {"index": 0, "delta": {"content": text} if text else {"role": "assistant"}, "finish_reason": reason}
    return f"data: {json.dumps({'choices': [choice], **more})}\n\n"


class Server:
    """Answers with `events`; `asked` lists the bodies of requests, `keys` their keys."""

    def __init__(self):
        self.events = [
            piece(),
            ": a comment\n\n",
            piece("one "),
            piece("two "),
            piece("three"),
            piece(None, "stop"),
            DONE,
        ]
        self.kind, self.status, self.whole, self.models = "text/event-stream", 200, True, '{"data": [{"id": "toy"}]}'
        self.asked, self.keys = [], []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.send(200, "application/json", [server.models])

            def do_POST(self):
                server.keys.append(self.headers.get("Authorization"))
                server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send(server.status, server.kind, server.events)

            def send(self, status, kind, chunks):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in chunks:
                    self.wfile.write(f"{len(chunk.encode()):x}\r\n{chunk}\r\n".encode())
                if server.whole:
                    self.wfile.write(b"0\r\n\r\n")
                self.close_connection = not server.whole

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "a", "prompt": "the cat"}\n{"category": "b", "prompt": "the dog"}\n')
    return path


@pytest.fixture
def bench(prompts):
    def run(*arguments, **variables):
        return specgguf("bench", "--prompts", prompts, "-n", 8, *arguments, NO_PROXY="127.0.0.1", **variables)

    return run


@pytest.fixture(scope="module")
def llama_server(toy_models):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", toy_models["endless"], "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--n_threads", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        probe = -1
        while probe != 0:
            assert process.poll() is None
            time.sleep(0.1)
            with socket.socket() as client:
                probe = client.connect_ex(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_llama_cpp_pythons_server_against_itself(bench, llama_server, tmp_path):
    report = tmp_path / "report.html"
    result = json.loads(
        bench(
            "--endpoint", llama_server, "--endpoint-baseline", f"{llama_server}/v1/", "--json", "--report", report
        ).stdout
    )
    assert [(row["category"], row["arm"]) for row in result["rows"]] == [
        (category, arm) for category in ("a", "b", "all") for arm in ("baseline", "endpoint")
    ]
    assert result["endpoint"]["url"] == result["baseline"]["url"] == f"{llama_server}/v1"
    assert {run["output_tokens"] for run in result["runs"]} == {8}
    assert {run["counted_by"] for run in result["runs"]} == {"pieces"}
    assert all(row["speed_low"] <= row["speed"] <= row["speed_high"] for row in result["rows"])
    assert llama_server in report.read_text()


def test_what_is_asked_and_counted(bench, server):
    result = json.loads(bench("--endpoint", server.url, "--seed", 7, "--json", OPENAI_API_KEY="secret").stdout)
    assert "speed" not in result["rows"][0]
    assert {run["output_tokens"] for run in result["runs"]} == {3}
    assert set(server.keys) == {"Bearer secret"}
    asked = server.asked[-1]
    assert (asked["model"], asked["max_tokens"], asked["seed"], asked["stream"]) == ("toy", 8, 7, True)
    assert asked["messages"] == [{"role": "user", "content": "the dog"}]


def test_the_servers_own_count_is_believed(bench, server):
    server.events.insert(-1, f"data: {json.dumps({'choices': [], 'usage': {'completion_tokens': 8}})}\n\n")
    lines = bench("--endpoint", server.url, "--model", "other").stdout.decode().splitlines()
    assert lines[0].split()[-1] == "counted"
    assert all(line.split()[-1] == "usage" for line in lines[1:])
    assert server.asked[-1]["model"] == "other"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"status": 401, "kind": "application/json", "events": ['{"error": "no key"}']}, "answered 401: "),
        ({"status": 404}, "answered 404"),
        ({"status": 500, "events": []}, "answered 500"),
        ({"kind": "application/json", "events": ["{}"]}, "instead of a stream"),
        ({"events": [piece("one")], "whole": False}, "cut off"),
        ({"events": [piece("one"), DONE]}, "cut off"),
        ({"events": ["data: {broken\n\n"]}, "does not follow OpenAI's API"),
        ({"events": ["data: 5\n\n"]}, "does not follow OpenAI's API"),
        ({"events": ["data: " + "[" * 100_000 + "\n\n"]}, "does not follow OpenAI's API"),
        ({"events": ['data: {"choices": [7]}\n\n']}, "does not follow OpenAI's API"),
        ({"events": ['data: {"error": {"message": "no memory"}}\n\n']}, "no memory"),
        ({"events": [piece(None, "stop"), DONE]}, "no answer was long enough"),
        ({"models": '{"data": []}'}, "does not follow OpenAI's API"),
        ({"models": "<html>"}, "does not follow OpenAI's API"),
    ],
)
def test_servers_that_misbehave(bench, server, changes, named):
    for name, value in changes.items():
        setattr(server, name, value)
    message, _ = failure(bench("--endpoint", server.url), code=2 if "long enough" in named else 1)
    assert named in message


@pytest.mark.parametrize(
    ("arguments", "named", "code"),
    [
        (["--endpoint", "http://127.0.0.1:1"], "cannot reach", 1),
        (["--endpoint", "ftp://example"], "not the address", 1),
        (["--endpoint", "localhost:8080"], "not the address", 1),
        (["--endpoint", "http://127.0.0.1:1", "--pair", "tiny"], "--pair means nothing", 2),
        (["--endpoint", "http://127.0.0.1:1", "--draft-max", "3"], "--draft-max means nothing", 2),
        (["--endpoint", "http://127.0.0.1:1", "--report", "x.svg"], "--report shows a comparison", 2),
        (["--endpoint-baseline", "http://127.0.0.1:1"], "are for servers", 2),
    ],
)
def test_what_cannot_be(bench, arguments, named, code):
    message, _ = failure(bench(*arguments), code)
    assert named in message
