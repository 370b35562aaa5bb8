"""`run --ngram-store FILE`: answers of earlier runs to draft from."""

import json
import multiprocessing
from contextlib import closing

import numpy as np
import pytest

from specgguf.engine import ngram_store as ngramstore
from specgguf.engine.engine import Engine
from specgguf.engine.memory import TunedCosts
from specgguf.engine.ngram_store import NgramStore
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.errors import UsageError
from specgguf.exact.profiles import Profiles
from specgguf.speculative.policy.depths import level_of
from tests.cli.program import failure, specgguf


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.npz"


def test_texts_come_back_by_tokenizer_oldest_first(path):
    store = NgramStore(path)
    assert store.texts("a") == []
    store.add("a", [1, 2, 3])
    store.add("b", [7])
    store.add("a", [4])
    store.add("a", [])
    again = NgramStore(path)
    assert again.texts("a") == store.texts("a") == [[1, 2, 3], [4]]
    assert again.texts("b") == [[7]]
    assert again.texts("c") == []


def test_the_oldest_tokens_go(path, monkeypatch):
    monkeypatch.setattr(ngramstore, "MOST", 8)
    store = NgramStore(path)
    for start in (10, 20, 30):
        store.add("a", range(start, start + 3))
    assert NgramStore(path).texts("a") == [[20, 21, 22], [30, 31, 32]]
    store.add("a", range(100))
    assert store.texts("a") == [list(range(93, 100))]


def add_some(path, number):
    for _ in range(20):
        NgramStore(path).add("a", [number] * 5)


def test_processes_at_once_lose_nothing(path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(add_some, [(path, number) for number in range(3)])
    texts = NgramStore(path).texts("a")
    assert sorted(texts) == sorted([number] * 5 for number in range(3) for _ in range(20))


def sabotaged():
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('it ran')",))

    return Bomb()


@pytest.mark.parametrize("content", ["cut", "text", "folder", "pickle", "floats", "array"])
def test_what_is_no_store_is_left_alone(path, content):
    NgramStore(path).add("a", range(1000))
    whole = path.read_bytes()
    if content == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "text":
        path.write_text("my notes")
    elif content == "folder":
        path.unlink()
        path.mkdir()
    elif content == "pickle":
        np.savez(path, a=np.array([sabotaged()], dtype=object))
    elif content == "floats":
        np.savez(path, a=np.array([0.5]))
    else:
        with path.open("wb") as file:
            np.save(file, np.arange(3))
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(UsageError):
        NgramStore(path)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_second_run_says_the_same_and_stores_it_too(toy_models, path):
    options = ["--speculate", "ngram", "-n", 40, "--json", "--ngram-store", path]
    runs = [
        json.loads(specgguf("run", "-m", toy_models["endless"], *options, "the cat sat on").stdout) for _ in range(2)
    ]
    assert runs[0]["text"] == runs[1]["text"]
    assert NgramStore(path).texts(runs[0]["target"]["fingerprint"]) == [run["tokens"] for run in runs]


def test_the_answer_to_every_line_is_stored(toy_models, path):
    options = ["--lines", "-n", 5, "--speculate", "off", "--ngram-store", path]
    result = specgguf("run", "-m", toy_models["endless"], *options, stdin=b"the cat\nthe dog\n")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert NgramStore(path).texts(lines[0]["target"]["fingerprint"]) == [line["tokens"] for line in lines]


def test_an_answer_that_is_known_takes_fewer_rounds(toy_models, tmp_path, planted_costs):
    profiles = Profiles(tmp_path, lambda _: "", lambda _: None)
    answers, rounds = [], []
    for _ in range(2):
        with closing(Engine(toy_models["endless"], None, EngineSettings(mode=Mode.NGRAM), profiles, print)) as engine:
            engine.learn_costs(
                TunedCosts({level_of(0): {"times": dict.fromkeys(range(1, 18), 1.0)}})
            )  # drafting costs nothing
            engine.draft_from([*answers, [10**9]])
            generation = engine.generate(engine.target.vocab.tokenize("the cat sat on"), engine.sampler(), 40)
            answers.append("".join(generation) and generation.tokens)
            rounds.append(generation.stats.rounds)
    assert answers[0] == answers[1]
    assert rounds[1] < rounds[0]


def test_an_empty_file_becomes_a_store(toy_models, path):
    path.touch()
    assert specgguf("run", "-m", toy_models["endless"], "-n", 3, "--ngram-store", path, "hi").returncode == 0
    assert path.stat().st_size > 0


def test_a_damaged_store_is_found_before_the_model_is_loaded(toy_models, path):
    path.write_text("my notes")
    message, _ = failure(specgguf("run", "-m", "none.gguf", "--ngram-store", path, "hi"), code=2)
    assert "is no store of texts" in message
    message, _ = failure(specgguf("run", "-m", "none.gguf", "--ngram-store", path / "x", "hi"), code=2)
    assert "no such folder" in message
