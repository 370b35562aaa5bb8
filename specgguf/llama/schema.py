"""Turns JSON schemas into grammars, with llama-cpp-python's converter.

The converter silently ignores what it does not know, and some of its rules allow text that is not JSON. Here the first
is an error and the second is corrected: whatever such a grammar accepts is JSON and fits the schema.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from llama_cpp.llama_grammar import PRIMITIVE_RULES, SchemaConverter

from specgguf.errors import UsageError
from specgguf.llama import gbnf
from specgguf.text import jsontext

_ANNOTATIONS = {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format"} | {
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "discriminator",
}
_NUMBERS = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"
_OF_TYPE = {
    "string": "minLength maxLength pattern",
    "number": _NUMBERS,
    "integer": _NUMBERS,
    "array": "items prefixItems additionalItems unevaluatedItems minItems maxItems uniqueItems contains",
    "object": "properties required additionalProperties unevaluatedProperties patternProperties propertyNames"
    " minProperties maxProperties dependentRequired dependentSchemas dependencies",
}
_OF_ANY_TYPE = {keyword for keywords in _OF_TYPE.values() for keyword in keywords.split()}
_FORMATS = re.compile(r"uuid[1-5]?|date|time|date-time")

_ANYTHING = {"title": "anything"}
_CHARACTER = r'[^"\\\x7F\x00-\x1F]'
"""A character that needs no escape in a JSON string; the converter's own rule wrongly has line breaks in it."""
_CHARACTERS = {
    "char": rf'{_CHARACTER} | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])',
    "dot": _CHARACTER,
}

_PLAIN = r"A-Za-z0-9 _@:/,;=%&#!'~<>"
_RANGE = r"[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]"
_PART = re.compile(
    rf"(?P<group>\(\?:)|(?P<escape>\\[dw./-])|(?P<class>\[(?:{_RANGE}|\\[dw./-]|[{_PLAIN}.])+-?\])"
    rf"|\{{[0-9]+(?:,[0-9]*)?\}}|[{_PLAIN}.()|*+?-]"
)
_ESCAPES = {r"\d": "0-9", r"\w": "a-zA-Z0-9_", r"\.": ".", r"\/": "/", r"\-": r"\-"}


def schema_to_gbnf(schema: str) -> str:
    """The grammar of the JSON texts that fit `schema`.

    Raises UsageError if `schema` is not JSON, not a schema, or asks for something that a grammar cannot express.
    """
    try:
        parsed = jsontext.parse(schema)
    except ValueError as error:
        raise UsageError(
            f"the JSON schema is not JSON: {error}", "give a file with a JSON schema, or its text"
        ) from error
    try:
        text = _Converter().convert(parsed)
        gbnf.check(text)
    except _UnsupportedError as error:
        raise UsageError(f"the JSON schema{error}", "leave that out of the schema: it cannot be enforced") from error
    except UsageError as error:
        raise UsageError(f"the JSON schema becomes no grammar: {error.message}", "simplify it") from error
    # The converter does not expect mistakes in a schema: it may fail in any way.
    except Exception as error:
        raise UsageError(
            f"the JSON schema becomes no grammar: {str(error) or type(error).__name__}", "correct or simplify it"
        ) from error
    return text


class _UnsupportedError(Exception):
    def __init__(self, name: str, what: str) -> None:
        super().__init__(f", {name}: {what}" if name else f": {what}")


