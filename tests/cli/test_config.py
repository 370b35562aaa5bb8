"""config.toml: the user's own defaults, and `specgguf config`."""

import json
import os

import pytest
from typer.main import get_command

from specgguf.cli.app import app
from specgguf.cli.defaults import options_of
from specgguf.cli.opening import open_store
from tests.cli.program import failure, here, specgguf


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "specgguf" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def ask(tmp_path):
    def ask(*arguments, **options):
        return specgguf(*arguments, XDG_CONFIG_HOME=tmp_path, **options)

    return ask


@pytest.fixture
def refused(tmp_path):
    """The error and the hint of a command that ends before a model is loaded."""

    def refused(*arguments, **options):
        result = here(*arguments, XDG_CONFIG_HOME=tmp_path)
        return failure(result, **{"code": result.returncode, **options})

    return refused


def found(result):
    assert (result.returncode, result.stderr) == (0, b""), result
    return json.loads(result.stdout)


def test_option_before_environment_before_file_before_default(write, ask, toy_models):
    write(f"\ufefftarget = '{toy_models['target']}'\nspeculate = 'fixed'\nmax-tokens = 5\n[run]\njson = true\n")
    models = ["-d", toy_models["draft"]]
    report = found(ask("run", *models, "the cat"))
    assert (report["output_tokens"], report["speculation"]["mode"]) == (5, "fixed")
    report = found(ask("run", *models, "-n", 3, "the cat", SPECGGUF_SPECULATE="off"))
    assert (report["output_tokens"], report["speculation"]["mode"]) == (3, "off")
    report = found(ask("run", *models, "--speculate", "ngram", "the cat", SPECGGUF_SPECULATE="off"))
    assert report["speculation"]["mode"] == "ngram"


def test_a_command_has_its_own_table(write, ask):
    write("max-tokens = 5\ntemp = 0.5\n[run]\nmax-tokens = 7\n[golden]\nseed = 3\n[golden.record]\nmax-tokens = 9\n")
    options = found(ask("config", "--json"))["options"]
    values = {command: options[command]["max-tokens"]["value"] for command in ("run", "bench", "golden.record")}
    assert values == {"run": 7, "bench": 5, "golden.record": 9}
    assert options["golden.record"]["seed"] == {"value": 3, "source": "config.toml"}
    assert options["run"]["seed"] == {"value": None, "source": "default"}
    assert options["bench"]["temp"]["value"] == 0.5


def test_where_every_value_comes_from(write, ask, tmp_path):
    path = write("threads = 2\nstop = ['a', '🙂']\n")
    result = ask("config", SPECGGUF_SPECULATE="off", HF_HUB_OFFLINE="1")
    first, blank, *rows = result.stdout.decode().splitlines()
    assert (first, blank) == (str(path), "")
    assert [
        row.split() for row in rows if row.startswith(("threads", "stop", "run.speculate", "offline", "run.temp"))
    ] == [
        ["run.speculate", '"off"', "SPECGGUF_SPECULATE"],
        ["run.temp", "0.0", "default"],
        ["stop", '["a",', '"🙂"]', "config.toml"],
        ["threads", "2", "config.toml"],
        ["offline", "true", "HF_HUB_OFFLINE"],
    ]
    assert not [row for row in rows if row.startswith(("run.skip", "skip", "load"))]  # no defaults
    path.write_bytes(b"threads = 2\n# caf\xe9\n")
    assert failure(ask("config"))[0] == f"{path}, line 2: not UTF-8 text"
    path.write_text("pair = " + "[" * 100_000)
    assert failure(ask("config"))[0].startswith(f"{path}: ")
    path.unlink()
    assert ask("config").stdout.decode().startswith(f"{path} (not there)\n")


def test_models_are_chosen_together(write, ask, toy_models):
    """A model on the command line sets aside what the file says of models; a draft alone does not."""
    write("pair = 'no-such-pair'\ndraft = 'no-such-model'\nquant = 'Q9'\n[run]\nmax-tokens = 2\njson = true\n")
    assert found(ask("run", "-m", toy_models["target"], "-d", toy_models["draft"], "hi"))["output_tokens"] == 2
    write(f"target = '{toy_models['target']}'\ndraft = 'no-such-model'\ndraft-quant = 'Q9'\n")
    assert "unknown pair: nothing" in failure(ask("run", "-p", "nothing", "hi"))[0]
    assert found(ask("run", "-d", toy_models["draft"], "-n", 2, "--json", "hi"))["draft"]["name"]


