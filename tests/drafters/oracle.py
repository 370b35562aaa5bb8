"""A drafter of the tests' own: it sees what the target computes, and reads in it what comes next."""

import numpy as np

from specgguf.speculative.drafter import Draft


class OracleDrafter:
    """Knows the target's logits, keeps copies of the hidden states that it reads, and takes as long as told."""

    name = "oracle"
    is_free = False
    taps = (1,)

    def __init__(self, logits_of, num_right=100, step_s=0.05):
        self.logits_of = logits_of
        self.num_right = num_right
        self.step_s = step_s
        self.states = []  # of the tokens that the target's cache holds
        self.calls = []

    def begin(self, sequence, num_kept):
        self.calls.append("begin")
        del self.states[num_kept:]
        assert len(self.states) == num_kept, "it was not told of everything that the cache holds"
        return num_kept

    def read(self, evaluated, num_kept):
        assert len(evaluated.hidden[1]) == len(evaluated.tokens)
        assert evaluated.start == len(self.states), "a gap, or something read twice"
        self.states += np.array(evaluated.hidden[1][:num_kept]).tolist()

    def backlog(self, sequence):
        return 0

    def draft(self, sequences, limits, go_on):
        (sequence,), (limit,) = sequences, limits
        # Exactly what the cache holds has been read, each token at its own place.
        expected = [[sequence.id, position, token] for position, token in enumerate(sequence.tokens[:-1])]
        assert self.states == expected
        draft = Draft(self.name)
        while len(draft.tokens) < limit and go_on([draft.probabilities]):
            logits = self.logits_of([*sequence.tokens, *draft.tokens])
            right = sequence.sampler.sample(logits, sequence.tokens, draft.tokens)
            draft.tokens.append(right if len(draft.tokens) < self.num_right else (right + 1) % len(logits))
            draft.probabilities.append(0.99 if len(draft.tokens) <= self.num_right else 0.5)
            draft.seconds += self.step_s
        return [draft]

    def accept(self, sequence, sent, accepted):
        self.calls.append((sent, accepted))
