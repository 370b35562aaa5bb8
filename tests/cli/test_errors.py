"""Every failure is an exit code, an error line and a hint; nothing on stdout, no traceback."""

import os
import struct

import pytest

from tests.cli.program import failure, here, specgguf


def test_no_such_file(tmp_path):
    path = tmp_path / "missing.gguf"
    message, hint = failure(here("run", "-m", path, "hi"))
    assert message == f"target model: no such file: {path}"
    assert "path" in hint


@pytest.mark.parametrize("option", ["-m", "-d"])
def test_a_folder_is_no_model(toy_models, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "deep").mkdir(parents=True)
    for name in ("b.gguf", "a.GGUF"):
        (tmp_path / "models" / name).touch()
    target = ["-m", toy_models["target"]] if option == "-d" else []
    for folder, said in (("models", "a.GGUF, b.gguf"), ("models/deep", "there is none in this folder")):
        message, hint = failure(here("run", *target, option, folder, "hi"))
        assert message == f"{folder} is a folder, not a model"
        assert said in hint
    failure(here("check", "-m", toy_models["target"], "-d", "models"))
    failure(here("doctor", "-m", "models"))


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("https://huggingface.co/owner/repo", "hf:owner/repo"),
        ("https://huggingface.co/owner/repo/tree/main", "hf:owner/repo"),
        ("https://hf.co/owner/repo/resolve/main/x-Q4_0.gguf?download=true", "hf:owner/repo:x-Q4_0.gguf"),
        ("https://hf.co/owner/repo/blob/v1/in/x.gguf", "hf:owner/repo@v1:in/x.gguf"),
        ("file:///x.gguf", "hf:owner/repo for a repository on the hub"),
    ],
)
def test_an_address_is_no_model(address, named):
    assert failure(here("run", "-m", address, "hi"), code=2)[1].endswith(named)


@pytest.mark.parametrize("name", ["owner/repo", "owner/repo-GGUF:Q4_K_M"])
def test_a_repository_is_named_with_hf(name):
    assert failure(here("run", "-m", name, "hi"))[1].endswith(f"write hf:{name}")


@pytest.mark.parametrize("option", ["-p", "-m", "-q", "-d", "--draft-quant"])
@pytest.mark.parametrize("command", ["run", "check", "bench"])
def test_an_option_that_names_nothing(command, option):
    assert "is empty" in failure(here(command, option, " ", *["hi"][: command == "run"]), code=2)[0]


@pytest.mark.parametrize("command", ["pull", "quantize"])
def test_an_argument_that_names_nothing(command):
    assert "is empty" in failure(here(command, "", *["Q4_0"][: command == "quantize"]), code=2)[0]


def test_check_without_a_draft(toy_models):
    assert "--draft none" in failure(here("check", "-m", toy_models["target"], "-d", "none"), code=2)[0]


