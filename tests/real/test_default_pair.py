"""The pair that runs when nothing is named: Qwen2.5-Coder 1.5B with 0.5B."""

import json
import signal
import time
from pathlib import Path

import pytest

from specgguf.models.header import ModelHeader
from specgguf.models.parity import Parity, compare
from tests.cli.program import failure, specgguf, started


@pytest.fixture(scope="module")
def answer():
    fixed = ("--speculate", "fixed", "-k", 4)  # what auto does depends on the machine
    result = specgguf("run", "--json", "-n", 48, *fixed, "Write a Python function that adds two numbers.", timeout=600)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_it_answers_and_the_draft_helps(answer):
    assert "def " in answer["text"]
    assert answer["target"]["sha256"].startswith("cc324af070c2")
    assert answer["draft"]["sha256"].startswith("1d9614638d18")
    assert answer["speculation"]["acceptance_rate"] > 0.4
    assert answer["speculation"]["mean_acceptance_length"] > 2


def test_parity_of_the_pair_and_of_strangers(answer):
    target = ModelHeader.of_file(Path(answer["target"]["path"]), "target").tokenizer
    draft = ModelHeader.of_file(Path(answer["draft"]["path"]), "draft").tokenizer
    assert compare(target, draft).verdict is Parity.IDENTICAL
    assert target.fingerprint == answer["target"]["fingerprint"] == answer["draft"]["fingerprint"]
    message, _ = failure(specgguf("run", "-d", "smollm2-135m:Q4_1", "hi"))
    assert "first differing id 0: target '!', draft '<|endoftext|>'" in message


def test_a_prompt_longer_than_the_context(answer):
    message, _ = failure(specgguf("run", "-c", 50, "one two three " * 40))
    assert "the prompt has 1" in message
    assert "the context 50" in message


def test_ctrl_c_during_a_long_prefill_is_prompt(answer):
    text = "All work and no play makes Jack a dull boy. " * 600
    with started("run") as process:
        process.stdin.write(text.encode())
        process.stdin.close()
        process.stdin = None
        time.sleep(8)
        assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        waited = time.monotonic() - began
    assert (process.returncode, out, err) == (130, b"", b"")
    assert waited < 3  # a whole prefill takes a minute here, one batch several seconds
