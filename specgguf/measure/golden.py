"""Golden files: what a target says by plain decoding, and whether it still says so while speculating.

A text that differs is not yet a bug: llama.cpp rounds by batch width, and where the two best tokens nearly tie, that
can tip the choice. So the recording holds the margin of every choice, and where a text forks, the margin there is
compared with how much such gaps move between batch widths, in that very answer where earlier ones do not explain it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specgguf.engine.engine import Engine
from specgguf.engine.generation import Generation
from specgguf.engine.settings import Mode
from specgguf.engine.workbench import Workbench
from specgguf.errors import UsageError
from specgguf.llama import library
from specgguf.measure.prompts import Prompt
from specgguf.sampling.sampler import Sampler
from specgguf.text import jsontext

FORMAT = 1
_WIDTHS = (2, 3, 5, 8, 16)
_CHUNKS = (16, 48, 200)
"""Batches of a prompt: llama.cpp's attention computes those of 64 tokens and more in another way."""
_BEST = 8
"""Tokens of a position whose gaps are compared: others are hardly chosen."""
_MAKE_ONE = "make one with specgguf golden record"
_TOKENIZER = "target tokenizer"
_NO_CHOICE = 1e6
"""The margin where only one token was allowed."""


class Sameness(StrEnum):
    """How a text compares with the recorded one."""

    SAME = "same"
    NEAR_TIE = "near-tie"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Recording:
    """One answer by plain decoding. `margins`: how far each choice was from falling otherwise, in logits.

    `prompt_tokens`: what the chat template made of `prompt`, which may depend on the day; older files have none.
    """

    category: str
    prompt: str
    seed: int
    tokens: list[int]
    text_sha256: str
    margins: list[float]
    drafted: int
    accepted: int
    prompt_tokens: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden file: the answers, and everything they were made with.

    `models` holds the options that named them; `speculate` and `draft_max` say how the drafts were made whose
    acceptance was recorded.
    """

    made_with: dict[str, str | None]
    models: dict[str, str | None]
    sampling: dict[str, Any]
    exact: bool
    speculate: str
    draft_max: int | None
    max_tokens: int
    prompts: list[Recording]

    def sampler(self, seed: int) -> Sampler:
        """How a prompt with this seed was answered."""
        return Sampler(**self.sampling, seed=seed)

    def dump(self) -> str:
        """The file's text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer while speculating, compared with its recording.

    `position` is the first token that differs, `expected` and `found` are ids there (None: the text had ended).
    """

    category: str
    prompt: str
    verdict: Sameness
    position: int | None
    expected: int | None
    found: int | None
    margin: float | None
    drafted: int
    accepted: int
    acceptance_drop: float
    """By how much the acceptance rate is lower than in the recording."""
    prompt_changed: bool
    """Whether the chat template makes another prompt now, and the recorded one was answered."""


@dataclass(slots=True)
class _Recorder:
    """A sampler that remembers the margins of its choices."""

    sampler: Sampler
    margins: list[float] = field(default_factory=list)

    def sample(self, logits: Any, tokens: Sequence[int], ahead: Sequence[int] = ()) -> int:  # noqa: ANN401
        choice = self.sampler.choose(logits, tokens, ahead)
        self.margins.append(min(choice.margin, _NO_CHOICE))
        return choice.token


def record(engine: Engine, prompt: Prompt, sampler: Sampler, max_tokens: int) -> Recording:
    """Answer plainly, and once more with drafts for their acceptance."""
    recording = record_plain(engine, prompt, sampler, max_tokens)
    if engine.mode is Mode.OFF or recording.prompt_tokens is None:
        return recording
    speculative = engine.generate(recording.prompt_tokens, sampler, max_tokens)
    list(speculative)
    stats = speculative.stats
    return replace(recording, drafted=stats.drafted.total(), accepted=stats.accepted.total())


def record_plain(engine: Engine, prompt: Prompt, sampler: Sampler, max_tokens: int) -> Recording:
    """Answer plainly."""
    tokens = engine.tokenize_chat([{"role": "user", "content": prompt.prompt}])
    recorder = _Recorder(sampler)
    plain = engine.generate(tokens, sampler, max_tokens, num_draft=0, chooser=recorder)
    digest = hashlib.sha256("".join(plain).encode()).hexdigest()
    return Recording(prompt.category, prompt.prompt, sampler.seed, plain.tokens, digest, recorder.margins, 0, 0, tokens)


def verify(
    engine: Engine, golden: Golden, noise: "Noise", mode: Mode | None = None, num_draft: int | None = None
) -> Iterator[Outcome]:
    """Answer every prompt while speculating and compare; `mode` and `num_draft` as in `Engine.generate`.

    Where the chat template makes another prompt now, the recorded one is answered, if its tokens mean the same: what
    has changed then is not what speculation does.
    """
    for recording in golden.prompts:
        now = engine.tokenize_chat([{"role": "user", "content": recording.prompt}])
        tokens = _recorded_prompt(engine, golden, recording) or now
        sampler = golden.sampler(recording.seed)
        generation = engine.generate(tokens, sampler, golden.max_tokens, num_draft=num_draft, mode=mode)
        list(generation)
        yield judge(engine, golden, recording, tokens, generation, noise, tokens != now)


def judge(
    engine: Engine,
    golden: Golden,
    recording: Recording,
    prompt: Sequence[int],
    generation: Generation,
    noise: "Noise",
    prompt_changed: bool = False,
) -> Outcome:
    """Compare an answer to `prompt`, the recorded one, with the recorded answer."""
    stats = generation.stats
    drafted, accepted = stats.drafted.total(), stats.accepted.total()
    drop = _rate(recording.accepted, recording.drafted) - stats.acceptance_rate if drafted else 0.0
    position = _fork(recording.tokens, generation.tokens)
    verdict, margin = Sameness.SAME, None
    if position is not None and position < len(recording.margins):
        margin = recording.margins[position]
        if margin > noise.level:
            workbench = Workbench(engine, engine.n_ctx_for(len(prompt), golden.max_tokens))
            noise.measure(workbench, prompt, recording.tokens[: position + 1])
        verdict = Sameness.NEAR_TIE if margin <= noise.level else Sameness.DIFFERENT
    elif position is not None or hashlib.sha256(generation.text.encode()).hexdigest() != recording.text_sha256:
        verdict = Sameness.DIFFERENT
    return Outcome(
        recording.category,
        recording.prompt,
        verdict,
        position,
        _at(recording.tokens, position),
        _at(generation.tokens, position),
        margin,
        drafted,
        accepted,
        drop,
        prompt_changed,
    )


def _recorded_prompt(engine: Engine, golden: Golden, recording: Recording) -> list[int] | None:
    """The tokens of the recorded prompt; None where there are none, or where they are those of another tokenizer."""
    same_tokenizer = golden.made_with.get(_TOKENIZER) == engine.target.header.tokenizer.fingerprint
    tokens = recording.prompt_tokens if same_tokenizer else None
    return tokens if tokens and max(tokens) < engine.target.vocab.num_tokens else None


@dataclass(slots=True)
class Noise:
    """How much the gaps between best tokens move between batch widths, in logits: the most that was seen.

    `beside`: whether prompts were read in batches with others' tokens; then the widths of those count too.
    """

    level: float = 0.0
    beside: bool = False

    def measure(self, workbench: Workbench, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Look at an answer that is known already, decoding it at several widths."""
        usual: list[tuple[NDArray[np.intp], NDArray[np.float32]]] = []
        for logits in workbench.replay(prompt, output, 1):
            best = np.argpartition(logits, -_BEST)[-_BEST:]
            usual.append((best, logits[best]))
        ways = [(width, 0) for width in _WIDTHS if width <= workbench.engine.max_width]
        ways += [(1, chunk) for chunk in _CHUNKS if self.beside]
        for width, chunk in ways:
            for (best, before), logits in zip(usual, workbench.replay(prompt, output, width, chunk), strict=True):
                self.level = max(self.level, float(np.ptp(logits[best] - before)))