def test_what_excludes_each_other_on_the_command_line_gives_way_to_it(write, ask, toy_models, tmp_path):
    grammar = tmp_path / "yes.gbnf"
    grammar.write_text('root ::= "yes"\n')
    write("system = 'Be brief.'\njson = true\njson-schema = '{}'\n")
    model = ["-m", toy_models["target"], "--speculate", "off", "-n", 8]
    assert found(ask("run", *model, "--raw", "--grammar", grammar, "xy"))["text"] == "yes"
    assert ask("run", *model, "--jsonl", "--grammar", grammar, "hi").stdout.startswith(b'{"text": ')


@pytest.mark.parametrize(
    ("text", "named", "hint"),
    [
        ("thread = 3", "line 1: thread: unknown key", "did you mean threads"),
        ("\n[run]\nthreads = 'x'", "line 3: run.threads: ", "docs/cli.md"),
        ("threads = 0", "line 1: threads: ", "docs/cli.md"),
        ("threads = true", "line 1: threads: must be a whole number, 1 to 512", "docs/cli.md"),
        ("exact = 1", "line 1: exact: must be true or false", "docs/cli.md"),
        (
            "speculate = 'maybe'",
            "line 1: speculate: must be auto, fixed, model, mtp, eagle3, dflash, ngram or off",
            "docs/cli.md",
        ),
        ("stop = 'x'", "line 1: stop: must be a list of texts", "docs/cli.md"),
        ("stop = ['x', 5]", "line 1: stop: must be a list of texts", "docs/cli.md"),
        ("temp = nan", "line 1: temp: must be a number, 0 to 100", "docs/cli.md"),
        ("pair = 5", "line 1: pair: must be a text", "docs/cli.md"),
        ("grammar = 5", "line 1: grammar: must be the path of a file", "docs/cli.md"),
        ("gpu-layers = -5", "line 1: gpu-layers: must be a whole number, 0 or more, or all", "docs/cli.md"),
        ("lines = true", "line 1: lines: is for the command line only", "take it out"),
        ("[run]\nskip = 1", "line 2: run.skip: is for the command line only", "take it out"),
        ("[chat]\nload = 'x'", "line 2: chat.load: is for the command line only", "take it out"),
        ("yes = true", "line 1: yes: is for the command line only", "take it out"),
        ("version = true", "line 1: version: unknown key", ""),
        ("pair = 'tiny'\ntarget = 'x'", "line 1: pair: excludes target, which is there too", "leave one"),
        ("json = true\njsonl = true", "json: excludes jsonl", "leave one"),
        ("[run]\nraw = true\nsystem = 'x'", "run.raw: excludes system", "leave one"),
        ("raw = true\nchat-template = 'x'", "raw: excludes chat-template", "leave one"),
        ("json-schema = '{}'\ngrammar = 'x'", "json-schema: excludes grammar", "leave one"),
        ("regex = 'a'\nlark = 'x'", "regex: excludes lark", "leave one"),
        ("run = 3", "line 1: run: must be a table", "docs/cli.md"),
        ("[chats]", "line 1: chats: unknown key", ""),
        ("[bench]\nctx = 5", "line 2: bench.ctx: unknown key", ""),
        ("[golden.record]\nexac = true", "line 2: golden.record.exac: unknown key", "did you mean exact?"),
        ("[", "config.toml: ", "correct the file"),
    ],
)
def test_a_mistake_is_named_by_its_line(write, refused, text, named, hint):
    path = write(text)
    message, help_ = refused("pairs", code=1)
    assert message.startswith(str(path))
    assert named in message
    assert hint in help_


@pytest.mark.parametrize("command", [("run",), ("golden",), ("golden", "record"), ("config",)])
def test_help_needs_no_sound_file(write, ask, command):
    write("[")
    result = ask(*command, "--help")
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.startswith(b"Usage: specgguf")
    assert "config.toml" in failure(ask("config"))[0]


def test_numbers_and_words_where_both_may_stand(write, ask):
    write("gpu-layers = 5\n[bench]\ngpu-layers = 'all'\n")
    options = found(ask("config", "--json"))["options"]
    assert [options[command]["gpu-layers"]["value"] for command in ("run", "bench")] == [5, -1]


def test_the_table_of_a_command_sets_aside_what_is_at_the_top(write, ask):
    write("pair = 'tiny'\ndraft = 'x'\njson = true\njsonl = false\n[run]\ntarget = 'y'\njsonl = true\n")
    options = found(ask("config", "--json"))["options"]
    known = {
        command: [options[command].get(key, {}).get("value") for key in ("pair", "target", "draft", "json", "jsonl")]
        for command in ("run", "bench")
    }
    assert known == {"run": [None, "y", None, False, True], "bench": ["tiny", None, "x", True, None]}


