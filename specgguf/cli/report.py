"""The object that --json prints. Its names are a contract: they do not change once they exist."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specgguf.conversation.answer import Answer
    from specgguf.engine.engine import Engine
    from specgguf.models.header import ModelHeader
    from specgguf.models.hub.store import Store


def report(engine: "Engine", store: "Store", answer: "Answer", load_s: float) -> dict[str, Any]:
    """Everything about one answer."""
    generation = answer.generation
    stats, timings = generation.stats, generation.timings
    return {
        "text": answer.text,
        "thought": answer.thought,
        "tokens": generation.tokens,
        "prompt_tokens": generation.prompt_tokens,
        "cached_tokens": generation.cached_tokens,
        "output_tokens": len(generation.tokens),
        "finish_reason": generation.finish_reason,
        "seed": generation.seed,
        "exact": engine.is_exact,
        "target": _model(engine.target.header, store),
        "draft": _model(engine.draft.header, store) if engine.speculative and engine.draft else None,
        "speculation": {
            "mode": engine.settings.mode if engine.drafting or stats.drafted else "off",
            "rounds": stats.rounds,
            "drafted": stats.drafted.total(),
            "accepted": stats.accepted.total(),
            "acceptance_rate": stats.acceptance_rate,
            "mean_acceptance_length": stats.mean_acceptance_length,
            "by_source": {
                source: {"drafted": drafted, "accepted": stats.accepted[source]}
                for source, drafted in stats.drafted.items()
            },
            "per_position": stats.per_position,
            "parked_rounds": stats.undrafted if engine.mode.is_adaptive else 0,
        },
        "timings": {
            "load_s": load_s,
            "prefill_s": timings.prefill_s,
            "first_token_s": timings.first_token_s,
            "decode_s": timings.decode_s,
            "tokens_per_s": timings.tokens_per_s,
        },
    }


def _model(header: "ModelHeader", store: "Store") -> dict[str, str]:
    return {
        "name": header.name,
        "path": str(header.path),
        "sha256": store.digests.of(header.path),
        "fingerprint": header.tokenizer.fingerprint,
    }
