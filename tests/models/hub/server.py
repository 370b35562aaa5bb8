"""A hub on this machine that can misbehave."""

import hashlib
import json
import mmap
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = 1 << 16
REPO, REVISION = "toy/toy-GGUF", "0" * 40


class Hub:
    """Serves `content` as /REPO/resolve/REVISION/PATH. `requests` lists (method, Range header)."""

    def __init__(self, content: bytes):
        self.content = content
        self.files: dict[str, bytes] = {}
        """Files that the API lists, by path; any other path has `content`."""
        self.elsewhere: dict[str, bytes | mmap.mmap] = {}
        """Content by the path of a URL, for other repositories than the toy one."""
        self.requests: list[tuple[str, str | None]] = []
        self.status: int | None = None
        """Answer everything with this status."""
        self.cut_after: int | None = None
        """Break the connection off after so many bytes of every answer."""
        self.hang_after: int | None = None
        """Fall silent after so many bytes."""
        self.ranges = True
        self.first_statuses: list[int] = []
        """Answer the first requests with these."""
        self.retry_after = ""
        self.api_answer: bytes | None = None
        """What the API answers instead."""
        self.code = ""
        """The X-Error-Code of refusals, by which the hub's library tells them apart."""
        self.tokens: list[str | None] = []
        """The Authorization header of every request for a file."""
        self.bytes_sent = 0
        self.models: list[str] = []
        """Names of repositories that the API lists."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                hub.requests.append(("HEAD", None))
                self.answer(body=False)

            def do_GET(self):
                if not self.path.startswith("/api/"):
                    hub.requests.append(("GET", self.headers.get("Range")))
                    hub.tokens.append(self.headers.get("Authorization"))
                self.answer(body=True)

            def answer_api(self):
                """What huggingface_hub asks to learn a repository's commit and files."""
                entries = [
                    {
                        "type": "file",
                        "path": path,
                        "size": len(content),
                        "oid": "1" * 40,
                        "lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 9},
                    }
                    for path, content in hub.files.items()
                ]
                siblings = [{"rfilename": path} for path in hub.files]
                answer = entries if "/tree/" in self.path else {"id": REPO, "sha": REVISION, "siblings": siblings}
                if self.path.startswith("/api/models?"):
                    answer = [{"id": name} for name in hub.models]
                data = hub.api_answer or json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def answer(self, body):
                status = hub.first_statuses.pop(0) if hub.first_statuses else hub.status
                known = self.path.startswith((f"/api/models/{REPO}", "/api/models?"))
                if known and (not status or hub.code == "EntryNotFound"):
                    self.answer_api()
                    return
                name = self.path.rpartition(f"/{REPO}/resolve/{REVISION}/")[2]
                content = hub.elsewhere.get(self.path) or hub.files.get(name, hub.content)
                here = self.path.startswith(f"/{REPO}/resolve/{REVISION}/") or self.path in hub.elsewhere
                if status or not here:
                    self.send_response(status or 404)
                    self.send_header("X-Error-Code", hub.code)
                    if hub.retry_after:
                        self.send_header("Retry-After", hub.retry_after)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                start = 0
                stop = None
                if hub.ranges and (wanted := self.headers.get("Range")):
                    first, last = wanted.removeprefix("bytes=").split("-")
                    start, stop = int(first), int(last) + 1 if last else None
                if start > len(content):
                    self.send_response(416)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                part = memoryview(content)[start:stop]
                self.send_response(206 if start or stop else 200)
                if start or stop:
                    self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(content)}")
                self.send_header("X-Repo-Commit", REVISION)
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                if body:
                    sent = part[: hub.hang_after or hub.cut_after]
                    for at in range(0, len(sent), BLOCK):
                        self.wfile.write(sent[at : at + BLOCK])
                        hub.bytes_sent += BLOCK
                    while hub.hang_after:
                        time.sleep(0.05)
                    self.close_connection = hub.cut_after is not None

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
