"""hf: references and split files, by the real executable against a hub on this machine."""

import json
import shutil

import pytest

from specgguf.headers import gguf
from tests.cli.program import failure, specgguf
from tests.headers import heads
from tests.models.hub.server import REPO, REVISION
from tests.models.hub.world import NO_HUB


@pytest.fixture
def repository(world, toy_models):
    target, draft = toy_models["target"].read_bytes(), toy_models["draft"].read_bytes()
    world.hub.files = {
        "README.md": b"not a model",
        "toy-q4_k_m.gguf": target,
        "toy-q8_0.gguf": draft,
        "mmproj-toy-f16.gguf": b"GGUF",
    }
    return world


def used(world, reference, **variables):
    result = world.run("--json", model=reference, **variables)
    assert (result.returncode, result.stderr) == (0, b"")
    return json.loads(result.stdout)["target"]


def test_a_repository_a_quantization_a_file(repository):
    assert used(repository, f"hf:{REPO}")["path"].endswith("toy-q4_k_m.gguf")
    assert used(repository, f"hf:{REPO}:Q8_0")["path"].endswith("toy-q8_0.gguf")
    assert used(repository, f"hf:{REPO}@main:toy-q8_0.gguf")["path"].endswith("toy-q8_0.gguf")


def test_a_reference_is_pinned_and_then_needs_no_network(repository):
    first = used(repository, f"hf:{REPO}")
    repository.hub.files["toy-q4_k_m.gguf"] = b"replaced on the hub"
    assert used(repository, f"hf:{REPO}", HF_ENDPOINT=NO_HUB) == first
    lock = json.loads((repository.folder / "store" / "lock.json").read_text())
    assert lock[f"hf:{REPO}"][0]["revision"] == REVISION


def test_the_same_reference_means_a_model_as_target_and_a_head_as_draft(repository, tmp_path):
    head = heads.file(tmp_path, heads.eagle3, tokens=None, vocab_size=269, target_layers=[0, 0, 0])
    repository.hub.files["eagle3-toy.gguf"] = head.read_bytes()
    result = specgguf("check", "-m", f"hf:{REPO}", "-d", f"hf:{REPO}", "--json", **repository.variables)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["target"]["path"] == f"{REPO}/toy-q4_k_m.gguf"
    assert found["draft"]["path"] == f"{REPO}/eagle3-toy.gguf"
    assert (found["verdict"], found["draft"]["kind"]) == ("identical", "eagle3")
    lock = json.loads((repository.folder / "store" / "lock.json").read_text())
    pinned = {reference: part["path"] for reference, (part,) in lock.items()}
    assert pinned == {f"hf:{REPO}": "toy-q4_k_m.gguf", f"hf:{REPO} as draft": "eagle3-toy.gguf"}


def test_an_unknown_quantization_lists_what_there_is(repository):
    message, hint = failure(repository.run(model=f"hf:{REPO}:Q5_K_M"))
    assert "no Q5_K_M; choose from Q4_K_M (0.0 GB), Q8_0 (0.0 GB)" in message
    assert REPO in hint


@pytest.mark.parametrize("reference", ["hf:", "hf:one", "hf:a/b/c", "hf:a/b:", "hf:../../etc"])
def test_what_is_no_reference(repository, reference):
    assert failure(repository.run(model=reference), code=2)[0].startswith(reference)


def test_a_hub_out_of_reach(repository):
    message, hint = failure(repository.run(model=f"hf:{REPO}", HF_ENDPOINT=NO_HUB))
    assert f"cannot reach {NO_HUB}/{REPO}" in message
    assert "HF_ENDPOINT" in hint


def test_a_damaged_lock_file(repository):
    lock = repository.folder / "store" / "lock.json"
    lock.parent.mkdir()
    lock.write_text("{")
    message, hint = failure(repository.run(model=f"hf:{REPO}"))
    assert str(lock) in message
    assert "delete it" in hint


@pytest.fixture(scope="session")
def split_model(toy_models, tmp_path_factory):
    """The toy model in two files, as llama.cpp's gguf-split writes them: all metadata in the first."""
    import numpy as np
    from gguf import GGUFReader, GGUFWriter

    folder = tmp_path_factory.mktemp("split")
    reader = GGUFReader(toy_models["target"])
    half = len(reader.tensors) // 2
    parts = []
    for number, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        path = folder / f"split-Q4_0-{number + 1:05}-of-00002.gguf"
        writer = GGUFWriter(path, "llama")
        if number == 0:
            for field in reader.fields.values():
                if field.name.startswith("GGUF.") or field.name == "general.architecture":
                    continue
                kinds = [*field.types, None]
                writer.add_key_value(field.name, field.contents(), kinds[0], sub_type=kinds[1])
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in tensors:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        assert gguf.parse(path.read_bytes())
        parts.append(path)
    return parts


def plain_text(path):
    result = specgguf("run", "-m", path, "--speculate", "off", "-n", 8, "hi")
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_split_files_on_disk_by_any_part_or_the_stem(split_model, toy_models, tmp_path):
    whole = plain_text(toy_models["target"])
    assert plain_text(split_model[0]) == whole
    assert plain_text(split_model[1]) == whole
    assert plain_text(split_model[0].parent / "split-Q4_0") == whole
    alone = tmp_path / "alone" / split_model[0].name
    alone.parent.mkdir()
    shutil.copy(split_model[0], alone)
    assert "missing parts: 2" in failure(specgguf("run", "-m", alone.parent / "split-Q4_0", "hi"))[0]
    lonely = tmp_path / split_model[1].name
    shutil.copy(split_model[1], lonely)
    message, hint = failure(specgguf("run", "-m", lonely, "hi"))
    assert "missing parts: 1" in message
    assert "folder" in hint


def test_split_files_on_the_hub_are_fetched_whole(repository, split_model, toy_models):
    repository.hub.files = {part.name: part.read_bytes() for part in split_model}
    found = used(repository, f"hf:{REPO}")
    assert found["path"].endswith(split_model[0].name)
    assert (
        repository.run(model=f"hf:{REPO}", HF_ENDPOINT=NO_HUB).stdout
        == specgguf("run", "-m", toy_models["target"], "--speculate", "off", "-n", 2, "hi").stdout
    )
