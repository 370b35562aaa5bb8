"""The speculative loop."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from specgguf.core.context import Context
from specgguf.core.controller import Controller
from specgguf.core.drafting import Drafter
from specgguf.core.sampling import Sampler
from specgguf.core.verify import verify


@dataclass(frozen=True, slots=True)
class Step:
    """One round: what it put out, and what came of the draft."""

    output: list[int]
    drafted: int
    accepted: int
    source: str


def speculate(
    target: Context,
    drafter: Drafter,
    controller: Controller,
    sampler: Sampler,
    prompt: Sequence[int],
    eog: Container[int],
    max_tokens: int,
    width: Callable[[int], int] = lambda num_rows: num_rows,
) -> Iterator[Step]:
    """Yield rounds until an end-of-generation token, `max_tokens` tokens, or the end of the context.

    The output is a function of target, sampler and prompt; drafter and controller decide only how many
    tokens a round yields. With `NoDrafter` this is plain decoding. `width` tells how wide a batch of some rows
    shall be: wider ones are filled up.
    (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318; the acceptance rule is in `verify`.)
    """
    tokens = list(prompt)
    end = min(len(tokens) + max_tokens, target.n_ctx + 1)
    target.sync(tokens[:-1])
    while len(tokens) < end:
        # Here target.tokens == tokens[:-1]: the last token is never in the cache.
        limit = min(controller.limit(), target.max_rows - 1, end - len(tokens) - 1)
        draft = drafter.draft(tokens, limit)
        logits = target.decode([tokens[-1], *draft], rows=len(draft) + 1, width=width(len(draft) + 1))
        verdict = verify(draft, logits, sampler, tokens, eog)
        tokens += verdict.output
        target.truncate(len(tokens) - 1)
        yield Step(verdict.output, len(draft), verdict.accepted, drafter.source)
        if tokens[-1] in eog:
            return
