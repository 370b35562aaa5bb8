"""`specgguf pull` and `specgguf pairs` against a hub on this machine."""

import json

from tests.cli.program import failure, specgguf
from tests.models.hub.server import REPO
from tests.models.hub.world import NAME, NO_HUB


def add_pair(world):
    own = world.folder / "config" / "specgguf" / "models.toml"
    own.write_text(own.read_text() + "\n[pairs.toys]\ntarget = 'toy:Q4_0'\ndraft = 'toy:Q8_0'\npurpose = 'playing'\n")


def row(world):
    result = specgguf("pairs", "--json", **world.variables)
    assert (result.returncode, result.stderr) == (0, b"")
    return next(entry for entry in json.loads(result.stdout) if entry["name"] == "toys")


def test_a_pair_is_fetched_and_shown_as_here(world):
    add_pair(world)
    assert row(world)["target"] == {"reference": "toy:Q4_0", "size": len(world.content), "path": None}
    plan = specgguf("pull", "--dry-run", "toys", **world.variables)
    assert plan.returncode == 0
    assert NAME in plan.stdout.decode().splitlines()[0]
    assert "free in" in plan.stdout.decode().splitlines()[-1]
    assert world.hub.requests == []
    result = specgguf("pull", "toys", **world.variables)
    target, draft = result.stdout.decode().splitlines()
    assert (result.returncode, result.stderr, target) == (0, b"", str(world.path))
    assert row(world)["target"]["path"] == target
    assert row(world)["draft"]["path"] == draft
    assert world.gets() == [None]
    assert specgguf("pull", "toys", "toy:Q4_0", **{**world.variables, "HF_ENDPOINT": NO_HUB}).returncode == 0
    listed = specgguf("pairs", **world.variables).stdout.decode()
    assert any(line.split()[0] == "toys" and "on disk" in line and "playing" in line for line in listed.splitlines())


def test_a_reference_to_the_hub_can_be_pulled(world):
    world.hub.files = {NAME: world.content}
    result = specgguf("pull", f"hf:{REPO}", **world.variables)
    assert result.stdout.decode() == f"{world.path}\n"


def test_what_cannot_be_pulled(world):
    assert "nonsense" in failure(specgguf("pull", "nonsense", **world.variables))[0]
    message, hint = failure(specgguf("pull", "owner/repo", **world.variables))
    assert "no such file: owner/repo" in message
    assert "hf:owner/repo" in hint
    failure(specgguf("pull", "/etc/passwd", **world.variables))
    assert "is a pair" in failure(specgguf("run", "-m", "tiny", "hi", **world.variables))[1]
    assert "is a model" in failure(specgguf("run", "-p", "toy", "hi", **world.variables))[1]
    failure(specgguf("pull", **world.variables), code=2)
