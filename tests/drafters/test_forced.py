"""What a grammar forces is drafted; it changes no text, whatever it says."""

import dataclasses

import numpy as np
import pytest

from specgguf.drafters.forced import ForcedDrafter
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.controller import Auto, Fixed
from specgguf.speculative.drafter import while_possible
from specgguf.speculative.policy.policy import Policy
from specgguf.speculative.sequence import TokenSequence
from tests.speculative.test_controller import TimedContext, cheap
from tests.speculative.toy import NUM_TOKENS, reference, rounds, run, table

PROMPT = [1, 2, 3]


class Stretches:
    """After two free tokens four that it forces, and so on; some of what it calls forced may be wrong."""

    def __init__(self, wrong=False):
        self.wrong = wrong

    def token(self, at):
        return None if at % 6 < 2 else at % NUM_TOKENS

    def mask(self, tokens, ahead=()):
        token = self.token(len(tokens) + len(ahead))
        return np.ones(NUM_TOKENS, bool) if token is None else np.arange(NUM_TOKENS) == token

    def forced(self, tokens):
        found, at = [], len(tokens)
        while (token := self.token(at)) is not None:
            found.append((token + (self.wrong and at % 6 == 4)) % NUM_TOKENS)
            at += 1
        return found


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_forced_drafts_change_no_text(wrong, temperature):
    sampler = Sampler(temperature=temperature, seed=3, grammar=Stretches(wrong))
    target = TimedContext(table(3), cheap)
    expected = reference(table(3), sampler, PROMPT, (), 60)
    for controller in (Auto(Policy(target.max_rows - 1), [ForcedDrafter()]), Fixed(ForcedDrafter(), 3)):
        assert run(TimedContext(table(3), cheap), controller, sampler, PROMPT, max_tokens=60) == expected


def test_all_that_is_forced_is_drafted_and_right():
    sampler = Sampler(grammar=Stretches())
    target = TimedContext(table(3), cheap)
    found = list(rounds(target, Auto(Policy(target.max_rows - 1), [ForcedDrafter()]), sampler, PROMPT, max_tokens=60))
    drafted = sum(one.drafted for one in found)
    assert drafted == sum(one.accepted for one in found) > 25
    assert {one.source for one in found if one.drafted} == {"forced"}


def test_without_a_grammar_nothing_is_forced():
    sequence = TokenSequence(PROMPT, Sampler(grammar=Stretches()), 50)
    drafter = ForcedDrafter()
    free = dataclasses.replace(sequence, sampler=Sampler())
    for limit in (1, 2):
        one, other = drafter.draft([sequence, free], [limit, 9], while_possible)
        assert (one.tokens, other.tokens) == ([3 % NUM_TOKENS, 4][:limit], [])