def test_a_pipe_is_no_model(toy_models, tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "not a regular file" in failure(specgguf("run", "-m", tmp_path / "pipe.gguf", "hi"))[0]
    models = ["-m", toy_models["target"], "-d", tmp_path / "pipe.gguf"]
    assert "not a regular file" in failure(specgguf("run", *models, "hi"))[0]


def test_odd_names(toy_models, tmp_path):
    assert "too long" in failure(specgguf("run", "-m", "x" * 5000, "hi"), code=2)[0]
    assert "no such.gguf" in failure(specgguf("run", "-m", "no\nsuch.gguf", "hi"))[0]
    assert "a b" in failure(specgguf("run", "-p", "a\nb", "hi"))[0]
    odd = os.fsencode(tmp_path) + b"/a b\xff\xc3\xa9.gguf"
    os.link(toy_models["target"], odd)
    result = specgguf("run", "-m", os.fsdecode(odd), "--speculate", "off", "-n", 2, "--json", "hi")
    assert (result.returncode, result.stderr) == (0, b"")
    result.stdout.decode()


def test_raw_text_has_no_system_message(toy_models):
    failure(here("run", "-m", toy_models["target"], "--raw", "--system", "x", "hi"), code=2)


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("content", [b"", b"GG", b"not a model" * 100, b"GGUF" + b"\xff" * 100])
def test_not_a_gguf(toy_models, tmp_path, role, content):
    path = tmp_path / "text.gguf"
    path.write_bytes(content)
    models = {"target": toy_models["target"], "draft": toy_models["draft"], role: path}
    message, hint = failure(here("run", "-m", models["target"], "-d", models["draft"], "hi"))
    assert message.startswith(f"{role} model: ")
    assert str(path) in message
    assert hint


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("share", [0.02, 0.6, 0.999])
def test_a_truncated_gguf(toy_models, tmp_path, role, share):
    path = tmp_path / "cut.gguf"
    whole = toy_models[role].read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    models = {"target": toy_models["target"], "draft": toy_models["draft"], role: path}
    message, hint = failure(here("run", "-m", models["target"], "-d", models["draft"], "hi"))
    assert message.startswith(f"{role} model: ")
    assert str(path) in message
    assert "download" in hint


def test_a_file_on_which_llama_aborts(toy_models, tmp_path):
    # The type of the last tensor becomes F16, which nothing but the computation itself objects to.
    data = bytearray(toy_models["target"].read_bytes())
    after_name = data.find(b"blk.0.ffn_norm.weight") + len("blk.0.ffn_norm.weight")
    struct.pack_into("<I", data, after_name + 4 + 8, 1)
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    message, hint = failure(specgguf("run", "-m", path, "--speculate", "off", "-n", 2, "hi"))
    assert "llama.cpp gave up: binary-ops.cpp" in message
    assert "damaged" in hint


def test_an_unknown_pair_names_the_nearest():
    message, hint = failure(here("run", "-p", "qwen2.5-coder-15b", "hi"))
    assert message == "unknown pair: qwen2.5-coder-15b"
    assert "qwen2.5-coder-1.5b" in hint


def test_an_unknown_model():
    message, hint = failure(here("run", "-m", "smollm2-135", "hi"))
    assert "smollm2-135" in message
    assert "smollm2-135m" in hint


def test_an_unknown_quantization_lists_what_there_is():
    message, hint = failure(here("run", "-m", "smollm2-135m:Q9", "hi"))
    assert "no quantization Q9" in message
    assert "smollm2-135m:Q4_1" in hint


def test_pair_and_target_exclude_each_other(toy_models):
    failure(here("run", "-p", "tiny", "-m", toy_models["target"], "hi"), code=2)


def test_an_incompatible_draft_is_named_with_the_first_difference(toy_models):
    message, hint = failure(here("run", "-m", toy_models["target"], "-d", toy_models["foreign"], "hi"))
    assert str(toy_models["foreign"]) in message
    assert "first differing id 268: target '▁dog', draft '▁fox'" in message
    assert "--draft none" in hint


def test_a_prompt_longer_than_the_context(toy_models):
    message, hint = failure(specgguf("run", "-m", toy_models["target"], "-d", toy_models["draft"], "-c", 64, "x" * 300))
    assert "context 64" in message
    assert "the prompt has 3" in message
    assert "the model knows 2048" in hint


@pytest.mark.parametrize("arguments", [[], [""], ["  "], ["--raw"]])
def test_no_prompt(arguments):
    message, hint = failure(here("run", *arguments), code=2)
    assert message == "no prompt"
    assert "specgguf run" in hint


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-n", "0"], "--max-tokens"),
        (["-n", "many"], "--max-tokens"),
        (["-k", "0"], "--draft-max"),
        (["-k", "512"], "--draft-max"),
        (["--temp", "-1"], "--temp"),
        (["--temp", "nan"], "--temp"),
        (["--temp", "inf"], "--temp"),
        (["--top-p", "1.5"], "--top-p"),
        (["--min-p", "-0.1"], "--min-p"),
        (["--top-k", "-1"], "--top-k"),
        (["--repeat-penalty", "0"], "--repeat-penalty"),
        (["--repeat-penalty", "nan"], "--repeat-penalty"),
        (["--seed", "-1"], "--seed"),
        (["--stop", ""], "--stop"),
        (["-t", "0"], "--threads"),
        (["-c", "0"], "--ctx"),
        (["--draft-ctx", "0"], "--draft-ctx"),
        (["--draft-ctx", "63"], "--draft-ctx"),
        (["--speculate", "always"], "--speculate"),
        (["--gpu-layers", "some"], "--gpu-layers"),
        (["--no-such-option"], "--no-such-option"),
        (["--cache-type-k", "f12"], "--cache-type-k"),
        (["two", "prompts"], "prompts"),
    ],
)
def test_bad_option_values_are_usage_errors_that_name_the_option(toy_models, arguments, named):
    models = ["-m", toy_models["target"], "-d", toy_models["draft"]]
    assert named in failure(here("run", *models, *arguments, "hi"), code=2)[0]


