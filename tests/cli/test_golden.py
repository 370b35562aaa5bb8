"""Golden files: what differs by rounding is told from what is wrong."""

import hashlib
import json
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from specgguf.engine.engine import Engine
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.errors import UsageError
from specgguf.exact.profiles import Profiles
from specgguf.measure import golden
from specgguf.measure.prompts import GOLDEN, built_in, read_prompts
from specgguf.sampling.sampler import Sampler
from specgguf.speculative.context import Context
from tests.cli.program import failure, specgguf
from tests.tiny import TEMPLATE, write_attention

CHANGED = 5
"""A token of the recorded answers, which have 24."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "prompts.jsonl"
    chosen = [prompt for prompt in built_in(GOLDEN) if len(prompt.prompt) < 600][::9]
    path.write_text("".join(json.dumps({"category": p.category, "prompt": p.prompt}) + "\n" for p in chosen))
    return path


@pytest.fixture(scope="module", params=["0", pytest.param("0.8", marks=pytest.mark.sweep)])
def file(request, prompts, toy_models, home):
    path = prompts.with_name(f"golden-{request.param}.json")
    models = ["-m", toy_models["endless"], "-d", toy_models["draft"], "-t", 1]
    options = ["--exact", "-n", 24, "--temp", request.param, "--seed", 5, "--prompts", prompts]
    result = specgguf("golden", "record", path, *models, *options, SPECGGUF_HOME=home)
    assert (result.returncode, result.stdout) == (0, b""), result.stderr
    return path


@pytest.fixture
def verify(home):
    return lambda file, *options: specgguf("golden", "verify", file, "-t", 1, *options, SPECGGUF_HOME=home)


@pytest.fixture
def verified(verify):
    def verified(file, *options, code=0):
        result = verify(file, "--json", *options)
        assert result.returncode == code, result.stderr
        return json.loads(result.stdout), result.stderr.decode()

    return verified


@pytest.fixture
def first(file, tmp_path):
    """What was recorded for the first prompt, and where to write it once it is changed."""
    content = json.loads(file.read_text())
    content["prompts"] = content["prompts"][:1]
    return content, tmp_path / "first.json"


@pytest.mark.parametrize(
    "options", [["-k", "1"], ["-k", "7"], ["-k", "15"], ["--speculate", "auto"], ["--speculate", "off"]]
)
def test_exact_mode_says_the_same_whatever_drafts(file, verified, options):
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


def test_another_draft_is_verified_against_the_recorded_target(first, verified, toy_models):
    content, path = first
    path.write_text(json.dumps(content))
    report, notes = verified(path, "-d", toy_models["target"])
    assert report["same"] == 1
    assert "target has changed" not in notes
    assert "draft has changed" in notes


def test_a_recording_says_what_it_was_made_with_and_changes_are_named(first, verified, toy_models):
    content, path = first
    digest = hashlib.sha256(toy_models["endless"].read_bytes()).hexdigest()
    assert content["made_with"]["target"] == f"endless.gguf, sha256 {digest}"
    assert len(content["prompts"][0]["margins"]) == len(content["prompts"][0]["tokens"]) == 24
    content["made_with"]["llama.cpp"] = "older"
    path.write_text(json.dumps(content))
    report, notes = verified(path, "--exact")
    assert "note: llama.cpp has changed since the recording: older then" in notes
    assert len(report["changes"]) == 1


def test_a_drop_of_acceptance_fails(first, verified, verify):
    content, path = first
    content["prompts"][0]["accepted"] = 2 * content["prompts"][0]["drafted"]  # more than any draft reaches
    path.write_text(json.dumps(content))
    assert verified(path)[0]["passed"] is True
    report, _ = verified(path, "--max-acceptance-drop", "0.02", code=1)
    assert (report["same"], report["acceptance_dropped"]) == (1, 1)
    assert b"acceptance rate lower by" in verify(path, "--max-acceptance-drop", "0.02").stdout


def test_another_token_than_recorded_is_different_unless_it_is_a_near_tie(first, verified, verify):
    content, path = first
    recording = content["prompts"][0]
    said = recording["tokens"][CHANGED]
    recording["tokens"][CHANGED] += 1
    path.write_text(json.dumps(content))
    report, _ = verified(path, code=1)
    (entry,) = report["prompts"]
    assert (entry["verdict"], entry["position"]) == ("different", CHANGED)
    assert (entry["expected"], entry["found"]) == (said + 1, said)
    assert report["noise"] == 0.0  # exactly
    assert f"different at token {CHANGED}: {said + 1} " in verify(path).stdout.decode().splitlines()[0]
    recording["margins"][CHANGED] = 0.0
    path.write_text(json.dumps(content))
    report, _ = verified(path)
    assert (report["near_ties"], report["passed"]) == (1, True)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_loop_with_a_wrong_truncation_is_different(prompts, toy_models, tmp_path, temperature, monkeypatch):
    profiles = Profiles(tmp_path, lambda _: "", lambda _: None)
    settings = EngineSettings(mode=Mode.FIXED, num_draft=4, n_threads=1, exact=True)
    with closing(Engine(toy_models["endless"], toy_models["draft"], settings, profiles, lambda *_: None)) as engine:
        samplers = [Sampler(temperature=temperature, seed=seed) for seed in range(5)]
        recordings = list(map(partial(golden.record, engine, max_tokens=40), read_prompts(prompts), samplers))
        file = golden.Golden({}, {}, {"temperature": temperature}, True, "fixed", None, 40, recordings)

        def verdicts():
            return {outcome.verdict for outcome in golden.verify(engine, file, golden.Noise())}

        assert verdicts() == {golden.Sameness.SAME}
        truncate = Context.truncate

        def keep_one_more(context, sequence, length):
            truncate(context, sequence, min(length + 1, len(context.tokens[sequence])))

        monkeypatch.setattr(Context, "truncate", keep_one_more)
        assert golden.Sameness.DIFFERENT in verdicts()


DATED = "It is {{ strftime_now('%H:%M:%S.%f') }}. " + TEMPLATE


def test_a_time_in_the_chat_template_changes_the_prompt_and_not_the_verdict(prompts, tmp_path, verified, verify, home):
    target, path = write_attention(tmp_path / "dated.gguf", template=DATED), tmp_path / "dated.json"
    record = ["golden", "record", path, "-m", target, "-d", "none", "-t", 1, "--exact", "-n", 8, "--prompts", prompts]
    assert specgguf(*record, SPECGGUF_HOME=home).returncode == 0
    report, notes = verified(path)
    count = len(report["prompts"])
    assert (report["passed"], report["same"]) == (True, count)
    assert all(entry["prompt_changed"] for entry in report["prompts"])
    said = f"has changed since the recording, for {count} of {count}"
    assert said in notes
    assert said in report["changes"][-1]
    content = json.loads(path.read_text())
    content["prompts"][0]["tokens"][CHANGED] += 1
    path.write_text(json.dumps(content))
    assert [entry["verdict"] for entry in verified(path, code=1)[0]["prompts"]] == [
        "different",
        *["same"] * (count - 1),
    ]
    for recording in content["prompts"]:
        recording["prompt_tokens"] = None  # as older files have it
    path.write_text(json.dumps(content))
    report, notes = verified(path, code=1)
    assert said not in notes
    assert not any(entry["prompt_changed"] for entry in report["prompts"])


def test_prompts_that_are_the_same_are_not_said_to_have_changed(file, verified):
    report, notes = verified(file)
    assert "has changed" not in notes
    assert not any(entry["prompt_changed"] for entry in report["prompts"])


class Shaky:
    """Stands for a workbench: batches of several tokens move the third-best logit, by what the prompt says."""

    engine = SimpleNamespace(max_width=17)

    def replay(self, prompt, output, width, chunk=0):
        for _ in output:
            logits = np.arange(20, dtype=np.float32)
            logits[17] += prompt[0] * (width > 1) + 2 * prompt[0] * (chunk > 0)
            yield logits


def test_noise_is_the_most_that_was_seen_in_any_answer():
    noise = golden.Noise()
    for moved in (0.1, 0.2, 0.3, 0.2, 0.5, 0.4):
        noise.measure(Shaky(), [moved], [0, 0])
    assert noise.level == pytest.approx(0.5)
    beside = golden.Noise(beside=True)
    beside.measure(Shaky(), [0.3], [0, 0])
    assert beside.level == pytest.approx(0.6)


@pytest.mark.parametrize(
    "content",
    ["", "{}", '{"format": 99}', "[1]", '{"format": 1, "prompts": [{}]}', pytest.param("[" * 100_000, id="deep")],
)
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
    path.write_text(json.dumps({**content, key: value}))
    with pytest.raises(UsageError, match=f"{path} is no golden file: "):
        golden.load(path)


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
        with pytest.raises(UsageError) as caught:
            read_prompts(path)
        assert f"{path}, line 3" in caught.value.message
        assert mistake in caught.value.message
    path.write_text("\n")
    assert "no prompts" in failure(specgguf("golden", "record", tmp_path / "x", "--prompts", path), code=2)[0]
    assert not (tmp_path / "x").exists()
