"""models.toml: what is in the shipped one, and how mistakes in a user's own are named."""

import subprocess
from pathlib import Path

import pytest

from specgguf.models.catalogue import load_catalogue
from specgguf.models.files import DerivedFile, SplitFile
from tests.cli.program import environment, failure, here
from tests.models.hub.world import NAME

SCRIPTS = Path(__file__).parents[3] / "scripts"

GOOD = """\
default = "mine"

[pairs.mine]
target = "toy:Q4_0"
draft = "toy:Q8_0"
draft_max = 3

[models.toy.Q4_0]
repo = "toy/toy-GGUF"
revision = "0000000000000000000000000000000000000000"
path = "toy.gguf"
size = 5
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"

[models.toy.Q8_0]
derived_from = "Q4_0"

[models.big.Q4_K_M]
repo = "toy/big-GGUF"
revision = "0000000000000000000000000000000000000000"
licence = "MIT"

[[models.big.Q4_K_M.parts]]
path = "big-00001-of-00002.gguf"
size = 5
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"

[[models.big.Q4_K_M.parts]]
path = "big-00002-of-00002.gguf"
size = 6
sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "specgguf" / "models.toml"
    path.parent.mkdir()
    path.write_text(GOOD)
    return path


def test_a_catalogue_of_ones_own_adds_to_the_shipped_one(own):
    shipped = "qwen2.5-coder-1.5b"
    catalogue = load_catalogue(own)
    assert (catalogue.default, catalogue.pair(None).draft_max) == ("mine", 3)
    assert catalogue.pair(shipped).draft_max is None
    assert isinstance(catalogue.file("toy:q8_0"), DerivedFile)
    big = catalogue.file("big")
    assert isinstance(big, SplitFile)
    assert [part.size for part in big.parts] == [5, 6]
    own.write_text(f'[pairs."{shipped}"]\ntarget = "qwen2.5-coder-3b"\ndraft = "qwen2.5-coder-0.5b"\n')
    overridden = load_catalogue(own)
    assert overridden.file(overridden.pair(shipped).target).repo == "Qwen/Qwen2.5-Coder-3B-Instruct-GGUF"


def test_models_of_the_shipped_catalogue_can_be_extended(own):
    own.write_text("[models.smollm2-135m.Q8_0]\nderived_from = 'Q4_1'\n")
    catalogue = load_catalogue(own)
    assert catalogue.file("smollm2-135m:Q8_0").source == catalogue.file("smollm2-135m:Q4_1")


def test_the_shipped_catalogue():
    catalogue = load_catalogue(None)
    assert len(catalogue.pairs) >= 14
    for pair in catalogue.pairs.values():
        target, draft = (catalogue.file(reference).hub_files for reference in (pair.target, pair.draft))
        assert sum(part.size for part in draft) <= sum(part.size for part in target)
        assert pair.purpose


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ('draft = "toy:Q8_0"', 'drafts = "toy:Q8_0"', 5, "pairs.mine.drafts: unknown key"),
        ('draft = "toy:Q8_0"', "", 3, "pairs.mine.draft: is missing"),
        ('draft = "toy:Q8_0"', 'draft = "tpy:Q8_0"', 5, "pairs.mine.draft: neither a file nor a known model: tpy:Q8_0"),
        ('draft = "toy:Q8_0"', 'draft = "toy:Q9_0"', 5, "pairs.mine.draft: toy has no quantization Q9_0"),
        ('draft = "toy:Q8_0"', "draft = 5", 5, "pairs.mine.draft: must be a string"),
        ("draft_max = 3", "draft_max = 0", 6, "pairs.mine.draft_max: must be positive"),
        ("draft_max = 3", "draft_max = true", 6, "pairs.mine.draft_max: must be a whole number"),
        ('default = "mine"', 'default = "yours"', 1, "default: there is no pair 'yours'"),
        ('default = "mine"', "modles = 5", 1, "modles: unknown key"),
        ("size = 5\n", "size = -5\n", 12, "models.toy.Q4_0.size: must be positive"),
        ("size = 5\n", 'size = "5"\n', 12, "models.toy.Q4_0.size: must be a whole number"),
        ('revision = "0', 'revision = "z', 10, "models.toy.Q4_0.revision: must be a commit"),
        ('repo = "toy/toy-GGUF"', 'repo = "../toy"', 9, "models.toy.Q4_0.repo: must be OWNER/NAME"),
        ('repo = "toy/toy-GGUF"', 'repo = "toy"', 9, "models.toy.Q4_0.repo: must be OWNER/NAME"),
        ('path = "toy.gguf"', 'path = "../toy.gguf"', 11, "models.toy.Q4_0.path: must stay inside"),
        ('path = "toy.gguf"', "", 8, "models.toy.Q4_0.path: is missing"),
        ('sha256 = "0', 'sha256 = "Z', 13, "models.toy.Q4_0.sha256: must be 64 hexadecimal"),
        ('derived_from = "Q4_0"', 'derived_from = "Q4_0"\nsize = 3', 17, "models.toy.Q8_0.size: unknown key"),
        ("draft_max = 3", 'purpose = "two\\nlines"', 6, "pairs.mine.purpose: must be one line"),
        ("[models.big.", '[models."b:g".', None, "a name must not have a colon"),
        (
            'derived_from = "Q4_0"',
            'derived_from = "Q5_0"',
            16,
            "models.toy.Q8_0.derived_from: toy has no Q5_0 to download",
        ),
        ("size = 6", "length = 6", 30, "models.big.Q4_K_M.parts.1.length: unknown key"),
        ("size = 6", "size = 0", 30, "models.big.Q4_K_M.parts.1.size: must be positive"),
        ('[models.toy.Q8_0]\nderived_from = "Q4_0"', "[models]\ntoy = 5", None, "models.toml"),
    ],
)
def test_a_mistake_is_named_by_line_and_key(own, old, new, line, what):
    assert GOOD.count(old) >= 1
    own.write_text(GOOD.replace(old, new, 1))
    message, hint = failure(here("pairs", XDG_CONFIG_HOME=own.parent.parent))
    assert what in message
    assert str(own) in message
    assert hint
    if line:
        assert f"line {line}:" in message, message


def test_a_catalogue_that_is_no_file_is_not_ignored(own):
    own.unlink()
    own.symlink_to("nowhere")
    assert "cannot read" in failure(here("pairs", XDG_CONFIG_HOME=own.parent.parent))[0]
    own.unlink()
    own.mkdir()
    assert "cannot read" in failure(here("pairs", XDG_CONFIG_HOME=own.parent.parent))[0]


@pytest.mark.parametrize("content", ["[pairs\n[models]", "\0", "a = 1\na = 2\n[pairs]"])
def test_what_is_no_toml_is_named_by_its_line(own, content):
    own.write_text(content)
    message, _ = failure(here("pairs", XDG_CONFIG_HOME=own.parent.parent))
    assert str(own) in message
    assert "line" in message


def refreshed(world):
    result = subprocess.run(
        [SCRIPTS / "refresh-catalogue", "toy"],
        capture_output=True,
        text=True,
        env=environment(**world.variables),
        check=False,
    )
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()


def test_the_catalogue_is_compared_with_the_hub(world):
    world.hub.files = {NAME: world.content}
    code, lines = refreshed(world)
    assert code == 0
    assert [line.partition(": ")[2] for line in lines] == ["as it should be"] * 2
    world.hub.files = {NAME: world.content + b"x"}
    code, lines = refreshed(world)
    assert code == 1
    assert f"size is {len(world.content)}, the hub says {len(world.content) + 1}; sha256 is {world.sha256}" in lines[0]
    world.hub.files = {}
    assert "has no such file" in refreshed(world)[1][0]
    world.hub.status = 404
    code, lines = refreshed(world)
    assert code == 1
    assert "no such repository" in lines[0]
