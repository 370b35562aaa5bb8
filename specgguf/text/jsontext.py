"""JSON from strangers."""

import json
from typing import Any


def parse(text: str) -> Any:  # noqa: ANN401 (JSON)
    """What `text` says; ValueError if it is no JSON, is nested too deep, or has half of a surrogate pair."""
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError(str(error)) from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no text") from None
    return content
