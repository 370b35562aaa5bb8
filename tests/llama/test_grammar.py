import json
import random
import re
from contextlib import closing
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from llama_cpp import llama_grammar as examples

from specgguf.errors import ContextError, UsageError
from specgguf.llama.grammar import GrammarText
from specgguf.llama.model import Model
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
        "code": {"type": "string", "pattern": r"^([A-Z]{2}-\d+(\.\d\d?)?|none)$"},
        "tags": {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1, "maxItems": 3},
        "child": {"anyOf": [{"$ref": "#/$defs/tags"}, {"type": "boolean"}]},
    },
    "required": ["name", 'a "b"\\c\n', "tags"],
    "additionalProperties": False,
    "$defs": {
        "tags": {
            "type": "array",
            "prefixItems": [{"type": "number"}, {"type": "string", "format": "date"}],
            "items": False,
        }
    },
}


@pytest.fixture(scope="module", params=["toy", "smollm"])
def vocab(request, toy_models):
    path = toy_models["target"]
    if request.param == "smollm":
        path = Path(specgguf("pull", "smollm2-135m:Q4_1", timeout=600).stdout.decode().strip())
    with closing(Model(ModelHeader.of_file(path, "target"), 0)) as model:
        yield model.vocab


def generate(vocab, grammar, seed, sampler=None, patience=150, limit=600):
    """Tokens by random logits; what can end a text gets likelier, and so does the end at last."""
    generator = np.random.default_rng(seed)
    closing = [token for token in range(vocab.num_tokens) if vocab.piece(token) in (b'"', b"}", b"]", b".", b",")]
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
    jsonschema.validate(value, PERSON)


SUMS = 'root ::= term (("+" | "-") term)*\nterm ::= [0-9]+ | "(" root ")"'


@pytest.mark.parametrize("seed", range(6))
def test_whatever_was_asked_before_the_answer_is_that_of_a_fresh_state(vocab, seed):
    chooser = random.Random(seed)
    text = (GrammarText.from_gbnf(PETS), GrammarText.from_gbnf(SUMS), GrammarText.from_schema(json.dumps(PERSON)))[
        seed % 3
    ]
    texts = [generate(vocab, text.begin(vocab, 0), other, limit=120) for other in (seed, seed + 100)]
    prompt = [1, 2, 3]
    grammar = text.begin(vocab, len(prompt))
    for _ in range(40):
        output = chooser.choice(texts)
        output = output[: chooser.randint(0, len(output))]
        if chooser.random() < 0.1:
            output = [*output, chooser.randrange(vocab.num_tokens)]  # mostly not allowed
        cut = chooser.randint(0, len(output))
        if chooser.random() < 0.5:
            assert grammar.forced([*prompt, *output]) == text.begin(vocab, 0).forced(output)
        expected = text.begin(vocab, 0).mask(output)
        assert (grammar.mask([*prompt, *output[:cut]], output[cut:]) == expected).all()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_forced_is_all_that_may_follow(vocab, seed):
    grammar = GrammarText.from_schema(json.dumps(PERSON)).begin(vocab, 0)
    tokens = generate(vocab, grammar, seed)
    found = 0
    for end in range(len(tokens)):
        for number, token in enumerate(forced := grammar.forced(tokens[:end])):
            assert np.flatnonzero(grammar.mask(tokens[:end], forced[:number])).tolist() == [token]
            found += 1
    assert found > 20


def test_an_end_comes_only_where_the_grammar_can_end(vocab):
    grammar = GrammarText.from_gbnf('root ::= "a" "b"?').begin(vocab, 0)
    a, b = (next(t for t in range(vocab.num_tokens) if vocab.piece(t) == x) for x in (b"a", b"b"))
    ends = sorted(vocab.eog)
    assert {vocab.piece(token) for token in np.flatnonzero(grammar.mask([])).tolist()} <= {b"a", b"ab"}
    assert np.flatnonzero(grammar.mask([a])).tolist() == sorted([*ends, b])
    assert np.flatnonzero(grammar.mask([a], [b])).tolist() == ends
    assert not grammar.mask([b]).any()
    assert not grammar.mask([a, ends[0], b]).any()


def test_control_tokens_are_no_text(vocab):
    grammar = GrammarText.from_gbnf("root ::= [^a]*").begin(vocab, 0)
    silent = [t for t in range(vocab.num_tokens) if not vocab.piece(t) and t not in vocab.eog]
    assert silent
    assert not grammar.mask([])[silent].any()
    for token in silent[:3]:
        assert not grammar.mask([token]).any()


