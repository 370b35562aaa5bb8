"""Golden files: what differs by rounding is told from what is wrong."""

import json
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from specgguf.cli.opening import open_engine, open_store
from specgguf.cli.options.models import Models
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.measure import golden
from specgguf.measure.prompts import GOLDEN, built_in, read_prompts
from specgguf.sampling.sampler import Sampler
from tests.cli.program import failure, specgguf

TINY = Models("tiny")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "prompts.jsonl"
    chosen = [prompt for prompt in built_in(GOLDEN) if len(prompt.prompt) < 600][::9]
    path.write_text("".join(json.dumps({"category": p.category, "prompt": p.prompt}) + "\n" for p in chosen))
    return path


@pytest.fixture(scope="module", params=["0", "0.8"])
def file(request, prompts):
    path = prompts.with_name(f"golden-{request.param}.json")
    options = ["--pair", "tiny", "--exact", "-n", 24, "--temp", request.param, "--seed", 5, "--prompts", prompts]
    result = specgguf("golden", "record", path, *options, timeout=600)
    assert (result.returncode, result.stdout) == (0, b""), result.stderr
    return path


def verified(file, *options, code=0):
    result = specgguf("golden", "verify", file, "--json", *options, timeout=600)
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout), result.stderr.decode()


@pytest.mark.parametrize(
    "options", [["-k", "1"], ["-k", "7"], ["-k", "15"], ["--speculate", "auto"], ["--speculate", "off"]]
)
def test_exact_mode_says_the_same_whatever_drafts(file, options):
    report, notes = verified(file, "--exact", *options)
    assert report["exact"] is True
    assert report["same"] == len(report["prompts"]) >= 3
    assert report["passed"] is True
    if options[-1] != "auto":
        assert (sum(entry["drafted"] for entry in report["prompts"]) > 0) == (options[0] == "-k")
    assert ("draft has changed" in notes) == (options[-1] == "off")


def test_a_recording_is_not_overwritten_unasked(file, tmp_path):
    failure(specgguf("golden", "record", file, "--pair", "tiny"), code=2)
    failure(specgguf("golden", "record", tmp_path / "no" / "x.json", "--pair", "tiny"), code=2)


def test_another_draft_is_verified_against_the_recorded_target(file, tmp_path):
    content = json.loads(file.read_text())
    content["prompts"] = content["prompts"][:1]
    path = tmp_path / "one.json"
    path.write_text(json.dumps(content))
    report, notes = verified(path, "--draft-quant", "Q3_K_M")
    assert report["same"] == 1
    assert "target has changed" not in notes
    assert "draft has changed" in notes


def test_a_recording_says_what_it_was_made_with_and_changes_are_named(file, tmp_path):
    content = json.loads(file.read_text())
    assert content["made_with"]["target"].startswith("SmolLM2-135M-Instruct.Q4_1.gguf, sha256 b179c9523d")
    assert len(content["prompts"][0]["margins"]) == len(content["prompts"][0]["tokens"]) > 0
    content["made_with"]["llama.cpp"] = "older"
    content["prompts"] = content["prompts"][:1]
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    report, notes = verified(changed, "--exact")
    assert "note: llama.cpp has changed since the recording: older then" in notes
    assert len(report["changes"]) == 1


def test_a_drop_of_acceptance_fails(file, tmp_path):
    content = json.loads(file.read_text())
    content["prompts"] = content["prompts"][:1]
    content["prompts"][0]["accepted"] = content["prompts"][0]["drafted"]
    path = tmp_path / "better.json"
    path.write_text(json.dumps(content))
    assert verified(path, "--exact")[0]["passed"] is True
    report, _ = verified(path, "--exact", "--max-acceptance-drop", "0.02", code=1)
    assert (report["same"], report["acceptance_dropped"]) == (1, 1)
    result = specgguf("golden", "verify", path, "--exact", "--max-acceptance-drop", "0.02")
    assert b"acceptance rate lower by" in result.stdout


