"""`specgguf check`: parity of files on disk, of the catalogue, and on a hub, by their headers alone."""

import json
import os

import pytest

from tests.cli.program import failure, specgguf
from tests.headers import heads
from tests.models.hub.server import REPO

TOY = {"tokens": None, "vocab_size": 269, "target_layers": [0, 0, 0]}
"""Of a head for the toy target."""


def report(*arguments, code=0, **variables):
    result = specgguf("check", "--json", *arguments, **variables)
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("draft", "verdict"), [("draft", "identical"), ("padded", "compatible"), ("foreign", "incompatible")]
)
def test_verdicts(toy_models, draft, verdict):
    code = 1 if verdict == "incompatible" else 0
    found = report("-m", toy_models["target"], "-d", toy_models[draft], code=code)
    assert found["verdict"] == verdict
    assert found["bytes_read"] == 0
    assert (found["target"]["num_tokens"], found["target"]["special"]["bos"]) == (269, 1)
    assert (found["target"]["fingerprint"] == found["draft"]["fingerprint"]) == (verdict == "identical")
    if verdict == "incompatible":
        assert found["differences"] == [{"id": 268, "target": "▁dog", "draft": "▁fox"}]


def test_for_people(toy_models):
    result = specgguf("check", "-m", toy_models["target"], "-d", toy_models["foreign"])
    lines = result.stdout.decode().splitlines()
    assert result.returncode == 1
    assert lines[0] == "incompatible: different text at id 268"
    assert lines[-1] == "id 268: target '▁dog', draft '▁fox'"


def test_the_mtp_layers_of_the_target_itself(tmp_path):
    qwen = heads.file(tmp_path, heads.target, architecture="qwen35", nextn=1)
    for models in (("-m", qwen), ("-m", qwen, "-d", qwen)):
        found = report(*models)
        assert (found["verdict"], found["draft"]["kind"]) == ("identical", "mtp")
    lines = specgguf("check", "-m", qwen).stdout.decode().splitlines()
    assert lines[3] == f"draft  {qwen} (MTP head)"


def test_a_head_that_fits(toy_models, tmp_path):
    head = heads.file(tmp_path, heads.eagle3, **TOY)
    assert report("-m", toy_models["target"], "-d", head)["draft"]["kind"] == "eagle3"
    lines = specgguf("check", "-m", toy_models["target"], "-d", head).stdout.decode().splitlines()
    assert lines[0] == "identical: no difference"
    assert lines[3:] == [f"draft  {head} (EAGLE-3 head)", "       takes the target's tokenizer"]


def test_a_head_that_does_not_fit_and_why(toy_models, tmp_path):
    head = heads.file(tmp_path, heads.dflash, **{**TOY, "vocab_size": 300, "target_layers": [0, 0, 1]})
    found = report("-m", toy_models["target"], "-d", head, code=1)
    assert found["reasons"] == [
        "it reads layer 1 of the target, and llama.cpp hands out layers 0 to 0",
        "number of ids 269 in the target, 300 in the head",
    ]


def test_a_head_is_no_target(tmp_path):
    message, hint = failure(specgguf("run", "-m", heads.file(tmp_path, heads.eagle3), "hi"))
    assert message.endswith("is a draft head (EAGLE-3 head): no model that generates text by itself")
    assert "--draft" in hint


def test_one_model_is_not_enough(toy_models):
    failure(specgguf("check", "-m", toy_models["target"]), code=2)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_pair_on_the_hub_is_judged_by_its_first_megabytes(world, toy_models, ranges):
    world.hub.ranges = ranges
    tail = os.urandom(30_000_000)
    world.hub.files = {
        "toy-q4_0.gguf": toy_models["target"].read_bytes() + tail,
        "toy-q8_0.gguf": toy_models["foreign"].read_bytes() + tail,
    }
    found = report("-m", f"hf:{REPO}:Q4_0", "-d", f"hf:{REPO}:Q8_0", code=1, **world.variables)
    assert found["verdict"] == "incompatible"
    assert 0 < found["bytes_read"] <= 2 * (4 << 20)
    assert not (world.folder / "store" / "files").exists()


def test_what_is_no_model_on_the_hub(world):
    world.hub.files = {"toy-q4_0.gguf": b"<html>not found</html>" * 1000}
    message, _ = failure(specgguf("check", "-m", f"hf:{REPO}", "-d", f"hf:{REPO}", **world.variables))
    assert message.startswith(f"target model: {REPO}/toy-q4_0.gguf is not a usable GGUF file")
