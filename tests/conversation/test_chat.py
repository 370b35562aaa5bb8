"""A conversation over real contexts: every turn is what a fresh chat would answer, and evaluates only what is new.

The models know letters only, so that an answer is tokenized again into the ids it was made of.
"""

from collections import Counter
from contextlib import closing, contextmanager

import pytest

from specgguf.conversation.chat import Answering, Chat
from specgguf.conversation.transcript import Exchange, Transcript
from specgguf.engine.engine import Engine
from specgguf.engine.memory import TunedCosts
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.engine.workbench import Workbench
from specgguf.errors import ContextError, ContextFullError, UsageError
from specgguf.exact.profiles import Profiles
from specgguf.llama.grammar import GrammarText
from specgguf.speculative.context import Context
from specgguf.speculative.policy.depths import level_of
from tests.tiny import write_attention

GREEDY = {"temperature": 0.0}
STORY = " ".join(f"Line {number}: the cat of house {number % 7} sat on mat {number % 5}." for number in range(30))
TEMPLATE = "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}\n{% endfor %}assistant:"
ALPHABET = GrammarText.from_gbnf('root ::= "abcdefghijklmnop"')


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A target and a draft."""
    folder = tmp_path_factory.mktemp("letters")
    options = {"words": [], "template": TEMPLATE, "n_ctx": 10_000}
    return [write_attention(folder / f"{seed}.gguf", seed, **options) for seed in (1, 2)]


@contextmanager
def opened(models, folder, mode=Mode.FIXED, **settings):
    """With BF16 cells, the answer does not depend on how its text is cut into batches."""
    profiles = Profiles(folder, lambda _: "", lambda _: None)
    cells = {"cache_type_k": "bf16", "cache_type_v": "bf16"}
    settings = EngineSettings(mode=mode, num_draft=4, n_threads=1, **cells, **settings)
    with closing(Engine(*models, settings, profiles, print)) as engine:
        yield engine


@pytest.fixture
def engine(letters, tmp_path):
    with opened(letters, tmp_path, n_ctx=4096) as engine:
        yield engine


@pytest.fixture
def chat(engine):
    return Chat(engine, Transcript("Be brief.", sampling=dict(GREEDY)), Answering(max_tokens=16))


def say(turn, pieces=None):
    """Take a turn, perhaps leaving it after so many pieces as Ctrl-C does."""
    with closing(turn):
        for number, _ in enumerate(turn, 1):
            if number == pieces:
                break
    return turn.generation


@pytest.fixture
def decoded(monkeypatch):
    """How many tokens were decoded, by role."""
    counts, decode = Counter(), Context.decode

    def count(context, parts, width=0):
        counts[context.role] += sum(len(part.tokens) for part in parts)
        return decode(context, parts, width)

    monkeypatch.setattr(Context, "decode", count)
    return counts


def assert_only_new_was_decoded(decoded, question, generation):
    """Of the prompt no more than the question and the words around it; then what every round takes."""
    new = len("\nuser:\nassistant:") + 3 * len(question)  # a blank is three bytes long
    stats = generation.stats
    assert max(decoded.values()) <= new + stats.drafted.total() + stats.rounds


def assert_as_fresh(chat, engine):
    """The last answer is what plain decoding from empty caches gives."""
    before, last = chat.transcript.exchanges[:-1], chat.transcript.exchanges[-1]
    Workbench(engine, 64).start_cold()
    fresh = Chat(
        engine,
        Transcript(chat.transcript.system, before, dict(chat.transcript.sampling)),
        Answering(max_tokens=chat.answering.max_tokens, mode=Mode.OFF),
    )
    say(fresh.ask(last.question))
    assert fresh.transcript.exchanges == chat.transcript.exchanges


def test_later_turns_evaluate_only_what_is_new(chat, engine, decoded):
    assert say(chat.ask(STORY)).prompt_tokens > 1400
    steps = [
        ("And then?", lambda: chat.ask("And then?")),
        ("And then?", chat.retry),
        ("And then?", lambda: chat.ask(chat.undo())),
        ("Who sat on mat 3?", lambda: chat.ask("Who sat on mat 3?")),
    ]
    for question, step in steps:
        decoded.clear()
        assert_only_new_was_decoded(decoded, question, say(step()))
    assert len(chat.transcript.exchanges) == 3
    assert_as_fresh(chat, engine)


def test_the_answer_in_the_cache_is_that_of_the_history(chat, engine):
    """Rendered and tokenized again, an answer gives the ids it was made of: nothing of it is decoded twice."""
    said = say(chat.ask("Name three animals."))
    following = say(chat.ask("And three plants."))
    assert following.cached_tokens == said.prompt_tokens + len(said.tokens) - 1


def test_a_turn_that_is_stopped_is_kept_as_far_as_it_came(chat, engine, decoded):
    say(chat.ask(STORY[:500]))
    stopped = say(chat.ask("Go on."), pieces=3)
    assert stopped.finish_reason == "interrupted"
    assert chat.transcript.exchanges[-1].answer == stopped.text.strip() != ""
    decoded.clear()
    assert_only_new_was_decoded(decoded, "And who was that?", say(chat.ask("And who was that?")))
    assert_as_fresh(chat, engine)


def test_a_turn_that_is_stopped_before_it_says_anything(chat, engine, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    say(chat.ask("Hello."))
    with monkeypatch.context() as patch:
        patch.setattr(Context, "decode", interrupt)
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


def test_earlier_turns_are_drafted_from(letters, tmp_path, planted_costs):
    with opened([letters[0], None], tmp_path, mode=Mode.NGRAM) as engine:
        engine.learn_costs(
            TunedCosts({level_of(0): {"times": dict.fromkeys(range(1, 18), 1.0)}})
        )  # drafting costs nothing
        chat = Chat(engine, Transcript(sampling=dict(GREEDY)), Answering(grammar=ALPHABET))
        first, second = (say(chat.ask(question)) for question in ("Name a bird.", "Name a fish."))
        assert first.text == second.text
        assert first.stats.accepted["ngram"] == 0 < second.stats.accepted["ngram"]


def test_pieces_tell_who_guessed_them(chat):
    chat.answering.max_tokens = 100
    generation = chat.ask("Tell me a story.").generation
    pieces = list(generation.pieces())
    assert "".join(piece.text for piece in pieces) == generation.text
    assert sum(len(piece.text) for piece in pieces if piece.source) == generation.stats.accepted.total()
    chat.answering.grammar = ALPHABET  # all drafts are right
    pieces = [piece for piece in chat.ask("And then?").generation.pieces() if piece.text]
    assert pieces == [
        ("abcd", "model"),
        ("e", ""),
        ("fghi", "model"),
        ("j", ""),
        ("klmn", "model"),
        ("o", ""),
        ("p", "model"),
    ]


def test_nothing_to_take_back(chat):
    for command in (chat.undo, chat.retry):
        with pytest.raises(UsageError):
            command()


def fill(chat):
    for number in range(40):
        say(chat.ask(f"What is {number} plus {number}?"))


def test_a_full_context(letters, tmp_path):
    with opened(letters, tmp_path, n_ctx=512) as engine:
        chat = Chat(engine, Transcript("Be brief.", sampling=dict(GREEDY)), Answering(max_tokens=16))
        with pytest.raises(ContextFullError, match="of 512 tokens"):
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
            assert turn.generation.prompt_tokens <= 256 < len(engine.tokenize_chat(one_more.messages()))
        assert chat.transcript.messages()[0]["content"] == "Be brief."
        assert_as_fresh(chat, engine)
        with pytest.raises(ContextError, match="the prompt has"):
            chat.ask(STORY, shift=True)
        assert chat.transcript.exchanges[-1].question == question
        chat.answering.max_tokens = None
        endless = chat.ask("Count to one thousand, and name every number.", shift=True)
        say(endless)
        assert endless.generation.finish_reason == "length"
        assert endless.cut


def test_a_recurrent_target_with_a_recurrent_draft(toy_models, tmp_path):
    with opened([toy_models["recurrent"], toy_models["recurrent"]], tmp_path) as engine:
        chat = Chat(engine, Transcript(sampling=dict(GREEDY)), Answering(max_tokens=8))
        say(chat.ask("the cat"))
        say(chat.ask("a dog"), pieces=2)
        say(chat.retry())
        chat.undo()
        say(chat.ask("the dog"))
        assert_as_fresh(chat, engine)