def _fork(one: Sequence[int], two: Sequence[int]) -> int | None:
    """The first position where two answers differ; the end of the shorter if it is all of the other's beginning."""
    different = (i for i, (expected, found) in enumerate(zip(one, two, strict=False)) if expected != found)
    return next(different, None if len(one) == len(two) else min(len(one), len(two)))


def _at(tokens: Sequence[int], position: int | None) -> int | None:
    return None if position is None or position >= len(tokens) else tokens[position]


def _rate(accepted: int, drafted: int) -> float:
    return accepted / max(1, drafted)


def sampling_of(sampler: Sampler) -> dict[str, Any]:
    """What a golden file keeps of it; the seed is each prompt's own."""
    return {name: getattr(sampler, name) for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")}


def circumstances(engine: Engine, digest_of: Callable[[Path], str]) -> dict[str, str | None]:
    """What a text may depend on, besides prompt and sampling."""
    draft = engine.draft if engine.speculative else None
    models = {"target": engine.target.header, "draft": draft.header if draft else None}
    told: dict[str, str | None] = {}
    choice = engine.exact_choice
    for role, header in models.items():
        told[role] = f"{header.path.name}, sha256 {digest_of(header.path)}" if header else None
        told[_TOKENIZER if role == "target" else f"{role} tokenizer"] = header.tokenizer.fingerprint if header else None
    told |= {"llama.cpp": library.version(), "device": library.devices(), "exact": choice.settings if choice else "no"}
    return told


def changes(recorded: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    """What is not as it was, a line each."""
    return [
        f"{name} has changed since the recording: {recorded.get(name) or 'none'} then, {value or 'none'} now"
        for name, value in now.items()
        if recorded.get(name) != value
    ]


def load(path: Path) -> Golden:
    """What was dumped there; raises UsageError if it is no golden file."""
    try:
        content = jsontext.parse(path.read_text(encoding="utf-8"), names=["models", "made_with"])
        if content["format"] != FORMAT:
            raise UsageError(f"{path} has format {content['format']}, this program reads {FORMAT}", "record it anew")
        if not _is_sound(content):
            raise TypeError
        content["prompts"] = [Recording(**entry) for entry in content["prompts"]]
        return Golden(**{field.name: content[field.name] for field in fields(Golden)})
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no golden file: it is not UTF-8 text", _MAKE_ONE) from None
    except KeyError as error:
        raise UsageError(f"{path} is no golden file: it has no {error}", _MAKE_ONE) from None
    except (ValueError, TypeError, AttributeError) as error:
        reason = error if isinstance(error, ValueError) else "its form is another"
        raise UsageError(f"{path} is no golden file: {reason}", _MAKE_ONE) from None


def _is_sound(content: Any) -> bool:  # noqa: ANN401 (JSON)
    """Whether a file that people may have edited holds what it should."""
    names = {field.name for field in fields(Sampler)} - {"grammar", "logit_bias", "seed"}
    return (
        isinstance(content["max_tokens"], int)
        and isinstance(content["exact"], bool)
        and isinstance(content["draft_max"], int | None)
        and content["speculate"] in list(Mode)
        and all(isinstance(value, str | None) for key in ("made_with", "models") for value in content[key].values())
        and all(name in names and isinstance(value, int | float) for name, value in content["sampling"].items())
        and all(map(_is_sound_recording, content["prompts"]))
    )


def _is_sound_recording(entry: Any) -> bool:  # noqa: ANN401 (JSON)
    return (
        all(isinstance(entry[key], str) for key in ("category", "prompt", "text_sha256"))
        and all(isinstance(entry[key], int) for key in ("seed", "drafted", "accepted"))
        and all(isinstance(token, int) for token in entry["tokens"])
        and all(isinstance(token, int) and token >= 0 for token in entry.get("prompt_tokens") or [])
        and all(isinstance(margin, int | float) for margin in entry["margins"])
        and len(entry["tokens"]) == len(entry["margins"])
    )
