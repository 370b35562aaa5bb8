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


def test_what_tune_has_measured_is_shown(toy_models, tmp_path):
    draft = tiny.write_attention(tmp_path / "draft.gguf", seed=2, n_ctx=100_000)
    models = ["-m", toy_models["endless"], "-d", draft, "-t", 1]

    def told():
        return json.loads(specgguf("doctor", *models, "--json", SPECGGUF_HOME=tmp_path).stdout)["costs"]

    assert told() == []
    tuned = json.loads(specgguf("tune", *models, "--json", SPECGGUF_HOME=tmp_path, timeout=300).stdout)
    costs = told()
    assert [cost["depth"] for cost in costs] == [0, 2048]
    for cost, depth in zip(costs, ("128", "3000"), strict=True):
        assert cost["width_s"] == pytest.approx(tuned["width_s"][depth])
        assert cost["draft_step_s"]["model"] == pytest.approx(tuned["draft_step_s"][depth])
    lines = specgguf("doctor", *models, SPECGGUF_HOME=tmp_path).stdout.decode().splitlines()
    place = lines.index("batches after 2048 or more tokens, with weight repacking on, f16/f16 cells")
    assert lines[place + 1].startswith(f"  ms by width             1: {1000 * costs[1]['width_s']['1']:.1f}, 2: ")
    assert lines[place + 2].startswith("  ms of a draft step      model ")
    assert specgguf("run", *models, "-n", 8, "the cat", SPECGGUF_HOME=tmp_path).returncode == 0
    assert [cost["depth"] for cost in told()] == [0, 2048]  # what an answer has taught takes no other depth's place
    assert told()[1] == costs[1]
