"""What the user should know is told by every command that opens models, whenever it turns out."""

import json

import pytest

from tests import tiny
from tests.cli.program import failure, specgguf

DROPPED = b"note: no draft model: draft model: llama.cpp cannot open a context"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A target whose heads take cells of 32 values, and a draft whose heads are too narrow for them."""
    folder = tmp_path_factory.mktemp("heads")
    with pytest.MonkeyPatch.context() as patch:
        draft = tiny.write_attention(folder / "narrow.gguf")
        patch.setattr(tiny, "HEADS", tiny.EMBED // 32)
        target = tiny.write_attention(folder / "wide.gguf")
    return ["-m", target, "-d", draft, "--cache-type-k", "q8_0", "-t", 1]


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "chat", "prompt": "the cat"}\n')
    return path


def test_a_draft_without_a_context_is_told_by_run(pair):
    result = specgguf("run", *pair, "-n", 4, "hi")
    assert result.returncode == 0
    assert result.stderr.count(DROPPED) == 1


def test_and_once_for_many_lines(pair):
    result = specgguf("run", "--lines", *pair, "-n", 4, stdin=b"hi\nho\n")
    assert result.returncode == 0
    assert result.stderr.count(DROPPED) == 1
    assert [json.loads(line)["draft"] for line in result.stdout.splitlines()] == [None, None]


def test_and_by_chat(pair):
    result = specgguf("chat", *pair, "-n", 4, stdin=b"hi\nho\n")
    assert result.returncode == 0
    assert result.stderr.count(DROPPED) == 1


def test_and_by_bench(pair, prompts):
    result = specgguf("bench", *pair, "-n", 4, "-k", 2, "--prompts", prompts, "--json")
    assert result.returncode == 0
    assert result.stderr.count(DROPPED) == 1
    assert json.loads(result.stdout)["draft"] is None


def test_and_by_tune(pair):
    result = specgguf("tune", *pair, "--json", timeout=300)
    assert result.returncode == 0
    assert result.stderr.count(DROPPED) == 1
    assert json.loads(result.stdout)["draft"] is None


@pytest.mark.parametrize("mode", ["mtp", "eagle3", "dflash", "model", "fixed"])
def test_a_kind_of_draft_that_is_not_here_is_told_once(toy_models, mode):
    draft = "none" if mode in ("model", "fixed") else toy_models["draft"]
    models = ["-m", toy_models["target"], "-d", draft, "-t", 1]
    result = specgguf("run", "--lines", *models, "--speculate", mode, "-n", 4, stdin=b"hi\nho\n")
    assert result.returncode == 0
    assert result.stderr.count(b"so nothing is drafted") == 1


def test_a_benchmark_without_a_draft_has_nothing_to_tell(toy_models, prompts):
    result = specgguf("bench", "-m", toy_models["target"], "-d", "none", "-n", 4, "--prompts", prompts, "--json")
    assert (result.returncode, result.stderr) == (0, b"")


def test_another_system_message_than_the_loaded_chats_is_told(toy_models, tmp_path):
    models = ["-m", toy_models["target"], "-d", "none", "-n", 2, "-t", 1]
    assert specgguf("chat", *models, "--system", "a", stdin=f"/save {tmp_path}/x\n".encode()).returncode == 0
    for system, told in (("b", True), ("a", False)):
        result = specgguf("chat", *models, "--load", tmp_path / "x", "--system", system, stdin=b"")
        assert (b"--system is used instead" in result.stderr) is told


def test_a_file_that_is_there_is_named_where_nobody_can_be_asked_about_it(toy_models, tmp_path, prompts):
    file = tmp_path / "golden.json"
    file.write_text("mine")
    models = ["-m", toy_models["target"], "-d", "none"]
    message, hint = failure(specgguf("golden", "record", file, *models, "--prompts", prompts), code=2)
    assert f"Overwrite {file}?" in message
    assert "--yes" in hint
    assert file.read_text() == "mine"


def test_a_draft_as_large_as_its_target_is_told(toy_models):
    def said(draft, *options):
        models = ["-m", toy_models["target"], "-d", toy_models[draft], "-n", 2, "-t", 1]
        return specgguf("run", *models, *options, "hi").stderr

    told = b"note: %s.gguf is as large as target.gguf: drafting with it saves no time\n"
    assert said("target") == told % b"target"
    assert said("padded") == told % b"padded"
    assert said("draft") == b""
    assert said("target", "--speculate", "off") == b""
