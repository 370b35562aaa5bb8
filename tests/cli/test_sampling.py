"""Options that say how tokens are chosen, by the real executable."""

import json
import re

import pytest

from tests import tiny as models
from tests.cli.program import STEADY, failure, here, specgguf

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "ok": {"type": "boolean"}},
        "required": ["name", "ok"],
        "additionalProperties": False,
    }
)


LONGEST = 400
"""Tokens that are enough for any answer of it: blanks, names and texts are bounded."""


def answer(model, *options, draft=None):
    drafts = ["-d", draft, "--speculate", "fixed", "-k", "5"] if draft else ["--speculate", "off"]
    result = specgguf("run", "-m", model, *drafts, *STEADY, "-n", 60, "--json", *options, "the cat sat")
    assert (result.returncode, result.stderr) == (0, b""), result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("sampling", [[], *(["--temp", "1", "--seed", seed] for seed in "123")])
def test_json_of_a_schema_with_and_without_drafts(toy_models, tmp_path, sampling):
    path = tmp_path / "schema.json"
    path.write_text(SCHEMA)
    sampling = [*sampling, "-n", LONGEST]
    plain = answer(toy_models["target"], "--json-schema", SCHEMA, *sampling)
    assert plain["finish_reason"] == "stop"
    value = json.loads(plain["text"])
    assert set(value) == {"name", "ok"}
    assert isinstance(value["ok"], bool)
    drafted = answer(toy_models["target"], "--json-schema", path, *sampling, draft=toy_models["draft"])
    assert drafted["tokens"] == plain["tokens"]
    assert drafted["speculation"]["accepted"] > 0


def test_a_grammar_file(toy_models, tmp_path):
    path = tmp_path / "yes.gbnf"
    path.write_text('root ::= ("yes" | "no") "!"{3}\n')
    found = answer(toy_models["target"], "--grammar", path, "--temp", 1, "--seed", 4)
    assert found["text"] in ("yes!!!", "no!!!")
    assert found["finish_reason"] == "stop"


def test_a_regular_expression_and_a_lark_grammar(toy_models, tmp_path):
    (tmp_path / "x.lark").write_text('start: "yes" | "no" "!"~3\n')
    for options, texts in (
        (["--regex", "(yes|no)!{3}"], r"(yes|no)!!!"),
        (["--lark", tmp_path / "x.lark"], r"yes|no!!!"),
    ):
        found = answer(toy_models["target"], *options, "--temp", 1, "--seed", 4)
        assert re.fullmatch(texts, found["text"])
        assert found["finish_reason"] == "stop"


FORCED = json.dumps({"const": {"a cat sat on the mat": "and the dog sat on a mat"}})


def test_what_a_grammar_forces_is_drafted_for_nothing(toy_models):
    target = toy_models["target"]
    plain = answer(target, "--json-schema", FORCED, "-n", LONGEST)
    auto = specgguf("run", "-m", target, *STEADY, "-n", LONGEST, "--json", "--json-schema", FORCED, "the cat sat")
    found = json.loads(auto.stdout)
    assert found["tokens"] == plain["tokens"]
    forced = found["speculation"]["by_source"]["forced"]
    assert forced["drafted"] == forced["accepted"] > 0
    assert found["speculation"]["rounds"] < len(plain["tokens"])


def test_what_is_not_as_a_schema_says_is_a_note(toy_models):
    schema = json.dumps({"const": 1, "maxlength": 3})
    result = specgguf("run", "-m", toy_models["target"], "--json-schema", schema, "hi")
    assert result.stdout == b"1"
    assert result.stderr.startswith(b"note: the JSON schema: maxlength is no keyword of JSON Schema")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--regex", "a("], "the regular expression: unclosed group"),
        (["--regex", ""], "--regex is empty"),
        (["--lark", "BAD"], "the Lark grammar, line 1"),
        (["--lark", "MISSING"], "cannot read"),
        (["--lark", "BAD", "--regex", "a"], "--regex and --lark exclude each other"),
        (["--json-schema", '{"items": {"not": {}}}'], "the JSON schema, #/items: not cannot be enforced"),
        (["--grammar", "BAD"], "grammar"),
        (["--grammar", "MISSING"], "cannot read"),
        (["--json-schema", '{"type": "thing"}'], "schema"),
        (["--json-schema", "{"], "schema"),
        (["--json-schema", "MISSING"], "cannot read"),
        (["--json-schema", "[]"], "cannot read"),
        (["--json-schema", ""], "--json-schema is empty"),
        (["--grammar", "BAD", "--json-schema", "{}"], "exclude"),
        (["--logit-bias", "5"], "ID=BIAS"),
        (["--logit-bias", "5=inf"], "ID=BIAS"),
        (["--logit-bias", "-5=1"], "ID=BIAS"),
        (["--logit-bias", "5=1e39"], "--logit-bias 5=1e39: a logit has no room for that"),
        (["--logit-bias", "5=-1e39"], "--logit-bias 5=-1e39: a logit has no room for that"),
    ],
)
def test_mistakes_are_errors_before_a_model_is_loaded(tmp_path, options, named):
    (tmp_path / "bad").write_text("root ::= nothing ( \n")
    paths = {"BAD": tmp_path / "bad", "MISSING": tmp_path / "missing"}
    options = [paths.get(option, option) for option in options]
    message, _ = failure(here("run", "-m", tmp_path / "no-such-model.gguf", *options, "hi"), code=2)
    assert named in message


