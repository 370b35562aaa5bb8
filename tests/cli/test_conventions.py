"""Versions, help, encodings and terminals of all kinds."""

import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pexpect
import pytest

from tests.cli.program import EXECUTABLE, environment, failure, specgguf

GREETING = 'root ::= "né 🙂"\n'


def test_the_version_names_llama_cpp_and_its_backends():
    lines = specgguf("--version").stdout.decode().splitlines()
    assert lines[0] == f"specgguf {version('specgguf')}"
    assert re.fullmatch(r"llama\.cpp \S+, commit [0-9a-f]{7,}\S*, by llama-cpp-python \S+", lines[1])
    assert re.match(r"backends: .*\bCPU\b", lines[2])


@pytest.mark.parametrize("option", ["--version", "--show-completion", "--install-completion"])
def test_what_stands_alone_takes_no_argument(option, tmp_path):
    message, _ = failure(specgguf(option, "zsh", HOME=tmp_path), code=2)
    assert message == f"{option} takes no argument: zsh"
    assert list(tmp_path.iterdir()) == []


def test_what_a_value_may_be_is_said_in_words():
    assert failure(specgguf("run", "--temp", "nan", "hi"), code=2)[0] == "--temp must be a number, 0 to 100"
    assert failure(specgguf("run", "-n", "0", "hi"), code=2)[0] == "--max-tokens must be a whole number, 1 or more"
    assert "a whole number, 0 or more, or all" in failure(specgguf("run", "--gpu-layers", "²", "hi"), code=2)[0]
    message, _ = failure(specgguf("run", "hi", SPECGGUF_SPECULATE="maybe"), code=2)
    assert message == "SPECGGUF_SPECULATE must be auto, fixed, model, mtp, eagle3, dflash, ngram or off"


@pytest.mark.parametrize("module", ["signal", "typing", "typer"])
def test_ctrl_c_while_python_imports(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    result = specgguf("run", "hi", PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert (result.returncode, result.stdout, result.stderr) == (130, b"", b"")


@pytest.mark.parametrize("command", [(), ("run",), ("golden",), ("golden", "record")])
def test_help_in_short(command):
    short, long = specgguf(*command, "-h"), specgguf(*command, "--help")
    assert short.returncode == 0
    assert short.stdout == long.stdout
    assert b"-h, --help" in short.stdout


@pytest.mark.parametrize("columns", [60, 200])
def test_help_keeps_to_the_width(columns):
    longest = max(map(len, specgguf("run", "-h", COLUMNS=columns).stdout.decode().splitlines()))
    assert longest <= columns
    assert longest > columns * 0.8 or columns == 200  # text wider than 80 columns is hard to read


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C", "PYTHONIOENCODING": "cp1252"}, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONUTF8": 0}]
)
def test_output_is_utf8_whatever_the_locale_says(toy_models, tmp_path, locale):
    grammar = tmp_path / "greeting.gbnf"
    grammar.write_text(GREETING, encoding="utf-8")
    model = ["-m", toy_models["target"], "--speculate", "off"]
    result = specgguf("run", *model, "--grammar", grammar, "hi", **locale)
    assert (result.stdout.decode(), result.stderr) == ("né 🙂", b"")
    result = specgguf("run", *model, "--grammar", grammar, "--json", stdin="naïve 🙂".encode(), **locale)
    assert '"text": "né 🙂"' in result.stdout.decode()
    own = tmp_path / "specgguf" / "models.toml"
    own.parent.mkdir()
    own.write_text("[pairs.'né 🙂']\n", encoding="utf-8")
    assert "né 🙂" in specgguf("pairs", XDG_CONFIG_HOME=tmp_path, **locale).stderr.decode()


def on_terminal(command, **variables):
    child = pexpect.spawn("bash", ["-c", command], env=environment(**variables), timeout=60)
    shown = child.read().decode()
    child.close()
    return shown, child.exitstatus


def test_a_dumb_terminal_gets_no_escapes(toy_models, tmp_path):
    models = f"-m {toy_models['target']} -d {toy_models['draft']} -n 3 --stats"
    shown, code = on_terminal(f"{EXECUTABLE} run {models} 'the cat'", TERM="dumb")
    assert (code, "\x1b" in shown) == (0, False)
    shown, code = on_terminal(f"echo cat | {EXECUTABLE} run --lines {models[:-7]} >/dev/null", TERM="dumb")
    assert (code, shown) == (0, "")
    assert "\x1b" not in on_terminal(f"{EXECUTABLE} run -p no-such-pair hi", TERM="dumb")[0]


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_the_manual_is_well_formed():
    page = Path(__file__).parents[2] / "man" / "specgguf.1"
    result = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, check=True)
    assert result.stderr == b""
    assert "specgguf golden record" in re.sub(".\b", "", result.stdout.decode())  # bold is typed twice
