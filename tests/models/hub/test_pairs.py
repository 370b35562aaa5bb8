"""`specgguf pairs --for` and `--remove`, `-q`, `--draft-quant` and `specgguf quantize`."""

import hashlib
import json

import pexpect
import pytest

from tests import tiny as models
from tests.cli.program import EXECUTABLE, environment, failure, specgguf
from tests.headers import heads
from tests.models.hub.server import REPO, REVISION
from tests.models.hub.world import NO_HUB


def add(world, text):
    own = world.folder / "config" / "specgguf" / "models.toml"
    own.write_text(f"{own.read_text()}\n{text}\n")


@pytest.fixture
def toys(world):
    add(world, "[pairs.toys]\ntarget = 'toy:Q4_0'\ndraft = 'toy:Q8_0'\n")
    return world


def run(world, *arguments, **variables):
    result = specgguf(*arguments, **{**world.variables, **variables})
    assert result.returncode == 0, result.stderr
    return result


def test_drafts_for_a_target_and_why_others_do_not_fit(toys, toy_models):
    run(toys, "pull", "toys")
    found = json.loads(run(toys, "pairs", "--for", toy_models["foreign"], "--json").stdout)
    (toy,) = (candidate for candidate in found if candidate["reference"] == "toy:Q8_0")
    assert toy["verdict"] == "incompatible"
    assert toy["problem"].endswith("first differing id 268: target '▁fox', draft '▁dog'")
    elsewhere = [candidate for candidate in found if candidate["reference"] != "toy:Q8_0"]
    assert elsewhere
    assert all(candidate["verdict"] is None and "no such repository" in candidate["problem"] for candidate in elsewhere)
    lines = run(toys, "pairs", "--for", "toy:Q4_0", HF_ENDPOINT=NO_HUB).stdout.decode().splitlines()
    assert lines[0].split()[:4] == ["draft", "GB", "here", "tokenizer"]
    assert lines[1].split() == ["toy:Q8_0", "0.0", "on", "disk", "identical"]
    assert "not judged  the hub cannot be reached" in lines[2]


def test_heads_are_listed_with_their_kind(world, toy_models, tmp_path):
    """An EAGLE-3 head for the toy target, and the MTP layers that are in a target's own file."""
    head = heads.file(tmp_path, heads.eagle3, tokens=None, vocab_size=269, target_layers=[0, 0, 0])
    world.hub.files["head.gguf"] = content = head.read_bytes()
    entry = f"repo = '{REPO}'\nrevision = '{REVISION}'\npath = 'head.gguf'\nsize = {len(content)}\n"
    entry += f"sha256 = '{hashlib.sha256(content).hexdigest()}'"
    add(world, f"[models.head.F32]\n{entry}\n[pairs.headed]\ntarget = 'toy:Q4_0'\ndraft = 'head:F32'")
    first = run(world, "pairs", "--for", toy_models["target"]).stdout.decode().splitlines()[1]
    assert first.split() == ["head:F32", "0.0", "identical", "EAGLE-3", "head"]
    qwen = heads.file(tmp_path, heads.target, architecture="qwen35", nextn=1)
    found = json.loads(run(world, "pairs", "--for", qwen, "--json").stdout)
    assert (found[0]["reference"], found[0]["kind"], found[0]["size"]) == ("the target itself", "mtp", 0)
    (judged,) = (candidate for candidate in found if candidate["reference"] == "head:F32")
    assert (judged["kind"], judged["verdict"]) == ("eagle3", "incompatible")


def test_a_pair_of_one_file(world):
    """Its draft costs nothing more, follows the target's quantization, and goes when the pair is removed."""
    add(world, "[pairs.one]\ntarget = 'toy:Q4_0'\ndraft = 'toy:Q4_0'\n")
    (path,) = run(world, "pull", "one").stdout.decode().split()
    (one,) = (pair for pair in json.loads(run(world, "pairs", "--json").stdout) if pair["name"] == "one")
    assert (one["target"]["size"], one["draft"]["size"]) == (len(world.content), 0)
    run(world, "quantize", "toy", "Q5_0")
    found = json.loads(run(world, "check", "-p", "one", "-q", "Q5_0", "--json").stdout)
    assert found["target"]["path"] == found["draft"]["path"] != path
    assert run(world, "pairs", "--remove", "one", "--yes").stdout.decode().split() == [path]


