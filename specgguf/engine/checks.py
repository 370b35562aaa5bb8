"""What is asked of an engine and cannot be, found before anything is loaded."""

from specgguf.errors import ParityError, UsageError
from specgguf.headers.parity import Parity, ParityReport, compare
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


def check_parity(target: ModelHeader, draft: ModelHeader | None) -> ParityReport | None:
    """How the tokenizers compare, None without a draft; raises ParityError where the draft cannot be used."""
    if draft is None:
        return None
    report = compare(target.tokenizer, draft.tokenizer)
    if report.verdict is Parity.INCOMPATIBLE:
        raise ParityError(
            f"{draft.path} cannot draft for {target.path}: {report.summary}",
            "choose a draft of the same model family, or --speculate off",
            ("target", "draft"),
        )
    return report
