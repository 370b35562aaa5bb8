"""The speculative loop."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from specgguf.speculative.context import Context, Part, common_prefix
from specgguf.speculative.controller import Controller, RoundTimes
from specgguf.speculative.sequence import TokenSequence
from specgguf.speculative.verify import verify


@dataclass(frozen=True, slots=True)
class Round:
    """What one round has added to a sequence, and what came of the draft."""

    sequence: int
    output: list[int]
    drafted: int
    accepted: int
    source: str
    """Who drafted."""


def prefill(target: Context, controller: Controller, sequence: TokenSequence) -> None:
    """Make the cache hold the prompt but for its last token; the drafters read what is evaluated for it."""
    prompt = sequence.tokens[:-1]
    num_kept = controller.begin(sequence, common_prefix(target.tokens[sequence.id], prompt))
    target.truncate(sequence.id, num_kept)
    for evaluated in target.feed(sequence.id, prompt):
        controller.read(evaluated, len(evaluated.tokens))


def speculate(
    target: Context, controller: Controller, sequences: Sequence[TokenSequence], eog: Container[int]
) -> Iterator[Round]:
    """Yield rounds until every sequence has an end-of-generation token, all its tokens, or a full context.

    The output is a function of target, sampler, prompt and the bit class of the batches' widths; the drafts decide
    only how many tokens a round yields. With `Plain` this is plain decoding. Each sequence has had its `prefill`.
    (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318; the acceptance rule is in `verify`.)
    """
    for one in sequences:
        one.end = min(one.end, target.n_ctx + 1)  # the last token needs no place in the context
    active = sequences
    while active := [one for one in active if one.room > 0]:
        # Here the cache holds all tokens of each sequence but the last one, which is never in it.
        share = target.max_rows // len(active) - 1
        drafts = controller.draft(active, [min(share, one.room - 1) for one in active])
        asked = [(one, [one.tokens[-1], *draft.tokens]) for one, draft in zip(active, drafts, strict=True)]
        parts = [Part(one.id, tokens, rows=len(tokens)) for one, tokens in asked]
        begin_s, begin_rollback_s = target.decode_s, target.rollback_s
        batch = target.decode(parts, controller.width(sum(part.rows for part in parts)))
        verdicts = []
        for one, draft, evaluated in zip(active, drafts, batch, strict=True):
            verdict = verify(draft.tokens, evaluated.logits, one.target_chooser, one.tokens, eog)
            controller.read(evaluated, len(verdict.output))
            one.tokens += verdict.output
            target.truncate(one.id, len(one.tokens) - 1)
            verdicts.append(verdict)
        times = RoundTimes(target.decode_s - begin_s, target.rollback_s - begin_rollback_s)
        controller.observe(active, drafts, verdicts, times)
        for one, draft, verdict in zip(active, drafts, verdicts, strict=True):
            yield Round(one.id, verdict.output, len(draft.tokens), verdict.accepted, draft.source)
        active = [one for one in active if one.tokens[-1] not in eog]
