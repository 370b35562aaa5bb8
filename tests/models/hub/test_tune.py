"""`specgguf tune`: what it remembers and how that is used, not how fast anything is."""

import json
import re
from pathlib import Path

import pytest

from specgguf.exact.profiles import Profiles
from specgguf.measure.tune import advice_key, best_fixed
from tests.cli.program import failure, specgguf

PAIR = "[pairs.toys]\ntarget = 'toy:Q4_0'\ndraft = 'toy:Q4_0'\n"


@pytest.fixture
def toys(world):
    own = world.folder / "config" / "specgguf" / "models.toml"
    own.write_text(f"{own.read_text()}\n{PAIR}")
    return world


def run(world, *arguments):
    result = specgguf(*arguments, **world.variables)
    assert result.returncode == 0, result.stderr
    return result


def report(world, *arguments):
    return json.loads(run(world, *arguments, "-t", 1, "--json").stdout)


def draft_of(world, *arguments):
    return Path(report(world, "run", "-p", "toys", "-n", 2, *arguments, "hi")["draft"]["path"]).parent.name


def costs(world):
    """What is remembered of batches behind 128 tokens, by file."""
    paths = (world.folder / "store" / "profiles").glob("*.json")
    records = {path: json.loads(path.read_text()) for path in paths}
    return {
        path: record["measurement"]["tuned"]["tables"]["11"]
        for path, record in records.items()
        if record["fingerprint"].get("what") == "costs by sitting, depth and drafter"
    }


def step_of(entry):
    return entry["drafters"]["model"]["step"]


def test_drafting_starts_with_what_was_measured(toys):
    found = report(toys, "tune", "-p", "toys")
    ((depth, times),) = found["width_s"].items()
    assert int(depth) == 128
    assert set(times) == set(map(str, (*range(1, 18), 32, 64)))
    assert 1 <= found["at_once"] <= 64
    step_s = pytest.approx(found["draft_step_s"][depth])
    (path,) = (path for path, known in costs(toys).items() if step_of(known) == step_s)
    assert costs(toys)[path]["times"] == pytest.approx(times)
    # Other figures than measured, so that it is seen that they are used.
    others = {"times": {width: 0.01 * int(width) for width in times}, "drafters": {"model": {"step": 0.005}}}
    others = costs(toys)[path] | others
    profiles = Profiles(path.parent, lambda _: "", lambda _: None)
    record = json.loads(path.read_text())
    tuned = record["measurement"]["tuned"] | {"tables": {"11": others}}
    profiles.save(record["fingerprint"], {"tuned": tuned, "sittings": []})
    shown = run(toys, "run", "-p", "toys", "-n", 1, "-t", 1, "-v", "hi").stderr.decode()
    assert re.search(r"drafts: model: .* plain step 10.0 ms, draft step 5.0 ms", shown)


def test_a_faster_draft_is_made_and_used_from_then_on(toys):
    saving = report(toys, "tune", "-p", "toys", "--yes")["requantized_draft"]["saving"]
    made = list((toys.folder / "store" / "derived").glob("*.gguf"))
    assert len(made) == len(costs(toys)) - 1 == bool(saving)
    assert (draft_of(toys) == "derived") == bool(saving)
    assert not list((toys.folder / "store").glob("tmp*"))


def test_advice_holds_where_nobody_names_a_draft(toys):
    run(toys, "pull", "toys")
    assert draft_of(toys, "--draft-quant", "Q4_1") == "derived"
    assert draft_of(toys) == toys.sha256
    profiles = Profiles(toys.folder / "store" / "profiles", lambda _: "", lambda _: None)
    profiles.save(advice_key(toys.sha256), {"quant": "Q4_1"})
    assert draft_of(toys) == "derived"
    assert draft_of(toys, "--draft-quant", "Q4_0") == toys.sha256
    assert draft_of(toys, "--speculate", "fixed") == "derived"
    assert report(toys, "tune", "-p", "toys")["requantized_draft"] is None
    next((toys.folder / "store" / "derived").glob("*.gguf")).unlink()
    assert draft_of(toys) == toys.sha256


def test_a_plain_table(toys):
    lines = run(toys, "tune", "-p", "toys").stdout.decode().splitlines()
    assert lines[0].split() == ["width", "ms", "at", "128", "relative", "tokens/s", "of", "as", "many", "texts"]
    assert lines[1].split()[::2] == ["1", "1.00"]
    assert lines[-1].startswith("draft step (model) after 128 tokens: ")


def test_quantizations_at_hand_are_compared_and_the_others_estimated(toys):
    run(toys, "quantize", "toy:Q4_0", "Q5_0")
    for model in ("toy:Q4_0", "toy:Q5_0"):
        found = report(toys, "tune", "-m", model, "--quants")
        known = {row["quant"]: row["known"] for row in found["quants"]}
        assert known == {"Q4_0": "measured", "Q5_0, made here": "measured"}
    for row in found["quants"]:
        assert row["plain"] == pytest.approx(1 / row["width_s"]["1"])
        assert row["speculative"] >= row["plain"]
    lines = run(toys, "tune", "-p", "toys", "--quants").stdout.decode().splitlines()
    assert lines[-1].startswith("fastest plain: Q")
    assert "if 80% of the drafted tokens are accepted" in lines[-1]


def test_what_is_not_on_disk_is_estimated_by_size(toys):
    own = toys.folder / "config" / "specgguf" / "models.toml"
    entry = f"[models.toy.F16]\nrepo = 'toy/toy-GGUF'\nrevision = '{'0' * 40}'\npath = 'toy-f16.gguf'\n"
    own.write_text(f"{own.read_text()}\n{entry}size = {3 * len(toys.content)}\nsha256 = '{'1' * 64}'\n")
    here, there = report(toys, "tune", "-p", "toys", "--quants")["quants"]
    assert there["known"] == "estimated from the size of Q4_0"
    assert there["plain"] == pytest.approx(here["plain"] / 3)


def test_without_a_draft_the_target_alone_is_measured(toys, toy_models):
    found = report(toys, "tune", "-m", toy_models["target"])
    assert found["draft_step_s"] == {}
    assert found["requantized_draft"] is None


@pytest.mark.parametrize("command", ["tune", "bench"])
def test_a_recurrent_target_is_measured_like_any_other(toys, toy_models, command):
    options = ["-n", 4, "-k", 2] if command == "bench" else []
    prompts = toys.folder / "prompts.jsonl"
    prompts.write_text('{"category": "chat", "prompt": "the cat"}\n')
    options += ["--prompts", prompts] if command == "bench" else []
    result = specgguf(command, "-m", toy_models["recurrent"], "-t", 1, "--json", *options, **toys.variables)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["target"]
    assert "no such file" in failure(specgguf(command, "-m", "none.gguf", **toys.variables))[0]


def test_the_best_fixed_length():
    free = {1: 1.0, 2: 1.0, 3: 1.0}
    assert best_fixed(free, 0.0) == (pytest.approx(1 + 0.8 + 0.64), 2)
    assert best_fixed({1: 1.0, 2: 3.0}, 1.0) == (1.0, 0)
