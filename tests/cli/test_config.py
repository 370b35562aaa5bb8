"""config.toml: the user's own defaults, and `specgguf config`."""

import json

import pytest

from tests.cli.program import failure, specgguf


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
        ("thread = 3", "line 1: thread: is no key here", "did you mean threads?"),
        ("\n[run]\nthreads = 'x'", "line 3: run.threads: ", "docs/cli.md"),
        ("threads = 0", "line 1: threads: ", "docs/cli.md"),
        ("threads = true", "line 1: threads: cannot be true or false", "docs/cli.md"),
        ("exact = 1", "line 1: exact: must be true or false", "docs/cli.md"),
        ("speculate = 'maybe'", "'maybe' is not one of", "docs/cli.md"),
        ("stop = 'x'", "line 1: stop: ", "docs/cli.md"),
        ("run = 3", "line 1: run: must be a table", "docs/cli.md"),
        ("[chats]", "line 1: chats: is no key here", ""),
        ("[bench]\nctx = 5", "line 2: bench.ctx: is no key here", ""),
        ("[golden.record]\nexac = true", "line 2: golden.record.exac: is no key here", "did you mean exact?"),
        ("[", "config.toml: ", "correct the file"),
    ],
)
def test_a_mistake_is_named_by_its_line(write, ask, text, named, hint):
    path = write(text)
    message, help_ = failure(ask("pairs"))
    assert message.startswith(str(path))
    assert named in message
    assert hint in help_


def test_the_tab_key_stays_silent_about_mistakes(write, ask):
    write("[")
    tab = {"COMP_WORDS": "specgguf run -p ti", "COMP_CWORD": 3, "_SPECGGUF_COMPLETE": "complete_bash"}
    assert ask(**tab).stdout == b"tiny\n"
