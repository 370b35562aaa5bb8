"""`specgguf doctor`: what it says of a pair before anything is loaded."""

import json
import math

import pytest

from tests import tiny
from tests.cli.damage import Toy, run, value
from tests.cli.program import failure, specgguf


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        ("llama", "eagle3", {"target": "partial", "draft": "partial"}),
        ("qwen35", "qwen35", {"target": "snapshots", "draft": "partial"}),  # its own MTP layer drafts
        ("qwen35", "recurrent", {"target": "snapshots", "draft": "checkpoint"}),
        ("recurrent", None, {"target": "checkpoint"}),
    ],
)
def test_the_kind_of_rollback_is_named(toy_heads, toy_models, target, draft, expected):
    files = {**toy_models, **toy_heads}
    options = ["-m", files[target], *(["-d", files[draft]] if draft else [])]
    report = json.loads(specgguf("doctor", *options, "--json").stdout)
    assert report["rollback"] == expected
    assert report["draft"] == (str(files[draft]) if draft else None)
    shown = specgguf("doctor", *options).stdout.decode()
    assert f"rollback:  {', '.join(f'{role} {kind}' for role, kind in expected.items())}\n" in shown


def test_no_weights_are_loaded(toy_heads, tmp_path):
    """Of a model of 3 GB, which are a hole in the file."""
    gigabytes = Toy.of_file(toy_heads["llama"])
    tensors, end = [], 0
    for name, dims, kind, _ in gigabytes.tensors:
        tensors.append((name, [1 << 20 if number == tiny.FEED else number for number in dims], kind, end))
        end += 4 * math.prod(tensors[-1][1])
    gigabytes.weights, gigabytes.tensors = b"", tensors
    path = tmp_path / "gigabytes.gguf"
    path.write_bytes(gigabytes.having({"llama.feed_forward_length": value(1 << 20)}))
    with path.open("ab") as file:
        file.truncate(path.stat().st_size + end)
    assert path.stat().st_size > 3 << 30
    result, num_bytes, _ = run("doctor", "-m", path, "--json")
    assert json.loads(result.stdout)["rollback"] == {"target": "partial"}
    assert num_bytes < 1 << 29


def test_a_draft_that_is_no_model_fails_in_two_lines(toy_heads, tmp_path):
    (tmp_path / "draft.gguf").write_bytes(b"GGUF")
    said, _ = failure(specgguf("doctor", "-m", toy_heads["llama"], "-d", tmp_path / "draft.gguf"))
    assert said.startswith("draft model: ")


def test_features_of_the_processor_have_a_line_of_their_own(toy_models):
    lines = specgguf("doctor", "-m", toy_models["endless"]).stdout.decode().splitlines()
    report = json.loads(specgguf("doctor", "-m", toy_models["endless"], "--json").stdout)
    assert f"features:  {', '.join(report['features'])}" in lines
    (devices,) = (line for line in lines if line.startswith("devices:"))
    assert " = 1" not in devices
    assert " | " not in devices


def test_lines_at_once_and_what_tune_measured_are_shown_once_they_are_known(toy_models, tmp_path):
    home, models = {"SPECGGUF_HOME": tmp_path}, ["-m", toy_models["endless"], "-d", toy_models["draft"]]
    shown = specgguf("doctor", *models, **home).stdout.decode()
    assert "at once:   not known yet\n" in shown
    assert "tune" not in shown
    tuned = json.loads(specgguf("tune", *models, "--json", **home).stdout)
    report = json.loads(specgguf("doctor", *models, "--json", **home).stdout)
    assert report["at_once"] == tuned["at_once"]
    assert report["tuned"]["noise"] == tuned["noise"]
    shown = specgguf("doctor", *models, **home).stdout.decode()
    assert f"at once:   {tuned['at_once']} line" in shown
    assert "\nmeasured by tune, 20" in shown
    assert "\nwidth  ms at 0-2047 tokens" in shown
    assert "\ndraft step (model) at 0-2047 tokens: " in shown
    assert specgguf("run", *models, "-n", 8, "the cat", **home).returncode == 0
    after = json.loads(specgguf("doctor", *models, "--json", **home).stdout)
    assert after["tuned"] == report["tuned"]  # what an answer has taught takes no other depth's place
    other = json.loads(specgguf("doctor", "-m", toy_models["endless"], "-d", "none", "--json", **home).stdout)
    assert (other["at_once"], other["tuned"]) == (None, None)
