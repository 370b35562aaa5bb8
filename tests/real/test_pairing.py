"""A target of the user's own finds its draft among those on this machine."""

import json
import shutil

from tests.cli.program import specgguf


def test_a_target_finds_the_draft_that_fits(tmp_path):
    assert specgguf("pull", "qwen2.5-coder-1.5b", timeout=600).returncode == 0
    paths = specgguf("pull", "qwen2.5-coder-1.5b:Q4_K_M").stdout.decode().split()
    own = tmp_path / "own.gguf"
    shutil.copy(paths[0], own)
    result = specgguf("run", "-m", own, "-n", 4, "--speculate", "fixed", "--json", "hi")
    assert "drafting with qwen2.5-coder-0.5b:Q4_K_M" in result.stderr.decode()
    found = json.loads(result.stdout)
    assert found["draft"]["sha256"].startswith("1d9614638d18")
    assert found["speculation"]["drafted"] > 0
