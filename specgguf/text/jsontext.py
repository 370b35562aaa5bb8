"""JSON that others wrote."""

import json
from typing import Any


def parse(text: str) -> Any:  # noqa: ANN401 (JSON)
    """The value of `text`. Raises ValueError if it is not JSON, is nested too deeply, or has half a surrogate pair."""
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError(str(error)) from None
    except UnicodeEncodeError:
        raise ValueError("it has half a surrogate pair, which is not text") from None
    return content
