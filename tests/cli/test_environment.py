"""Homes, proxies and colours as the environment has them."""

import os
import subprocess

import pytest

from tests.cli.program import EXECUTABLE, environment, failure, here, specgguf

NOBODY = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
"""Runs a command as a user of whom this machine knows nothing, as containers do."""
NO_HOME = dict.fromkeys(
    ("HOME", "SPECGGUF_HOME", "HF_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
)


def homeless(folder, *arguments, **variables):
    command = [*NOBODY, EXECUTABLE, *map(str, arguments)]
    variables = environment(**{**NO_HOME, **variables})
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, cwd=folder, env=variables, timeout=120, check=False
    )


@pytest.fixture
def folder(tmp_path):
    """Where to be homeless: nothing may be left here."""
    try:
        subprocess.run([*NOBODY, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody be another user")
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"], ["--version"], ["pairs"], ["config"], ["doctor"]])
def test_without_a_home_the_program_tells_about_itself(folder, command):
    result = homeless(folder, *command)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout


def test_without_a_home_models_that_are_files_answer(folder, toy_models):
    models = ["-m", toy_models["target"], "-d", toy_models["draft"], "-n", 3, "--temp", 0]
    result = homeless(folder, "run", *models, "--json", "--exact", "hi")
    assert (result.returncode, result.stderr) == (0, b"")
    assert homeless(folder, "chat", *models).returncode == 0
    assert homeless(folder, "check", *models[:4]).returncode == 0


@pytest.mark.parametrize("command", [["run", "-p", "tiny", "hi"], ["pull", "tiny"]])
def test_without_a_home_what_must_be_fetched_names_the_variables(folder, command):
    message, hint = failure(homeless(folder, *command))
    assert message == "this user has no home folder for model files"
    assert all(name in hint for name in ("HOME", "SPECGGUF_HOME", "HF_HOME"))


def test_without_a_home_completion_cannot_be_installed(folder):
    message, hint = failure(homeless(folder, "--install-completion", "bash"), code=2)
    assert "--install-completion" in message
    message, hint = failure(homeless(folder, "--install-completion"))
    assert message.startswith("cannot install completion: ")
    assert "--show-completion" in hint


def test_completion_is_not_installed_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("no folder")
    message, hint = failure(specgguf("--install-completion", HOME=tmp_path / "file"))
    assert message.startswith("cannot install completion: ")
    assert "--show-completion" in hint


def test_two_variables_stand_for_a_home(folder, tmp_path_factory):
    places = {name: tmp_path_factory.mktemp(name) for name in ("SPECGGUF_HOME", "HF_HOME")}
    message, _ = failure(homeless(folder, "run", "-p", "tiny", "--offline", "hi", **places))
    assert "not on this machine" in message


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("socks5://127.0.0.1:9", "the SOCKS proxy in ALL_PROXY cannot be used: the Python package socksio is not here"),
        ("gopher://127.0.0.1:9", "the proxy in ALL_PROXY cannot be used: Unknown scheme"),
        ("http://[::1", "the proxy in ALL_PROXY cannot be used: Invalid port"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_called_that(proxy, reason):
    proxies = {**{name: None for name in os.environ if name.lower().endswith("_proxy")}, "ALL_PROXY": proxy}
    for command in (["run", "-m", "hf:owner/repo", "hi"], ["bench", "--endpoint", "http://127.0.0.1:9"]):
        message, hint = failure(specgguf(*command, HF_HUB_OFFLINE=None, **proxies))
        assert message.startswith(reason)
        assert "unset ALL_PROXY" in hint


def test_colours_are_for_terminals_whatever_is_forced(toy_models):
    forced = {"FORCE_COLOR": 1, "TTY_COMPATIBLE": 1, "CLICOLOR_FORCE": 1}
    assert b"\x1b" not in here("run", "-p", "no-such-pair", "hi", **forced).stderr
    result = specgguf("run", "-m", toy_models["target"], "-n", 3, "--stats", "--show-draft", "hi", **forced)
    assert b"tokens/s" in result.stderr
    assert b"\x1b" not in result.stderr + result.stdout