def test_a_target_of_ones_own_finds_the_draft_that_fits(toys, toy_models):
    run(toys, "pull", "toys")
    result = run(toys, "run", "-m", toy_models["draft"], "-n", 4, "--speculate", "fixed", "--json", "hi")
    assert b"drafting with toy:Q8_0" in result.stderr
    found = json.loads(result.stdout)
    assert found["draft"]["path"] == str(toys.folder / f"store/derived/{toys.sha256[:16]}-Q8_0.gguf")
    assert found["speculation"]["drafted"] > 0


def test_a_pair_is_removed_when_that_is_confirmed(toys):
    paths = run(toys, "pull", "toys").stdout.decode().split()
    assert "--yes" in failure(specgguf("pairs", "--remove", "toys", **toys.variables), code=2)[1]
    command = [str(EXECUTABLE), "pairs", "--remove", "toys"]
    for answer, left in (("n", 2), ("y", 0)):
        child = pexpect.spawn(command[0], command[1:], env=environment(TERM="xterm", **toys.variables), timeout=60)
        child.expect(r"Delete")
        child.sendline(answer)
        child.expect(pexpect.EOF)
        assert len([path for path in paths if toys.folder.joinpath(path).exists()]) == left
    assert not list((toys.folder / "hf").rglob("*.gguf"))
    assert not list(toys.blobs.glob("*"))
    assert b"nothing of toys" in run(toys, "pairs", "--remove", "toys", "--yes").stderr
    run(toys, "run", "-p", "toys", "-n", 2, "hi")


def test_what_another_pair_uses_stays(toys):
    add(toys, "[pairs.others]\ntarget = 'toy:Q4_0'\ndraft = 'toy:Q8_0'\n")
    paths = run(toys, "pull", "toys").stdout.decode().split()
    result = run(toys, "pairs", "--remove", "toys", "--yes")
    assert b"others uses it" in result.stderr
    assert all(toys.folder.joinpath(path).exists() for path in paths)


def test_bytes_that_another_revision_has_too_stay(toys):
    run(toys, "pull", "toys")
    other = toys.blobs.parent / "snapshots" / ("1" * 40) / "same.gguf"
    other.parent.mkdir()
    other.symlink_to(toys.blobs / toys.sha256)
    run(toys, "pairs", "--remove", "toys", "--yes")
    assert other.read_bytes() == toys.content
    assert not (toys.blobs.parent / "snapshots" / REVISION).exists()


def used(world, *arguments, **variables):
    report = json.loads(run(world, "run", *arguments, "-n", 2, "--json", "hi", **variables).stdout)
    return [report[role] and report[role]["path"] for role in ("target", "draft")]


def test_a_quantization_is_picked_without_regard_to_case(toys):
    target, draft = used(toys, "-p", "toys", "-q", "q8_0", "--draft-quant", "q4_0")
    assert target.endswith("-Q8_0.gguf")
    assert draft == str(toys.path)


def test_a_draft_is_requantized_where_nobody_publishes_it(toys):
    note = b"toy-q4_0.gguf as Q4_1 draft has yet to be made"
    assert note in run(toys, "check", "-p", "toys", "--draft-quant", "Q4_1").stderr
    target, draft = used(toys, "-p", "toys", "--draft-quant", "Q4_1")
    assert (target, draft) == (str(toys.path), str(toys.folder / f"store/derived/{toys.sha256[:16]}-Q4_1-draft.gguf"))
    assert note not in run(toys, "check", "-p", "toys", "--draft-quant", "Q4_1").stderr
    wide = used(toys, "-m", toys.path, "-d", toys.path, "--draft-quant", "Q8_0")[1]
    assert wide.endswith("-Q8_0.gguf")  # as for a target
    toys.hub.files = {"toy-q4_0.gguf": toys.content}
    assert used(toys, "-m", f"hf:{REPO}", "-d", f"hf:{REPO}", "--draft-quant", "Q4_1")[1] == draft
    assert used(toys, "-m", toys.path, "-d", toys.path, "--draft-quant", "Q4_1", HF_ENDPOINT=NO_HUB)[1] == draft


