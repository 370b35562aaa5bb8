import itertools
import json
import random
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_cpp import llama_cpp as lib
from llama_cpp import llama_grammar as examples

from specgguf.errors import ContextError, UsageError
from specgguf.llama import gbnf
from specgguf.llama.grammar import GrammarText, LlamaGrammar
from specgguf.llama.model import Model
from specgguf.llama.schema import schema_to_gbnf
from specgguf.models.header import ModelHeader
from specgguf.sampling.sampler import Sampler
from tests.cli.program import specgguf

PETS = 'root ::= pet (", " pet)* "."\npet ::= "the " ("cat" | "dog") [a-cé]{0,3}'
PETS_PATTERN = r"the (cat|dog)[a-cé]{0,3}(, the (cat|dog)[a-cé]{0,3})*\."
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        'a "b"\\c\n': {"enum": ['x"y', "back\\slash", "line\nbreak", "é", 3, None]},
        "code": {"type": "string", "pattern": r"^[A-Z]{2}-\d+(\.\d\d?)?|none$"},
        "tags": {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1, "maxItems": 3},
        "child": {"anyOf": [{"$ref": "#/$defs/tags"}, {"type": "boolean"}]},
    },
    "required": ["name", 'a "b"\\c\n', "tags"],
    "additionalProperties": False,
    "$defs": {"tags": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string", "format": "date"}]}},
}


@pytest.fixture(scope="module", params=["toy", "smollm"])
def vocab(request, toy_models):
    path = toy_models["target"]
    if request.param == "smollm":
        path = Path(specgguf("pull", "smollm2-135m:Q4_1", timeout=600).stdout.decode().strip())
    with closing(Model(ModelHeader.of_file(path, "target"), 0)) as model:
        yield model.vocab


