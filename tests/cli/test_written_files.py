"""Files that a user names and that are there already: links, devices, pipes, modes; and models with odd names."""

import json
import os
import stat
import subprocess

import pytest

from tests.cli.program import EXECUTABLE, environment, failure, here, specgguf

PROMPT = '{"category": "a", "prompt": "the cat"}\n'


def saver(path, toy_models, tmp_path):
    return ["chat", "-m", toy_models["target"], "-n", 2, "--speculate", "off"], f"hi\n/save {path}\n".encode()


def recorder(path, toy_models, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(PROMPT)
    models = ["-m", toy_models["target"], "-d", toy_models["draft"], "-n", 2]
    return ["golden", "record", path, *models, "--prompts", tmp_path / "prompts.jsonl", "--yes"], b""


def keeper(path, toy_models, tmp_path):
    return ["run", "-m", toy_models["target"], "-n", 4, "--ngram-store", path, "hi"], b""


def reporter(path, toy_models, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(PROMPT)
    models = ["-m", toy_models["target"], "-d", toy_models["draft"], "-n", 2, "--repeat", 1]
    return ["bench", *models, "--prompts", tmp_path / "prompts.jsonl", "--report", path], b""


WRITERS = {"/save": saver, "golden record": recorder, "--ngram-store": keeper, "bench --report": reporter}
OVERWRITERS = [recorder, keeper, reporter]
"""Those that replace a file without a person's consent; a chat in a script does not."""


def write(writer, path, toy_models, tmp_path):
    arguments, stdin = writer(path, toy_models, tmp_path)
    return specgguf(*arguments, stdin=stdin)


@pytest.mark.parametrize("writer", OVERWRITERS)
def test_a_link_stays_and_its_target_is_written_with_the_mode_it_has(writer, toy_models, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    target, link = kept / "target", tmp_path / "link.html"
    target.touch()
    target.chmod(0o640)
    link.symlink_to(target)
    result = write(writer, link, toy_models, tmp_path)
    assert result.returncode == 0, result
    assert link.is_symlink()
    assert target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert {path.name for path in kept.iterdir()} <= {"target", "target.lock"}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_link_whose_target_is_yet_to_come_leads_to_it(writer, toy_models, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link.html"
    link.symlink_to(target)
    assert write(writer, link, toy_models, tmp_path).returncode == 0
    assert link.is_symlink()
    assert target.stat().st_size


@pytest.mark.parametrize("writer", [recorder, reporter])
def test_a_device_is_written_to_and_stays_one(writer, toy_models, tmp_path):
    path = tmp_path / "null.html"
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # what /dev/null is
        path.write_bytes(b"")
    except OSError:
        pytest.skip("only root makes devices, and not everywhere")
    assert write(writer, path, toy_models, tmp_path).returncode == 0
    assert stat.S_ISCHR(path.stat().st_mode)


def test_a_pipe_gets_the_recording(toy_models, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
    result = write(recorder, path, toy_models, tmp_path)
    assert result.returncode == 0, result
    assert json.loads(reader.communicate(timeout=60)[0])["prompts"]
    assert path.is_fifo()


@pytest.mark.parametrize("option", ["--ngram-store", "--history"])
def test_what_is_read_again_cannot_be_a_pipe_or_a_folder(toy_models, tmp_path, option):
    os.mkfifo(tmp_path / "pipe")
    command = ["run", "hi"] if option == "--ngram-store" else ["chat"]
    for path, reason in (("pipe", "it is not a regular file"), ("", "it is a folder")):
        shown = subprocess.run(
            [
                "script",
                "-qec",
                f"{EXECUTABLE} {' '.join(command)} -m {toy_models['target']} {option} '{tmp_path / path}'",
                tmp_path.parent / "typescript",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment(NO_COLOR=1),
            timeout=60,
            check=False,
        )
        assert shown.returncode == 2
        assert reason in shown.stdout.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe"]


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_name_that_is_too_long_is_refused_before_there_is_work_to_lose(writer, toy_models, tmp_path):
    arguments, stdin = writer(tmp_path / ("x" * 300 + ".html"), toy_models, tmp_path)
    result = specgguf(*arguments, stdin=stdin)
    assert result.returncode == 2
    assert b"File name too long" in result.stderr
    assert writer is saver or result.stdout == b""


def test_a_file_that_is_read_only_is_not_replaced(toy_models, tmp_path):
    path = tmp_path / "golden.json"
    path.write_text("precious")
    path.chmod(0o400)
    arguments, _ = recorder(path, toy_models, tmp_path)
    if os.access(path, os.W_OK):  # root may do anything: as another user, then, if that can read the program
        command = ["unshare", "--user", "--map-user=54321", "--map-group=54321", str(EXECUTABLE), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, env=environment(), timeout=60, check=False)
        if b"unshare" in result.stderr:
            pytest.skip("nobody can be another user here")
    else:
        result = specgguf(*arguments)
    assert failure(result, code=2)[0] == f"cannot write {path}: Permission denied"
    assert path.read_text() == "precious"


def test_a_model_whose_name_is_not_utf8_loses_neither_chat_nor_recording(toy_models, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd \xff.gguf")
    os.link(toy_models["target"], odd)
    models = {**toy_models, "target": odd}
    saved, recorded, report = tmp_path / "chat.json", tmp_path / "golden.json", tmp_path / "report.html"
    assert write(saver, saved, models, tmp_path).returncode == 0
    assert json.loads(saved.read_text(encoding="utf-8"))["models"]["target"] == odd
    again = specgguf("chat", "--load", saved, "-n", 2, "--speculate", "off", stdin=b"/retry\n")
    assert (again.returncode, again.stdout != b"") == (0, True)
    assert write(recorder, recorded, models, tmp_path).returncode == 0
    verified = specgguf("golden", "verify", recorded)
    assert (verified.returncode, verified.stderr) == (0, b"")
    assert write(reporter, report, models, tmp_path).returncode == 0
    assert report.stat().st_size


def test_a_chat_with_half_a_character_in_it_is_no_transcript(toy_models, tmp_path):
    path = tmp_path / "chat.json"
    messages = [{"role": "user", "content": "\udcff"}]
    path.write_text(json.dumps({"format": 1, "models": {}, "sampling": {}, "messages": messages}))
    message, _ = failure(here("chat", "-m", toy_models["target"], "--load", path), code=2)
    assert "half a surrogate pair" in message
