"""Thoughts of several families of models, whose marks may be control tokens, are told from answers."""

import json

import pytest

from tests.cli.program import saying, specgguf

CHANNELS = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>"]
"""Those of gpt-oss. Without the last two llama.cpp takes <|end|> for the end of an answer."""
WORDS = ["thought", "analysis", "final", "assistant"]
ASK = "{{ messages[-1].content }}"
ANALYSIS = "<|start|>assistant<|channel|>analysis<|message|>"


@pytest.fixture
def says(tmp_path):
    def says(*pieces, controls, template=ASK):
        return saying(tmp_path / "thinks.gguf", pieces, template, WORDS, controls)

    return says


@pytest.mark.parametrize(
    ("pieces", "controls", "template", "thought", "answer"),
    [
        (["[THINK]", "h", "m", "[/THINK]", "Y"], ["[THINK]", "[/THINK]"], ASK, "hm", "Y"),
        (["h", "m", "[/THINK]", "Y"], ["[THINK]", "[/THINK]"], f"{ASK}[THINK]", "hm", "Y"),
        (["<think>", "h", "</think>", "Y"], ["<think>", "</think>"], ASK, "h", "Y"),
        (["<|channel>", "thought", "h", "<channel|>", "Y"], ["<|channel>", "<channel|>"], ASK, "h", "Y"),
        (["<|channel|>", "final", "<|message|>", "Y"], CHANNELS, f"{ASK}<|start|>assistant", "", "Y"),
        (
            ["h", "m", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Y"],
            *(CHANNELS, ASK + ANALYSIS, "hm", "Y"),
        ),
        (["h", "[THINK]", "Y"], ["[THINK]"], ASK, "", "hY"),  # not all of the marks: no thought
    ],
)
def test_a_thought_is_told_from_its_answer(says, pieces, controls, template, thought, answer):
    command = [*says(*pieces, controls=controls, template=template), "?"]
    found = json.loads(specgguf("run", *command, "--no-think", "--json").stdout)
    assert (found["thought"], found["text"]) == (thought, answer)
    assert specgguf("run", *command, "--no-think").stdout.decode() == answer
    open_text = json.loads(specgguf("run", *command, "--json").stdout)
    assert open_text["thought"] is None
    assert open_text["text"] == ("".join(pieces) if len(pieces) > 3 else answer)


@pytest.mark.parametrize("command", ["run", "chat"])
@pytest.mark.parametrize("mark", ["<think>", "[THINK]", "<|channel|>analysis<|message|>"])
def test_an_answer_that_is_all_thought_is_no_silence(toy_models, tmp_path, command, mark):
    template = tmp_path / "think.jinja"
    template.write_text(f"{ASK}{mark}\n")
    options = ["-m", toy_models["target"], "-d", "none", "--chat-template", template, "--temp", 0, "-n", 4]
    result = specgguf(command, *options, "--no-think", stdin=b"?\n")
    said = "note: there is nothing but a thought, which --no-think hides: give a larger --max-tokens\n"
    assert (result.returncode, result.stdout.strip(), result.stderr.decode()) == (0, b"", said)
    shown = specgguf(command, *options, stdin=b"?\n")
    assert shown.stdout.strip()
    assert shown.stderr == b""


def test_and_its_object_has_the_thought(says):
    command = [*says(*"muxo", controls=(), template=f"{ASK}<think>\n"), "--no-think"]
    found = json.loads(specgguf("run", *command, "--json", "?").stdout)
    assert (found["text"], found["thought"], found["finish_reason"]) == ("", "muxo", "length")
    assert json.loads(specgguf("run", *command, "--lines", stdin=b"?\n").stdout)["thought"] == "muxo"
