"""stdin, stdout and stderr in every state in which shells and other programs hand them over."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.program import EXECUTABLE, environment, failure, specgguf

SCRIPTS = Path(__file__).parents[2] / "scripts"
FULL = [
    *([name, ">/dev/full"] for name in ("--help", "run --help", "--version", "--show-completion", "pairs", "config")),
    *([name, ">&-"] for name in ("--help", "run --help", "pairs")),
]
ANSWER = [[form, redirect] for form in ("", "--json", "--jsonl") for redirect in (">/dev/full", ">&-")]
NO_STDERR = ["2>/dev/full", "2>&-", "2> >(true)"]


@pytest.fixture
def model(toy_models):
    return f"-m {toy_models['endless']} --speculate off"


def shell(line, stdin=b"", **variables):
    """What bash makes of specgguf's arguments and redirections."""
    line = f"{EXECUTABLE} {line}"
    return subprocess.run(
        ["bash", "-c", line], input=stdin, capture_output=True, env=environment(**variables), timeout=120, check=False
    )


@contextmanager
def pipe(size=4096):
    """Both ends of a pipe that holds little; what reads or writes here waits, whatever the other end does."""
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, size)
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def run_nonblocking(*arguments, stdin=subprocess.DEVNULL, **variables):
    """What a slow reader gets of a stdout that does not wait for it, and the exit code."""
    with pipe() as (read, write):
        os.set_blocking(write, False)
        process = subprocess.Popen(
            [EXECUTABLE, *arguments], stdin=stdin, stdout=write, stderr=subprocess.PIPE, env=environment(**variables)
        )
        os.close(write)
        found = b""
        while part := os.read(read, 1000):
            found += part
            time.sleep(0.0005)
        error = process.stderr.read()
        process.communicate()
        return found, process.wait(), error


@pytest.mark.parametrize(("command", "redirect"), FULL)
def test_what_cannot_be_printed_is_an_error(command, redirect):
    message, hint = failure(shell(f"{command} {redirect}"))
    reason = "No space left on device" if "full" in redirect else "it is closed"
    assert message == f"cannot write to stdout: {reason}"
    assert "redirected" in hint


@pytest.mark.parametrize(("form", "redirect"), ANSWER)
def test_an_answer_that_cannot_be_written_is_an_error(model, form, redirect):
    assert failure(shell(f"run {model} -n 3 {form} hi {redirect}"))[0].startswith("cannot write to stdout: ")


@pytest.mark.parametrize("redirect", NO_STDERR)
def test_a_stderr_that_takes_nothing_changes_neither_answer_nor_exit_code(model, redirect):
    told = shell(f"run {model} -n 3 -v --stats 'the cat'")
    assert told.stderr
    result = shell(f"run {model} -n 3 -v --stats 'the cat' {redirect}")
    assert (result.returncode, result.stdout, result.stderr) == (0, told.stdout, b"")
    assert shell(f"run -n none hi {redirect}").returncode == 2
    assert shell(f"run -p no-such-pair hi {redirect}").returncode == 1
    assert shell(f"--help >/dev/full {redirect}").returncode == 1


@pytest.mark.parametrize("unbuffered", [None, "1"])
def test_every_byte_reaches_a_slow_reader_of_a_stdout_that_does_not_wait(toy_models, tmp_path, unbuffered):
    # Lines that cannot be answered are objects at once: 300,000 bytes of them.
    num_lines = 4000
    (tmp_path / "lines").write_bytes(b"a\0b\n" * num_lines)
    arguments = ["run", "--lines", "-m", toy_models["target"], "--speculate", "off"]
    with open(tmp_path / "lines", "rb") as lines:
        found, code, error = run_nonblocking(*arguments, stdin=lines, PYTHONUNBUFFERED=unbuffered)
    assert [json.loads(line)["line"] for line in found.splitlines()] == list(range(1, num_lines + 1))
    assert code == 1
    assert error.startswith(f"error: lines without an answer: {num_lines}\n".encode())
    found, code, _ = run_nonblocking("run", "--help", PYTHONUNBUFFERED=unbuffered)
    assert (found, code) == (specgguf("run", "--help").stdout, 0)


