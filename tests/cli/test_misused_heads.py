"""Heads where they do not belong, and limits of llama.cpp that end the process: none of them gets that far."""

import pytest

from tests.cli.damage import BOOL, I32, Toy, array, complaint, run, value
from tests.cli.program import failure, specgguf

PROMPT = "the cat"
LONG = "a dog on the mat and the cat sat. " * 40
"""Some 1,400 tokens: several batches."""
DRAFTED = ["--speculate", "fixed", "-k", "4", "-n", "8"]
ENDLESS = ["--speculate", "fixed", "-k", "511", "-n", "600", "--stop", "a"]


def taps(*layers, of="eagle3"):
    return {f"{of}.target_layers": array(I32, layers)}


MISFITS = {
    # A head with the context of a model, and the other way round.
    "a head as the target": ("eagle3", None, {}, DRAFTED),
    "a block head as the target": ("dflash", None, {}, DRAFTED),
    "MTP layers as the target": ("mimo2's layer", None, {}, DRAFTED),
    "an assistant as the target": ("assistant", None, {}, DRAFTED),
    "a head for itself": ("eagle3", "eagle3", {}, DRAFTED),
    # Layers that are not handed out.
    "a tap behind the last layer": ("llama", "eagle3", taps(1, 2, 4), DRAFTED),
    "a tap far behind the last layer": ("llama", "eagle3", taps(1, 2, 2**31 - 1), DRAFTED),
    "a tap before the first layer": ("llama", "eagle3", taps(-1, 2, 3), DRAFTED),
    "two taps": ("llama", "eagle3", taps(1, 2), DRAFTED),
    "no taps": ("llama", "dflash", taps(of="dflash"), DRAFTED),
    "taps of an architecture without them": ("glm4moe", "eagle3", {}, DRAFTED),
    "a block's taps of an architecture without them": ("glm4moe", "dflash", {}, DRAFTED),
    "a tap behind the last layer of a hybrid": ("qwen35", "eagle3", taps(0, 1, 2), DRAFTED),
    # Targets of another kind.
    "an assistant for another architecture": ("llama", "assistant", {}, DRAFTED),
    "MTP layers of another architecture": ("llama", "mimo2's layer", {}, DRAFTED),
    "MTP layers of another architecture that has some": ("qwen35", "glm4moe's layer", {}, DRAFTED),
    "another width": ("llama", "eagle3", {"eagle3.target_hidden_size": value(128)}, DRAFTED),
    "another width of its own": ("llama", "eagle3", {"eagle3.embedding_length": value(32)}, DRAFTED),
    "a block of another width": ("llama", "dflash", {"dflash.embedding_length": value(128)}, DRAFTED),
    # Numbers that lead out of bounds.
    "a mask token behind the vocabulary": ("llama", "dflash", {"tokenizer.ggml.mask_token_id": value(269)}, DRAFTED),
    "no mask token": ("llama", "dflash", {"tokenizer.ggml.mask_token_id": None}, DRAFTED),
    "a block of one": ("llama", "dflash", {"dflash.block_size": value(1)}, DRAFTED),
    "more MTP layers than there are": ("mimo2", "mimo2's layer", {"mimo2.nextn_predict_layers": value(3)}, DRAFTED),
    "two MTP layers where one can run": (
        "glm4moe",
        "glm4moe's layer",
        {"glm4moe.nextn_predict_layers": value(2)},
        DRAFTED,
    ),
    "several tokens for a position": ("llama", "dflash", {"dflash.selector_top_k": value(4)}, DRAFTED),
    "an assistant of three layers": ("gemma4", "assistant", {"gemma4-assistant.block_count": value(3)}, DRAFTED),
}
"""By name the target, the head, what is changed of the head's metadata, and options: all of them fail."""

FITS = {
    # More than a batch, than the outputs of a context, than a state has snapshots.
    "drafts as long as a batch": ("llama", "eagle3", {}, ENDLESS),
    "drafts as long as a batch, hybrid": ("qwen35", None, {}, ENDLESS),
    "drafts as long as a batch, by one layer": ("mimo2", None, {}, ENDLESS),
    "drafts longer than MTP has layers": ("mimo2 of 3", None, {}, [*DRAFTED, "-k", "9"]),
    "drafts longer than a block": ("terse", "dspark", {}, ENDLESS),
    "a block longer than a batch": ("terse", "dflash", {"dflash.block_size": value(4000)}, ENDLESS),
    "a causal block": ("terse", "dflash", {"dflash.attention.causal": value(True, BOOL)}, DRAFTED),
    "a tap behind the last layer where there is one": ("mimo2", "eagle3", taps(0, 1, 2), DRAFTED),
    # Heads that are asked for and are not there.
    "MTP of a model without it": ("llama", None, {}, ["--speculate", "mtp", "-n", "20"]),
    "MTP of a model that only claims it": ("claiming", None, {}, ["--speculate", "mtp", "-n", "20"]),
    "EAGLE-3 of a model with MTP": ("mimo2", None, {}, ["--speculate", "eagle3", "-n", "20"]),
    "a draft's context": ("llama", "eagle3", {}, [*DRAFTED, "--draft-ctx", "64"]),
    "cells of 16 bits": ("llama", "eagle3", {}, [*DRAFTED, "--cache-type-k", "bf16"]),
}
"""The same, and all of them say what plain decoding says."""


STEADY = ["-t", "1", "--cache-type-k", "f32", "--cache-type-v", "f32"]


@pytest.fixture(scope="module")
def files(toy_heads, tmp_path_factory):
    claiming = Toy.of_file(toy_heads["glm4moe"])
    claiming.tensors = [tensor for tensor in claiming.tensors if b".nextn." not in tensor[0]]
    path = tmp_path_factory.mktemp("misused") / "claiming.gguf"
    path.write_bytes(claiming.file())
    return {**toy_heads, "claiming": path}


def arguments(files, folder, target, head, changes, options, prompt=PROMPT):
    """The command line; a changed head is written to the folder."""
    drafts = []
    if head:
        drafts = ["-d", folder / "head.gguf"]
        drafts[1].write_bytes(Toy.of_file(files[head]).having(changes))
    return ["run", "-m", files[target], *drafts, *STEADY, *options, prompt]


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_fails_in_two_lines(files, tmp_path, name):
    said, _ = failure(specgguf(*arguments(files, tmp_path, *MISFITS[name])))
    assert "gave up" not in said  # so llama.cpp, which would have ended the process, was not asked


@pytest.mark.parametrize("name", FITS)
def test_what_fits_changes_no_text(files, tmp_path, name):
    target, head, changes, options = FITS[name]
    for prompt in (PROMPT, LONG):
        plain, *_ = run(*arguments(files, tmp_path, target, None, {}, [*options, "--speculate", "off"], prompt))
        found = complaint(arguments(files, tmp_path, target, head, changes, options, prompt), plain.stdout.__eq__)
        assert plain.returncode == 0
        assert found is None
