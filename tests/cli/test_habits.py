"""Options as llama.cpp's own programs have them get a hint that says how it is done here."""

import pytest

from tests.cli.program import failure, here

HABITS = [
    (["-n", "-1"], "--max-tokens must be a whole number, 1 or more", "leave it out"),
    (["-c", "0"], "--ctx must be a whole number, 1 or more", "leave it out"),
    (["--top-k", "-1"], "--top-k must be a whole number, 0 or more", "0 keeps all"),
    (["--seed", "-1"], "--seed must be", "leave it out"),
    (["--gpu-layers", "-1"], "--gpu-layers must be", "all"),
    (["-ngl", "99"], "no such option: -ngl", "it is --gpu-layers here"),
    (["-md", "draft.gguf"], "no such option: -md", "it is --draft here"),
    (["-hf", "owner/repo"], "no such option: -hf", "--target hf:owner/repo"),
    (["--model", "model.gguf"], "No such option: --model", "it is --target here"),
    (["-s", "1"], "No such option: -s", "it is --seed here"),
    (["-f", "prompt.txt"], "No such option: -f", "specgguf run < FILE"),
    (["--file", "prompt.txt"], "No such option: --file", "specgguf run < FILE"),
    (["-m", "model.gguf", "-p", "the prompt"], "no prompt", "a prompt needs no option"),
    (["-p", "the prompt"], "no prompt", "-p names a pair"),
]


@pytest.mark.parametrize(("arguments", "named", "advice"), HABITS)
def test_what_llama_cpp_would_take_gets_a_hint(arguments, named, advice):
    message, hint = failure(here("run", *arguments), code=2)
    assert named in message
    assert advice in hint


def test_a_prompt_after_p_is_told_from_a_pair():
    message, hint = failure(here("chat", "-p", "the prompt"))
    assert (message, "a prompt needs no option" in hint) == ("unknown pair: the prompt", True)
    message, hint = failure(here("chat", "-m", "model.gguf", "-p", "the prompt"), code=2)
    assert "a prompt needs no option" in hint


def test_after_two_dashes_everything_is_the_prompt():
    assert "model.gguf" in failure(here("run", "-m", "model.gguf", "--", "-ngl"))[0]
