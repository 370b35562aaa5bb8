"""Heads through the executable: whatever a command does with them, the words are plain decoding's."""

import json

import pytest

from tests.cli.program import on_terminal, specgguf
from tests.tiny_heads import HEADS_AND_TARGETS

STEADY = ["--cache-type-k", "f32", "--cache-type-v", "f32"]
FIXED = ["--speculate", "fixed", "-k", "4"]
"""It drafts in every round, whatever that costs."""
NAMES = {"eagle3": "eagle3", "dspark": "dflash", "assistant": "mtp", "qwen35": "mtp", "mimo2's 3 layers": "mtp"}
"""What drafts, and the name of its mode."""


@pytest.fixture(params=NAMES)
def models(request, toy_heads):
    """The options that name a target and a head, and the name of the head's mode."""
    target, head = toy_heads[HEADS_AND_TARGETS[request.param]], toy_heads[request.param]
    return ["-m", target, *([] if head == target else ["-d", head]), "-t", "1"], NAMES[request.param]


def run(*arguments, **options):
    result = specgguf(*arguments, **options)
    assert result.returncode == 0, result.stderr
    assert all(line.startswith(b"note: toy guessed") for line in result.stderr.splitlines())  # hardly a word, some do
    return result.stdout


@pytest.mark.parametrize("exact", [[], ["--exact"]], ids=["usual", "exact"])
def test_the_answer_and_who_drafted(models, tmp_path, exact):
    options, mode = models
    home = {"SPECGGUF_HOME": tmp_path}
    options = ["run", *options, *STEADY, *exact, "-n", 40, "--temp", 0.8, "--seed", 3, "--json", "the cat"]
    plain = json.loads(run(*options, "--speculate", "off", **home))
    found = json.loads(run(*options, *FIXED, **home))
    assert found["tokens"] == plain["tokens"]
    assert list(found["speculation"]["by_source"]) == [mode]
    assert found["exact"] is bool(exact)


def test_an_answer_a_line(models):
    options, mode = models
    options = ["run", *options, *STEADY, "--lines", "-n", 20]
    lines = b"the cat\na dog\nthe cat sat\n"
    plain, found = (run(*options, "--speculate", one, stdin=lines).splitlines() for one in ("off", mode))
    assert len(plain) == 3
    assert [json.loads(line)["tokens"] for line in found] == [json.loads(line)["tokens"] for line in plain]


def test_golden_files(models, tmp_path):
    options, mode = models
    prompts, path = tmp_path / "prompts.jsonl", tmp_path / "golden.json"
    prompts.write_text('{"category": "toy", "prompt": "the cat"}\n{"category": "toy", "prompt": "a dog"}\n')
    home = {"SPECGGUF_HOME": tmp_path}
    assert specgguf("golden", "record", path, *options, "-n", 20, "--prompts", prompts, **home).returncode == 0
    report = json.loads(specgguf("golden", "verify", path, "--speculate", mode, "-t", 1, "--json", **home).stdout)
    assert report["passed"] is True


def test_an_arm_of_a_bench(models, tmp_path):
    options, mode = models
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"category": "toy", "prompt": "the cat"}\n')
    options = ["bench", *options, "--prompts", prompts, "-n", 20, "--arm", mode, "--json"]
    result = specgguf(*options, SPECGGUF_HOME=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f'"{mode}"' in result.stdout.decode()


def test_accepted_words_are_shown(models):
    options, mode = models
    options = ["run", *options, "-n", 60, *FIXED, "--show-draft", "the cat"]
    shown, code = on_terminal(*options)
    assert code == 0
    assert mode.encode() in b" ".join(shown.splitlines()[-2:])  # the line may be broken