@pytest.mark.parametrize(
    ("text", "arguments", "place"),
    [
        ("\npair = 'no-such-pair'", ["run", "hi"], "line 2: pair"),
        ("target = 'no-such-model'", ["doctor"], "line 1: target"),
        ("pair = 'tiny'\n[check]\nquant = 'Q9'", ["check"], "line 3: check.quant"),
        ("system = ''", ["run", "hi"], "line 1: system"),
        ("stop = ['']", ["run", "hi"], "line 1: stop"),
        ("grammar = 'no-such-file'", ["run", "hi"], "line 1: grammar"),
        ("json-schema = '{'", ["run", "hi"], "line 1: json-schema"),
        ("prompts = 'no-such-file'", ["bench"], "line 1: prompts"),
        (
            "[golden.record]\nprompts = 'no-such-file'",
            ["golden", "record", "new.json"],
            "line 2: golden.record.prompts",
        ),
        ("arm = ['fast']", ["bench"], "line 1: arm"),
        ("report = 'x.txt'", ["bench"], "line 1: report"),
    ],
)
def test_an_error_tells_that_the_value_is_of_the_file(write, refused, text, arguments, place):
    path = write(text)
    message, _ = refused(*arguments)
    assert message.endswith(f" ({path}, {place})")


def test_an_error_whose_hint_is_about_an_option_of_the_file(write, ask, toy_models):
    path = write(f"target = '{toy_models['target']}'\n")
    assert failure(ask("check"), code=2)[0] == f"check needs two models ({path}, line 1: target)"


@pytest.mark.parametrize("text", ["ctx = 3000000", "cache-type-k = 'f12'", "draft-ctx = 3000000", "draft = '{bad}'"])
def test_an_error_of_the_engine_tells_it_too(write, ask, toy_models, tmp_path, text):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"no model")
    models = {"target": toy_models["target"], "draft": toy_models["draft"]}
    lines = [
        text.format(bad=bad),
        *(f"{role} = '{path}'" for role, path in models.items() if not text.startswith(f"{role} =")),
    ]
    path = write("\n".join(lines))
    result = ask("run", "hi")
    message, _ = failure(result, code=result.returncode)
    assert message.endswith(f" ({path}, line 1: {text.partition(' ')[0]})")


def test_an_error_about_the_command_line_does_not_name_the_file(write, ask):
    write("pair = 'tiny'\ndraft = 'smollm2-135m'\nthreads = 1\nspeculate = 'model'\ncache-type-k = ''\n")
    assert failure(ask("run", "-p", "no-such-pair", "hi"))[0] == "unknown pair: no-such-pair"
    assert failure(ask("run", "--grammar", "no-such-file", "hi"), code=2)[0].endswith("or directory")


def test_every_flag_that_the_file_may_set_can_be_taken_back(write, ask, refused, toy_models):
    flags = [
        (where, key)
        for where, command in get_command(app).commands.items()
        for key, option in options_of(command).items()
        if option.is_flag and not option.secondary_opts
    ]
    for where, key in flags:
        write(f"[{where}]\n{key} = true\n")
        assert "is for the command line only" in refused("pairs")[0]
    write("json = true\nshow-draft = true\nexact = true\nverbose = true\nno-think = true\noffline = true\n")
    model = ["-m", toy_models["target"], "--speculate", "off", "-n", 3, "hi"]
    off = ["--no-json", "--no-show-draft", "--no-exact", "--no-verbose", "--think", "--no-offline"]
    result = ask("run", *model, *off)
    write("")
    assert (result.stdout, result.stderr) == (ask("run", *model).stdout, b"")


def test_a_flag_that_is_taken_back_sets_nothing_aside(write, ask, toy_models):
    write("system = 'the cat'\njson = true\n")
    model = ["-m", toy_models["target"], "--speculate", "off", "-n", 1, "hi"]
    prompts = [found(ask("run", *model, *flag))["prompt_tokens"] for flag in ([], ["--no-raw"], ["--raw"])]
    assert prompts[0] == prompts[1] > prompts[2]


def test_offline_taken_back_is_so_for_the_hubs_library_too(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    open_store(offline=False)
    assert "HF_HUB_OFFLINE" not in os.environ


def test_the_tab_key_stays_silent_about_mistakes(write, ask):
    write("[")
    tab = {"COMP_WORDS": "specgguf run -p ti", "COMP_CWORD": 3, "_SPECGGUF_COMPLETE": "complete_bash"}
    assert ask(**tab).stdout == b"tiny\n"
