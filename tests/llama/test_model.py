import os
import subprocess
import sys
from contextlib import closing

import pytest
from gguf import GGUFReader

from specgguf.errors import ModelError
from specgguf.headers import parity
from specgguf.llama import library
from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.model import Model
from specgguf.llama.quantize import quantize
from specgguf.models.header import ModelHeader


@pytest.fixture
def open_model(toy_models):
    opened = []

    def open_one(name):
        opened.append(Model(ModelHeader.of_file(toy_models[name], "target"), 0))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


def test_vocab(open_model):
    vocab = open_model("target").vocab
    assert vocab.num_tokens == 3 + 256 + 10
    assert (vocab.bos, vocab.eos, vocab.eog) == (1, 2, {2})
    assert vocab.tokenize("the cat") == [1, *(3 + byte for byte in "▁the▁cat".encode())]
    assert vocab.tokenize("the</s>")[-1] == 2  # special tokens are recognized, as templates need it
    assert vocab.piece(261) == b" cat"
    assert vocab.piece(3 + 0xC3) == b"\xc3"
    assert vocab.piece(2) == b""
    assert vocab.text(2) == "</s>"
    assert vocab.text(None) == ""


def test_a_long_token_is_given_whole(tmp_path):
    from tests.tiny import write_attention

    word = "▁" + "x" * 1000
    with closing(
        Model(ModelHeader.of_file(write_attention(tmp_path / "long.gguf", words=[word]), "target"), 0)
    ) as model:
        assert model.vocab.piece(259) == b" " + b"x" * 1000


def test_the_tokenizer_in_the_header_is_the_one_llama_uses(toy_models, open_model):
    tokenizer = ModelHeader.of_file(toy_models["target"], "target").tokenizer
    vocab = open_model("target").vocab
    assert len(tokenizer.tokens) == vocab.num_tokens
    assert all(vocab.text(i) == text.decode() for i, text in enumerate(tokenizer.tokens))
    assert (tokenizer.special["bos"], tokenizer.adds["bos"]) == (vocab.bos, vocab.adds_bos)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("draft", parity.Parity.IDENTICAL),
        ("padded", parity.Parity.COMPATIBLE),
        ("foreign", parity.Parity.INCOMPATIBLE),
        ("no-bos", parity.Parity.INCOMPATIBLE),
    ],
)
def test_parity_of_files(toy_models, name, verdict):
    one, two = (ModelHeader.of_file(toy_models[name], "target").tokenizer for name in ("target", name))
    assert parity.compare(one, two).verdict is verdict


def test_every_cut_of_a_file_is_a_model_error(toy_models, tmp_path):
    whole = toy_models["target"].read_bytes()
    path = tmp_path / "cut.gguf"
    for share in range(0, 1000, 13):
        path.write_bytes(whole[: len(whole) * share // 1000])
        with pytest.raises(ModelError, match=r"target model: .*cut\.gguf"):
            Model(ModelHeader.of_file(path, "target"), 0).close()


def test_closing_twice_is_harmless(toy_models):
    model = Model(ModelHeader.of_file(toy_models["target"], "target"), 0)
    context = LlamaContext(model, ContextSettings(64, 1, "f16", "f16", 1, 64))
    for _ in range(2):
        context.close()
    for _ in range(2):
        model.close()
    with pytest.raises(ValueError, match="closed"):
        _ = model.pointer


@pytest.mark.parametrize("same_output_type", [True, False])
@pytest.mark.parametrize("quant", ["Q4_0", "Q5_1", "IQ4_NL"])
def test_only_a_drafts_output_matrix_is_no_wider_than_the_rest(toy_models, tmp_path, quant, same_output_type):
    small = tmp_path / "small.gguf"
    quantize(toy_models["target"], small, quant, same_output_type, lambda *_: None)
    types = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(small).tensors}
    output = "output.weight" if "output.weight" in types else "token_embd.weight"
    assert types["blk.0.ffn_up.weight"] == quant
    assert types[output] == quant if same_output_type else types[output] in ("Q6_K", "Q8_0")


def test_quantize(toy_models, tmp_path):
    small = tmp_path / "small.gguf"
    progress = []
    quantize(toy_models["target"], small, "Q8_0", False, lambda done, total: progress.append((done, total)))
    assert small.stat().st_size < 0.6 * toy_models["target"].stat().st_size
    assert [done for done, _ in progress] == list(range(1, progress[0][1] + 1))
    one, two = (ModelHeader.of_file(path, "target").tokenizer for path in (toy_models["target"], small))
    same = parity.compare(one, two)
    assert same.verdict is parity.Parity.IDENTICAL


def test_quantizing_what_is_no_model(tmp_path):
    (tmp_path / "junk.gguf").write_bytes(b"junk" * 100)
    with pytest.raises(ModelError, match="invalid magic"):
        quantize(tmp_path / "junk.gguf", tmp_path / "x.gguf", "Q8_0", False, print)
    assert not (tmp_path / "x.gguf").exists()


def test_a_log_line_never_raises(toy_models):
    def broken(_):
        raise RuntimeError

    library.log_to(broken)
    try:
        Model(ModelHeader.of_file(toy_models["target"], "target"), 0).close()
    finally:
        library.log_to(None)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_threads_are_the_cores_this_process_may_use():
    code = "from specgguf.llama.library import num_physical_cores; print(num_physical_cores())"
    assert 1 <= library.num_physical_cores() <= len(os.sched_getaffinity(0))
    cpu = min(os.sched_getaffinity(0))
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )
    assert result.stdout == b"1\n"


def test_importing_the_package_does_not_load_llama():
    heavy = {"llama_cpp", "numpy", "huggingface_hub", "rich.console"}
    code = f"import sys, specgguf, specgguf.cli.app; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
