"""`specgguf stats`: what the journal says of routes."""

import json
import os
import re
import time
from contextlib import closing

import pytest

from specgguf.journal.guard import Guard
from specgguf.journal.prometheus import exposition
from specgguf.journal.row import Pair
from specgguf.journal.store import Journal
from specgguf.journal.summary import sparkline, summarize
from tests.cli.program import failure, here
from tests.journal.rows import PAIR, row

NOW = time.time()
DAY = 86_400
FINGERPRINTS = {"target_fingerprint": PAIR.target, "draft_fingerprint": PAIR.draft}


@pytest.fixture
def ask(tmp_path):
    def ask(*arguments):
        return here("stats", *arguments, XDG_STATE_HOME=tmp_path)

    return ask


@pytest.fixture
def fill(tmp_path):
    def fill(*rows):
        with closing(Journal(tmp_path / "specgguf" / "journal.db")) as journal:
            for one in rows:
                journal.add(one)

    return fill


def found(result):
    assert (result.returncode, result.stderr) == (0, b""), result
    return json.loads(result.stdout)


def test_an_empty_journal(ask):
    assert (ask().stdout, ask().stderr) == (b"", b"note: the journal has no answers yet\n")
    assert found(ask("--json")) == {"routes": [], "guards": []}


def test_a_table_by_route_and_pair(ask, fill):
    ends = [row(last_token_s=seconds) for seconds in (*range(1, 20), 100)]
    alone = row(route="a", draft="", pair=Pair("target0", ""), drafted=0, accepted=0, judged_s=0, undrafted=40)
    fill(*ends, alone)
    head, *lines = (re.split(r"\s{2,}", line) for line in ask().stdout.decode().splitlines())
    assert head[:5] == ["route", "pair", "answers", "tokens", "accepted"]
    assert lines == [
        ["a", "big", "1", "100", "-", "2.50", "-", "100%", "2.20", "2.20"],
        ["run", "big + small", "20", "2000", "75%", "▇" * 10, "2.50", "2.00", "25%", "10.00", "19.00"],
    ]


def test_the_object(ask, fill):
    fill(row(), row(accepted=20, judged_s=8.1, plain_s=1.2))
    assert found(ask("--json"))["routes"] == [
        {
            "route": "run",
            "target": {"name": "big", "fingerprint": PAIR.target},
            "draft": {"name": "small", "fingerprint": PAIR.draft},
            "answers": 2,
            "output_tokens": 200,
            "acceptance_rate": 0.5,
            "trend": [0.75, 0.25],
            "mean_acceptance_length": 2.5,
            "speed": 0.5,
            "undrafted": 0.25,
            "last_token_s": {"p50": 2.2, "p95": 2.2},
        }
    ]


def test_a_trend_from_the_oldest_answers_to_the_latest(ask, fill):
    fill(*(row(drafted=100, accepted=number) for number in range(30)))
    (one,) = found(ask("--json"))["routes"]
    assert one["trend"] == [(3 * part + 1) / 100 for part in range(10)]  # twelve parts at most, of equal sizes
    assert sparkline([0.0, 0.49, 0.5, 1.0, None, 0.99]) == "▁▄▅█ █"
    assert sparkline([None, None]) == ""


def test_only_some_answers(ask, fill):
    fill(*(row(time=NOW - days * DAY, route=route) for days, route in ((30, "a"), (6, "a"), (2, "b"), (0, "a"))))

    def answers(*arguments):
        return {one["route"]: one["answers"] for one in found(ask("--json", *arguments))["routes"]}

    assert answers() == {"a": 3, "b": 1}
    assert answers("--since", "7d") == answers("--since", "1w") == {"a": 2, "b": 1}
    assert answers("--since", "50h", "--route", "a") == {"a": 1}
    assert answers("--since", time.strftime("%Y-%m-%d", time.localtime(NOW - 10 * DAY))) == {"a": 2, "b": 1}
    assert answers("--since", time.strftime("%Y-%m-%dT%H:%M", time.localtime(NOW - 3 * DAY))) == {"a": 1, "b": 1}
    assert ask("--route", "c").stderr == b"note: the journal has no such answers\n"


@pytest.mark.parametrize("since", ["", "7", "7y", "yesterday", "-1d", "2026-13-01", "9999999d"])
def test_a_time_that_is_none(ask, since):
    message, _ = failure(ask("--since", since), code=2)
    assert message.startswith("--since must be a time ago (90m, 24h, 7d, 2w) or a date (")


def test_json_and_prometheus_exclude_each_other(ask):
    assert failure(ask("--json", "--prometheus"), code=2)[0] == "--prometheus and --json exclude each other"


SAMPLE = re.compile(r'specgguf_[a-z_]+\{([a-z_]+="(?:[^"\\\n]|\\[\\n"])*"(?:,|(?=\})))*\} -?[0-9.e+-]+')


def test_prometheus_can_read_it(ask, fill):
    odd = 'a "route"\\with\nall'
    fill(row(), row(route=odd, drafted=0, accepted=0, judged_s=0.0))
    lines = ask("--prometheus").stdout.decode().split("\n")
    assert lines.pop() == ""  # the last line ends too
    kinds = {}
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds  # all samples of a metric follow one another
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            assert SAMPLE.fullmatch(line), line
            assert line.startswith(f"{list(kinds)[-1]}{{")
    assert set(kinds.values()) == {"gauge"}
    samples = [line for line in lines if line.startswith("specgguf_acceptance_ratio")]
    assert samples == [
        'specgguf_acceptance_ratio{route="run",target="big",draft="small",target_fingerprint="target0",'
        'draft_fingerprint="draft0"} 0.75'
    ]  # where nothing was drafted there is none
    assert sum('quantile="0.95"' in line for line in lines) == 2
    assert any(r'route="a \"route\"\\with\nall"' in line for line in lines)


def test_guards(tmp_path, ask):
    with closing(Journal(tmp_path / "specgguf" / "journal.db")) as journal:
        for _ in range(10):
            journal.add(row(time=NOW, plain_s=0.95), Guard(0.98, 10))
    assert b"run: switched off by its guard on 20" in ask().stdout
    assert b"at 0.50 times the speed of plain decoding in 10 answers" in ask().stdout
    (guard,) = found(ask("--json"))["guards"]
    assert guard == {"route": "run", **FINGERPRINTS, "since": NOW, "speed": pytest.approx(0.5), "answers": 10}
    assert (
        b'specgguf_guard_off{route="run",target_fingerprint="target0",draft_fingerprint="draft0"} 1\n'
        in ask("--prometheus").stdout
    )
    assert found(ask("--json", "--route", "other"))["guards"] == []


def test_a_damaged_journal_is_an_error_here(tmp_path, ask):
    path = tmp_path / "specgguf" / "journal.db"
    path.parent.mkdir()
    path.write_text("my notes" * 100)
    message, hint = failure(ask())
    assert message == f"the journal {path} is damaged: file is not a database"
    assert "move it away" in hint
    assert os.listdir(path.parent) == ["journal.db"]


def test_nothing_is_no_summary():
    assert summarize({}) == []
    assert exposition([], []).count("# TYPE") == exposition([], []).count("\n") / 2