@pytest.mark.parametrize("blocking", [True, False])
def test_ctrl_c_while_the_reader_is_slow_loses_and_doubles_nothing(toy_models, blocking):
    model = ["-m", toy_models["endless"], "--speculate", "off", "-c", "100000"]
    with pipe() as (read, write):
        os.set_blocking(write, blocking)
        process = subprocess.Popen(
            [EXECUTABLE, "run", *model, "--jsonl", "the cat"],
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        os.close(write)
        number, before = bytearray(4), -1
        while (now := int.from_bytes(number, "little")) != before or not now:  # until no more fits
            before = now
            time.sleep(0.3)
            fcntl.ioctl(read, termios.FIONREAD, number)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        with open(read, closefd=False) as reader:
            *pieces, last = map(json.loads, reader)
        assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 130
    assert "".join(piece["text"] for piece in pieces) == last["text"]
    assert last["finish_reason"] == "interrupted"


def test_a_second_ctrl_c_ends_it_though_nobody_reads(toy_models):
    model = ["-m", toy_models["endless"], "--speculate", "off", "-c", "100000"]
    with pipe() as (_, write):
        process = subprocess.Popen(
            [EXECUTABLE, "run", *model, "the cat"], stdin=subprocess.DEVNULL, stdout=write, env=environment()
        )
        time.sleep(3)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
    assert process.returncode == 130


@pytest.mark.parametrize("redirect", ["0>/dev/null", "0<&-"])
def test_a_stdin_that_cannot_be_read_counts_as_none(model, redirect):
    plain = shell(f"run {model} -n 3 'the cat'").stdout
    result = shell(f"run {model} -n 3 'the cat' {redirect}")
    assert (result.returncode, result.stdout, result.stderr) == (0, plain, b"")
    assert failure(shell(f"run --lines {model} {redirect}"), code=2)[0] == "--lines: nothing is piped in"
    assert failure(shell(f"run {model} {redirect}"), code=2)[0] == "no prompt"
    result = shell(f"chat {model} {redirect}")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_a_stdin_that_fails_is_an_error(toy_models):
    stdin, other = socket.socketpair()
    with stdin:
        stdin.send(b"what the other end closes without having read")
        other.close()
        command = [EXECUTABLE, "run", "-m", toy_models["target"]]
        result = subprocess.run(command, stdin=stdin, capture_output=True, env=environment(), timeout=60, check=False)
    message, hint = failure(result)
    assert message == "cannot read stdin: Connection reset by peer"
    assert "redirected" in hint


@pytest.mark.parametrize("command", [["run", "--json"], ["run", "--lines"], ["chat", "--temp", "0"]])
def test_all_of_a_stdin_that_does_not_wait_is_read(toy_models, command):
    arguments = [*command, "-m", toy_models["target"], "--speculate", "off", "-n", "3", "-t", "1"]
    text = b"a cat\n" + b"a dog and " * 30 + b"\n"
    expected = specgguf(*arguments, stdin=text)
    with pipe() as (read, write):
        os.set_blocking(read, False)

        def write_slowly():
            for part in (text[:100], text[100:200], text[200:]):
                time.sleep(0.5)
                os.write(write, part)
            os.close(write)

        writer = threading.Thread(target=write_slowly)
        writer.start()
        result = subprocess.run(
            [EXECUTABLE, *arguments], stdin=read, capture_output=True, env=environment(), timeout=60, check=False
        )
        writer.join()

    def said(output):
        texts = [json.loads(line) for line in output.splitlines()] if command[0] == "run" else output
        return [(entry["prompt_tokens"], entry["text"]) for entry in texts] if command[0] == "run" else output

    assert expected.returncode == 0
    assert (result.returncode, said(result.stdout)) == (0, said(expected.stdout))


@pytest.mark.parametrize(("piped", "kept"), [("xy\n", "xy"), ("xy\r\n", "xy"), ("x\r\ny\r\n\r\n", "x\r\ny\r\n")])
def test_one_line_end_of_what_is_piped_in_goes_of_either_kind(toy_models, piped, kept):
    arguments = ["run", "-m", toy_models["target"], "--speculate", "off", "-n", 1, "--json"]
    tokens = [
        json.loads(result.stdout)["prompt_tokens"]
        for result in (specgguf(*arguments, stdin=piped.encode()), specgguf(*arguments, kept))
    ]
    assert tokens[0] == tokens[1]


def test_a_note_says_how_much_of_stdin_joined_the_prompt(model, tmp_path):
    (tmp_path / "file").write_text("one\ntwo\nthree\n")
    loop = f'while read -r line; do {EXECUTABLE} run {model} -n 1 "$line"; done < {tmp_path / "file"}'
    result = subprocess.run(["bash", "-c", loop], capture_output=True, env=environment(), timeout=60, check=False)
    assert result.stderr == b"note: 2 lines of stdin were added to PROMPT\n"
    assert shell(f"run {model} -n 1 hi", stdin=b"x").stderr == b"note: 1 line of stdin was added to PROMPT\n"
    assert shell(f"run {model} -n 1", stdin=b"x\ny\n").stderr == b""


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_character_that_is_cut_is_left_out(toy_models, tmp_path, form):
    grammar = tmp_path / "emoji.gbnf"
    grammar.write_text('root ::= "n🙂"\n')
    result = shell(f"run -m {toy_models['target']} --speculate off --grammar {grammar} {form} -n 3 hi")
    text = json.loads(result.stdout)["text"] if form else result.stdout.decode()
    assert text == "n"


def test_whoever_reads_a_script_may_stop():
    """`scripts/bench-prompts | head` says nothing."""
    command = [SCRIPTS / "bench-prompts", "--many", "50", "--behind", "24000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == -signal.SIGPIPE


@pytest.mark.parametrize("path", sorted(SCRIPTS.iterdir()), ids=lambda path: path.name)
def test_every_script_ends_when_nobody_reads(path):
    text = path.read_text() if path.is_file() else ""
    assert text.count("__main__") == text.count("signal.signal(signal.SIGPIPE, signal.SIG_DFL)")


@pytest.mark.parametrize("module", ["specgguf.errors", "specgguf.cli.app", "typer"])
def test_ctrl_c_while_it_is_being_imported_is_no_error(module):
    program = f"""
import sys
class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from specgguf.__main__ import main
main()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (130, b"")


def test_the_package_itself_imports_nothing():
    """Where it did, Ctrl-C would not be caught yet."""
    program = "import sys; before = set(sys.modules); import specgguf; print(*set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert result.stdout.split() == [b"specgguf"]
