"""The rows that `run`, `run --lines` and `chat` leave in the journal, and what guards make of them."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from tests import tiny
from tests.cli.program import EXECUTABLE, STEADY, environment, failure, here, specgguf, started


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def pair(toy_models):
    return ["-m", toy_models["endless"], "-d", toy_models["draft"], *STEADY]


@pytest.fixture
def ask(state, tmp_path):
    def ask(*arguments, code=0, **options):
        result = specgguf(*arguments, XDG_STATE_HOME=state, **options)
        assert result.returncode == code, result
        return result

    return ask


@pytest.fixture
def write_config(tmp_path):
    """Write a config.toml; the variable that leads to it."""

    def write_config(text):
        path = tmp_path / "config" / "specgguf" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"threads = 1\n{text}")
        return {"XDG_CONFIG_HOME": tmp_path / "config"}

    return write_config


def rows(state):
    """All that is known of each answer, oldest first."""
    database = sqlite3.connect(state / "specgguf" / "journal.db")
    database.row_factory = sqlite3.Row
    try:
        found = database.execute("SELECT * FROM answers JOIN details USING (id) LEFT JOIN texts USING (id) ORDER BY id")
        return [dict(one) for one in found]
    finally:
        database.close()


def test_an_answer_has_a_row(ask, pair, state):
    result = ask("run", *pair, "-n", 90, "-k", 3, "--speculate", "fixed", "--json", "a secret of mine")
    (found,), said = rows(state), json.loads(result.stdout)
    assert result.stderr == b""
    assert (found["route"], found["mode"], found["texts"]) == ("run", "fixed", 1)
    assert (found["target"], found["draft"]) == (said["target"]["name"], said["draft"]["name"])
    assert len({found["target_fingerprint"], found["draft_fingerprint"]}) == 2
    for name in ("prompt_tokens", "cached_tokens", "output_tokens", "finish_reason"):
        assert found[name] == said[name]
    for name in ("rounds", "drafted", "accepted"):
        assert found[name] == said["speculation"][name]
    for name in ("prefill_s", "first_token_s", "decode_s", "tokens_per_s"):
        assert found[name] == said["timings"][name]
    assert found["last_token_s"] == found["first_token_s"] + found["decode_s"]
    assert json.loads(found["settings"])["draft_max"] == 3
    first, rest = (json.loads(found["counters"])[part]["model"] for part in ("first", "rest"))
    assert sum(first["drafted"]) + sum(rest["drafted"]) == found["drafted"]
    assert sum(first["accepted"]) + sum(rest["accepted"]) == found["accepted"]
    assert len(first["drafted"]) == len(rest["accepted"]) == 3
    assert sum(first["drafted"]) > sum(rest["drafted"]) > 0  # fifty tokens, and forty
    assert (found["prompt"], found["answer"]) == (None, None)
    for folder, _, names in os.walk(state):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert b"secret" not in file.read()


def test_texts_are_kept_on_request(ask, pair, state):
    text = ask("run", *pair, "-n", 5, "--journal-text", "xyzzy").stdout.decode()
    (found,) = rows(state)
    assert "xyzzy" in found["prompt"]
    assert found["answer"] == text


@pytest.mark.parametrize("how", ["option", "file"])
def test_nothing_is_kept_where_none_is_wanted(ask, pair, state, write_config, how):
    variables = write_config("journal = false\n") if how == "file" else {}
    ask("run", *pair, "-n", 5, *(["--no-journal"] if how == "option" else []), "hi", **variables)
    assert not state.exists()


def test_every_line_has_a_row_whenever_it_ends(ask, pair, state):
    result = ask("run", "--lines", "--parallel", 3, "--route", "many", *pair, "-n", 6, stdin=b"a\nb\nc\nd\n")
    found, said = rows(state), [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(one["prompt_tokens"] for one in found) == sorted(one["prompt_tokens"] for one in said)
    assert [one["route"] for one in found] == ["many"] * 4
    assert {one["texts"] for one in found} <= {1, 2, 3}
    assert max(one["texts"] for one in found) > 1


def test_every_turn_of_a_chat_has_a_row(ask, pair, state):
    ask("chat", *pair, "-n", 4, "--temp", 0, stdin=b"hi\n/speculate off\nho\n")
    assert [(one["route"], one["output_tokens"], one["mode"]) for one in rows(state)] == [
        ("chat", 4, "auto"),
        ("chat", 4, "off"),
    ]


def test_an_answer_that_is_interrupted_has_a_row_too(toy_models, state):
    options = ["--speculate", "off", "-c", 100_000, "hi"]
    with started("run", "-m", toy_models["endless"], *options, XDG_STATE_HOME=state) as process:
        process.stdin.close()
        assert process.stdout.read(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
        process.stdin = None
    (found,) = rows(state)
    assert (found["finish_reason"], found["output_tokens"] > 0) == ("interrupted", True)


def test_and_one_that_nobody_reads_to_its_end(toy_models, state):
    options = ["--speculate", "off", "-c", 100_000, "hi"]
    with started("run", "-m", toy_models["endless"], *options, XDG_STATE_HOME=state) as process:
        process.stdin.close()
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        process.stdin = process.stdout = None
    (found,) = rows(state)
    assert found["finish_reason"] == "interrupted"


def test_where_there_is_no_answer_there_is_no_row(ask, pair, state):
    ask("run", *pair, "-c", 64, "x" * 100, code=1)
    ask("run", "--lines", *pair, "-c", 64, stdin=b"x" * 100, code=1)
    assert not state.exists()


@pytest.mark.parametrize("damage", ["text", "folder", "file"])
def test_a_journal_that_cannot_be_used_costs_no_answer(ask, pair, state, damage):
    place = state / "specgguf" / "journal.db"
    if damage == "file":
        state.write_text("")
    else:
        place.parent.mkdir(parents=True)
        place.mkdir() if damage == "folder" else place.write_text("my notes" * 100)
    result = ask("run", "--lines", *pair, "-n", 5, stdin=b"a\nb\n")
    assert [json.loads(line)["output_tokens"] for line in result.stdout.splitlines()] == [5, 5]
    assert result.stderr.count(b"\n") == 1
    assert result.stderr.startswith(b"note: no row for this answer: ")
    assert b"--no-journal" in result.stderr
    assert str(place).encode() in result.stderr


def in_own_mounts(*commands):
    """A shell command where what is mounted is seen by nobody else, and ends with it."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", " && ".join(commands)]


