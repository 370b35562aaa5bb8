"""JSON that others wrote."""

import json
from collections.abc import Collection
from typing import Any


def parse(text: str, names: Collection[str] = ()) -> Any:  # noqa: ANN401 (JSON)
    """The value of `text`. Raises ValueError if it is not JSON, is nested too deeply, or has half a surrogate pair.

    `names`: keys of an object whose values hold names of files, which may be other bytes than text.
    """
    try:
        content = json.loads(text)
        is_object = isinstance(content, dict)
        texts = {key: value for key, value in content.items() if key not in names} if is_object else content
        json.dumps(texts, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError(str(error)) from None
    except UnicodeEncodeError:
        raise ValueError("it has half a surrogate pair, which is not text") from None
    return content
