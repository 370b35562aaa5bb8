"""Models that are not what they seem, through the executable: what each is, and what to do now."""

import json
import shutil

import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from tests import tiny
from tests.cli.program import failure, specgguf

STEADY = ["--speculate", "off", "-t", 1, "-n", 3]


def changed(source, path, **values):
    """A copy of a file in which some keys have other values; `__` in a name stands for a point."""
    reader = GGUFReader(source)
    writer = GGUFWriter(path, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            inner = field.types[1] if field.types[0] is GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for name, value in values.items():
        kind = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, str: GGUFValueType.STRING}[type(value)]
        writer.kv_data[0].pop(name.replace("__", "."), None)
        writer.add_key_value(name.replace("__", "."), value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    return tiny.finish(writer, path)


@pytest.mark.parametrize("pre", ["tekken", "gpt-4o"])
def test_a_very_long_word_fails_alone(tmp_path, pre):
    path = tiny.write_attention(tmp_path / "bytes.gguf", pre=pre)
    lines = b"A" * 200_000 + b"\nhi\n"
    result = specgguf("run", "-m", path, *STEADY, "--lines", stdin=lines)
    long, short = map(json.loads, result.stdout.splitlines())
    assert "tokens, the context 2048" in long["error"]
    assert short["output_tokens"] == 3


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"llama__pooling_type": 3}, "an embedding model"),
        ({"llama__pooling_type": 4}, "a reranker"),
        ({"llama__attention__causal": False}, "an embedding model"),
        ({"general__type": "adapter"}, "an adapter for a model"),
        ({"general__type": "mmproj"}, "a projector of images or sound"),
    ],
)
def test_what_does_not_generate_text_is_told(toy_models, tmp_path, values, what):
    path = changed(toy_models["target"], tmp_path / "other.gguf", **values)
    for options in (["-m", path], ["-m", toy_models["endless"], "-d", path]):
        message, _ = failure(specgguf("run", *options, "hi"))
        assert message.endswith(f"other.gguf does not generate text token by token: it is {what}")


def test_a_copy_with_no_change_is_as_good(toy_models, tmp_path):
    path = changed(toy_models["target"], tmp_path / "copy.gguf", llama__pooling_type=0)
    answers = [specgguf("run", "-m", model, *STEADY, "hi").stdout for model in (path, toy_models["target"])]
    assert answers[0] == answers[1] != b""


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
        (b"\n<!DOCTYPE html><html><head>", "a web page"),
        (b"<html lang='en'>", "a web page"),
        (b'{"error": "Repository not found"}', "a server's answer"),
        (b"Entry not found", "a server's answer"),
        (b"GGUG", "a .gguf file of a language model"),
    ],
)
def test_what_was_saved_in_a_models_place_is_told(tmp_path, content, hint):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    message, advice = failure(specgguf("run", "-m", path, "hi"))
    assert "is not a usable GGUF file" in message
    assert hint in advice


def test_a_draft_with_another_end_of_text_drafts(toy_models, tmp_path):
    draft = changed(toy_models["endless"], tmp_path / "draft.gguf", tokenizer__ggml__eos_token_id=1)
    models = [
        "-m",
        toy_models["endless"],
        "-t",
        1,
        "-n",
        12,
        "--json",
        "--cache-type-k",
        "f32",
        "--cache-type-v",
        "f32",
    ]
    plain = json.loads(specgguf("run", *models, "--speculate", "off", "hi").stdout)
    found = json.loads(specgguf("run", *models, "-d", draft, "--speculate", "fixed", "hi").stdout)
    assert found["tokens"] == plain["tokens"]
    assert found["speculation"]["accepted"] > 0
    report = json.loads(specgguf("check", "-m", toy_models["endless"], "-d", draft, "--json").stdout)
    assert report["verdict"] == "compatible"


def test_advice_that_no_option_allows_is_ignored_with_a_note(tmp_path):
    odd = tiny.write_attention(tmp_path / "odd.gguf", sampling={"top_k": 40.5, "penalty_repeat": 0.0, "top_p": 0.9})
    result = specgguf("run", "-m", odd, *STEADY, "hi")
    assert result.returncode == 0
    advised = b"odd.gguf advises top-k 40.5, repeat-penalty 0.0, which no option allows: that is ignored\n"
    assert result.stderr == b"note: " + advised
    fine = tiny.write_attention(tmp_path / "fine.gguf", sampling={"top_k": 40.0, "penalty_repeat": 1, "top_p": 0.9})
    assert specgguf("run", "-m", fine, *STEADY, "hi").stderr == b""


def test_rope_without_dimensions_is_refused(toy_models, tmp_path):
    path = changed(toy_models["target"], tmp_path / "rope.gguf", llama__rope__dimension_count=0)
    assert "its rope.dimension_count is 0" in failure(specgguf("run", "-m", path, "hi"))[0]


def test_two_tokens_of_one_text_are_refused(toy_models, tmp_path):
    data = toy_models["target"].read_bytes()
    path = tmp_path / "twice.gguf"
    path.write_bytes(data.replace(b"<0x41>", b"<0x42>", 1))
    assert "have the same text" in failure(specgguf("run", "-m", path, "hi"))[0]


@pytest.fixture
def shards(toy_models, tmp_path):
    """The parts of a model."""
    return split(toy_models["target"], tmp_path / "toy")


def split(source, stem):
    """Write a model as two files, as llama.cpp's own tool does."""
    reader, paths = GGUFReader(source), []
    half = len(reader.tensors) // 2
    for number, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        path = stem.with_name(f"{stem.name}-{number + 1:05d}-of-00002.gguf")
        writer = GGUFWriter(path, "llama")
        for name, field in reader.fields.items():
            if number == 0 and not name.startswith("GGUF.") and name != "general.architecture":
                inner = field.types[1] if field.types[0] is GGUFValueType.ARRAY else None
                writer.add_key_value(name, field.contents(), field.types[0], inner)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in tensors:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        paths.append(tiny.finish(writer, path))
    return paths


def test_a_model_in_parts_answers(shards, toy_models):
    answers = [specgguf("run", "-m", model, *STEADY, "hi").stdout for model in (*shards, toy_models["target"])]
    assert answers[0] == answers[1] == answers[2] != b""


def test_a_part_that_is_cut_is_named(shards):
    shards[1].write_bytes(shards[1].read_bytes()[:-3000])
    message, advice = failure(specgguf("run", "-m", shards[0], "hi"))
    assert f"part 2 of 2, {shards[1]}: it is cut off after" in message
    assert "that part" in advice
    shards[1].write_bytes(b"GG")
    assert f"part 2 of 2, {shards[1]}" in failure(specgguf("run", "-m", shards[0], "hi"))[0]


def test_a_part_of_another_model_is_named(shards, toy_models):
    shutil.copy(shards[0], shards[1])
    assert "it is of another model" in failure(specgguf("run", "-m", shards[0], "hi"))[0]
    shutil.copy(toy_models["target"], shards[1])
    assert "it is no such part of a model" in failure(specgguf("run", "-m", shards[0], "hi"))[0]


def test_parts_with_large_letters_are_told(shards):
    renamed = [part.rename(part.with_suffix(".GGUF")) for part in shards]
    message, advice = failure(specgguf("run", "-m", renamed[0], "hi"))
    assert "does not find the others by its name" in message
    assert "small letters" in advice
