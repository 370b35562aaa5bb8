"""`specgguf run --lines`: every line of stdin is a prompt of its own."""

import json
import signal
import subprocess
import time

import pexpect
import pytest

from tests.cli.program import EXECUTABLE, STEADY, environment, failure, specgguf, started, wait_for_log

LINES = ["a cat", "a dog on the mat", "the mat, and a cat"]


@pytest.fixture
def pair(toy_models):
    return ["-m", toy_models["endless"], "-d", toy_models["draft"], "--speculate", "fixed", "-n", 12, *STEADY]


def answers(*arguments, stdin, code=0):
    result = specgguf("run", "--lines", *arguments, stdin=stdin)
    assert result.returncode == code, result.stderr
    return [json.loads(line) for line in result.stdout.decode().splitlines()]


def alone(*arguments):
    return json.loads(specgguf("run", "--json", *arguments).stdout)


def test_every_line_is_answered_as_if_it_were_alone(pair):
    stdin = f"\ufeff{LINES[0]}\n\n{LINES[1]}\r\n  \n{LINES[2]}".encode()
    found = answers(*pair, "the cat", stdin=stdin)
    assert [entry["line"] for entry in found] == [1, 3, 5]
    for line, entry in zip(LINES, found, strict=True):
        expected = alone(*pair, f"the cat\n\n{line}")
        assert list(entry) == ["line", *expected]
        assert [entry[name] for name in ("text", "tokens", "seed")] == [
            expected[name] for name in ("text", "tokens", "seed")
        ]
    assert [entry["cached_tokens"] > 0 for entry in found] == [False, True, True]


def test_without_a_prompt_and_raw(pair):
    (found,) = answers(*pair, "--raw", stdin=b"the cat\n")
    assert found["tokens"] == alone(*pair, "--raw", "the cat")["tokens"]


def test_the_shared_beginning_stays_cached(pair):
    shared = len("▁user:▁the▁cat\n\n".encode()) + 1
    for entry in answers(*pair, "the cat", stdin=b"xy\nz\nyyy\n")[1:]:
        assert entry["cached_tokens"] == shared


def test_bad_lines_do_not_end_it(pair):
    stdin = b"a cat\ncaf\xe9\n" + b"x" * 300 + b"\na\0b\na dog"
    result = specgguf("run", "--lines", *pair, "-c", 128, stdin=stdin)
    found = [json.loads(line) for line in result.stdout.decode().splitlines()]
    assert [entry["line"] for entry in found] == [1, 2, 3, 4, 5]
    assert [entry.get("error") for entry in found] == [
        None,
        "line 2 is not UTF-8 text (byte 3)",
        "the prompt has 323 tokens, the context 128",
        "line 4 is binary data",
        None,
    ]
    assert all(list(entry) == ["line", "error", "hint"] for entry in found[1:4])
    assert found[4]["tokens"] == alone(*pair, "-c", 128, "a dog")["tokens"]
    assert result.returncode == 1
    assert result.stderr.startswith(b"error: lines without an answer: 3\nhint: ")


def test_a_line_longer_than_those_before_it(toy_models):
    # Without --ctx the first line gets a context of 4096 tokens.
    model = ["-m", toy_models["endless"], "-d", toy_models["endless"], "--speculate", "fixed", "-n", 8, *STEADY]
    long = "x" * 4200
    found = answers(*model, stdin=f"a cat\n{long}\na dog\n".encode())
    assert [entry["tokens"] for entry in found[1:]] == [alone(*model, text)["tokens"] for text in (long, "a dog")]


def test_an_answer_is_written_before_the_next_line_is_awaited(pair):
    with started("run", "--lines", *pair) as process:
        for number, line in enumerate(LINES, 1):
            process.stdin.write(f"{line}\n".encode())
            assert json.loads(process.stdout.readline())["line"] == number
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""
        process.stdin = None


