"""Schemas as frameworks write them, answered by a real model, parsed and validated."""

import json
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

from specgguf.cli.opening import Models, open_engine, open_store
from specgguf.engine.settings import EngineSettings
from specgguf.llama.grammar import GrammarText

SCHEMAS = json.loads((Path(__file__).parents[1] / "data/schemas.json").read_text())
OF_EACH = [name for number, name in enumerate(SCHEMAS) if number % 10 == 2]
TOKENS = 500


@pytest.fixture(scope="module")
def engine():
    models = Models("tiny", None, None, None, None)
    with closing(open_engine(open_store(), models, EngineSettings(n_threads=1))) as engine:
        yield engine


def strictly(schema):
    """The same for a validator that knows neither OpenAPI's `nullable` nor bounds as flags, and takes no remarks."""
    if isinstance(schema, list):
        return [strictly(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strictly(value) for key, value in schema.items()}
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if schema.get(flag) is True:
            schema[flag] = schema.pop(bound)
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
    if schema.get("format") == "uuid4":
        schema["format"] = "uuid"
    return {"anyOf": [schema, {"type": "null"}]} if schema.pop("nullable", False) else schema


def answer(engine, schema, temperature, num_draft):
    """One with few long texts: what ends one is made likelier."""
    vocab = engine.target.vocab
    pieces = [(token, vocab.piece(token).lstrip()) for token in range(vocab.num_tokens)]
    bias = [(token, 8.0) for token, piece in pieces if piece.startswith((b'"', b"]", b"}", b"null"))]
    bias += [(token, 7.0) for token, piece in pieces if piece.startswith((b",", b"Z"))]
    sampler = engine.sampler(temperature=temperature, logit_bias=bias)
    prompt = engine.tokenize_chat([{"role": "user", "content": "Give an example as JSON."}])
    generation = engine.generate(
        prompt, sampler, TOKENS, grammar=GrammarText.from_schema(json.dumps(schema)), num_draft=num_draft
    )
    list(generation)
    return generation


def check(engine, name):
    for temperature in (0.0, 1.0):
        auto, fixed, plain = (answer(engine, SCHEMAS[name], temperature, num_draft) for num_draft in (None, 4, 0))
        assert plain.finish_reason == "stop", plain.text
        schema = strictly({key: value for key, value in SCHEMAS[name].items() if key != "$schema"})
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        for found in (auto, fixed, plain):
            jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(found.text))
        yield fixed, plain


@pytest.mark.parametrize("name", OF_EACH)
def test_an_answer_fits_the_schema_with_drafts_and_without(engine, name):
    for fixed, _ in check(engine, name):
        assert fixed.stats.accepted["model"]


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in OF_EACH])
def test_every_answer_fits_its_schema(engine, name):
    assert len(list(check(engine, name))) == 2