def test_a_text_that_is_the_name_of_a_control_token_is_spelt_out(vocab):
    names = [vocab.text(token) for token in sorted(vocab.eog)]
    for name in names:
        grammar = GrammarText.from_schema(json.dumps({"const": name})).begin(vocab, 0)
        tokens = generate(vocab, grammar, 1)
        assert json.loads(text_of(vocab, tokens)) == name


def test_a_grammar_that_no_text_fits_is_an_error(vocab):
    grammar = GrammarText.from_gbnf('root ::= "a" x\nx ::= "b" x').begin(vocab, 0)
    with pytest.raises(ContextError):
        generate(vocab, grammar, 1, limit=5000) and grammar.mask([0])


def test_a_grammar_too_complex_to_go_on_is_an_error_and_the_next_text_goes_on(vocab):
    grammar = GrammarText.from_lark("start: /(.*a.{9}){3}/ | /(.*b.{8}c){3}/").begin(vocab, 0)
    first = grammar.mask([])
    grammar._state.consume_token(vocab.num_tokens + 5)  # an error that it never leaves
    grammar._masks.clear()
    with pytest.raises(ContextError, match="grammar"):
        grammar.mask([])
    assert (grammar.mask([]) == first).all()


MISTAKES = [
    ("", "line 1: no rule is named root"),
    ('start ::= "a"', "no rule is named root"),
    ('root ::= "a\n', "line 2: unexpected end"),
    ('root ::= "a"\nx ::= [a-', "line 2: unexpected end"),
    ('root ::= x\nx ::= "a" nope', "line 2: there is no rule nope"),
    ('root ::= ("a" | "b"', "line 1: expected ')'"),
    ('root ::= "a")', "at ')'"),
    ('root = "a"', "expected ::="),
    ('root ::= "\\d"', "escape sequence \\d"),
    ("root ::= *", "at '*'"),
    ('root ::= "a"{2,', "line 1: expected '}'"),
    ('# first\n\nx ::= "a"{3,2}\nroot ::= x', "line 3: range end must be"),
    ("root ::= x x\nx ::= [z-a]", "line 2: invalid character class range"),
    ("root ::= <think>", "at '<think>'"),
    ('root ::= "\\', "line 1"),
    ("root ::= " + "(" * 5000, "line 1"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_in_a_grammar_is_an_error_before_there_is_a_model(text, message, capfd):
    with pytest.raises(UsageError) as caught:
        GrammarText.from_gbnf(text)
    assert message in caught.value.message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name in dir(examples) if name.endswith("_GBNF")])
def test_llamas_examples_are_grammars(name):
    GrammarText.from_gbnf(getattr(examples, name))


IDIOMS = [  # what a greedy reader of words gets wrong, and what llguidance's own translation does
    ('root ::= x "b"\nx ::= [a-z]+', ["ab", "bbb"], ["a", "b"]),
    ('root ::= [a-z]* "cat" "."', ["cat.", "cacat.", "caxcat."], ["ca."]),
    ('root ::= words " end"\nwords ::= ([a-z]+ " ")* [a-z]+', ["a b end", "end end"], ["end"]),
    (
        'root ::= "\\u00e9a" [\\u4e00-\\u9fff]+ "\\x41\\"" [\\x41-\\x5a\\]\\-]',
        ['éa中A"Z', 'éa中中A"-', 'éa中A"]'],
        ['éaA"Z'],
    ),
    ('root ::= .* "x"', ["a\nx", "xx"], ["a"]),
    ('root ::= start\nstart ::= "(" start ")" | r1\nr1 ::= [&a]', ["((&))", "a"], ["((&)"]),
    ('a-b ::= "x"\na_B ::= "y"\nroot ::= a-b a_B', ["xy"], ["xx"]),
    ('root ::= (("a"*)+ ("b"?){1,2})? "."', [".", "aabb.", "b."], ["bbb.", "ba."]),
    ('root ::= root "a" | "b"', ["b", "baa"], ["a"]),
    ('root ::= "a\nb"', ["a\nb"], ["ab"]),
    (SUMS, ["1+(2-3)", "12"], ["1+", "(1"]),
]


@pytest.mark.parametrize(("grammar", "good", "bad"), IDIOMS)
def test_a_grammar_means_what_it_means_to_llama(vocab, grammar, good, bad):
    text = GrammarText.from_gbnf(grammar)
    assert [accepts(text, vocab, one) for one in good] == [True] * len(good)
    assert [accepts(text, vocab, one) for one in bad] == [False] * len(bad)


