"""What an engine is opened with, its limits and its defaults. Light to import: --help states them too."""

from dataclasses import dataclass
from enum import StrEnum

N_BATCH = 512
"""Tokens in one batch at most."""
MAX_DRAFT = N_BATCH - 1
"""Draft tokens per round at most: the first token of the batch is the one before them."""
DRAFT_MAX = 16
"""Default of the draft tokens per round at most."""
DRAFT_MAX_FIXED = 4
"""The same for fixed drafting, where every round has as many."""
MAX_PARALLEL = 64
"""Texts in one batch at most."""
CHAT_CTX = 8192
"""Default context of a chat in tokens, if the model knows so many."""
CHAT_TEMPERATURE = 0.8
"""Default temperature of a chat where the model's file has none: llama.cpp's default."""


class Mode(StrEnum):
    """How to draft."""

    AUTO = "auto"
    """As many tokens as pay, from the draft model or from text already seen."""
    FIXED = "fixed"
    """Always the same number of tokens, from the draft model."""
    MODEL = "model"
    """As many as pay, from the draft model only."""
    MTP = "mtp"
    """As many as pay, from the target's multi-token prediction layers only."""
    EAGLE3 = "eagle3"
    """As many as pay, from an EAGLE-3 head only."""
    DFLASH = "dflash"
    """As many as pay, from a DFlash or DSpark head only."""
    NGRAM = "ngram"
    """As many as pay, from text already seen only."""
    OFF = "off"
    """Plain decoding."""

    @property
    def draft_max(self) -> int:
        """Default of the draft tokens per round at most."""
        return DRAFT_MAX_FIXED if self is Mode.FIXED else DRAFT_MAX

    @property
    def uses_model(self) -> bool:
        """Whether a draft model or head is used."""
        return self not in (Mode.NGRAM, Mode.OFF)

    @property
    def needs_model(self) -> bool:
        """Whether nothing is drafted without a draft model or head."""
        return self.uses_model and self is not Mode.AUTO

    @property
    def is_adaptive(self) -> bool:
        """Whether the draft length follows what pays."""
        return self not in (Mode.FIXED, Mode.OFF)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to draft, and resources. None leaves the choice to the engine: all layers on a GPU if there is one, a thread
    per physical core, a context that fits the prompt and its answer, the target's own chat template.
    """

    n_gpu_layers: int | None = None
    draft_n_gpu_layers: int | None = None
    n_threads: int | None = None
    n_ctx: int | None = None
    draft_n_ctx: int | None = None
    """The draft's context at most; None: as long as the target's. A text that is longer is no longer drafted for."""
    usual_ctx: int | None = None
    """Where `n_ctx` is not given, the context whatever the prompt, or as much of it as the target knows."""
    chat_template: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    num_draft: int | None = None
    """Draft tokens per round at most; None: the mode's default."""
    mode: Mode = Mode.AUTO
    own_heads: bool = True
    """Whether heads inside the target's own file draft."""
    exact: bool = False
    """Whether batches keep to widths that give equal bits."""
    num_parallel: int | None = 1
    """Texts that a `Pool` answers in one batch at most; None: as many as pay."""

    @property
    def draft_max(self) -> int:
        """Draft tokens per round at most: as given, or the mode's default."""
        return self.num_draft or self.mode.draft_max
