"""A pull of the default pair that is killed again and again."""

import hashlib
import mmap
import random
import time

import pytest

from specgguf.models.catalogue import load_catalogue
from tests.cli.program import specgguf, started
from tests.models.hub.server import Hub

KILLS = 20
MOST_LOST = 20_000_000
"""Bytes that a kill may lose: what the hub's library has not handed on yet, and what is on its way."""


@pytest.mark.sweep
def test_a_pull_killed_twenty_times_ends_whole_and_fetches_little_twice(tmp_path):
    assert specgguf("pull", "qwen2.5-coder-1.5b", timeout=600).returncode == 0
    catalogue = load_catalogue(None)
    pair = catalogue.pair("qwen2.5-coder-1.5b")
    files = [catalogue.file(pair.target), catalogue.file(pair.draft)]
    paths = specgguf("pull", "qwen2.5-coder-1.5b").stdout.decode().split()
    hub = Hub(b"")
    for file, path in zip(files, paths, strict=True):
        with open(path, "rb") as opened:
            content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        hub.elsewhere[f"/{file.repo}/resolve/{file.revision}/{file.path}"] = content
    total = sum(file.size for file in files)
    variables = {
        "SPECGGUF_HOME": tmp_path / "store",
        "HF_HOME": tmp_path / "hf",
        "HF_ENDPOINT": hub.url,
        "PIP_NO_INDEX": "1",
    }
    chance = random.Random(1)
    for mark in sorted(chance.uniform(0, total) for _ in range(KILLS)):
        with started("pull", "qwen2.5-coder-1.5b", **variables) as process:
            while hub.bytes_sent < mark:
                assert process.poll() is None
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.02))
            process.kill()
            process.wait()
    result = specgguf("pull", "qwen2.5-coder-1.5b", timeout=300, **variables)
    hub.close()
    assert (result.returncode, result.stderr) == (0, b"")
    for file, path in zip(files, result.stdout.decode().split(), strict=True):
        with open(path, "rb") as fetched:
            assert hashlib.file_digest(fetched, "sha256").hexdigest() == file.sha256
    assert not list(tmp_path.rglob("*.incomplete"))
    assert total <= hub.bytes_sent <= total + KILLS * MOST_LOST
