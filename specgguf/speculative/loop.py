"""The speculative loop."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from specgguf.speculative.context import Context
from specgguf.speculative.controller import Controller
from specgguf.speculative.verify import Chooser, verify


@dataclass(frozen=True, slots=True)
class Step:
    """One round: what it put out, and what came of the draft."""

    output: list[int]
    drafted: int
    accepted: int
    source: str


def speculate(
    target: Context,
    controller: Controller,
    sampler: Chooser,
    prompt: Sequence[int],
    eog: Container[int],
    max_tokens: int,
) -> Iterator[Step]:
    """Yield rounds until an end-of-generation token, `max_tokens` tokens, or the end of the context.

    The output is a function of target, sampler, prompt and the bit class of the batches' widths; the drafts decide
    only how many tokens a round yields. With `Plain` this is plain decoding.
    (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318; the acceptance rule is in `verify`.)
    """
    tokens = list(prompt)
    end = min(len(tokens) + max_tokens, target.n_ctx + 1)
    target.sync(tokens[:-1])
    while len(tokens) < end:
        # Here target.tokens == tokens[:-1]: the last token is never in the cache.
        limit = min(target.max_rows - 1, end - len(tokens) - 1)
        draft = controller.draft(tokens, limit)
        begin_s, rows = target.decode_s, len(draft.tokens) + 1
        logits = target.decode([tokens[-1], *draft.tokens], rows, controller.width(rows))
        verdict = verify(draft.tokens, logits, sampler, tokens, eog)
        tokens += verdict.output
        target.truncate(len(tokens) - 1)
        controller.observe(draft, verdict, target.decode_s - begin_s)
        yield Step(verdict.output, len(draft.tokens), verdict.accepted, draft.source)
        if tokens[-1] in eog:
            return
