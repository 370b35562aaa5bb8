"""A conversation drafted for by heads: every answer is that of plain decoding to which the whole history is new."""

from contextlib import ExitStack, closing
from copy import deepcopy

import pytest

from specgguf.conversation.chat import Answering, Chat
from specgguf.conversation.transcript import Transcript
from specgguf.engine.engine import Engine
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.exact.profiles import Profiles
from specgguf.llama.grammar import GrammarText
from tests.tiny_heads import HEADS_AND_TARGETS

NAMES = {"eagle3": "eagle3", "dflash": "dflash", "dspark": "dflash"}
"""What drafters call themselves, where it is not mtp."""


@pytest.fixture(scope="module", params=HEADS_AND_TARGETS)
def engines(request, toy_heads, tmp_path_factory):
    """One that drafts, one that does not; cells are F32, so that logits hardly depend on how a text is cut."""
    profiles = Profiles(tmp_path_factory.mktemp("profiles"), lambda _: "", lambda _: None)
    target, head = toy_heads[HEADS_AND_TARGETS[request.param]], toy_heads[request.param]
    usual = {"n_threads": 1, "n_ctx": 2048, "cache_type_k": "f32", "cache_type_v": "f32"}
    with ExitStack() as stack:
        found = [
            stack.enter_context(closing(Engine(target, draft, EngineSettings(mode=mode, **usual), profiles, print)))
            for draft, mode in ((None if head == target else head, Mode.FIXED), (None, Mode.OFF))
        ]
        yield *found, NAMES.get(request.param, "mtp")


def conversation(engine, temperature):
    return Chat(engine, Transcript("", sampling={"temperature": temperature, "seed": 3}), Answering(max_tokens=40))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_five_turns_one_of_them_interrupted_one_ended_by_a_stop_string(engines, temperature):
    engine, plain_engine, name = engines
    chat, plain = (conversation(one, temperature) for one in (engine, plain_engine))
    for number, question in enumerate(("the cat", "a dog", "on the mat", "sat", "and the cat")):
        plain_engine.contexts.clear()
        if number == 3:
            whole = "".join(conversation_copy(plain).ask(question).generation)
            chat.answering.stops = plain.answering.stops = (whole[8:10],)
            plain_engine.contexts.clear()
        turn, expected = chat.ask(question), plain.ask(question)
        with closing(turn), closing(expected):
            if number == 2:
                for _ in zip(range(3), turn.generation, strict=False):
                    pass
            else:
                assert "".join(turn.generation) == "".join(expected.generation)
                assert turn.generation.finish_reason == expected.generation.finish_reason
        if number == 2:
            assert 0 < len(turn.generation.tokens) < 40
            plain.resume(deepcopy(chat.transcript))
        chat.answering.stops = plain.answering.stops = ()
        assert chat.transcript.exchanges == plain.transcript.exchanges
        assert not number or turn.generation.cached_tokens > 0
        assert set(turn.generation.stats.drafted) == {name}


def conversation_copy(chat):
    """The same so far; what happens to one does not happen to the other."""
    return Chat(chat.engine, deepcopy(chat.transcript), deepcopy(chat.answering))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_grammar_allows_the_same(engines, temperature):
    *pair, name = engines
    grammar = GrammarText.from_gbnf('root ::= ("abc" | "bcd" | "cab")+')
    found, expected = (
        one.generate([1, 5, 6], one.sampler(temperature=temperature, seed=2), 40, grammar=grammar) for one in pair
    )
    assert "".join(found) == "".join(expected)
    assert found.stats.drafted[name] > 0


def test_accepted_text_is_marked_by_who_drafted_it(engines):
    engine, _, name = engines
    generation = engine.generate([1, 5, 6, 7], engine.sampler(temperature=0.8, seed=4), 150)
    sources = {piece.source for piece in generation.pieces()}
    assert sources <= {"", name}
    assert (name in sources) is (generation.stats.accepted.get(name, 0) > 0)