class _Converter(SchemaConverter):
    def __init__(self) -> None:
        super().__init__(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)  # type: ignore[no-untyped-call]
        self._whole: Any = None
        self._names: dict[str, str] = {}

    def convert(self, schema: Any) -> str:  # noqa: ANN401 (JSON)
        self._whole = schema
        self.visit(schema, "")
        self._rules.update({name: rule for name, rule in _CHARACTERS.items() if name in self._rules})
        return str(self.format_grammar())  # type: ignore[no-untyped-call]

    def visit(self, schema: Any, name: str) -> str:  # noqa: ANN401 (JSON)
        """The name of the rule for `schema`. Raises _UnsupportedError if the converter would ignore a part of it."""
        if schema is True:
            schema = _ANYTHING
        if not isinstance(schema, dict):
            raise _UnsupportedError(name, f"{json.dumps(schema)} in place of a schema")
        plain = _plain(schema)
        if not plain:
            return str(self._add_primitive("value" if name else "root", PRIMITIVE_RULES["value"]))
        if left_out := plain.keys() - _used(plain):
            raise _UnsupportedError(name, f"{', '.join(sorted(left_out))} is not supported there")
        for keyword in ("anyOf", "oneOf", "enum"):
            if plain.get(keyword) == []:
                raise _UnsupportedError(name, f"{keyword} without alternatives")
        if missing := set(plain.get("required", ())) - set(plain.get("properties", ())):
            raise _UnsupportedError(name, f"{', '.join(sorted(missing))} required, but not among the properties")
        for least, most in (("minItems", "maxItems"), ("minLength", "maxLength")):
            if plain.get(least, 0) > plain.get(most, math.inf):
                raise _UnsupportedError(name, f"{least} is more than {most}")
        if "pattern" in plain:
            plain["pattern"] = _pattern(plain["pattern"], name)
        if "allOf" in plain:
            self._check_components(plain["allOf"], name)
        return str(super().visit(plain, name))  # type: ignore[no-untyped-call]

    def _check_components(self, components: Sequence[Mapping[str, Any]], name: str) -> None:
        """Raise _UnsupportedError unless they have only properties, which the converter then requires to be present."""
        known: set[str] = set()
        for component in components:
            if (ref := component.get("$ref")) is not None:
                component = self._refs[ref] = self._target(ref)  # noqa: PLW2901
            plain = _plain(component)
            properties = plain.get("properties", {}).keys()
            others = plain.keys() - {"type", "properties", "required"}
            if others or not properties or known & properties or plain.get("required", properties) - properties:
                raise _UnsupportedError(name, "allOf of anything but objects with different properties")
            known |= properties

    def _resolve_ref(self, ref: str) -> str:
        # The original confuses the rule with any other of that name, such as one of a property.
        if ref not in self._names:
            self._names[ref] = f"schema-{len(self._names)}"
            self._names[ref] = self.visit(self._target(ref), self._names[ref])
        return self._names[ref]

    def _target(self, ref: str) -> Any:  # noqa: ANN401 (JSON)
        # The original misses definitions that stand beside a reference, where generators put them.
        where, *path = ref.split("/")
        target = self._whole
        try:
            for name in path:
                key = unquote(name).replace("~1", "/").replace("~0", "~")
                target = target[int(key) if isinstance(target, list) else key]
        except (LookupError, ValueError):
            where = ""
        if where != "#":
            raise _UnsupportedError("", f"{ref} does not lead to a place in it")
        return target

    def _format_literal(self, literal: str) -> str:
        # The original does not escape backslashes, and escapes non-ASCII characters, which a model writes as they are.
        text = json.dumps(json.loads(literal), ensure_ascii=False)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema without annotations, in keywords that the converter knows."""
    plain = {
        keyword: value
        for keyword, value in schema.items()
        if keyword not in _ANNOTATIONS or (keyword == "format" and _FORMATS.fullmatch(str(value)))
    }
    kind = plain.get("type")
    if isinstance(kind, list):
        if "const" in plain or "enum" in plain:
            del plain["type"]
        else:
            return {"anyOf": [{**plain, "type": one} for one in kind]}
    elif kind in ("string", "number", "integer", "array", "object", "boolean", "null"):
        others = _OF_ANY_TYPE - set(_OF_TYPE.get(kind, "").split())
        plain = {keyword: value for keyword, value in plain.items() if keyword not in others}
    if kind == "array" and "prefixItems" not in plain and plain.keys() & {"items", "minItems", "maxItems"}:
        items = plain.get("items", True)
        plain["items"] = _ANYTHING if items is True or items == {} else items
    if "prefixItems" in plain and plain.get("items") is False:
        del plain["items"]
    return plain


def _used(plain: Mapping[str, Any]) -> set[str]:
    """The keywords that the converter looks at in such a schema, in its own order of cases."""
    kind = plain.get("type")
    for keyword in ("$ref", "oneOf", "anyOf"):
        if keyword in plain:
            return {keyword} if keyword == "$ref" else {keyword, "type"}
    if "const" in plain or "enum" in plain:
        return {"const", "enum", "type"}
    if "properties" in plain or plain.get("additionalProperties", True) is not True:
        return {"type", "properties", "required", "additionalProperties"}
    if "allOf" in plain:
        return {"type", "allOf"} if kind in (None, "object") else {"type"}
    if "prefixItems" in plain or isinstance(plain.get("items"), list):
        return {"type", "items"} if "prefixItems" not in plain else {"type", "prefixItems"}
    if "items" in plain:
        return {"type", "items", "minItems", "maxItems"}
    if "pattern" in plain:
        return {"type", "pattern", "format"}
    if "format" in plain:
        return {"type", "format"}
    return {"type", "minLength", "maxLength", "additionalProperties"}


def _pattern(pattern: str, name: str) -> str:
    """The pattern, rewritten so that the converter gets it right and matches stay inside a JSON string."""
    re.compile(pattern)  # raises an error for mistakes, which the converter would misread
    body, parts, place = pattern[1:-1], [], 0
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise _UnsupportedError(name, f"the pattern {pattern} does not begin with ^ and end with $")
    while place < len(body):
        found = _PART.match(body, place)
        if found is None:
            raise _UnsupportedError(name, f"{body[place : place + 2]} in the pattern {pattern} is not supported")
        part, place = found[0], found.end()
        if found["group"]:
            part = "("
        elif found["escape"]:
            part = f"[{_ESCAPES[part]}]"
        elif found["class"]:
            part = re.sub(r"\\[dw./-]", lambda escape: _ESCAPES[escape[0]], part)
        parts.append(part)
    return f"^({''.join(parts)})$" if "|" in body else f"^{''.join(parts)}$"
