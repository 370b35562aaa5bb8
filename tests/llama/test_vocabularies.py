"""Our verdict on real tokenizers against llama.cpp's own rule: every ordered pair of the vocabularies in its source."""

import os
import shutil
import struct
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product

import filelock
import platformdirs
import pytest
from llama_cpp import llama_cpp as lib

from specgguf.conversation.transcript import Exchange, Transcript
from specgguf.headers import gguf
from specgguf.headers.parity import Parity, Tokenizer, compare, read_tokenizer
from specgguf.llama import library
from specgguf.llama.templates import ChatTemplate
from specgguf.llama.vocab import Vocab
from specgguf.speculative.context import common_prefix

PACKAGE = "llama-cpp-python"
FREE_IDS, MOST_MORE_IDS = 5, 128
"""llama.cpp does not compare the texts of the first ids; one vocabulary may have this many more than the other."""
VARIANTS = {
    "llama-spm, other first text": (b"<unk>", b"<unx>"),
    "llama-spm, other BOS": (b"bos_token_id" + struct.pack("<II", 4, 1), b"bos_token_id" + struct.pack("<II", 4, 2)),
    "llama-spm, no BOS": (
        b"add_bos_token" + struct.pack("<I?", 7, True),
        b"add_bos_token" + struct.pack("<I?", 7, False),
    ),
    "llama-spm, with EOS": (
        b"add_eos_token" + struct.pack("<I?", 7, False),
        b"add_eos_token" + struct.pack("<I?", 7, True),
    ),
}
"""What no two of the files differ in alone: bytes of llama-spm, and what is put in their place."""
STRICTER = [
    ("llama-spm", "llama-spm, other first text"),
    ("llama-spm, other first text", "phi-3"),
]
"""Pairs, in either order, that llama.cpp would let pass and we do not."""
LAXER = [("llama-spm", "llama-spm, with EOS"), ("llama-spm, with EOS", "phi-3")]
"""The other way round: of a pair that differs in EOS alone, only the target's ends a text."""


@dataclass
class Vocabulary:
    """A file as we read it, and what llama.cpp says of it."""

    tokenizer: Tokenizer
    kind: int
    bos: int | None  # None if none is added
    eos: int | None
    special: dict[str, int]
    texts: list[bytes]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    paths = {path.stem.removeprefix("ggml-vocab-"): path for path in files().iterdir()}
    data = paths["llama-spm"].read_bytes()
    for name, (old, new) in VARIANTS.items():
        paths[name] = tmp_path_factory.mktemp("variants") / "variant.gguf"
        paths[name].write_bytes(data.replace(old, new, 1))
    return {name: read(path) for name, path in sorted(paths.items())}


def files():
    """The folder of the vocabulary files; fetched by the user's own pip once per machine."""
    release = version(PACKAGE)
    folder = platformdirs.user_cache_path("specgguf") / "tests" / f"{PACKAGE}-{release}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.with_name(folder.name + ".lock")):
        if not folder.exists():
            # A fixed name, emptied first: what a killed run left behind does not add up.
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            options = ["--quiet", "--no-deps", "--no-binary", PACKAGE, "--dest", str(partial / "source")]
            command = [sys.executable, "-m", "pip", "download", *options, f"{PACKAGE}=={release}"]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
            unpack(next((partial / "source").iterdir()), partial / "vocabularies")
            (partial / "vocabularies").rename(folder)
            shutil.rmtree(partial)
    return folder


def unpack(source, folder):
    folder.mkdir()
    with tarfile.open(source) as archive:
        for member in archive:
            name = member.name.partition("/vendor/llama.cpp/models/")[2]
            if name.startswith("ggml-vocab-") and name.endswith(".gguf"):
                (folder / name).write_bytes(archive.extractfile(member).read())


def load(path):
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    assert model, (path, library.take_errors())
    return model


def read(path):
    model = load(path)
    vocab = lib.llama_model_get_vocab(model)
    special = {
        "bos": lib.llama_vocab_bos(vocab),
        "eos": lib.llama_vocab_eos(vocab),
        "seperator": lib.llama_vocab_sep(vocab),
        "padding": lib.llama_vocab_pad(vocab),
    }
    result = Vocabulary(
        tokenizer=read_tokenizer(gguf.parse(path.read_bytes())),
        kind=lib.llama_vocab_type(vocab),
        bos=special["bos"] if lib.llama_vocab_get_add_bos(vocab) else None,
        eos=special["eos"] if lib.llama_vocab_get_add_eos(vocab) else None,
        special=special,
        texts=[lib.llama_vocab_get_text(vocab, token) for token in range(lib.llama_vocab_n_tokens(vocab))],
    )
    lib.llama_model_free(model)
    return result


