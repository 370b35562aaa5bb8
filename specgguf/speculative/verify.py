"""The acceptance rule."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from specgguf.errors import ContextError
from specgguf.speculative.context import Logits
from specgguf.speculative.sequence import Chooser


@dataclass(frozen=True, slots=True)
class Verdict:
    """`output`: the accepted draft tokens, then the recovered or the bonus token."""

    accepted: int
    output: list[int]
    error: ContextError | None = None
    """Why nothing could be chosen after the output."""


def verify(
    draft: Sequence[int], logits: Logits, sampler: Chooser, tokens: Sequence[int], eog: Container[int]
) -> Verdict:
    """Keep the draft as far as it is what the target chooses itself.

    `logits` are the target's, shape (len(draft) + 1, n_vocab): row i follows `tokens` and the first i draft
    tokens. Every output token is the target's own choice from those logits; the draft decides only how many
    of them one round yields. The output ends after an end-of-generation token, or where nothing can be chosen.
    """
    output: list[int] = []
    accepted = 0
    for row, guess in zip(logits, [*draft, None], strict=True):
        try:
            choice = sampler.sample(row, tokens, output)
        except ContextError as error:
            return Verdict(accepted, output, error)
        output.append(choice)
        accepted += choice == guess
        if choice != guess or choice in eog:
            break
    return Verdict(accepted, output)