def valid(value, schema, root):
    """As far as these tests need it."""
    if "$ref" in schema:
        return valid(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return any(valid(value, one, root) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {
        "string": lambda: isinstance(value, str),
        "integer": lambda: isinstance(value, int) and not isinstance(value, bool),
        "number": lambda: isinstance(value, int | float) and not isinstance(value, bool),
        "boolean": lambda: isinstance(value, bool),
        "null": lambda: value is None,
        "array": lambda: isinstance(value, list),
        "object": lambda: isinstance(value, dict),
    }
    kind = schema.get("type", [])
    if not any(kinds[one]() for one in ([kind] if isinstance(kind, str) else kind)):
        return False
    if isinstance(value, str):
        return len(value) <= schema.get("maxLength", 10**9) and (
            "pattern" not in schema or re.search(schema["pattern"], value) is not None
        )
    if isinstance(value, list):
        items = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        return schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9) and all(
            valid(one, item, root) for one, item in zip(value, items, strict=True)
        )
    if isinstance(value, dict):
        properties = schema["properties"]
        return set(schema["required"]) <= value.keys() and all(
            key in properties and valid(one, properties[key], root) for key, one in value.items()
        )
    return True


def generate(vocab, grammar, seed, sampler=None, patience=150, limit=600):
    """Tokens by random logits; what can end a text gets likelier, and so does the end at last."""
    generator = np.random.default_rng(seed)
    closing = [token for token in range(vocab.num_tokens) if vocab.piece(token) in (b'"', b"}", b"]", b".")]
    sampler = sampler or Sampler(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed, grammar=grammar)
    tokens = []
    while len(tokens) < limit and not (tokens and tokens[-1] in vocab.eog):
        logits = generator.normal(0, 2, vocab.num_tokens).astype(np.float32)
        if len(tokens) > patience or generator.random() < 0.3:
            logits[closing] += 12
            logits[sorted(vocab.eog)] += 20
        tokens.append(sampler.sample(logits, tokens))
    return tokens


def text_of(vocab, tokens):
    return b"".join(vocab.piece(token) for token in tokens)


@pytest.mark.parametrize("seed", range(12))
def test_random_logits_give_only_texts_of_the_grammar(vocab, seed):
    tokens = generate(vocab, GrammarText.from_gbnf(PETS).begin(vocab, 0), seed)
    assert tokens[-1] in vocab.eog
    assert re.fullmatch(PETS_PATTERN, text_of(vocab, tokens).decode())


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_random_logits_give_only_json_that_is_valid(vocab, seed, truncated):
    grammar = GrammarText.from_schema(json.dumps(PERSON)).begin(vocab, 0)
    sampler = Sampler(temperature=1.0, seed=seed, grammar=grammar) if truncated else None
    tokens = generate(vocab, grammar, seed, sampler)
    assert tokens[-1] in vocab.eog
    value = json.loads(text_of(vocab, tokens).decode(errors="replace"))
    # Half a character becomes one replacement for each byte, and so more characters than the grammar counted.
    value["name"] = value["name"].replace("\ufffd", "")
    assert valid(value, PERSON, PERSON), value


@pytest.mark.parametrize("seed", range(6))
def test_whatever_was_asked_before_the_answer_is_that_of_a_fresh_state(vocab, seed):
    chooser = random.Random(seed)
    text = GrammarText.from_gbnf(PETS if seed % 2 else examples.JSON_GBNF)
    texts = [generate(vocab, text.begin(vocab, 0), other, limit=120) for other in (seed, seed + 100)]
    prompt = [1, 2, 3]
    grammar = text.begin(vocab, len(prompt))
    ids = np.arange(vocab.num_tokens)
    for _ in range(25):
        output = chooser.choice(texts)
        output = output[: chooser.randint(0, len(output))]
        if chooser.random() < 0.1:
            output = [*output, chooser.randrange(vocab.num_tokens)]  # mostly not allowed
        cut = chooser.randint(0, len(output))
        some = ids if chooser.random() < 0.5 else np.array(chooser.sample(range(vocab.num_tokens), 50))
        expected = text.begin(vocab, 0).allowed(output, [], some)
        assert (grammar.allowed([*prompt, *output[:cut]], output[cut:], some) == expected).all()


@pytest.mark.parametrize("grammar", [examples.JSON_GBNF, 'root ::= [^é\u4e2d]* "é" [\u4e00-\u9fff]+ "."', PETS])
def test_masks_of_all_tokens_are_llamas_own(vocab, grammar):
    ids = np.arange(vocab.num_tokens)
    grammar = GrammarText.from_gbnf(grammar).begin(vocab, 0)
    printed = np.array([bool(vocab.piece(token)) or token in vocab.eog for token in ids.tolist()])
    output = []
    for seed in range(25):
        state = grammar._state_after(output)
        expected = state.allowed(ids) & printed
        assert (grammar._mask(state) == expected).all()
        following = [token for token in ids[expected].tolist() if token not in vocab.eog]
        if not following:
            break
        output = [*output, random.Random(seed).choice(following)]


def test_an_end_comes_only_where_the_grammar_can_end(vocab):
    grammar = GrammarText.from_gbnf('root ::= "a" "b"?').begin(vocab, 0)
    (eog, *_), a, b = (
        sorted(vocab.eog),
        *(next(t for t in range(vocab.num_tokens) if vocab.piece(t) == x) for x in (b"a", b"b")),
    )
    asked = np.array([eog, a, b])
    assert grammar.allowed([], [], asked).tolist() == [False, True, False]
    assert grammar.allowed([a], [], asked).tolist() == [True, False, True]
    assert grammar.allowed([a], [b], asked).tolist() == [True, False, False]
    assert grammar.allowed([b], [], asked).tolist() == [False, False, False]
    assert grammar.allowed([a, eog], [], asked).tolist() == [True, False, True]  # nothing that would end the process


def test_control_tokens_are_no_text_and_foreign_ids_are_none(vocab):
    grammar = GrammarText.from_gbnf("root ::= [^a]*").begin(vocab, 0)
    silent = [t for t in range(vocab.num_tokens) if not vocab.piece(t) and t not in vocab.eog]
    assert silent
    assert not grammar.allowed([], [], np.array([*silent, -1, vocab.num_tokens, 2**40])).any()
    assert not grammar.allowed([], [], np.array([*silent, *[vocab.num_tokens] * 10_000])).any()


def test_a_grammar_that_a_vocabulary_cannot_spell_is_an_error(tmp_path):
    from tests.tiny import write_attention

    with closing(Model(ModelHeader.of_file(write_attention(tmp_path / "x.gguf"), "target"), 0)) as model:
        grammar = GrammarText.from_gbnf('root ::= "\\x00"').begin(model.vocab, 0)  # no token has a zero byte
        with pytest.raises(ContextError, match="no token"):
            Sampler(grammar=grammar).sample(np.zeros(model.vocab.num_tokens, np.float32), [])


def test_states_of_a_long_text_are_forgotten_but_for_the_last(vocab):
    grammar = GrammarText.from_gbnf("root ::= [a-z]*").begin(vocab, 0)
    token = next(t for t in range(vocab.num_tokens) if vocab.piece(t) == b"a")
    tokens = []
    for _ in range(300):
        tokens.append(token)
        assert grammar.allowed(tokens, [], np.array([token])).all()
    assert len(grammar._states) < 100
    assert grammar.allowed(tokens[:5], [], np.array([token])).all()


def test_a_step_of_the_grammar_is_made_once_a_token(vocab, monkeypatch):
    grammar = GrammarText.from_gbnf("root ::= [a-z]*").begin(vocab, 2)
    a, b = (next(t for t in range(vocab.num_tokens) if vocab.piece(t) == x) for x in (b"a", b"b"))
    steps = []
    monkeypatch.setattr(lib, "llama_sampler_accept", lambda *_: steps.append(1))
    tokens = [1, 2, a, a]
    for num_drafted in range(4):  # the draft
        grammar.allowed(tokens, [a] * num_drafted, np.array([a]))
    assert len(steps) == 5
    for num_accepted in range(3):  # the target, which rejects the third
        grammar.allowed(tokens, [a] * num_accepted, np.array([a]))
    grammar.allowed([*tokens, a, a, b], [], np.array([a]))
    assert len(steps) == 6


MISTAKES = [
    ("", "line 1: it is empty"),
    ("# only a comment\n", "line 1: it is empty"),
    ('start ::= "a"', "no rule is named root"),
    ('root ::= "a\n', 'line 1: the end of what begins with " is missing'),
    ('root ::= "a"\nx ::= [a-\n', "line 2: the end of what begins with [ is missing"),
    ('root ::= x\nx ::= "a" nope', "line 2: there is no rule nope"),
    ('root ::= ("a" | "b"', "line 1: expected )"),
    ('root ::= "a")', "expected the end of the line at ')'"),
    ('root = "a"', "expected ::="),
    ('root ::= "\\d"', "unknown escape \\d"),
    ("root ::= *", "nothing before * that could be repeated"),
    ('root ::= "a"{2,', "expected {number}"),
    ('root ::= "a"{3,2}', "2 repetitions at most"),
    ('root ::= "a"{3000}', "too many repetitions"),
    ('root ::= (("a"{1,50}){1,50}){1,50}', "too many repetitions"),
    ("root ::= <think>", "tokens by name or number"),
    ('root ::= "\0"', "line 1: the end of"),
    ('root ::= root "a" | "b"', "rule root begins with itself"),
    ('root ::= "x" a\na ::= (b a)? "c"\nb ::= "d"*', "line 2: rule a begins with itself"),
    ('root ::= a root "x" | "y"\na ::= b\nb ::= "" | "z"', "rule root begins with itself"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_in_a_grammar_is_an_error_before_there_is_a_model(text, message, capfd):
    with pytest.raises(UsageError) as caught:
        GrammarText.from_gbnf(text)
    assert message in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_what_llama_refuses_is_an_error_too(capfd):
    with pytest.raises(UsageError, match="left recursion"):
        GrammarText.from_gbnf('root ::= ("" | "a")*')
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name in dir(examples) if name.endswith("_GBNF")])
def test_llamas_examples_are_grammars(name):
    GrammarText.from_gbnf(getattr(examples, name))


PIECES = [
    "root",
    "a",
    "b",
    " ::= ",
    "\n",
    " ",
    "|",
    "(",
    ")",
    "*",
    "+",
    "?",
    "{2}",
    "{1,}",
    "{,2}",
    "{0,3}",
    '"x"',
    '""',
]
PIECES += ["[a-z]", "[^x]", "[]", ".", "# c", "\\", '"', "[", "root ::= ", "\na ::= ", '\nb ::= "y"']


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_what_is_no_grammar_for_llama_is_none_here(pieces):
    text = "".join(pieces)
    try:
        gbnf.check(text)
    except UsageError:
        return
    # Not refused: so llama.cpp must be able to read it; what it calls left recursion it says in a way we can catch.
    sampler = lib.llama_sampler_init_grammar(None, text.encode(), b"root")
    lib.llama_sampler_free(sampler) if sampler else None
    assert sampler or "left recursion" in failure(text)


def failure(text):
    try:
        GrammarText.from_gbnf(text)
    except UsageError as error:
        return error.message
    return ""


def test_what_llama_reads_is_read_here():
    """All short grammars of a few signs: only those with circles are refused although llama.cpp reads them."""
    signs = ['"x"', '""', "root", "a", "|", "*", "?", "(", ")"]
    texts = [
        f"root ::= {' '.join(body)}\na ::= [a-z]" for n in range(1, 5) for body in itertools.product(signs, repeat=n)
    ]
    code = (
        "import sys, json\nfrom llama_cpp import llama_cpp as lib\nfrom specgguf.llama import library\n"
        "init = lib.llama_sampler_init_grammar\n"
        "print(json.dumps([bool(init(None, t.encode(), b'root')) for t in json.load(sys.stdin)]))"
    )
    texts = [text for text in texts if "itself" not in checked(text)]
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(texts).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    for text, theirs in zip(texts, json.loads(result.stdout), strict=True):
        assert theirs <= (checked(text) == ""), text


def checked(text):
    try:
        gbnf.check(text)
    except UsageError as error:
        return error.message
    return ""


BAD_SCHEMAS = [
    ("nope", "is not JSON"),
    (r'{"const": "\ud83d"}', "surrogate"),
    ("[" * 100_000, "recursion"),
    ("[1]", "[1] in place of a schema"),
    ('{"type": "frob"}', "Unrecognized schema"),
    ('{"type": "integer", "minimum": 3}', "minimum is not supported"),
    ('{"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}', "a: uniqueItems"),
    ('{"not": {"type": "string"}}', "not is not supported"),
    ('{"type": "object", "properties": {"a": {}}, "required": ["b"]}', "b required, but not among"),
    ('{"type": "object", "properties": {"a": {}}, "patternProperties": {}}', "patternProperties"),
    ('{"anyOf": [{"type": "null"}], "oneOf": [{"type": "null"}]}', "anyOf is not supported"),
    ('{"anyOf": []}', "anyOf without alternatives"),
    ('{"enum": []}', "enum without alternatives"),
    ('{"allOf": [{"type": "integer"}]}', "allOf"),
    ('{"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 1}', "minItems is more than maxItems"),
    ('{"type": "string", "pattern": "a+"}', "does not begin with ^"),
    ('{"type": "string", "pattern": "^[^a]$"}', "[^ in the pattern"),
    ('{"type": "string", "pattern": "^\\\\s$"}', "\\s in the pattern"),
    ('{"type": "string", "pattern": "^a**b($"}', "becomes no grammar"),
    ('{"$ref": "#/$defs/x"}', "#/$defs/x does not lead"),
    ('{"$ref": "https://example.org/x.json"}', "https://example.org/x.json does not lead"),
    ('{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}', "begins with itself"),
    ('{"properties": {"a": false}}', "a: false in place of a schema"),
    ('{"type": "array", "items": {}, "minItems": "3"}', "becomes no grammar"),
]


@pytest.mark.parametrize(("schema", "message"), BAD_SCHEMAS)
def test_what_a_schema_cannot_have_is_an_error_before_there_is_a_model(schema, message, capfd):
    with pytest.raises(UsageError) as caught:
        GrammarText.from_schema(schema)
    assert message in caught.value.message
    assert capfd.readouterr() == ("", "")


GOOD_SCHEMAS = [
    ({}, ["[1, {}]", '"x"'], ["nope"]),
    ({"type": "array", "items": {}, "maxItems": 1}, ["[]", '["x"]'], ["[1,2]"]),
    ({"type": ["string", "null"], "minLength": 2}, ['"ab"', "null"], ['"a"', "2"]),
    ({"type": "string"}, ['"\\u00e9é"'], ['"a\nb"', '"\x01"']),
    ({"const": "é\\"}, ['"é\\\\"'], ['"é"']),
    ({"enum": ["a", 1, None], "type": ["string", "integer", "null"]}, ['"a"', "1", "null"], ["2"]),
    ({"type": "string", "pattern": r"^(?:a|b)\.[x_-]{2}$"}, ['"a._-"', '"b.xx"'], ['"c.xx"', '"a.x"', '"a_xx"']),
    ({"type": "string", "pattern": "^a.c$"}, ['"abc"'], ['"a"c"', '"a\\c"']),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ['{"a": 1}', "{}"], ['{"a": "b"}']),
    (
        {
            "allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"type": "null"}}}],
            "$defs": {"a": {"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"]}},
        },
        ['{"x": null, "y": null}'],
        ['{"x": null}'],
    ),
    (  # a rule called like a property is not the property's
        {
            "type": "object",
            "properties": {"x": {"enum": [1]}, "y": {"$ref": "#/$defs/x"}},
            "required": ["x", "y"],
            "$defs": {"x": {"enum": [2]}},
        },
        ['{"x": 1, "y": 2}'],
        ['{"x": 1, "y": 1}'],
    ),
    (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    "required": ["next"],
                }
            },
        },
        ['{"next": {"next": null}}'],
        ['{"next": 1}'],
    ),
]


@pytest.mark.parametrize(("schema", "good", "bad"), GOOD_SCHEMAS)
def test_schemas(vocab, schema, good, bad):
    text = GrammarText.from_schema(json.dumps(schema))
    assert all(accepts(text.begin(vocab, 0), vocab, one) for one in good)
    assert not any(accepts(text.begin(vocab, 0), vocab, one) for one in bad)


def accepts(grammar: LlamaGrammar, vocab, text):
    """Byte by byte, or what the vocabulary has instead."""
    singles = {vocab.piece(token): token for token in range(vocab.num_tokens) if len(vocab.piece(token)) == 1}
    tokens = []
    for byte in text.encode():
        token = singles[bytes([byte])]
        if not grammar.allowed(tokens, [], np.array([token])).all():
            return False
        tokens.append(token)
    return bool(grammar.allowed(tokens, [], np.array(sorted(vocab.eog))).all())


def test_a_long_string_is_no_recursion_too_deep():
    GrammarText.from_schema('{"type": "string", "maxLength": 900}')
    assert "maxLength" not in schema_to_gbnf('{"type": "string", "maxLength": 900}')