def test_lines_that_are_done_can_be_skipped(pair):
    stdin = "\n".join(LINES).encode()
    whole, rest = answers(*pair, stdin=stdin), answers(*pair, "--skip", 2, stdin=stdin)
    assert [(entry["line"], entry["tokens"]) for entry in rest] == [(3, whole[2]["tokens"])]
    assert answers(*pair, "--skip", 9, stdin=stdin) == []
    failure(specgguf("run", *pair, "--lines", "--skip", 10**20, stdin=stdin), code=2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("done", [0, 1])
def test_an_interruption_says_where_to_go_on(toy_models, number, code, done):
    options = ["-n", 3] if done else ["-c", 100_000, "-v"]
    with started("run", "--lines", "-m", toy_models["endless"], "--speculate", "off", *options) as process:
        process.stdin.write(b"a cat\n")
        if done:
            assert process.stdout.readline()
            time.sleep(0.2)  # until it waits for the second line
        else:
            wait_for_log(process, b"llama_context")  # in the midst of the first
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, b"")
    note = f"note: ended after line {done}; --skip {done} goes on from there"
    assert err.decode().splitlines().count(note) == 1
    assert done == 0 or len(err.splitlines()) == 1


MANY = [f"{'a cat on the mat, ' * (number % 5)}and a dog {number}" for number in range(1, 25)]


def test_many_at_a_time_say_what_each_says_alone_in_the_order_of_the_lines(pair):
    stdin = "\n".join(MANY).encode()
    usual = [option for option in pair if option not in ("--speculate", "fixed")]
    one_by_one = answers(*usual, "--parallel", 1, stdin=stdin)
    for mode in ("auto", "fixed", "off"):
        for parallel in (3, "auto"):
            found = answers(*usual, "--speculate", mode, "--parallel", parallel, stdin=stdin)
            assert [entry["line"] for entry in found] == list(range(1, 25))
            assert [entry["tokens"] for entry in found] == [entry["tokens"] for entry in one_by_one]


def test_exact_at_any_temperature_whatever_runs_beside_it(toy_models):
    model = ["-m", toy_models["endless"], "--exact", "-n", 12, "-t", 1, "--temp", 1, "--seed", 5]
    stdin = "\n".join(MANY).encode()
    found = [answers(*model, "--parallel", parallel, stdin=stdin) for parallel in (1, 4, "auto")]
    texts = [[entry["tokens"] for entry in each] for each in found]
    assert texts[0] == texts[1] == texts[2]
    assert all(entry["exact"] for each in found for entry in each)


def test_unordered_answers_come_as_they_end(pair):
    # The second prompt takes many rounds to read; the first makes room for such.
    stdin = "\n".join(["y" * 1900, "x" * 1900, "a dog", "a mat"]).encode()
    whole = answers(*pair, "--parallel", 3, stdin=stdin)
    found = answers(*pair, "--parallel", 3, "--unordered", stdin=stdin)
    assert [entry["line"] for entry in found] == [1, 3, 4, 2]
    assert {entry["line"]: entry["tokens"] for entry in found} == {entry["line"]: entry["tokens"] for entry in whole}


def test_bad_lines_among_many_leave_the_others_alone(pair):
    good = answers(*pair, "-c", 256, "--parallel", 4, stdin="\n".join(MANY).encode())
    lines = [line.encode() for line in MANY]
    for number, bad in ((3, b"caf\xe9"), (4, b"x" * 700), (9, b"a\0b"), (10, b"   ")):
        lines[number] = bad
    found = answers(*pair, "-c", 256, "--parallel", 4, stdin=b"\n".join(lines), code=1)
    assert [entry["line"] for entry in found if "error" in entry] == [4, 5, 10]
    assert 11 not in [entry["line"] for entry in found]
    expected = {entry["line"]: entry["tokens"] for entry in good}
    assert all(entry["tokens"] == expected[entry["line"]] for entry in found if "error" not in entry)