def accepts(text, vocab, answer):
    """Byte by byte, or what the vocabulary has instead."""
    singles = {vocab.piece(token): token for token in range(vocab.num_tokens) if len(vocab.piece(token)) == 1}
    return bool(
        text.begin(vocab, 0).mask([singles[bytes([byte])] for byte in answer.encode()])[sorted(vocab.eog)].all()
    )


def test_regular_expressions(vocab):
    text = GrammarText.from_regex(r"\d{3}-(foo|bar)?")
    assert [accepts(text, vocab, one) for one in ("123-", "123-bar", "12-", "123-ba")] == [True, True, False, False]
    for regex, message in (
        ("a(b", "unclosed group"),
        ("(?=a)b", "look-around"),
        ("a{3,2}", "repetition"),
        ("(" * 10_000, ""),
    ):
        with pytest.raises(UsageError, match="the regular expression: .*" + message):
            GrammarText.from_regex(regex)


def test_lark(vocab):
    text = GrammarText.from_lark('start: greeting "!"\ngreeting: "hi" | /ho+/\n')
    assert [accepts(text, vocab, one) for one in ("hi!", "hooo!", "h!")] == [True, True, False]
    mistakes = {
        "start: foo": 'line 1: unknown name: "foo"',
        'start: x\nx: "a': "line 2: lexer error",
        'foo: "a"': ": no start rule found",
        "": ": empty grammar",
        "start: " + "(" * 10_000: "line 1: lark grammar too deeply nested",
        "start: /a(b/": "line 1: unclosed group",
    }
    for mistake, message in mistakes.items():
        with pytest.raises(UsageError) as caught:
            GrammarText.from_lark(mistake)
        assert message in caught.value.message


def test_a_word_of_at_most_so_many_tokens_can_be_taken_back(vocab):
    text = GrammarText.from_lark('start: word "."\nword[max_tokens=3]: /[a-z]+/\n')
    grammar = text.begin(vocab, 0)
    a, b = (next(t for t in range(vocab.num_tokens) if vocab.piece(t) == x) for x in (b"a", b"b"))
    expected = text.begin(vocab, 0).mask([a])
    grammar.mask([a, b])
    assert (grammar.mask([a]) == expected).all()


BAD_SCHEMAS = [
    ("nope", "is not JSON"),
    (r'{"const": "\ud83d"}', "surrogate"),
    ("[" * 100_000, "recursion"),
    ("[1]", "[1] in place of a schema"),
    ('{"type": "frob"}', "the JSON schema: invalid type: frob"),
    ('{"properties": {"a": {"type": "array", "uniqueItems": true}}}', "#/properties/a: uniqueItems cannot be enforced"),
    ('{"not": {"type": "string"}}', "the JSON schema: not cannot be enforced"),
    ('{"items": {"if": {"const": 1}, "then": {"const": 1}}}', "#/items: if cannot be enforced"),
    ('{"$ref": "#/$defs/a/b", "$defs": {"a/b": {}}}', "#/$defs/a/b does not lead"),
    ('{"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"not": {}}}}', "#/$defs/a~1b: not cannot"),
    ('{"type": "object", "properties": {"a": {}}, "unevaluatedProperties": false}', "unevaluatedProperties cannot"),
    ('{"anyOf": []}', "anyOf is empty"),
    ('{"enum": []}', "is empty"),
    (
        '{"properties": {"x/y": {"type": "string", "format": "json-pointer"}}}',
        '#/properties/x~1y: the format "json-pointer"',
    ),
    (
        '{"properties": {"x": {"allOf": [{"type": "string", "pattern": "(?=a)b"}]}}}',
        "#/properties/x/allOf/0: the pattern: look-around",
    ),
    ('{"type": "string", "pattern": "a(b"}', "the pattern: unclosed group"),
    ('{"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 1}', "minItems (3) is greater"),
    (
        '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 1}}, "required": ["n"]}',
        "#/properties/n: unsatisfiable",
    ),
    ('{"$ref": "https://example.org/x.json"}', "https://example.org/x.json"),
    ('{"type": "array", "items": {}, "minItems": "3"}', "minItems"),
    ('{"type": "object", "required": 3, "properties": 4}', "the JSON schema: "),
    ('{"type": 3, "format": 4, "minimum": "x"}', "the JSON schema: "),
    ('{"type": {"a": 1}, "required": [{}], "properties": {"a": {}}}', "the JSON schema: "),
    ('{"exclusiveMinimum": true, "minimum": [], "format": "int32"}', "the JSON schema: "),
    ('{"format": [1], "type": {}}', "in place of the name of a format"),
    ('{"type": 1.5, "format": "date"}', "the JSON schema: "),
    ('{"type": "string", "format": "uri", "maxLength": 1}', "no text fits"),
    ('{"minimum": NaN}', "the JSON schema: "),
    ('{"name": "x", "strict": true, "schema": {"type": "object"}}', "around a schema in a request"),
]


