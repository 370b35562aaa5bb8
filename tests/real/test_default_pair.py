"""The pair that runs when nothing is named: Qwen2.5-Coder 1.5B with 0.5B."""

import json
from pathlib import Path

import pytest

from specgguf.headers.parity import Parity, compare
from specgguf.models.header import ModelHeader
from tests.cli.program import failure, specgguf

TOKEN = 9891


@pytest.fixture(scope="module")
def answer():
    """Of ten tokens, all the same, so that all drafts are right."""
    options = ("--speculate", "fixed", "-k", 4, "--logit-bias", f"{TOKEN}=1000")
    result = specgguf("run", "--json", "-n", 10, *options, "Count.", timeout=600)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_it_answers_and_the_draft_helps(answer):
    assert answer["target"]["sha256"].startswith("cc324af070c2")
    assert answer["draft"]["sha256"].startswith("1d9614638d18")
    assert answer["tokens"] == [TOKEN] * 10
    assert answer["speculation"]["rounds"] == 2
    assert answer["speculation"]["acceptance_rate"] == 1


def test_parity_of_the_pair_and_of_strangers(answer):
    target = ModelHeader.of_file(Path(answer["target"]["path"]), "target").tokenizer
    draft = ModelHeader.of_file(Path(answer["draft"]["path"]), "draft").tokenizer
    assert compare(target, draft).verdict is Parity.IDENTICAL
    assert target.fingerprint == answer["target"]["fingerprint"] == answer["draft"]["fingerprint"]
    message, _ = failure(specgguf("run", "-d", "smollm2-135m:Q4_1", "hi"))
    assert "first differing id 0: target '!', draft '<|endoftext|>'" in message