def test_another_token_than_recorded_is_different_unless_it_is_a_near_tie(file, tmp_path):
    content = json.loads(file.read_text())
    content["prompts"] = content["prompts"][:1]
    tokens = content["prompts"][0]["tokens"]
    tokens[5] = tokens[5] + 1
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    report, _ = verified(path, code=1)
    (entry,) = report["prompts"]
    assert (entry["verdict"], entry["position"], entry["expected"]) == ("different", 5, tokens[5])
    assert entry["found"] == tokens[5] - 1
    assert report["noise"] == 0.0
    line = specgguf("golden", "verify", path, "--exact").stdout.decode().splitlines()[0]
    assert f"different at token 5: {tokens[5]} " in line


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_loop_with_a_wrong_truncation_is_different(prompts, temperature, monkeypatch):
    with closing(open_engine(open_store(), TINY, EngineSettings(mode=Mode.FIXED, num_draft=4))) as engine:
        samplers = [Sampler(temperature=temperature, seed=seed) for seed in range(5)]
        recordings = list(map(partial(golden.record, engine, max_tokens=40), read_prompts(prompts), samplers))

        sampling = {"temperature": temperature}
        file = golden.Golden({}, {}, sampling, False, "fixed", None, 40, recordings)

        def outcomes():
            noise = golden.Noise()
            found = golden.verify(engine, file, noise)
            return [outcome.verdict for outcome in found], noise

        verdicts, noise = outcomes()
        assert golden.Verdict.DIFFERENT not in verdicts
        assert noise.level < 2.0
        target = engine._contexts[0]
        truncate = target.truncate
        monkeypatch.setattr(target, "truncate", lambda length: truncate(min(length + 1, len(target.tokens))))
        verdicts, noise = outcomes()
        assert golden.Verdict.DIFFERENT in verdicts


class Shaky:
    """Stands for an engine: batches of several tokens move the third-best logit, by what the prompt says."""

    max_width = 17

    def replay(self, prompt, output, width):
        for _ in output:
            logits = np.arange(20, dtype=np.float32)
            logits[17] += prompt[0] * (width > 1)
            yield logits


def test_noise_is_the_most_that_was_seen_in_any_answer():
    noise = golden.Noise()
    for moved in (0.1, 0.2, 0.3, 0.2, 0.5, 0.4):
        noise.measure(Shaky(), [moved], [0, 0])
    assert noise.level == pytest.approx(0.5)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 99}', "[1]", '{"format": 1, "prompts": [{}]}'])
def test_what_is_no_golden_file(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_text(content)
    message, hint = failure(specgguf("golden", "verify", path), code=2)
    assert str(path) in message
    assert "record" in hint
    failure(specgguf("golden", "verify", tmp_path / "missing.json"), code=2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sampling", {"warmth": 1}),
        ("sampling", {"temperature": "hot"}),
        ("speculate", "wildly"),
        ("max_tokens", "9"),
        ("models", {"pair": 5}),
        ("prompts", [{"tokens": []}]),
        ("prompts", 5),
        ("made_with", []),
    ],
)
def test_a_golden_file_that_was_edited_badly(tmp_path, key, value):
    recording = golden.Recording("a", "b", 0, [1], "", [1.0], 0, 0)
    content = json.loads(golden.Golden({}, {"pair": "tiny"}, {}, False, "fixed", None, 4, [recording]).dump())
    path = tmp_path / "edited.json"
    for text in (json.dumps({**content, key: value}), "[" * 100_000):
        path.write_text(text)
        assert f"{path} is no golden file: " in failure(specgguf("golden", "verify", path), code=2)[0]


def test_prompts_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "a", "prompt": "\\ud83d\\ude00"}\n', encoding="utf-8-sig")
    assert [prompt.prompt for prompt in read_prompts(path)] == ["😀"]


def test_a_mistake_in_the_prompts_is_named_by_its_line(tmp_path):
    path = tmp_path / "prompts.jsonl"
    for line, mistake in {
        "{": ", column 2: Expecting",
        "[]": "no object",
        "[" * 100_000: "recursion",
        "1" * 5000: "digits",
        '{"category": "a"}': "prompt must be a text",
        '{"category": "a", "prompt": 5}': "prompt must be a text",
        '{"category": "", "prompt": "a"}': "category must be a text",
        '{"category": "a", "prompt": "\\ud83d"}': "surrogate",
        '{"category": "all", "prompt": "a"}': "all prompts together",
    }.items():
        path.write_text('{"category": "a", "prompt": "b"}\n\n' + line + "\n")
        message, _ = failure(specgguf("golden", "record", tmp_path / "x", "--prompts", path), code=2)
        assert f"{path}, line 3" in message
        assert mistake in message
    path.write_text("\n")
    assert "no prompts" in failure(specgguf("golden", "record", tmp_path / "x", "--prompts", path), code=2)[0]
    assert not (tmp_path / "x").exists()