def test_a_target_is_not_requantized_unasked_for(toys):
    message, hint = failure(specgguf("run", "-p", "toys", "-q", "q5_0", "hi", **toys.variables))
    assert message == "toy has no quantization q5_0"
    assert hint == "choose from toy:Q4_0 (0.0 GB), toy:Q8_0; or make it here: specgguf quantize toy q5_0"
    assert toys.hub.requests == []
    message, hint = failure(specgguf("run", "-p", "toys", "--draft-quant", "Q99", "hi", **toys.variables))
    assert "toy has no quantization Q99" in message
    assert "make it here" not in hint


def test_quantize_makes_it_and_from_then_on_it_has_its_name(toys):
    result = run(toys, "quantize", "toy", "q5_0")
    path = result.stdout.decode().strip()
    assert path == str(toys.folder / f"store/derived/{toys.sha256[:16]}-Q5_0.gguf")
    assert b"a target's answers get worse" not in result.stderr
    assert used(toys, "-m", "toy:Q5_0", "--speculate", "off", HF_ENDPOINT=NO_HUB)[0] == path
    hint = failure(specgguf("run", "-m", "toy:Q5_1", "hi", **toys.variables))[1]
    assert "; made here: toy:Q5_0; or make it here: " in hint
    (made,) = (row for row in json.loads(run(toys, "pairs", "--here", "--json").stdout) if row["path"] == path)
    assert (made["reference"], made["remark"]) == ("toy:Q5_0", "made here")
    again = run(toys, "quantize", path, "Q4_0")
    assert b"a target's answers get worse" in again.stderr
    assert again.stdout.decode().strip().endswith("-Q4_0.gguf")


def test_a_quantization_for_a_draft_that_is_not_there_is_said(toys, toy_models):
    for options in ([], ["-d", "none"]):
        result = run(toys, "run", "-m", toy_models["target"], *options, "--draft-quant", "Q8_0", "-n", 1, "hi")
        assert b"--draft-quant Q8_0 has no effect: no draft is named" in result.stderr
    assert b"has no effect" not in run(toys, "run", "-p", "toys", "--draft-quant", "Q8_0", "-n", 1, "hi").stderr


def test_what_cannot_be_quantized(toys, tmp_path):
    assert "toy is published as Q4_0" in failure(specgguf("quantize", "toy", "q4_0", **toys.variables), code=2)[0]
    for quant in ("Q99", "IQ2_XXS", "NVFP4"):  # the second needs an importance matrix, the last can only be read
        assert "llama.cpp makes" in failure(specgguf("quantize", "toy", quant, **toys.variables), code=2)[1]
    assert "itself made here" in failure(specgguf("quantize", "toy:Q8_0", "Q5_0", **toys.variables), code=2)[0]
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(toys.content[: len(toys.content) * 2 // 3])
    failure(specgguf("quantize", cut, "Q4_0", **toys.variables))
    assert not [path for path in (toys.folder / "store").rglob("*") if path.suffix in (".gguf", ".partial")]


def test_quantizing_shows_its_progress_and_is_interrupted_without_a_trace(toys):
    model = models.write_attention(toys.folder / "big.gguf", words=[f"▁w{number}" for number in range(60_000)])
    command = [str(EXECUTABLE), "quantize", str(model), "Q2_K"]
    child = pexpect.spawn(command[0], command[1:], env=environment(TERM="xterm", **toys.variables), timeout=60)
    child.expect("requantizing")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert not [path for path in (toys.folder / "store").rglob("*") if path.suffix in (".gguf", ".partial")]


def test_beside_a_file_there_are_no_other_quantizations(toys, toy_models):
    message, _ = failure(specgguf("run", "-m", toy_models["target"], "-q", "Q8_0", "hi", **toys.variables))
    assert "is a file, and has no other quantization Q8_0" in message


def test_offline_lists_what_is_here(toys):
    run(toys, "pull", "toys")
    listed = run(toys, "pairs", "--offline").stdout
    assert listed.split()[:2] == [b"pair", b"GB"]
    assert b"on disk" in listed
    lines = run(toys, "pairs", "--for", "toy:Q4_0", "--offline").stdout.decode()
    assert "the hub cannot be reached" in lines
