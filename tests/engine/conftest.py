"""Engines over toy models."""

import pytest

from specgguf.engine.engine import Engine
from specgguf.engine.settings import EngineSettings
from specgguf.exact.profiles import Profiles
from specgguf.models.hub.digests import Digests


@pytest.fixture
def profiles(tmp_path):
    digests = Digests(tmp_path / "digests")
    return Profiles(tmp_path / "profiles", digests.of, digests.known)


@pytest.fixture
def make(toy_models, profiles):
    """Engines that are closed in the end, whether or not the test did it."""
    engines = []

    def make(target=toy_models["endless"], draft=toy_models["draft"], on_notice=lambda _: None, **settings):
        settings = EngineSettings(n_threads=1, **settings)
        engines.append(Engine(target, draft, settings, profiles, on_notice=on_notice))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