@pytest.mark.parametrize(("schema", "message"), BAD_SCHEMAS)
def test_what_a_schema_cannot_have_is_an_error_before_there_is_a_model(schema, message, capfd):
    with pytest.raises(UsageError) as caught:
        GrammarText.from_schema(schema)
    assert message in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_what_is_not_as_a_schema_says_is_told():
    def notes(schema):
        return GrammarText.from_schema(json.dumps(schema)).notes

    (unknown,) = notes({"properties": {"a": {"type": "string", "maxlength": 3, "x-order": 1, "description": "y"}}})
    assert unknown.startswith("the JSON schema, #/properties/a: maxlength is no keyword")
    one_of = {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]}
    (choice,) = notes({"items": one_of})
    assert choice.startswith("the JSON schema, #/items: oneOf is taken as anyOf")
    assert not notes({"oneOf": [{"type": "integer"}, {"type": "string", "format": "email", "default": 3}]})


GOOD_SCHEMAS = [
    ({}, ["[1, {}]", '"x"'], ["nope"]),
    (True, ["3"], ["x"]),
    ({"type": "array", "items": {}, "maxItems": 1, "uniqueItems": False}, ["[]", '["x"]'], ["[1,2]"]),
    ({"type": ["string", "null"], "minLength": 2}, ['"ab"', "null"], ['"a"', "2"]),
    ({"type": "string"}, ['"é"', '"\\n"'], ['"a\nb"', '"\x01"']),
    ({"const": "é\\"}, ['"é\\\\"'], ['"é"']),
    ({"enum": ["a", 1, None], "type": ["string", "integer", "null"]}, ['"a"', "1", "null"], ["2"]),
    ({"type": "string", "pattern": "a.c$"}, ['"abc"', '"xabc"'], ['"a"c"', '"abcd"']),
    ({"type": "string", "format": "email"}, ['"a@b.org"'], ['"a"']),
    (
        {"type": "string", "format": "uuid4"},
        ['"00000000-0000-4000-8000-000000000000"'],
        ['"00000000-0000-1000-8000-000000000000"'],
    ),
    ({"type": "integer"}, ["-3", "9" * 18], ["9" * 19, "1.0"]),
    ({"type": "integer", "format": "int32"}, ["2147483647"], ["2147483648"]),
    ({"type": "integer", "format": "int64", "minimum": 3}, ["3", "2147483648"], ["2"]),
    ({"type": "string", "nullable": True}, ['"a"', "null"], ["1"]),
    ({"enum": ["a"], "nullable": True}, ['"a"'], ["null"]),
    ({"nullable": True, "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer"}}}, ["1", "null"], ['"a"']),
    ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, ["1", "0.5"], ["0", "-1"]),
    ({"type": "number", "minimum": 0, "exclusiveMinimum": False}, ["0"], ["-1"]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ['{"a": 1}', "{}"], ['{"a": "b"}']),
    ({"type": "object", "properties": {"a": {}}}, ['{"a": 1}', "{}"], ['{"b": 1}']),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, ['{"b": 1}'], ["[]"]),
    ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, ['{"b": 1}', '{"a": 1, "b": 1}'], ["{}"]),
    (
        {
            "allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}],
            "$defs": {"a": {"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"]}},
        },
        ['{"x": null, "y": null}'],
        ['{"x": null}'],
    ),
    (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "unused": {"not": {}},
                "node": {
                    "type": "object",
                    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    "required": ["next"],
                },
            },
        },
        ['{"next": {"next": null}}'],
        ['{"next": 1}'],
    ),
]


@pytest.mark.parametrize(("schema", "good", "bad"), GOOD_SCHEMAS)
def test_schemas(vocab, schema, good, bad):
    text = GrammarText.from_schema(json.dumps(schema))
    assert [accepts(text, vocab, one) for one in good] == [True] * len(good)
    assert [accepts(text, vocab, one) for one in bad] == [False] * len(bad)


def test_a_schema_may_be_long_and_deep(vocab):
    assert accepts(GrammarText.from_schema('{"type": "string", "maxLength": 65536}'), vocab, '"x"')
    schema = {"type": "integer"}
    for _ in range(40):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    assert accepts(GrammarText.from_schema(json.dumps(schema)), vocab, '{"a": ' * 40 + "1" + "}" * 40)
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    with pytest.raises(UsageError, match="recursion"):
        GrammarText.from_schema(json.dumps(schema))