def test_no_command_and_an_unknown_one():
    assert "command" in failure(here(), code=2)[0].lower()
    assert "walk" in failure(here("walk"), code=2)[0]


def test_gpu_layers_without_a_gpu(toy_models):
    from specgguf.llama.library import gpu_available

    if gpu_available():
        pytest.skip("this build has a GPU")
    for option in ("--gpu-layers", "--draft-gpu-layers"):
        models = ["-m", toy_models["target"], "-d", toy_models["draft"]]
        message, hint = failure(specgguf("run", *models, option, "all", "hi"), code=2)
        assert option in message
        assert "CMAKE_ARGS" in hint
        assert specgguf("run", *models, option, "0", "-n", 1, "hi").returncode == 0


def test_a_context_beyond_what_the_model_knows(toy_models):
    message, _ = failure(specgguf("run", "-m", toy_models["target"], "-c", 2_000_000_000, "hi"), code=2)
    assert "trained with 2048 tokens" in message
    models = ["-m", toy_models["endless"], "-d", toy_models["draft"]]
    for command in (["run", "hi"], ["chat"]):
        message, hint = failure(specgguf(*command, *models, "--draft-ctx", 2049), code=2)
        assert message == "--draft-ctx 2049: the draft was trained with 2048 tokens"
        assert "leave it out" in hint


def test_a_chat_template_that_fails(toy_models):
    message, hint = failure(specgguf("run", "-m", toy_models["bad-template"], "--speculate", "off", "hi"))
    assert "no system role here" in message
    assert "--raw" in hint


def test_no_chat_template(toy_models, tmp_path):
    command = ["run", "-m", toy_models["no-template"], "--speculate", "off", "-n", 1, "hi"]
    message, hint = failure(specgguf(*command))
    assert "has no chat template" in message
    assert "--raw" in hint
    assert "--chat-template FILE" in hint
    assert specgguf(*command, "--raw").returncode == 0
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages[0].content }}")
    assert specgguf(*command, "--chat-template", own).returncode == 0
    assert "exclude" in failure(specgguf(*command, "--chat-template", own, "--raw"), code=2)[0]
    own.write_text("{{ messages")
    assert "the template of --chat-template fails in line 1" in failure(specgguf(*command, "--chat-template", own))[0]
    own.write_bytes(b"\xff")
    assert "not UTF-8" in failure(specgguf(*command, "--chat-template", own), code=2)[0]


@pytest.mark.parametrize("stdin", [b"caf\xe9", b"\x80", b"a\0b"])
def test_what_is_no_text_on_stdin(stdin):
    assert "stdin" in failure(here("run", stdin=stdin), code=2)[0]


def test_an_argument_that_is_no_text():
    assert "PROMPT" in failure(specgguf("run", os.fsdecode(b"caf\xe9")), code=2)[0]