def llama_lets_pass(target, draft):
    """The rule of `common_speculative_are_compatible` in llama.cpp's common/speculative.cpp."""
    shared = min(len(target.texts), len(draft.texts))
    return (
        (target.kind, target.bos, target.eos) == (draft.kind, draft.bos, draft.eos)
        and abs(len(target.texts) - len(draft.texts)) <= MOST_MORE_IDS
        and target.texts[FREE_IDS:shared] == draft.texts[FREE_IDS:shared]
    )


def test_no_verdict_is_laxer_than_the_rule_of_llama_and_a_stricter_one_gives_its_reason(vocabularies):
    assert len(vocabularies) >= 14 + len(VARIANTS)
    laxer, stricter = [], []
    for (target, one), (draft, two) in product(vocabularies.items(), repeat=2):
        report = compare(one.tokenizer, two.tokenizer)
        fits = report.verdict is not Parity.INCOMPATIBLE
        assert fits or report.reasons, (target, draft)
        if fits != llama_lets_pass(one, two):
            (laxer if fits else stricter).append((target, draft))
    assert sorted(laxer) == sorted([*LAXER, *((draft, target) for target, draft in LAXER)])
    assert sorted(stricter) == sorted([*STRICTER, *((draft, target) for target, draft in STRICTER)])


def test_some_vocabularies_fit_others_and_each_is_identical_to_itself_only(vocabularies):
    verdicts = {
        (target, draft): compare(one.tokenizer, two.tokenizer).verdict
        for (target, one), (draft, two) in product(vocabularies.items(), repeat=2)
    }
    fitting = [pair for pair, verdict in verdicts.items() if verdict is Parity.COMPATIBLE and pair[0] < pair[1]]
    assert fitting == sorted([("gpt-neox", "mpt"), *LAXER, ("llama-spm", "phi-3"), ("qwen2", "qwen35")])
    identical = [pair for pair, verdict in verdicts.items() if verdict is Parity.IDENTICAL]
    assert identical == [(name, name) for name in vocabularies]
    assert len({vocabulary.tokenizer.fingerprint for vocabulary in vocabularies.values()}) == len(vocabularies)


def test_tokens_and_special_ids_are_read_as_llama_reads_them(vocabularies):
    for name, vocabulary in vocabularies.items():
        named = vocabulary.tokenizer.special
        assert vocabulary.texts == vocabulary.tokenizer.tokens, name
        assert {role: named.get(role, token) for role, token in vocabulary.special.items()} == vocabulary.special, name
    assert [name for name, v in vocabularies.items() if "seperator" in v.tokenizer.special] == [
        "bert-bge",
        "nomic-bert-moe",
    ]


@pytest.mark.parametrize(
    ("name", "system", "renewed"),
    [
        ("command-r", "<|SYSTEM_TOKEN|>Be brief.<", ""),
        ("gemma-4", "<|turn>system\nBe brief.<", "<|channel>thought\n<channel|>"),  # no longer there with the answer
        ("phi-3", "<|user|>\nBe brief.\n\nName", ""),  # has no system message
        ("qwen2", "<|im_start|>system\nBe brief.<", ""),
    ],
)
def test_a_conversation_in_the_template_of_a_real_model(name, system, renewed):
    path = files() / f"ggml-vocab-{name}.gguf"
    model = load(path)
    vocab = Vocab(lib.llama_model_get_vocab(model))
    template = ChatTemplate(gguf.parse(path.read_bytes()).text("tokenizer.chat_template"), name, vocab)
    exchanges, before = [], []
    for question, answer in (("Name a bird.", "A robin."), ("And a fish?", "1. trout\n2. pike"), ("A tree?", "")):
        prompt = template.render(Transcript("Be brief.", [*exchanges, Exchange(question)]).messages())
        said = [text for exchange in exchanges for text in (exchange.question, exchange.answer)]
        places = [prompt.index(text) for text in [system, *said[1:], question]]
        assert places == sorted(places)
        tokens = vocab.tokenize(prompt)
        assert tokens.count(vocab.bos) == vocab.adds_bos
        # Of the last prompt nothing else has to be evaluated anew.
        assert before[common_prefix(before, tokens) :] == (vocab.tokenize(renewed)[vocab.adds_bos :] if before else [])
        exchanges.append(Exchange(question, answer))
        before = tokens
    lib.llama_model_free(model)
