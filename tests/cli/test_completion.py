"""What the shells offer after a tab."""

import shutil
import subprocess
import sys

import pexpect
import pytest

from specgguf.models.catalogue import load_catalogue
from tests.cli.program import EXECUTABLE, environment

PROTOCOLS = {
    "bash": ("COMP_WORDS", {"COMP_CWORD": "{count}"}),
    "zsh": ("_TYPER_COMPLETE_ARGS", {}),
    "fish": ("_TYPER_COMPLETE_ARGS", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    "powershell": ("_TYPER_COMPLETE_ARGS", {"_TYPER_COMPLETE_WORD_TO_COMPLETE": "{last}"}),
}


def offers(line, shell="bash", **variables):
    """What is offered for the last word of the line; nothing is ever said on stderr."""
    words, others = PROTOCOLS[shell]
    last = line.rpartition(" ")[2]
    protocol = {name: text.format(count=line.count(" "), last=last) for name, text in others.items()}
    asked = environment(**{words: line, **protocol, "_SPECGGUF_COMPLETE": f"complete_{shell}"}, **variables)
    result = subprocess.run([EXECUTABLE], capture_output=True, env=asked, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    return result.stdout.decode()


@pytest.mark.parametrize(
    ("shell", "pair", "quants"),
    [
        ("bash", "tiny", "Q4_1\nQ2_K"),
        ("zsh", """_arguments '*: :(("tiny":"{purpose}"))'""", """_arguments '*: :(("Q4_1"\n"Q2_K"))'"""),
        ("fish", "tiny\t{purpose}", "Q4_1\nQ2_K"),
        ("powershell", "tiny:::{purpose}", "Q4_1::: \nQ2_K::: "),
    ],
)
def test_what_every_shell_reads(shell, pair, quants):
    purpose = load_catalogue(own=None).pairs["tiny"].purpose
    assert offers("specgguf run --pair ti", shell) == f"{pair.format(purpose=purpose)}\n"
    assert offers("specgguf run -p tiny -q ", shell) == f"{quants}\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("specgguf che", ["check"]),
        ("specgguf golden ", ["record", "verify"]),
        ("specgguf run --draft-m", ["--draft-max"]),
        ("specgguf run --speculate f", ["fixed"]),
        ("specgguf run -p tiny -q ", ["Q4_1", "Q2_K"]),
        ("specgguf run -m qwen2.5-coder-0.5b -q Q8", ["Q8_0"]),
        ("specgguf run --draft-quant Q4_K", ["Q4_K_M"]),
        ("specgguf run -m smollm2-13", ["smollm2-135m"]),
        ("specgguf pull ti", ["tiny"]),
        ("specgguf pairs --remove ti", ["tiny"]),
        ("specgguf quantize smollm2-13", ["smollm2-135m"]),
        ("specgguf run -p no-such-pair -q ", []),
        ("specgguf run some text", []),
    ],
)
def test_what_is_offered(line, words):
    assert offers(line).split() == words


def test_quantizations_after_a_colon():
    assert offers("specgguf run -m smollm2-135m:Q4", "fish").split() == ["smollm2-135m:Q4_1"]


def test_files_and_folders(tmp_path):
    for name in ("one.gguf", "other.txt", ".hidden.gguf"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert offers(f"specgguf run -m {tmp_path}/").split() == [f"{tmp_path}/folder/", f"{tmp_path}/one.gguf"]
    assert offers("specgguf run -m ~/o", HOME=tmp_path).split() == ["~/one.gguf"]


def test_a_broken_catalogue_offers_nothing(tmp_path):
    own = tmp_path / "specgguf" / "models.toml"
    own.parent.mkdir()
    own.write_text("[[[")
    assert offers("specgguf run -p ", XDG_CONFIG_HOME=tmp_path) == "\n"


def test_a_tab_loads_no_engine():
    asked = environment(COMP_WORDS="specgguf run -m s", COMP_CWORD=3, _SPECGGUF_COMPLETE="complete_bash")
    command = [sys.executable, "-X", "importtime", "-m", "specgguf"]
    result = subprocess.run(command, capture_output=True, env=asked, timeout=60, check=True)
    assert b"smollm2-135m" in result.stdout
    for module in (b"llama_cpp", b"huggingface_hub", b"numpy", b"rich"):
        assert module not in result.stderr


def test_installed_in_bash_it_works(tmp_path):
    variables = {"HOME": tmp_path, "PATH": f"{EXECUTABLE.parent}:/usr/bin:/bin", "PS1": "ready> ", "TERM": "dumb"}
    child = pexpect.spawn("bash", ["--norc", "-i"], env=environment(**variables), timeout=60)
    child.expect("ready> ")
    child.sendline("specgguf --install-completion; source ~/.bashrc")
    child.expect("completion installed in")
    child.expect("ready> ")
    child.send("specgguf run --pair tin\t")
    child.expect("tiny")
    child.send("-q Q4\t")
    child.expect("Q4_1")
    child.close(force=True)


def of_shell(name, option, folder):
    """What is said when a shell of that name runs the program with the option, bash in its clothes."""
    shell = folder / name
    shutil.copy(shutil.which("bash"), shell)
    asked = environment(HOME=folder, PATH=f"{EXECUTABLE.parent}:/usr/bin:/bin")
    result = subprocess.run(
        [shell, "-c", f"specgguf {option}; exit $?"], capture_output=True, env=asked, timeout=60, check=True
    )
    assert result.stderr == b""
    return result.stdout.decode()


@pytest.mark.parametrize(
    ("shell", "path"), [("zsh", ".zfunc/_specgguf"), ("fish", ".config/fish/completions/specgguf.fish")]
)
def test_what_is_installed_is_what_is_shown(shell, path, tmp_path):
    shown = of_shell(shell, "--show-completion", tmp_path)
    assert f"_SPECGGUF_COMPLETE=complete_{shell}" in shown
    assert path in of_shell(shell, "--install-completion", tmp_path)
    assert (tmp_path / path).read_text().strip() == shown.strip()


def test_what_powershell_is_given(tmp_path):
    shown = of_shell("pwsh", "--show-completion", tmp_path)
    assert '$Env:_SPECGGUF_COMPLETE = "complete_powershell"' in shown
    assert "Register-ArgumentCompleter -Native -CommandName specgguf" in shown