@pytest.mark.parametrize("size", ["4k", "16k", "40k", "ro"])
def test_neither_does_a_disk_that_is_full_or_read_only(pair, state, size):
    place = state / "specgguf"
    place.mkdir(parents=True)
    mount = f'mount -t tmpfs -o {"ro" if size == "ro" else f"size={size}"} none "{place}"'
    if not shutil.which("unshare") or subprocess.run(in_own_mounts(mount), capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount anything")
    command = in_own_mounts(mount, '"$0" "$@"')
    arguments = ["run", *map(str, pair), "-n", "500", "--journal-text", "hi " * 500]
    result = subprocess.run(
        [*command, EXECUTABLE, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(XDG_STATE_HOME=state),
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result
    assert len(result.stdout) > 500
    assert result.stderr.count(b"\n") == 1
    assert result.stderr.startswith(b"note: no row for this answer: cannot use the journal")


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("stats", "--help"), ("pairs",)])
def test_sqlite_is_not_loaded_for_what_needs_no_journal(arguments):
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "specgguf", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    assert b"typer" in result.stderr
    assert b"sqlite3" not in result.stderr


def test_a_route_has_a_name():
    assert failure(here("run", "--route", "", "hi"), code=2)[0] == "--route is empty"
    assert failure(here("run", "--route", os.fsdecode(b"caf\xe9"), "hi"), code=2)[0] == "--route is not UTF-8 text"


LOSING = ("--speculate", "fixed", "-k", 16, "-n", 40, "--json", "the cat")
"""With a draft of random weights, as large as the target: sixteen steps for hardly more than a token."""
WINDOW = 10
GUARD = f"[guard]\nmin_speed = 0.98\nwindow = {WINDOW}\n"
TRIPPED = b"its guard switches drafting off"


def test_a_route_that_loses_is_switched_off_until_it_is_reset(ask, pair, state, write_config):
    variables = write_config(GUARD)
    slow = [*pair, "--route", "slow", *LOSING[:-1]]

    def drafted(count):
        """Whether the next answers were drafted: the last by itself, those before it as lines."""
        lines = b"the cat\n" * (count - 1)
        ask("run", "--lines", "--parallel", 1, *slow, stdin=lines, **variables)
        last = ask("run", *slow, "the cat", **variables)
        return last, [one["drafted"] > 0 for one in rows(state)][-count:]

    last, found = drafted(WINDOW)
    assert found == [False] * 3 + [True] * (WINDOW - 3)  # the first are plain, to compare with
    assert TRIPPED in last.stderr
    assert b"--reset-guard slow" in last.stderr
    assert last.stderr.count(b"\n") == 1
    text = json.loads(last.stdout)["text"]
    last, found = drafted(3)
    said = json.loads(last.stdout)
    assert found == [False] * 3
    assert last.stderr == b""
    assert (said["draft"], said["speculation"]["mode"], said["text"]) == (None, "off", text)
    assert b"slow: switched off by its guard on " in ask("stats").stdout
    (guard,) = json.loads(ask("stats", "--json").stdout)["guards"]
    assert (guard["route"], guard["answers"], guard["speed"] < 0.98) == ("slow", WINDOW, True)
    assert b'specgguf_guard_off{route="slow"' in ask("stats", "--prometheus").stdout

    message, hint = failure(ask("stats", "--reset-guard", "other", code=2), code=2)
    assert (message, hint) == ("--reset-guard other: no guard has switched that route off", "these are: slow")
    assert ask("stats", "--reset-guard", "slow").stderr == b"note: route slow drafts again\n"
    assert json.loads(ask("stats", "--json").stdout)["guards"] == []
    assert drafted(4)[1] == [False, False, False, True]


def test_another_model_lifts_the_guard(ask, toy_models, state, write_config, tmp_path):
    variables = write_config(GUARD)
    draft = tmp_path / "draft.gguf"
    shutil.copy(toy_models["draft"], draft)
    options = ["-m", toy_models["endless"], "-d", draft, *STEADY, *LOSING]
    lines = b"the cat\n" * (WINDOW + 1)
    ask("run", "--lines", "--parallel", 1, *options[:-2], stdin=lines, **variables)
    assert json.loads(ask("run", *options, **variables).stdout)["draft"] is None
    tiny.write_attention(draft, seed=9, feed=tiny.FEED // 2)  # of the same name and size
    assert draft.stat().st_size == toy_models["draft"].stat().st_size
    assert json.loads(ask("run", *options, **variables).stdout)["draft"] is not None
    shutil.copy(toy_models["draft"], draft)
    assert json.loads(ask("run", *options, **variables).stdout)["draft"] is None


@pytest.mark.parametrize("command", ["lines", "chat"])
def test_the_answers_that_follow_in_the_same_process_are_plain(ask, pair, state, write_config, command):
    variables, count = write_config(GUARD), WINDOW + 3
    shape = ["run", "--lines", "--parallel", 1] if command == "lines" else ["chat", "--temp", 0]
    result = ask(*shape, *pair, *LOSING[:-2], stdin=b"the cat\n" * count, **variables)
    assert result.stderr.count(TRIPPED) == 1
    assert [one["drafted"] > 0 for one in rows(state)] == [False] * 3 + [True] * (WINDOW - 3) + [False] * 3
    assert [one["mode"] for one in rows(state)] == ["off"] * 3 + ["fixed"] * (WINDOW - 3) + ["off"] * 3


def test_what_another_process_finds_out_holds_for_one_that_runs_already(ask, pair, state, write_config):
    variables = write_config(GUARD)
    arguments = ["run", "--lines", "--parallel", 1, *pair, *LOSING[:-2]]
    with started(*arguments, XDG_STATE_HOME=state, **variables) as process:

        def ask_it():
            process.stdin.write(b"the cat\n")
            assert process.stdout.readline()

        for _ in range(4):
            ask_it()
        ask(*arguments, stdin=b"the cat\n" * WINDOW, **variables)
        for _ in range(3):
            ask_it()
        ask("stats", "--reset-guard", "run")
        for _ in range(6):
            ask_it()
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""  # the other one has said it
        process.stdin = None
    found = [one["drafted"] > 0 for one in rows(state)]
    assert found[:4] == [False] * 3 + [True]
    assert found[4 : 4 + WINDOW] == [True] * (WINDOW - 4) + [False] * 4
    # It looks after each answer of its own. After the reset three are plain, to compare with.
    assert found[4 + WINDOW :] == [True, False, False] + [False] * 3 + [True] * 3


def test_without_a_guard_a_route_may_lose(ask, pair, state):
    ask("run", "--lines", "--parallel", 1, *pair, *LOSING[:-2], stdin=b"the cat\n" * (WINDOW + 1))
    assert all(one["drafted"] for one in rows(state))


def test_a_route_may_be_off_from_the_start(ask, pair, write_config):
    variables = write_config('[routes.a]\nspeculate = "off"\n[routes."b c"]\nspeculate = "ngram"\n')
    mode = {
        (route, *others): json.loads(
            ask("run", *pair, "-n", 3, "--route", route, "--json", *others, "hi", **variables).stdout
        )["speculation"]["mode"]
        for route, *others in (["a"], ["b c"], ["d"], ["a", "--speculate", "fixed"])
    }
    assert mode == {("a",): "off", ("b c",): "ngram", ("d",): "auto", ("a", "--speculate", "fixed"): "fixed"}
    off = ask("run", *pair, "-n", 3, "--route", "b c", "--json", "hi", SPECGGUF_SPECULATE="off", **variables)
    assert json.loads(off.stdout)["speculation"]["mode"] == "off"


def test_what_the_file_says_of_routes_is_listed(write_config):
    variables = write_config('[routes.a]\nspeculate = "off"\n[guard]\nwindow = 20\n')
    shown = here("config", **variables).stdout.decode().splitlines()[-3:]
    assert [line.split() for line in shown] == [
        ["routes.a.speculate", '"off"', "config.toml"],
        ["guard.min_speed", "0.98", "config.toml"],
        ["guard.window", "20", "config.toml"],
    ]
    listed = json.loads(here("config", "--json", **variables).stdout)
    assert (listed["routes"], listed["guard"]) == ({"a": {"speculate": "off"}}, {"min_speed": 0.98, "window": 20})


def test_the_variable_switches_chat_off_too(ask, pair, state):
    ask("chat", *pair, "-n", 30, "--temp", 0, stdin=b"hi\n", SPECGGUF_SPECULATE="off")
    assert [(one["mode"], one["draft"], one["drafted"]) for one in rows(state)] == [("off", "", 0)]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[routes.a]\nspeculate = 'maybe'", "line 3: routes.a.speculate: must be auto, "),
        ("[routes.a]\nspeculat = 'off'", "line 3: routes.a.speculat: unknown key"),
        ("[routes]\na = 'off'", "line 3: routes.a: must be a table"),
        ("[guard]\nmin_speed = 0", "line 3: guard.min_speed: must be a number above 0"),
        ("[guard]\nwindow = 2", "line 3: guard.window: must be a whole number, 10 to"),
        ("[guard]\nwindows = 20", "line 3: guard.windows: unknown key"),
        ("guard = true", "line 2: guard: must be a table"),
        ("route = 'a'", "line 2: route: is for the command line only"),
        ("[gard]", "line 2: gard: unknown key"),
    ],
)
def test_a_mistake_in_what_the_file_says_of_routes(write_config, text, named):
    message, _ = failure(here("pairs", **write_config(text)))
    assert named in message
