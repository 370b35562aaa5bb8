"""The real executable, its streams as bytes."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect

EXECUTABLE = Path(sys.executable).with_name("specgguf")
STEADY = ("-t", "1", "--cache-type-k", "bf16", "--cache-type-v", "bf16")
"""With these, a model of tests/tiny.py answers the same whatever is drafted."""


def environment(**changes):
    """This process's, without what would change a test's meaning; None removes a variable."""
    changes = {"SPECGGUF_SPECULATE": None, "NO_COLOR": None, **changes}
    result = {**os.environ, **{name: str(value) for name, value in changes.items() if value is not None}}
    return {name: value for name, value in result.items() if changes.get(name, "") is not None}


def specgguf(*arguments, stdin=b"", timeout=120, **variables):
    """Run it to its end."""
    command = [str(EXECUTABLE), *map(str, arguments)]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=timeout, env=environment(**variables), check=False
    )


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


def on_terminal(*arguments, **variables):
    """What a terminal shows, and the exit code."""
    child = pexpect.spawn(
        str(EXECUTABLE), [*map(str, arguments)], env=environment(TERM="xterm-256color", **variables), timeout=60
    )
    shown = child.read()
    child.close()
    return shown, child.exitstatus


def failure(result, code=1):
    """The two lines of a failure, after checking that there is nothing else."""
    lines = result.stderr.decode().splitlines()
    assert result.returncode == code, result
    assert result.stdout == b""
    assert len(lines) == 2, lines
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("hint: ")
