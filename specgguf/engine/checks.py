"""What is asked of an engine and cannot be, found before anything is loaded."""

from collections.abc import Callable

from specgguf.errors import ModelError, ParityError, UsageError
from specgguf.headers.fitting import check_head
from specgguf.headers.gguf import MalformedError
from specgguf.headers.heads import DraftKind, num_nextn_layers
from specgguf.headers.parity import Parity, ParityReport
from specgguf.llama import library
from specgguf.llama.model import ALL_LAYERS, Model
from specgguf.models.header import ModelHeader


def num_layers(option: str, wanted: int | None) -> int:
    """Layers to place on a GPU: as `wanted`, else all if there is one; raises UsageError if there is none."""
    if wanted is None:
        return ALL_LAYERS if library.gpu_available() else 0
    if wanted != 0 and not library.gpu_available():
        raise UsageError(
            f"{option}: this build of llama.cpp has no GPU to place layers on",
            "leave it out, or rebuild with CMAKE_ARGS for your GPU (README.md, Install)",
            (option.removeprefix("--"),),
        )
    return wanted


def check_ctx(option: str, n_ctx: int | None, model: Model) -> None:
    """Raises UsageError for a context longer than the model was trained with."""
    if n_ctx and n_ctx > model.n_ctx_train:
        raise UsageError(
            f"{option} {n_ctx}: the {model.header.role} was trained with {model.n_ctx_train} tokens",
            "give at most that, or leave it out",
            (option.removeprefix("--"),),
        )


def check_parity(
    target: ModelHeader, draft: ModelHeader | None, on_notice: Callable[[str], object]
) -> ParityReport | None:
    """How the tokenizers compare, None without a draft; raises ParityError where the draft cannot be used.

    `on_notice` is told of a draft that can be used, but is as large as its target.
    """
    if draft is None:
        return None
    try:
        report = check_head(target.gguf, draft.gguf)
    except MalformedError as error:
        raise ModelError(f"{draft.role} model: {draft.path} cannot be used: {error}", "use another draft") from None
    if report.verdict is Parity.INCOMPATIBLE:
        raise ParityError(
            f"{draft.path} cannot draft for {target.path}: {report.summary}",
            "choose a draft that is made for this target, or --draft none",
            ("target", "draft"),
        )
    # A head's file may hold more than is used of it; that of a split target holds a part.
    is_whole = draft.kind is DraftKind.MODEL and "split.count" not in target.gguf.metadata
    if is_whole and draft.path.stat().st_size >= target.path.stat().st_size:
        on_notice(f"{draft.path.name} is as large as {target.path.name}: drafting with it saves no time")
    return report


def has_own_heads(target: ModelHeader) -> bool:
    """Whether a target's own file has layers that can draft for it."""
    if not num_nextn_layers(target.gguf):
        return False
    return check_head(target.gguf, target.gguf).verdict is not Parity.INCOMPATIBLE
