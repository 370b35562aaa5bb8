"""What people who know llama.cpp's own programs type, and what to type here."""

import re
from collections.abc import Sequence

from specgguf.errors import UsageError

PROMPT_HINT = 'a prompt needs no option: specgguf run "Why is the sky blue?"'
PAIR_HINT = f"-p names a pair of models; {PROMPT_HINT}"

_HERE = {
    "--gpu-layers": ("-ngl", "--n-gpu-layers"),
    "--draft-gpu-layers": ("-ngld", "--n-gpu-layers-draft", "--gpu-layers-draft"),
    "--target": ("--model",),
    "--draft": ("-md", "--model-draft"),
    "--target hf:owner/repo": ("-hf", "-hfr", "--hf-repo"),
    "--max-tokens": ("--predict", "--n-predict"),
    "--ctx": ("--ctx-size",),
    "--draft-ctx": ("-cd", "--ctx-size-draft"),
    "--cache-type-k": ("-ctk",),
    "--cache-type-v": ("-ctv",),
    "--system": ("-sys", "--system-prompt"),
    "--seed": ("-s",),
    "--stop": ("-r", "--reverse-prompt"),
    "--json-schema": ("-j",),
    "--grammar": ("--grammar-file",),
    "specgguf chat": ("-cnv", "--conversation"),
}
_HINTS = {name: f"it is {here} here" for here, names in _HERE.items() for name in names} | {
    "-f": "a prompt in a file comes on stdin: specgguf run < FILE",
    "--file": "a prompt in a file comes on stdin: specgguf run < FILE",
    "--prompt": PROMPT_HINT,
    "-fa": "leave it out: llama.cpp decides by itself",
}
_VALUES = {
    "--max-tokens": "leave it out for an answer as long as the model makes it",
    "--ctx": "leave it out for a context as large as is needed",
    "--top-k": "0 keeps all tokens",
    "--seed": "leave it out for a new one every time",
    "--threads": "leave it out for as many as there are cores",
    "--gpu-layers": "all puts every layer on the GPU",
    "--draft-gpu-layers": "all puts every layer on the GPU",
}


def check(arguments: Sequence[str]) -> None:
    """Raise UsageError for an option of llama.cpp's that would be read as one of ours with a value."""
    for argument in arguments[: arguments.index("--") if "--" in arguments else None]:
        if re.fullmatch("-[a-z]{2,}", argument) and argument in _HINTS:
            raise UsageError(f"no such option: {argument}", _HINTS[argument])


def hint_for_option(name: str) -> str | None:
    """What to give instead of an option that there is not."""
    return _HINTS.get(name)


def hint_for_value(option: str) -> str | None:
    """What to give instead of a number that means "no limit" to llama.cpp."""
    return _VALUES.get(option)
