"""The pipelines of docs/examples.md, as they stand there. A config.toml names toy models and leaves one answer."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pexpect
import pytest

from tests.cli.program import EXECUTABLE, environment

DOCUMENT = Path(__file__).parents[2] / "docs" / "examples.md"
SECTIONS = {
    title: "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
}
ANSWER = "It is as it should be."
LETTER = ["Good morning.", "", "Where is the station?", "Thank you."]

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="no jq here")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    (tmp_path / "crash.py").write_text("def mean(values):\n    return sum(values) / len(values)\n\n\nmean([])\n")
    (tmp_path / "app.log").write_text("09:14 worker 1 ok\n09:15 worker 2 ERROR disk nearly full\n")
    (tmp_path / "letter.txt").write_text("\n".join(LETTER) + "\n")
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "sums.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    subprocess.run([*git, "add", "sums.py"], check=True)
    return tmp_path


@pytest.fixture
def variables(tmp_path_factory, toy_models):
    config = tmp_path_factory.mktemp("config") / "specgguf"
    config.mkdir()
    (config / "answer.gbnf").write_text(f'root ::= "{ANSWER}"\n')
    settings = {"target": toy_models["endless"], "draft": toy_models["draft"], "grammar": config / "answer.gbnf"}
    lines = [f'{key} = "{path}"\n' for key, path in settings.items()]
    (config / "config.toml").write_text("".join([*lines, "threads = 1\n"]))
    person = {f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    git = {**person, "GIT_EDITOR": "true", "GIT_CONFIG_GLOBAL": "/dev/null"}
    path = f"{EXECUTABLE.parent}{os.pathsep}{os.environ['PATH']}"
    return environment(XDG_CONFIG_HOME=config.parent, PATH=path, **git)


def run(title, folder, variables):
    result = subprocess.run(
        ["bash", "-euc", SECTIONS[title]], cwd=folder, env=variables, capture_output=True, timeout=300, check=False
    )
    notes = result.stderr.splitlines()
    assert result.returncode == 0
    assert all(re.match(rb"note: \d+ lines? of stdin (was|were) added to PROMPT", note) for note in notes), notes
    return result.stdout.decode()


def test_a_commit_message(folder, variables):
    run("A commit message from a diff", folder, variables)
    log = subprocess.run(["git", "log", "--format=%s"], cwd=folder, capture_output=True, check=True).stdout
    assert log.decode().splitlines() == [ANSWER, "first"]


def test_a_stack_trace(folder, variables):
    assert run("Explain a stack trace", folder, variables) == ANSWER


def test_json_from_a_log(folder, variables):
    entries = [json.loads(line) for line in run("JSON from a log", folder, variables).splitlines()]
    assert [(type(entry["worker"]), type(entry["failed"])) for entry in entries] == [(int, bool)] * 2


def test_a_translation(folder, variables):
    lines = run("Translate a file line by line", folder, variables).splitlines()
    assert lines == [f"{number}: {ANSWER}" for number in (1, 3, 4)]


def test_many_files(folder, variables):
    assert run("Ask about many files", folder, variables).splitlines() == [ANSWER] * 4  # two files, twice


def test_going_on(folder, variables):
    assert run("Continue an interrupted run", folder, variables) == ""
    objects = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [entry["line"] for entry in objects] == [1, 3, 4]


def test_a_log_that_grows(folder, variables):
    child = pexpect.spawn("bash", ["-c", SECTIONS["Follow a log"]], cwd=str(folder), env=variables, timeout=120)
    for _ in range(2):  # the lines that are there
        child.expect_exact(ANSWER)
    with open(folder / "app.log", "a") as log:
        log.write("09:16 worker 1 ok\n")
    child.expect_exact(ANSWER)
    child.sendintr()
    child.expect(pexpect.EOF)


def test_an_answer_as_it_comes(folder, variables):
    assert run("Show an answer as it comes, in a program", folder, variables) == f"{ANSWER}\n[stop]\n"


def test_every_example_is_run():
    text = Path(__file__).read_text()
    assert SECTIONS
    assert all(f'"{title}"' in text for title in re.findall(r"^## (.*)$", DOCUMENT.read_text(), re.MULTILINE))