def test_killed_in_the_middle_nothing_is_lost_or_doubled(pair, tmp_path):
    (tmp_path / "in").write_text("\n".join(MANY))
    command = [str(EXECUTABLE), "run", "--lines", *map(str, pair), "--parallel", "4"]
    with (tmp_path / "in").open() as stdin, (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(command, stdin=stdin, stdout=out, env=environment())
        while (tmp_path / "out").read_bytes().count(b"\n") < 3 and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        process.wait()
    begun = (tmp_path / "out").read_bytes()
    assert begun == b"" or begun.endswith(b"\n")
    done = [json.loads(line) for line in begun.splitlines()]
    rest = answers(*pair, "--parallel", 4, "--skip", len(done), stdin="\n".join(MANY).encode())
    assert [entry["line"] for entry in [*done, *rest]] == list(range(1, 25))


def test_an_interruption_among_many_says_where_to_go_on(toy_models):
    options = ["-m", toy_models["endless"], "--speculate", "off", "--parallel", 2]
    with started("run", "--lines", *options, "-n", 40_000, "-c", 100_000) as process:
        process.stdin.write(b"a cat\na dog\n")
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"note: ended after line 0; --skip 0 goes on from there" in err


def test_seeds(pair):
    warm = [*pair, "--temp", 1]
    one, two = answers(*warm, stdin=b"a cat\na cat\n")
    assert one["seed"] != two["seed"]
    one, two = answers(*warm, "--seed", 5, stdin=b"a cat\na cat\n")
    assert one["tokens"] == two["tokens"] == alone(*warm, "--seed", 5, "a cat")["tokens"]


def test_a_reader_that_leaves(pair):
    models = " ".join(map(str, pair))
    line = f"yes cat | {EXECUTABLE} run --lines {models} | head -2 | wc -l; exit ${{PIPESTATUS[1]}}"
    result = subprocess.run(["bash", "-c", line], capture_output=True, env=environment(), timeout=60, check=False)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, b"2", b"")


def test_progress_is_for_a_terminal_that_does_not_show_the_answers(pair, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES))
    command = f"{EXECUTABLE} run --lines {' '.join(map(str, pair))} <{tmp_path / 'in'}"
    shown = {}
    for where in (f">{tmp_path / 'out'}", ""):
        child = pexpect.spawn("bash", ["-c", f"{command} {where}"], env=environment(TERM="xterm"), timeout=60)
        shown[where] = child.read().decode()
        child.close()
        assert child.exitstatus == 0
    assert "line 3" in shown[f">{tmp_path / 'out'}"]
    assert len((tmp_path / "out").read_text().splitlines()) == 3
    assert [json.loads(line)["line"] for line in shown[""].splitlines()] == [1, 2, 3]


def test_what_cannot_be_asked_for(pair):
    for option in (("--parallel", 2), ("--unordered",)):
        assert option[0] in failure(specgguf("run", *pair, *option, "hi"), code=2)[0]
    for count in (0, 65, "many"):
        message, _ = failure(specgguf("run", *pair, "--lines", "--parallel", count, stdin=b"hi"), code=2)
        assert message == "--parallel must be a whole number, 1 to 64, or auto"
    assert "--skip" in failure(specgguf("run", *pair, "--skip", 1, "hi"), code=2)[0]
    assert "--jsonl" in failure(specgguf("run", *pair, "--lines", "--jsonl", stdin=b"hi"), code=2)[0]
    assert "trained with" in failure(specgguf("run", *pair, "--lines", "-c", 200_000, stdin=b"hi"), code=2)[0]
    child = pexpect.spawn(str(EXECUTABLE), ["run", "--lines"], env=environment(NO_COLOR="1"), timeout=60)
    assert b"nothing is piped in" in child.read()
    child.close()
    assert child.exitstatus == 2


@pytest.mark.parametrize("stdin", [b"", b"\n", b" \n\r\n\n"])
def test_nothing_to_answer(pair, stdin):
    result = specgguf("run", "--lines", *pair, "the cat", stdin=stdin)
    assert (result.returncode, result.stdout) == (0, b"")
    assert result.stderr == b"note: there was nothing to answer on stdin\n"
    skipped = specgguf("run", "--lines", "--skip", 9, *pair, stdin=b"the cat\n")
    assert (skipped.returncode, skipped.stdout) == (0, b"")
    assert skipped.stderr == b"note: there was nothing to answer after line 9\n"
