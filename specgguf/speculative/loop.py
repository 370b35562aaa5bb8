"""The speculative loop."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from specgguf.errors import ContextError
from specgguf.speculative.context import Context, Evaluated, Part
from specgguf.speculative.controller import Controller, Outcome, RoundTimes
from specgguf.speculative.sequence import TokenSequence
from specgguf.speculative.verify import verify

BESIDE = 128
"""Tokens of prompts in a batch that has others' next tokens too: none of these answers stalls for long."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round has added to a sequence, and what came of the draft."""

    sequence: int
    output: list[int]
    """Empty as long as the prompt is being read."""
    drafted: int = 0
    accepted: int = 0
    source: str = ""
    """Who drafted."""
    error: ContextError | None = None
    """Why the sequence cannot go on; the others can."""


def begin(target: Context, controller: Controller, sequence: TokenSequence, unit: int = 1) -> None:
    """Keep what the cache holds of the prompt already, in whole units of tokens; the loop reads the rest of it.

    The prompt's last token is left for the first round.
    """
    found = target.adopt(sequence.id, sequence.tokens[:-1])
    num_kept = controller.begin(sequence, found - found % unit)
    target.truncate(sequence.id, num_kept)


def speculate(
    target: Context,
    controller: Controller,
    sequences: list[TokenSequence],
    eog: Container[int],
    beside: int = BESIDE,
) -> Iterator[Round]:
    """Yield rounds until every sequence has an end-of-generation token, all its tokens, or a full context.

    The output is a function of target, sampler, prompt and the bit class of the batches' widths; the drafts decide
    only how many tokens a round yields. With `Plain` this is plain decoding. Each sequence has had its `begin`. One
    that has ended is taken out of `sequences`; between rounds others may be added. `beside`: as `BESIDE`; 0 reads
    prompts in batches of their own, as each is read alone.
    (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318; the acceptance rule is in `verify`.)
    """
    while sequences:
        for one in sequences:
            one.end = min(one.end, target.n_ctx + 1)  # the last token needs no place in the context
        unread = [one for one in sequences if len(target.tokens[one.id]) < len(one.tokens) - 1]
        active = [one for one in sequences if one not in unread]
        # Here the cache holds all tokens of each active sequence but the last one, which is never in it.
        shared = beside if active else 0
        chunks = _chunks(target, unread, min(shared, target.n_batch - target.max_rows) or target.n_batch, not beside)
        if chunks and not shared:
            yield from _read(target, controller, unread, target.decode(chunks))
            chunks = []
        if not active:
            continue
        share = target.max_rows // len(active) - 1
        drafts = controller.draft(active, [min(share, one.room - 1) for one in active])
        asked = [(one, [one.tokens[-1], *draft.tokens]) for one, draft in zip(active, drafts, strict=True)]
        parts = [Part(one.id, tokens, rows=len(tokens)) for one, tokens in asked]
        begin_s, begin_rollback_s = target.decode_s, target.rollback_s
        batch = target.decode([*chunks, *parts], 0 if chunks else controller.width(sum(part.rows for part in parts)))
        outcomes = []
        for one, draft, evaluated in zip(active, drafts, batch[len(chunks) :], strict=True):
            verdict = verify(draft.tokens, evaluated.logits, one.target_chooser, one.tokens, eog)
            controller.read(evaluated, len(verdict.output))
            one.tokens += verdict.output
            target.truncate(one.id, len(one.tokens) - 1)
            outcomes.append(Outcome(one, draft, verdict))
            if verdict.error or one.tokens[-1] in eog or one.room <= 0:
                sequences.remove(one)
        rounds = _read(target, controller, unread, batch[: len(chunks)])
        num_read = sum(len(chunk.tokens) for chunk in chunks)
        times = RoundTimes(target.decode_s - begin_s, target.rollback_s - begin_rollback_s, num_read)
        controller.observe([outcome for outcome in outcomes if not outcome.verdict.error], times)
        yield from rounds
        yield from map(_round, outcomes)


def _round(outcome: Outcome) -> Round:
    one, draft, verdict = outcome
    return Round(one.id, verdict.output, len(draft.tokens), verdict.accepted, draft.source, verdict.error)


def _chunks(target: Context, unread: Sequence[TokenSequence], room: int, apart: bool) -> list[Part]:
    """The next tokens of prompts, `room` at most, the shortest first; of one prompt only if they are read `apart`."""
    chunks = []
    shortest = sorted(unread, key=lambda one: len(one.tokens) - len(target.tokens[one.id]))
    for one in shortest[:1] if apart else shortest:
        start = len(target.tokens[one.id])
        tokens = one.tokens[start : min(start + room, len(one.tokens) - 1)]
        if tokens:
            chunks.append(Part(one.id, tokens))
            room -= len(tokens)
    return chunks


def _read(
    target: Context, controller: Controller, unread: Sequence[TokenSequence], batch: Sequence[Evaluated]
) -> list[Round]:
    """Prompts have been read on, some of them to their end."""
    for evaluated in batch:
        controller.read(evaluated, len(evaluated.tokens))
    for one in unread:
        if len(target.tokens[one.id]) == len(one.tokens) - 1:
            target.mark(one.id)
    return [Round(evaluated.sequence, []) for evaluated in batch]
