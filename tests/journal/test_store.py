import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing

import pytest

from specgguf.errors import JournalError
from specgguf.journal import store
from specgguf.journal.guard import Guard
from specgguf.journal.row import Pair
from specgguf.journal.store import Journal
from tests.journal.rows import PAIR, ROW, row


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.db"


def query(path, statement):
    database = sqlite3.connect(path)
    try:
        return database.execute(statement).fetchall()
    finally:
        database.close()


def test_a_row_holds_all_that_is_known_of_an_answer(path):
    Journal(path).add(row(prompt="why?", answer="so"))
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    found = {
        **database.execute("SELECT * FROM answers").fetchone(),
        **database.execute("SELECT * FROM details").fetchone(),
        **database.execute("SELECT * FROM texts").fetchone(),
    }
    assert found.pop("id") == 1
    assert (found.pop("target_fingerprint"), found.pop("draft_fingerprint")) == PAIR
    for name in ("settings", "counters"):
        assert json.loads(found.pop(name)) == getattr(ROW, name)
    assert (found.pop("prompt"), found.pop("answer")) == ("why?", "so")
    assert found == {name: getattr(ROW, name) for name in found}


def test_nobody_else_can_read_it(path):
    Journal(path).add(ROW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_no_text_where_none_is_given(path):
    Journal(path).add(ROW)
    assert query(path, "SELECT * FROM texts") == []


def test_the_oldest_rows_go(path, monkeypatch):
    monkeypatch.setattr(store, "MOST", 5)
    monkeypatch.setattr(store, "MOST_TEXTS", 2)
    journal = Journal(path)
    for number in range(9):
        journal.add(row(output_tokens=number, prompt="p", answer=str(number)))
    assert journal.answers()["run", PAIR].output_tokens == [4, 5, 6, 7, 8]
    assert query(path, "SELECT count(*) FROM details") == [(5,)]
    assert query(path, "SELECT answer FROM texts") == [("7",), ("8",)]


def test_answers_by_route_and_pair_since_a_time(path):
    journal, other = Journal(path), Pair("target0", "draft1")
    for number, (route, pair) in enumerate([("a", PAIR), ("b", PAIR), ("a", other), ("a", PAIR)]):
        journal.add(row(time=number, route=route, pair=pair, output_tokens=number))
    tokens = {key: columns.output_tokens for key, columns in journal.answers().items()}
    assert tokens == {("a", PAIR): [0, 3], ("b", PAIR): [1], ("a", other): [2]}
    assert {key: columns.output_tokens for key, columns in journal.answers(since=2, route="a").items()} == {
        ("a", other): [2],
        ("a", PAIR): [3],
    }


def test_reading_makes_no_file(path):
    journal = Journal(path)
    assert (journal.answers(), journal.off(), journal.reset("run"), journal.judged("run", PAIR, 5)) == (
        {},
        [],
        False,
        [],
    )
    assert not path.parent.exists()


def add_some(path, process, count):
    for number in range(count):
        if number % 125 == 0:  # as commands do, and --lines
            journal = Journal(path)
        journal.add(row(route=f"process{process}", output_tokens=number))
        if number % 125 == 124:
            journal.close()


def test_ten_thousand_rows_of_eight_processes_at_once_are_all_there(path):
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        pool.starmap(add_some, [(path, process, 1250) for process in range(8)], chunksize=1)
    found = {route: columns.output_tokens for (route, _), columns in Journal(path).answers().items()}
    assert found == {f"process{process}": list(range(1250)) for process in range(8)}
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


_ENDLESS = """
import sys
from pathlib import Path
from specgguf.journal.store import Journal
from tests.journal.rows import row
journal, number = Journal(Path(sys.argv[1])), 0
while True:
    journal.add(row(output_tokens=number, prompt="p" * 5000, answer=str(number)))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("wait_s", [0.0, 0.011, 0.023, 0.037, 0.05])
def test_a_kill_in_the_midst_of_writing_tears_nothing(path, wait_s):
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS, str(path)], stdout=subprocess.PIPE)
    try:
        for _ in range(3):
            process.stdout.readline()
        time.sleep(wait_s)
    finally:
        process.send_signal(signal.SIGKILL)
    said = [int(line) for line in process.communicate()[0].splitlines()]
    Journal(path).add(row(output_tokens=-1, prompt="p", answer="-1"))
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    tokens = [number for (number,) in query(path, "SELECT output_tokens FROM answers ORDER BY id")]
    assert tokens == [*range(len(tokens) - 1), -1]
    assert len(tokens) - 1 > max(said, default=2)  # what was said to be there is there
    assert query(path, "SELECT id FROM answers") == query(path, "SELECT id FROM details")
    texts = query(path, "SELECT output_tokens, answer FROM answers JOIN texts USING (id)")
    assert [str(number) for number, _ in texts] == [answer for _, answer in texts]
    assert len(texts) == len(tokens)


@pytest.mark.parametrize("content", ["text", "cut", "folder", "newer", "others"])
def test_what_is_no_journal_is_left_alone(path, content):
    with closing(Journal(path)) as journal:
        for number in range(50):
            journal.add(row(output_tokens=number))
    whole = path.read_bytes()
    if content == "text":
        path.write_text("my notes" * 1000)
    elif content == "cut":
        path.write_bytes(whole[: len(whole) // 2 + 100])
    elif content == "folder":
        path.unlink()
        path.mkdir()
    elif content == "others":
        path.unlink()
        query(path, "CREATE TABLE answers (mine)")
    else:
        query(path, "PRAGMA user_version = 99")
    before = path.read_bytes() if path.is_file() else None
    for use in (lambda: journal.add(ROW), journal.answers):
        with pytest.raises(JournalError, match=f"journal {path}"), closing(journal):
            use()
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_row_that_finds_no_room_leaves_what_is_there(tmp_path):
    """A file system of its own that is full: the row is refused, those before it stay."""
    mounted = tmp_path / "full"
    mounted.mkdir()
    script = f"""
import sys
from pathlib import Path
from specgguf.errors import JournalError
from specgguf.journal.store import Journal
from tests.journal.rows import row
journal, count = Journal(Path({str(mounted)!r}, "journal.db")), 0
try:
    while count < 10_000:
        journal.add(row(prompt="p" * 2000, answer="a"))
        count += 1
except JournalError as error:
    print(error.message)
with Journal(Path({str(mounted)!r}, "journal.db"))._reading() as database:
    print(database.execute("SELECT count(*) FROM texts").fetchone()[0] == count > 20)
    print(database.execute("PRAGMA integrity_check").fetchone()[0])
"""
    in_small = f'mount -t tmpfs -o size=512k none "{mounted}" && exec "{sys.executable}" -c "$0"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*command, f'mount -t tmpfs none "{mounted}"'], check=False).returncode
    ):
        pytest.skip("this machine lets nobody mount anything")
    result = subprocess.run([*command, in_small, script], capture_output=True, text=True, timeout=60, check=False)
    message, *rest = result.stdout.splitlines()
    assert message.endswith("database or disk is full"), result
    assert rest == ["True", "ok"]


GUARD = Guard(min_speed=0.98, window=10)


def judged(journal, count, speed, **changes):
    """What the guard says to each of so many answers."""
    return [journal.add(row(judged_s=1.0, plain_s=speed, **changes), GUARD) for _ in range(count)]


def test_a_route_that_loses_is_switched_off_once_its_window_is_full(path):
    journal = Journal(path)
    *before, at = judged(journal, 10, 0.5)
    assert before == [None] * 9
    assert (at.route, at.pair, at.speed, at.answers) == ("run", PAIR, 0.5, 10)
    assert judged(journal, 3, 0.5) == [None] * 3  # it is said once
    assert journal.is_off("run", PAIR)
    assert journal.off() == [at]


def test_one_that_gains_is_not(path):
    journal = Journal(path)
    assert judged(journal, 30, 0.99) == [None] * 30
    assert not journal.is_off("run", PAIR)


def test_answers_of_which_nothing_is_known_do_not_count(path):
    journal = Journal(path)
    judged(journal, 9, 0.5)
    assert judged(journal, 20, 0.0) != [None] * 20  # all of the time was lost
    journal = Journal(path.with_name("other.db"))
    judged(journal, 9, 0.5)
    assert [journal.add(row(judged_s=0.0, plain_s=0.0), GUARD) for _ in range(5)] == [None] * 5
    assert judged(journal, 1, 0.5) != [None]


def test_a_long_answer_counts_for_more_than_a_short_one(path):
    journal = Journal(path)
    judged(journal, 9, 0.5)
    assert journal.add(row(judged_s=100.0, plain_s=150.0), GUARD) is None


def test_other_models_and_other_routes_are_judged_by_themselves(path):
    journal = Journal(path)
    judged(journal, 10, 0.5)
    for route, pair in (("chat", PAIR), ("run", Pair("target1", "draft0")), ("run", Pair("target0", "draft1"))):
        assert not journal.is_off(route, pair)
        assert judged(journal, 9, 0.5, route=route, pair=pair) == [None] * 9


def test_after_a_reset_a_route_has_its_whole_window_again(path):
    journal = Journal(path)
    judged(journal, 10, 0.5)
    assert not journal.reset("chat")
    assert journal.reset("run")
    assert not journal.reset("run")
    assert not journal.is_off("run", PAIR)
    *before, at = judged(journal, 10, 0.5)
    assert (before, bool(at)) == ([None] * 9, True)


def test_plain_answers_for_comparison_belong_to_the_window(path):
    journal = Journal(path)
    plain = {"mode": "off", "judged_s": 0.0, "plain_s": 0.0}
    for _ in range(3):
        journal.add(row(tokens_per_s=50.0, **plain), GUARD)
    journal.add(row(tokens_per_s=50.0, texts=2, **plain), GUARD)  # at what speed one alone would have come is unknown
    assert len(journal.judged("run", PAIR, 10)) == 3
    *before, at = judged(journal, 7, 0.5)
    assert (before, bool(at)) == ([None] * 6, True)


def test_of_many_processes_one_switches_off(path):
    judged(Journal(path), 9, 0.5)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.starmap(add_losing, [(path,)] * 8, chunksize=1)
    assert found.count(True) == 1


def add_losing(path):
    return Journal(path).add(row(judged_s=1.0, plain_s=0.5), GUARD) is not None


def test_a_folder_that_nothing_can_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot use the journal"):
        Journal(tmp_path / "file" / "journal.db").add(ROW)
    assert os.listdir(tmp_path) == ["file"]
