import os
import signal
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from specgguf.speculative.policy.costs import WidthCosts
from tests import tiny as models
from tests import tiny_heads

# A shell without job control starts background jobs with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For scripts/mutate: a failure is enough, the smallest one is not looked for.
settings.register_profile("quick", phases=(Phase.explicit, Phase.reuse, Phase.generate))


@pytest.fixture(scope="session", autouse=True)
def _nobodys_config(tmp_path_factory):
    """Neither config.toml, models.toml nor the journal are of whoever runs the tests; pip's settings stay, to fetch
    models with.
    """
    folder = tmp_path_factory.mktemp("config")
    (folder / "specgguf").mkdir()
    (folder / "specgguf" / "config.toml").write_text("threads = 1\n")  # for a toy, two threads mostly wait
    pip = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pip"
    if pip.exists():
        (folder / "pip").symlink_to(pip)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def toy_models(tmp_path_factory):
    """Paths of tiny models with random weights, by name."""
    folder = tmp_path_factory.mktemp("models")
    written = {
        "target": models.write_attention(folder / "target.gguf", seed=1),
        "draft": models.write_attention(folder / "draft.gguf", seed=2, feed=models.FEED // 2),
        "padded": models.write_attention(folder / "padded.gguf", seed=3, words=[*models.WORDS, "[PAD]"]),
        "foreign": models.write_attention(folder / "foreign.gguf", seed=4, words=[*models.WORDS[:-1], "▁fox"]),
        "recurrent": models.write_recurrent(folder / "recurrent.gguf"),
        "endless": models.write_attention(folder / "endless.gguf", n_ctx=100_000),
        "no-bos": models.write_attention(folder / "no-bos.gguf", bos=False),
        "template-bos": models.write_attention(
            folder / "template-bos.gguf", template="{{ bos_token }}" + models.TEMPLATE
        ),
        "no-template": models.write_attention(folder / "no-template.gguf", template=None),
        "bad-template": models.write_attention(
            folder / "bad-template.gguf", template="{{ raise_exception('no system role here') }}"
        ),
    }
    with written["endless"].open("ab") as file:
        file.write(bytes(4096))  # larger than any draft, so that nobody is told of one that is as large
    return written


@pytest.fixture(scope="session")
def toy_heads(tmp_path_factory):
    """Paths of tiny draft heads and their targets, by the names of `tests/tiny_heads.py`."""
    return tiny_heads.write_all(tmp_path_factory.mktemp("heads"))


@pytest.fixture
def planted_costs(monkeypatch):
    """What batches cost stays as it was planted, however long they take here."""
    monkeypatch.setattr(WidthCosts, "observe", lambda *_: None)
