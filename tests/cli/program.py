"""The real executable, its streams as bytes."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import pexpect

from specgguf.cli.app import main
from tests.tiny import write_attention

EXECUTABLE = Path(sys.executable).with_name("specgguf")
STEADY = ("-t", "1", "--cache-type-k", "bf16", "--cache-type-v", "bf16")
"""With these, a model of tests/tiny.py answers the same whatever is drafted."""


def environment(**changes):
    """This process's, without what would change a test's meaning; None removes a variable."""
    # Nearly all of a test's time goes into starting: a third less of it with compiled modules, without numpy's threads.
    quicker = {"PYTHONDONTWRITEBYTECODE": None, "OPENBLAS_NUM_THREADS": 1}
    changes = {"SPECGGUF_SPECULATE": None, "NO_COLOR": None, **quicker, **changes}
    result = {**os.environ, **{name: str(value) for name, value in changes.items() if value is not None}}
    return {name: value for name, value in result.items() if changes.get(name, "") is not None}


def specgguf(*arguments, stdin=b"", timeout=120, **variables):
    """Run it to its end."""
    command = [str(EXECUTABLE), *map(str, arguments)]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=timeout, env=environment(**variables), check=False
    )


def here(*arguments, stdin=b"", **variables):
    """It in this process, which is quicker: for what ends before a model is loaded."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        streams = dict(zip(("stdin", "stdout", "stderr"), map(io.TextIOWrapper, files), strict=True))
        stack.enter_context(mock.patch.multiple(sys, argv=["specgguf", *map(str, arguments)], **streams))
        stack.enter_context(mock.patch.dict(os.environ, environment(**variables), clear=True))
        try:
            main()
        except SystemExit as end:
            code = end.code
        for stream in streams.values():
            stream.flush()
        said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in files[1:]]
    return subprocess.CompletedProcess(arguments, code, *said)


@contextlib.contextmanager
def started(*arguments, **variables):
    """It while it runs, with pipes as its streams; killed if the test leaves it behind."""
    process = subprocess.Popen(
        [str(EXECUTABLE), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment(**variables),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_handlers(process, timeout_s=60):
    """Wait until it catches SIGTERM: from then on it ends by our rules, not by Python's."""
    status, end = Path(f"/proc/{process.pid}/status"), time.monotonic() + timeout_s
    while not int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16) >> (signal.SIGTERM - 1) & 1:
        assert process.poll() is None, "it ended"
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def wait_for_log(process, text):
    """Read what is said on stderr, with -v, up to a line with that text."""
    while text not in (line := process.stderr.readline()):
        assert line, "it ended"


def on_terminal(*arguments, columns=80, **variables):
    """What a terminal shows, and the exit code."""
    child = pexpect.spawn(
        str(EXECUTABLE),
        [*map(str, arguments)],
        env=environment(**{"TERM": "xterm-256color", "COLUMNS": None, **variables}),
        timeout=120,
        dimensions=(24, columns),
    )
    shown = child.read()
    child.close()
    return shown, child.exitstatus


def saying(path, pieces, template, words=(), controls=()):
    """Options with which a model says these tokens, one after the other: each is said but once, the likeliest first.

    A piece is one of the words or control tokens, or a letter that the template does not write.
    """
    write_attention(path, words=words, controls=controls, template=template)
    ids = {piece: 259 + number for number, piece in enumerate([*words, *controls])}
    seen = {piece: 200 * (piece in controls and piece in template) for piece in pieces}  # in the prompt
    bias = {ids.get(piece, 3 + ord(piece[0])): 1000 - 20 * place + seen[piece] for place, piece in enumerate(pieces)}
    biases = [part for token, value in bias.items() for part in ("--logit-bias", f"{token}={value}")]
    penalties = ["--presence-penalty", 100, "--frequency-penalty", 100]
    return ["-m", path, "-d", "none", *STEADY, "-n", len(pieces), *penalties, *biases]


def failure(result, code=1):
    """The two lines of a failure, after checking that there is nothing else."""
    lines = result.stderr.decode().splitlines()
    assert result.returncode == code, result
    assert result.stdout == b""
    assert len(lines) == 2, lines
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("hint: ")
