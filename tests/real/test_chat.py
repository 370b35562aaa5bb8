"""A conversation over real contexts: every turn is what a fresh chat would answer, and evaluates only what is new."""

from contextlib import closing, contextmanager

import pytest

from specgguf.cli.opening import open_engine, open_store
from specgguf.cli.options.models import Models
from specgguf.conversation.chat import Answering, Chat
from specgguf.conversation.transcript import Exchange, Transcript
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.engine.workbench import Workbench
from specgguf.errors import ContextError, ContextFullError, UsageError
from specgguf.speculative.sequence import TokenSequence
from specgguf.speculative.stats import Stats

TINY = Models("tiny")
CELLS = {"cache_type_k": "bf16", "cache_type_v": "bf16"}  # the same bits at every batch width
GREEDY = {"temperature": 0.0}
STORY = " ".join(f"Line {number}: the cat of house {number % 7} sat on mat {number % 5}." for number in range(90))


@contextmanager
def opened(models=TINY, mode=Mode.FIXED, **settings):
    settings = EngineSettings(mode=mode, num_draft=4, n_threads=1, **CELLS, **settings)
    with closing(open_engine(open_store(), models, settings)) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine():
    with opened(n_ctx=2048) as engine:
        yield engine


@pytest.fixture
def chat(engine):
    Workbench(engine, 2048).start_cold()
    return Chat(engine, Transcript("Be brief.", sampling=dict(GREEDY)), Answering(max_tokens=16))


def say(turn, pieces=None):
    """Take a turn, perhaps leaving it after so many pieces as Ctrl-C does."""
    with closing(turn):
        for number, _ in enumerate(turn, 1):
            if number == pieces:
                break
    return turn.generation


@contextmanager
def counted(engine, monkeypatch):
    """How many tokens each context decodes, and what it would have to: prompt tokens it does not hold, and rounds."""
    counts = [0, 0]
    with monkeypatch.context() as patch:
        for number, context in enumerate(engine._contexts):

            def evaluate(parts, number=number, evaluate=context._evaluate):
                counts[number] += sum(len(part.tokens) for part in parts)
                return evaluate(parts)

            patch.setattr(context, "_evaluate", evaluate)
        yield counts


def assert_as_fresh(chat, engine):
    """The last answer is what plain decoding from empty caches gives."""
    before, last = chat.transcript.exchanges[:-1], chat.transcript.exchanges[-1]
    Workbench(engine, 2048).start_cold()
    fresh = Chat(
        engine,
        Transcript(chat.transcript.system, before, dict(chat.transcript.sampling)),
        Answering(max_tokens=chat.answering.max_tokens, mode=Mode.OFF),
    )
    say(fresh.ask(last.question))
    assert fresh.transcript.exchanges == chat.transcript.exchanges


def test_later_turns_evaluate_only_what_is_new(chat, engine, monkeypatch):
    first = say(chat.ask(STORY))
    assert first.prompt_tokens > 1400
    steps = [
        lambda: chat.ask("And then?"),
        chat.retry,
        lambda: chat.ask(chat.undo()),
        lambda: chat.ask("Who sat on mat 3?"),
    ]
    for step in steps:
        with counted(engine, monkeypatch) as counts:
            generation = say(step())
        drafted, rounds = generation.stats.drafted.total(), generation.stats.rounds
        assert counts[0] < 60 + drafted + rounds
        assert counts[1] < 60 + drafted + rounds
    assert len(chat.transcript.exchanges) == 3
    assert_as_fresh(chat, engine)


def test_the_answer_in_the_cache_is_that_of_the_history(chat, engine):
    """Rendered and tokenized again, an answer gives the ids it was made of: nothing of it is decoded twice."""
    generation = say(chat.ask("Name three animals."))
    prompt = engine.tokenize_chat([*chat.transcript.messages(), {"role": "user", "content": "And three plants."}])
    held = engine._contexts[0].tokens[0]
    assert len(held) == generation.prompt_tokens + len(generation.tokens) - 1
    assert prompt[: len(held)] == held


def test_a_turn_that_is_stopped_is_kept_as_far_as_it_came(chat, engine, monkeypatch):
    say(chat.ask(STORY[:500]))
    stopped = say(chat.ask("Go on."), pieces=3)
    assert stopped.finish_reason == "interrupted"
    assert chat.transcript.exchanges[-1].answer == stopped.text.strip() != ""
    with counted(engine, monkeypatch) as counts:
        generation = say(chat.ask("And who was that?"))
    assert counts[0] < 60 + generation.stats.drafted.total() + generation.stats.rounds
    assert_as_fresh(chat, engine)


