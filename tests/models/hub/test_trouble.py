"""A hub that is overloaded, gated, or asked for what it does not have; and one that must not be asked."""

import os

import pytest

from tests.cli.program import failure, specgguf
from tests.models.hub.server import REPO
from tests.models.hub.world import NAME


@pytest.mark.parametrize("statuses", [[429], [503, 500, 502]])
def test_an_overloaded_hub_is_asked_again(world, statuses):
    world.hub.first_statuses = list(statuses)
    world.check_fetched(world.run())
    assert len(world.gets()) == len(statuses) + 1


def test_but_not_forever(world):
    world.catalogue(mirror=False)
    world.hub.status = 429
    message, hint = failure(world.run())
    assert "too many requests" in message
    assert "HF_TOKEN" in hint
    assert len(world.gets()) == 4


def test_a_hub_that_asks_for_too_much_patience_is_not_waited_for(world):
    world.catalogue(mirror=False)
    world.hub.status, world.hub.retry_after = 429, "3600"
    assert "too many requests" in failure(world.run())[0]
    assert len(world.gets()) == 1


def test_the_page_of_a_hotels_network_is_no_hub(world):
    world.hub.api_answer = b"<html>log in</html>"
    message, hint = failure(world.run(model=f"hf:{REPO}"))
    assert message == f"{world.hub.url}/{REPO}: the answer does not come from a hub"
    assert "log in" in hint


def test_a_range_that_is_refused_starts_over(world):
    world.partial.parent.mkdir(parents=True)
    world.partial.write_bytes(world.content[:1000])
    world.hub.first_statuses = [416]
    world.check_fetched(world.run())
    assert world.gets() == ["bytes=1000-", None]


@pytest.mark.parametrize(("status", "token"), [(401, None), (403, "hf_secret")])
def test_a_gated_repository_says_which_licence_and_which_token(world, status, token):
    world.catalogue(mirror=False)
    world.hub.status, world.hub.code = status, "GatedRepo"
    message, hint = failure(world.run(HF_TOKEN=token))
    assert f"{REPO} is gated" in message
    assert str(status) in message
    assert f"accept its licence at {world.hub.url}/{REPO}" in hint
    assert ("the token in HF_TOKEN" if token else "set HF_TOKEN") in hint
    assert "hf_secret" not in message + hint
    assert set(world.hub.tokens) == {token and f"Bearer {token}"}


def test_a_misspelt_repository_names_the_nearest(world):
    world.hub.models = [REPO, "toy/other-GGUF"]
    message, hint = failure(world.run(model="hf:toy/tpy-GGUF"))
    assert "no such repository" in message
    assert hint.startswith(f"did you mean {REPO}")


def test_a_misspelt_file_names_the_nearest(world):
    world.catalogue(path="toy-q4_o.gguf", mirror=False)
    world.hub.files = {NAME: world.content}
    world.hub.status, world.hub.code = 404, "EntryNotFound"
    message, hint = failure(world.run())
    assert "has no file toy-q4_o.gguf" in message
    assert hint == f"did you mean {NAME}?"


def test_a_revision_that_is_not_there(world):
    world.hub.status, world.hub.code = 404, "RevisionNotFound"
    message, _ = failure(world.run(model=f"hf:{REPO}@nonsense"))
    assert f"{REPO} has no revision nonsense" in message


@pytest.mark.parametrize(
    ("path", "sha256"), [("../../escaped.gguf", None), ("/tmp/escaped.gguf", None), ("a\\b.gguf", None)]
)
def test_names_from_the_hub_cannot_leave_the_store(world, path, sha256):
    world.hub.files = {path: world.content}
    message, _ = failure(world.run(model=f"hf:{REPO}"))
    assert "must stay inside its repository" in message


@pytest.fixture
def no_sockets(tmp_path):
    """A folder for PYTHONPATH under which a Python process, or a child of it, dies when it makes a socket."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def watch(event, arguments):\n"
        "    if event.startswith('socket.'):\n"
        "        os.write(2, f'{event} {arguments}'.encode())\n"
        "        os._exit(99)\n"
        "sys.addaudithook(watch)\n"
    )
    return tmp_path


def test_offline_opens_no_socket(world, no_sockets):
    world.wheels()
    paths = [str(no_sockets), os.environ.get("PYTHONPATH", "")]
    variables = {**world.variables, "PYTHONPATH": os.pathsep.join(paths)}
    assert specgguf("run", "-m", "toy:Q4_0", "-n", 2, "hi", **variables).returncode == 99  # the watch works
    for command in (["run", "-n", "2", "hi"], ["run", "hi", "-d", "toy:Q8_0"], ["check", "-d", "toy:Q8_0"]):
        for model in ("toy:Q4_0", f"hf:{REPO}"):
            message, hint = failure(specgguf(*command, "-m", model, "--offline", **variables))
            assert "offline" in message
            assert "--offline" in hint
    world.check_fetched(world.run())
    requests = len(world.hub.requests)
    for more in ({"HF_HUB_OFFLINE": "1"}, {}):
        flags = [] if more else ["--offline"]
        result = specgguf("run", "-m", "toy:Q4_0", "-d", "toy:Q8_0", "-n", 2, "hi", *flags, **variables, **more)
        assert (result.returncode, result.stderr) == (0, b"")
    assert specgguf("pairs", "--offline", **variables).returncode == 0
    assert len(world.hub.requests) == requests
