import os

import pytest

from tests.models.hub.world import World


@pytest.fixture
def world(tmp_path, toy_models):
    world = World(tmp_path, toy_models["target"].read_bytes())
    yield world
    world.hub.close()


@pytest.fixture
def big_world(tmp_path, toy_models):
    """With a file of several of the 10 MB pieces in which the hub's library hands on what it gets."""
    world = World(tmp_path, toy_models["target"].read_bytes() + os.urandom(45_000_000))
    yield world
    world.hub.close()
