"""Defaults, and what it takes to know them."""

import subprocess
import sys

import pytest

from specgguf.engine.settings import EngineSettings, Mode


@pytest.mark.parametrize(("mode", "given", "most"), [("auto", None, 16), ("fixed", None, 4), ("fixed", 7, 7)])
def test_the_draft_is_as_long_as_given_or_as_usual_for_the_mode(mode, given, most):
    assert EngineSettings(mode=Mode(mode), num_draft=given).draft_max == most


def test_the_settings_are_light_to_import():
    code = "import sys, specgguf.engine.settings; assert not {'numpy', 'llama_cpp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
