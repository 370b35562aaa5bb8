"""JSON schemas as frameworks write them, made ready for llguidance.

llguidance keeps what it knows of JSON Schema, refuses some keywords, and passes over the others without a word. Here
every keyword is kept, refused with its place, or known to be a remark; one that nobody knows is told.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from llguidance import LLMatcher

from specgguf.errors import UsageError
from specgguf.text import jsontext

_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_OBJECTS = {"properties", "additionalProperties", "patternProperties", "required", "minProperties", "maxProperties"}
_ARRAYS = {"items", "additionalItems", "prefixItems", "minItems", "maxItems"}
_COMBINING = {"anyOf", "oneOf", "allOf", "$ref"}
_KEPT = _NUMBERS | _OBJECTS | _ARRAYS | _COMBINING | {"type", "const", "enum", "minLength", "maxLength", "pattern"}
_HOLDERS = {"$defs", "definitions", "components", "$id", "id", "$anchor"}
"""Schemas that others refer to, and their names."""
_REFUSED = {
    *("not", "if", "then", "else", "uniqueItems", "contains", "minContains", "maxContains", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems"),
    *("$dynamicRef", "$recursiveRef"),
}
_SAYS_NOTHING: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
}
"""Values with which a refused keyword demands nothing."""
_REMARKS = {
    *("title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$schema"),
    *("$comment", "$vocabulary", "$dynamicAnchor", "$recursiveAnchor", "contentMediaType", "contentEncoding"),
    *("contentSchema", "discriminator", "xml", "externalDocs", "markdownDescription", "enumNames", "errorMessage"),
    *("propertyOrder", "order", "enumDescriptions"),
}
"""What some dialect of JSON Schema has that says nothing of an answer."""

_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
_FREE_FORMATS = {"password", "binary", "float", "double", "time-delta", "decimal"}
"""They allow every text, or every number."""
_INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(10**18) + 1, 10**18 - 1)}
"""Bounds by format; llguidance knows no larger integers."""


def read_schema(text: str, check: Callable[[str], str]) -> tuple[str, list[str]]:
    """What llguidance makes of a schema, and notes on what is not as the schema says, a line each.

    `check` returns what is wrong with a grammar, or nothing. Raises UsageError if `text` is not JSON or not a schema,
    or asks for something that cannot be enforced.
    """
    try:
        whole = jsontext.parse(text)
    except ValueError as error:
        raise UsageError(
            f"the JSON schema is not JSON: {error}", "give a file with a JSON schema, or its text"
        ) from error
    if isinstance(whole, dict) and isinstance(whole.get("schema"), dict) and not whole.keys() & _KEPT:
        raise _refusal("#", "this is what stands around a schema in a request: give what is in its schema only")
    reader = _Reader({} if whole is True else whole)
    reader.read()
    grammar = _compile(reader.whole, coerce=False)
    problem = check(grammar)
    if "oneOf constraints" in problem:
        grammar = _compile(reader.whole, coerce=True)
        problem = check(grammar)
        reader.note_choices()
    if problem:
        place, problem = reader.find(lambda schema: check(_compile(schema, coerce=True)), problem)
        raise _refusal(place, _say(problem))
    return grammar, reader.notes


def _compile(schema: dict[str, Any], coerce: bool) -> str:
    # A model may write blanks for ever where it is allowed to: as many as a readable object has are enough.
    blanks = r" |\n[ \t]{0,20}"
    try:
        return LLMatcher.grammar_from_json_schema(
            json.dumps(schema),
            overrides={"lenient": False, "coerce_one_of": coerce, "whitespace_pattern": blanks},
        )
    except ValueError as error:
        raise _refusal("#", f"it cannot be read: {error}") from None


def _at(place: str) -> str:
    return "the JSON schema" if place == "#" else f"the JSON schema, {place}"


def _refusal(place: str, what: str) -> UsageError:
    return UsageError(f"{_at(place)}: {what}", "correct that, or leave it out of the schema")


def _say(problem: str) -> str:
    """llguidance's words without the text around them."""
    lines = [line for line in problem.splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith("error: "):
            return f"the pattern: {line.removeprefix('error: ')}"
    if "Regex is empty" in lines[0]:
        return "no text fits its pattern, format and lengths together"
    return (lines[0][:1].lower() + lines[0][1:])[:300]


class _Reader:
    """Visits what a schema uses, and rewrites in place what only some dialects have."""

    def __init__(self, whole: Any) -> None:  # noqa: ANN401 (JSON)
        self.whole = whole
        self.notes: list[str] = []
        self._visited: dict[str, dict[str, Any]] = {}
        self._merges = False

    def read(self) -> None:
        """Raise UsageError for what cannot be enforced."""
        waiting = [("#", self.whole)]
        while waiting:
            place, schema = waiting.pop()
            if place not in self._visited and not isinstance(schema, bool):
                if not isinstance(schema, dict):
                    raise _refusal(place, f"{json.dumps(schema)[:40]} in place of a schema")
                self._visited[place] = schema
                waiting += self._visit(place, schema)
        if not self._merges:
            self._close_objects()

    def find(self, check: Callable[[dict[str, Any]], str], problem: str) -> tuple[str, str]:
        """The innermost place that has a problem by itself, and what that is."""
        holders = {key: value for key, value in self.whole.items() if key in _HOLDERS}
        for place, schema in reversed(self._visited.items()):
            if found := check({**holders, **schema}):
                return place, found
        return "#", problem

    def note_choices(self) -> None:
        """Tell of each choice whose branches may overlap, unless a property tells them apart."""
        self.notes += [
            f"{_at(place)}: oneOf is taken as anyOf: an answer may fit several of its branches"
            for place, schema in self._visited.items()
            if "oneOf" in schema and "discriminator" not in schema
        ]

    def _visit(self, place: str, schema: dict[str, Any]) -> list[tuple[str, Any]]:
        for keyword, value in list(schema.items()):
            if keyword in _SAYS_NOTHING and value in _SAYS_NOTHING[keyword]:
                del schema[keyword]
            elif keyword in _REFUSED:
                raise _refusal(place, f"{keyword} cannot be enforced")
            elif (keyword in _REMARKS or keyword.startswith("x-")) and keyword != "discriminator":
                del schema[keyword]
            elif keyword not in _KEPT | _HOLDERS | {"format", "nullable", "discriminator"}:
                self.notes.append(f"{_at(place)}: {keyword} is no keyword of JSON Schema, and is ignored")
        _apply_flags(schema)
        if "format" in schema:
            _apply_format(place, schema)
        _bound_integers(schema)
        combining = _COMBINING & schema.keys()
        all_of = schema.get("allOf")
        self._merges |= len(combining) > 1 or bool(combining and _OBJECTS & schema.keys())
        self._merges |= isinstance(all_of, list) and len(all_of) > 1
        following = list(_parts(place, schema))
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            following.append((unquote(reference), self._target(place, reference)))
        if schema.pop("nullable", False) is True:
            _allow_null(schema)
        return following

    def _target(self, place: str, reference: str) -> Any:  # noqa: ANN401 (JSON)
        target = self.whole
        try:
            for name in unquote(reference).split("/")[1:]:
                key = name.replace("~1", "/").replace("~0", "~")
                target = target[int(key) if isinstance(target, list) else key]
        except (LookupError, ValueError, TypeError):
            raise _refusal(place, f"{reference} does not lead to a place in it") from None
        return target

    def _close_objects(self) -> None:
        """Let objects have the properties that the schema names and no others, where it does not say.

        Such answers fit the schema too; a model that may invent properties goes on inventing. Where parts of schemas
        are merged, what one does not name another may.
        """
        for schema in self._visited.values():
            properties, required = schema.get("properties"), schema.get("required", [])
            says = schema.keys() & {"additionalProperties", "patternProperties", "minProperties"}
            if says or not isinstance(properties, dict) or not isinstance(required, list):
                continue
            if all(name in properties for name in required if isinstance(name, str)):
                schema["additionalProperties"] = False


def _parts(place: str, schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas inside one, with their places."""
    for keyword in ("items", "additionalItems", "additionalProperties"):
        if keyword in schema and not isinstance(schema[keyword], list):
            yield f"{place}/{keyword}", schema[keyword]
    for keyword in ("allOf", "anyOf", "oneOf", "prefixItems", "items"):
        if isinstance(schema.get(keyword), list):
            yield from ((f"{place}/{keyword}/{number}", part) for number, part in enumerate(schema[keyword]))
    for keyword in ("properties", "patternProperties"):
        if isinstance(schema.get(keyword), dict):
            for name, part in schema[keyword].items():
                yield f"{place}/{keyword}/{name.replace('~', '~0').replace('/', '~1')}", part


def _apply_flags(schema: dict[str, Any]) -> None:
    """Draft 4's and OpenAPI 3.0's way to say that a bound is not allowed itself."""
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(flag), bool) and schema.pop(flag) and bound in schema:
            schema[flag] = schema.pop(bound)


def _apply_format(place: str, schema: dict[str, Any]) -> None:
    """Keep a format in words that llguidance knows; raise UsageError for one that cannot be enforced."""
    name, kinds = schema["format"], schema.get("type", "string")
    if not isinstance(name, str):
        raise _refusal(place, f"{json.dumps(name)[:40]} in place of the name of a format")
    if name in _FORMATS and isinstance(kinds, str | list) and "string" in kinds:
        return
    del schema["format"]
    if name in _INTEGERS:
        least, most = _INTEGERS[name]
        bounds = [schema.get("minimum", least), schema.get("maximum", most)]
        if all(isinstance(bound, int | float) for bound in bounds):
            schema["minimum"], schema["maximum"] = max(bounds[0], least), min(bounds[1], most)
    elif name[:4] == "uuid" and name[4:] in [*"12345678"] and "pattern" not in schema:
        schema["format"], schema["pattern"] = "uuid", f"^.{{14}}{name[4:]}"
    elif name not in _FREE_FORMATS:
        raise _refusal(place, f"the format {json.dumps(name)} cannot be enforced")


def _bound_integers(schema: dict[str, Any]) -> None:
    """Give integers an end: a model that writes digit after digit seldom finds one."""
    kinds = schema.get("type")
    if kinds not in ("integer", ["integer", "null"]) or schema.keys() & {"enum", "const"}:
        return
    least, most = _INTEGERS["int64"]
    for bound, other, value in (("minimum", "exclusiveMinimum", least), ("maximum", "exclusiveMaximum", most)):
        if not schema.keys() & {bound, other}:
            schema[bound] = value


def _allow_null(schema: dict[str, Any]) -> None:
    """OpenAPI 3.0's `nullable`. An enumeration without null stays without it, as OpenAPI has it."""
    if "enum" in schema or "const" in schema:
        return
    kind = schema.get("type")
    if isinstance(kind, str) and not _COMBINING & schema.keys():
        schema["type"] = [kind, "null"]
        return
    inner = {keyword: value for keyword, value in schema.items() if keyword not in _HOLDERS}
    for keyword in inner:
        del schema[keyword]
    schema["anyOf"] = [inner, {"type": "null"}]