def test_a_bias_of_no_token(toy_models):
    options = ["-m", toy_models["target"], "--speculate", "off", "--logit-bias", "9999=1"]
    message, hint = failure(specgguf("run", *options, "hi"), code=2)
    assert message == "--logit-bias 9999: the target has no such token"
    assert "0 to " in hint


def test_an_answer_cut_off_before_its_grammar_ends_is_told(toy_models):
    options = ["-m", toy_models["target"], "--json-schema", SCHEMA]
    assert b"note: the answer was cut off" in specgguf("run", *options, "-n", 1, "hi").stderr
    assert b"cut off" not in specgguf("run", *options, "-n", LONGEST, "hi").stderr


def test_the_end_of_the_context_is_told(toy_models):
    command = ["run", "-m", toy_models["endless"], "-d", "none", "-c", 80]
    assert specgguf(*command, "hi").stderr == b"note: the context is full: the answer ends here\n"
    assert specgguf(*command, "-n", 5, "hi").stderr == b""
    never = ["--regex", "(the cat)+!", "--logit-bias", f"{3 + ord('!')}=-100"]
    told = b"note: the answer was cut off before it was complete: give a larger --%s\n"
    assert specgguf(*command, *never, "hi").stderr == told % b"ctx"
    assert specgguf(*command, *never, "-n", 5, "hi").stderr == told % b"max-tokens"


@pytest.mark.parametrize("number", ["1e-310", "5e-324", "1e-46", "1e-29", "1e-10"])
def test_a_tiny_temperature_is_greedy_without_a_word(toy_models, number):
    greedy = answer(toy_models["endless"])["tokens"]
    assert answer(toy_models["endless"], "--temp", number)["tokens"] == greedy
    assert answer(toy_models["endless"], "--temp", number, draft=toy_models["draft"])["tokens"] == greedy


@pytest.mark.parametrize(
    "options",
    [
        ["--logit-bias", "259=1e30", "--repeat-penalty", 100, "--frequency-penalty", 100],
        ["--logit-bias", "260=1e30", "--logit-bias", "261=-1e30", "--temp", 1e-29],
        ["--logit-bias", "260=1e30", "--logit-bias", "261=-1e30", "--repeat-penalty", 100, "--temp", 100],
        ["--logit-bias", "260=-1e30", "--repeat-penalty", 100, "--temp", 1],
        ["--temp", 1, "--top-p", "1e-310", "--min-p", "1e-310", "--typical-p", "1e-310"],
        ["--temp", 1, "--top-p", 0, "--min-p", 1],
        ["--temp", 100, "--min-p", "5e-324", "--top-k", 0, "--top-p", 1],
        ["--temp", 1, "--repeat-penalty", 0.01, "--presence-penalty", -100, "--frequency-penalty", -100],
    ],
)
def test_numbers_at_the_edge_are_numbers(toy_models, options):
    for draft in (None, toy_models["draft"]):
        found = answer(toy_models["target"], *options, draft=draft)
        assert found["output_tokens"] > 0


def test_a_bias_bans_a_token(toy_models):
    free = answer(toy_models["endless"])
    banned = free["tokens"][0]
    assert banned not in answer(toy_models["endless"], "--logit-bias", f"{banned}=-inf")["tokens"]


def test_the_models_own_way_to_sample_is_the_default_and_can_be_overridden(toy_models, tmp_path):
    model = models.write_attention(tmp_path / "own.gguf", sampling={"top_k": 1, "temp": 0.7, "penalty_repeat": 1.0})
    greedy = answer(model)["tokens"]
    assert answer(model, "--temp", 2, "--seed", 1)["tokens"] == greedy  # of one token there is no choice
    assert answer(model, "--temp", 2, "--seed", 1, "--top-k", 40)["tokens"] != greedy
    penalized = answer(model, "--presence-penalty", 50)["tokens"]
    assert len(set(penalized)) == len(penalized)
