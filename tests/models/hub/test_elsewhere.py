"""Models that other programs have fetched: `ollama:NAME`, `lmstudio:NAME`, ... and `pairs --here`."""

import hashlib
import json
import shutil

import pytest

from tests.cli.program import failure, specgguf

MEDIA = "application/vnd.ollama.image."


@pytest.fixture
def home(tmp_path, toy_models):
    """A user's folders, with models of every program."""
    folder = tmp_path / "home"
    for where, model in {
        ".lmstudio/models/owner/toys/toy-Q8_0.gguf": "target",
        ".lmstudio/models/owner/toys/mmproj-toy.gguf": "target",
        ".local/share/Jan/data/llamacpp/models/janes-toy/model.gguf": "target",
        ".local/share/nomic.ai/GPT4All/all.gguf": "target",
        ".cache/llama.cpp/owner_repo_flat.gguf": "foreign",
        ".cache/huggingface/hub/models--owner--repo/snapshots/main/nested.gguf": "target",
    }.items():
        (folder / where).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(toy_models[model], folder / where)
    ollama(folder, "registry.ollama.ai/library/toy/latest", model=toy_models["target"].read_bytes())
    ollama(folder, "hf.co/owner/repo/Q4", model=toy_models["draft"].read_bytes(), projector=b"eye")
    ollama(folder, "registry.ollama.ai/library/tuned/latest", model=toy_models["draft"].read_bytes(), adapter=b"lora")
    ollama(folder, "registry.ollama.ai/library/mlx/7b", tensor=b"tensor")
    (folder / ".ollama/models/manifests/registry.ollama.ai/library/toy/broken").write_text("{")
    return dict.fromkeys(("OLLAMA_MODELS", "LLAMA_CACHE", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME")) | {
        "HOME": folder,
        "SPECGGUF_HOME": tmp_path / "store",
    }


def ollama(home, manifest, **layers):
    root, entries = home / ".ollama/models", []
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    for kind, content in layers.items():
        digest = hashlib.sha256(content).hexdigest()
        (root / "blobs" / f"sha256-{digest}").write_bytes(content)
        entries.append({"mediaType": MEDIA + kind, "digest": f"sha256:{digest}", "size": len(content)})
    path = root / "manifests" / manifest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "layers": entries}))


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "reference",
    [
        "ollama:toy",
        "ollama:toy:latest",
        "ollama:hf.co/owner/repo:Q4",
        "lmstudio:owner/toys/toy-Q8_0",
        "jan:janes-toy",
        "gpt4all:all",
        "llama.cpp:owner_repo_flat",
        "llama.cpp:owner/repo/nested",
    ],
)
def test_what_another_program_has_is_used_where_it_lies(home, reference):
    before = snapshot(home["HOME"])
    result = specgguf("run", "-m", reference, "-d", "none", "-n", 3, "--json", "the cat", **home)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["target"]["path"].startswith(str(home["HOME"]))
    assert {path: when for path, when in snapshot(home["HOME"]).items() if path in before} == before


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("ollama:tuned", "it has an adapter"),
        ("ollama:mlx:7b", "its tensors are in another format"),
        ("ollama:toy:broken", "its manifest is damaged"),
        ("ollama:nothing", "ollama has no nothing"),
        ("lmstudio:owner/toys/mmproj-toy", "a projector for images"),
    ],
)
def test_what_is_no_plain_model_is_said(home, reference, said):
    message, hint = failure(specgguf("run", "-m", reference, "hi", **home))
    assert said in message
    assert "pairs --here" in hint or "ollama:toy:latest" in hint


def test_all_that_is_here_is_listed_with_what_drafts_for_it(home, toy_models):
    listed = json.loads(specgguf("pairs", "--here", "--json", **home).stdout)
    found = {row["reference"]: row for row in listed}
    assert found["ollama:toy:latest"]["size"] == toy_models["target"].stat().st_size
    assert "adapter" in found["ollama:tuned:latest"]["remark"]
    assert found["ollama:hf.co/owner/repo:Q4"]["remark"] == "without its projector: text only"
    assert found["jan:janes-toy"]["draft"] is None  # none is small enough
    big = home["HOME"] / ".lmstudio/models/owner/toys/big.gguf"
    shutil.copy(toy_models["target"], big)
    with big.open("ab") as file:
        file.truncate(10 * big.stat().st_size)
    found = {row["reference"]: row for row in json.loads(specgguf("pairs", "--here", "--json", **home).stdout)}
    draft = found["lmstudio:owner/toys/big"]["draft"]
    assert found[draft]["size"] == min(row["size"] for row in found.values() if row["size"] > 1000)
    shown = specgguf("pairs", "--here", **home).stdout.decode().splitlines()
    assert shown[0].split() == ["model", "GB", "draft", "that", "fits"]
    assert any(line.startswith("lmstudio:owner/toys/big ") and draft in line for line in shown)


def test_the_shell_offers_them(home):
    def offered(word):
        shell = {"_SPECGGUF_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"specgguf run -m {word}"}
        return specgguf(**shell, **home).stdout.decode()

    assert "ollama" in offered("o")
    assert "toy" in offered("ollama:")
    assert "tuned" not in offered("ollama:")


def test_nothing_is_here(tmp_path):
    result = specgguf("pairs", "--here", HOME=tmp_path, SPECGGUF_HOME=tmp_path / "store", HF_HOME=tmp_path / "hub")
    assert (result.returncode, result.stdout.split()[:1]) == (0, [b"model"])