def test_a_turn_that_is_stopped_before_it_says_anything(chat, engine, monkeypatch):
    target = engine._contexts[0]

    def interrupt(*_):
        raise KeyboardInterrupt

    say(chat.ask("Hello."))
    with monkeypatch.context() as patch:
        patch.setattr(target, "_evaluate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            say(chat.ask("Name an animal."))
    assert chat.transcript.exchanges[-1] == Exchange("Name an animal.")
    say(chat.ask("A wild one."))
    assert chat.transcript.exchanges[-1].question == "Name an animal.\n\nA wild one."
    assert_as_fresh(chat, engine)


def test_another_seed_gives_another_answer(chat):
    chat.transcript.sampling = {"temperature": 1.5, "seed": 3}
    say(chat.ask("Tell me a story."))
    answers = {chat.transcript.exchanges[-1].answer}
    for _ in range(2):
        say(chat.retry())
        answers.add(chat.transcript.exchanges[-1].answer)
    assert len(answers) == 3
    assert chat.transcript.sampling["seed"] == 5


def test_earlier_turns_are_drafted_from(chat, engine):
    chat.answering.mode = Mode.NGRAM
    answers = [say(chat.ask(question)).tokens for question in ("Name a bird.", "Name a fish.")]
    prompt = engine.tokenize_chat([*chat.transcript.messages(), {"role": "user", "content": "Name a tree."}])
    sequence = TokenSequence(prompt, engine.sampler(), len(prompt) + 4)
    draft = engine.memory.ngram.draft(sequence, 4, lambda _: True)  # what follows the end of a prompt
    assert draft.tokens in [answer[:4] for answer in answers]


def test_pieces_tell_who_guessed_them(chat, engine, monkeypatch):
    turn, rounds = chat.ask("Tell me a story."), []
    generation = turn.generation
    observe = Stats.observe
    monkeypatch.setattr(Stats, "observe", lambda stats, finished: rounds.append(finished) or observe(stats, finished))
    pieces = list(generation.pieces())
    guessed = [piece.text for piece in pieces if piece.source == "model"]
    found = [one.output[: one.accepted] for one in rounds]
    assert guessed == [
        "".join(engine.target.vocab.piece(token).decode() for token in tokens) for tokens in found if tokens
    ]
    assert "".join(piece.text for piece in pieces) == generation.text
    assert 0 < len(guessed) < len(pieces)


def test_nothing_to_take_back(chat):
    for command in (chat.undo, chat.retry):
        with pytest.raises(UsageError):
            command()


def fill(chat):
    for number in range(40):
        say(chat.ask(f"What is {number} plus {number}?"))


def test_a_full_context():
    with opened(n_ctx=256) as engine:
        chat = Chat(engine, Transcript("Be brief.", sampling=dict(GREEDY)), Answering(max_tokens=16))
        with pytest.raises(ContextFullError, match="of 256 tokens"):
            fill(chat)
        before = chat.transcript.exchanges
        assert all(exchange.answer for exchange in before)
        question = "And now? " * 8
        for start in (before[1:], before):  # an odd and an even number is dropped
            chat.transcript.exchanges = start
            turn = chat.ask(question, shift=True)
            say(turn)
            kept = chat.transcript.exchanges
            assert turn.dropped == len(start) + 1 - len(kept) > 0
            one_more = Transcript("Be brief.", [start[-len(kept)], *kept[:-1], Exchange(question)])
            assert turn.generation.prompt_tokens <= 128 < len(engine.tokenize_chat(one_more.messages()))
        assert chat.transcript.messages()[0]["content"] == "Be brief."
        assert_as_fresh(chat, engine)
        with pytest.raises(ContextError, match="the prompt has"):
            chat.ask(STORY, shift=True)
        assert chat.transcript.exchanges[-1].question == question
        chat.answering.max_tokens = None
        endless = chat.ask("Count to one thousand, and name every number.", shift=True)
        say(endless)
        assert endless.cut is (endless.generation.finish_reason == "length")


def test_a_model_that_cannot_roll_back(toy_models):
    models = Models(target=str(toy_models["recurrent"]))
    with opened(models, Mode.OFF) as engine:
        chat = Chat(engine, Transcript(sampling=dict(GREEDY)), Answering(max_tokens=8))
        say(chat.ask("the cat"))
        say(chat.ask("a dog"), pieces=2)
        say(chat.retry())
        chat.undo()
        say(chat.ask("the dog"))
        assert_as_fresh(chat, engine)
