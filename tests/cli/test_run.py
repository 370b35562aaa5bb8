"""`specgguf run` as people and scripts use it, on models with random weights."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from specgguf.cli import stdin
from specgguf.cli.app import app
from specgguf.text.printable import visible
from tests.cli.program import (
    EXECUTABLE,
    STEADY,
    environment,
    on_terminal,
    saying,
    specgguf,
    started,
    wait_for_handlers,
    wait_for_log,
)

FORCED = "alpha beta gamma"


@pytest.fixture
def pair(toy_models):
    return ["-m", toy_models["endless"], "-d", toy_models["draft"], *STEADY]


@pytest.fixture
def forced(tmp_path):
    """Options that leave one answer only. The toy models spell it letter by letter, so all drafts are right."""
    grammar = tmp_path / "forced.gbnf"
    grammar.write_text(f'root ::= "{FORCED}"\n')
    return ["--grammar", grammar]


def answer(*arguments, **options):
    result = specgguf("run", *arguments, "--json", **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_stdout_is_the_answer_and_nothing_else(pair):
    result = specgguf("run", *pair, "-n", 30, "the cat")
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.decode() == answer(*pair, "-n", 30, "the cat")["text"]


def test_the_json_object(pair):
    found = answer(*pair, "-n", 30, "-k", 3, "--speculate", "fixed", "--seed", 5, "the cat")
    assert list(found) == [
        *(
            "text",
            "thought",
            "tokens",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "finish_reason",
            "seed",
            "exact",
        ),
        *("target", "draft", "speculation", "timings"),
    ]
    assert found["output_tokens"] == len(found["tokens"]) == 30
    assert (found["finish_reason"], found["seed"], found["exact"]) == ("length", 5, False)
    for role in ("target", "draft"):
        assert list(found[role]) == ["name", "path", "sha256", "fingerprint"]
        sums = subprocess.run(["sha256sum", found[role]["path"]], capture_output=True, check=True).stdout
        assert found[role]["sha256"] == sums.split()[0].decode()
    assert found["target"]["fingerprint"] == found["draft"]["fingerprint"]
    speculation = found["speculation"]
    assert list(speculation) == [
        *("mode", "rounds", "drafted", "accepted", "acceptance_rate", "mean_acceptance_length"),
        *("by_source", "per_position", "parked_rounds"),
    ]
    assert speculation["mode"] == "fixed"
    assert speculation["by_source"] == {"model": {name: speculation[name] for name in ("drafted", "accepted")}}
    assert len(speculation["per_position"]) == 3
    assert speculation["mean_acceptance_length"] == pytest.approx(30 / speculation["rounds"])
    assert list(found["timings"]) == ["load_s", "prefill_s", "first_token_s", "decode_s", "tokens_per_s"]
    assert all(seconds > 0 for seconds in found["timings"].values())


@pytest.mark.parametrize("how", [{"SPECGGUF_SPECULATE": "off"}, {}])
def test_the_kill_switch(pair, how):
    found = answer(*pair, "-n", 10, *([] if how else ["--speculate", "off"]), "the cat", **how)
    assert found["draft"] is None
    assert (found["speculation"]["mode"], found["speculation"]["drafted"]) == ("off", 0)
    assert found["speculation"]["rounds"] == 10


def test_what_is_piped_in_follows_the_prompt_after_a_blank_line(pair):
    whole = answer(*pair, "-n", 10, "the cat\n\na dog,\n  a mat")
    assert answer(*pair, "-n", 10, "the cat", stdin=b"a dog,\n  a mat\n")["tokens"] == whole["tokens"]
    assert answer(*pair, "-n", 10, stdin=b"the cat\n\na dog,\n  a mat\n")["tokens"] == whole["tokens"]
    assert answer(*pair, "-n", 10, "the cat", stdin=b"a dog")["prompt_tokens"] < whole["prompt_tokens"]
    assert answer(*pair, "-n", 10, "the cat", stdin=b"\xef\xbb\xbfa dog,\n  a mat")["tokens"] == whole["tokens"]


def test_raw_text_is_taken_as_it_is(pair):
    assert answer(*pair, "-n", 1, "--raw", stdin=b"xy")["prompt_tokens"] == 1 + len("▁xy".encode())
    assert answer(*pair, "-n", 1, "--raw", stdin=b"xy\n")["prompt_tokens"] == 1 + len("▁xy\n".encode())
    assert answer(*pair, "-n", 1, stdin=b"xy")["prompt_tokens"] == 1 + len("▁user:▁xy\nassistant:".encode())
    system = answer(*pair, "-n", 1, "--system", "s", "xy")
    assert system["prompt_tokens"] == 1 + len("▁system:▁s\nuser:▁xy\nassistant:".encode())


@pytest.mark.parametrize("redirect", ["</dev/null", "<&-"])
def test_no_stdin_at_all(pair, redirect):
    line = " ".join(map(str, [EXECUTABLE, "run", *pair, "-n", 3, "'the cat'", redirect]))
    result = subprocess.run(line, shell=True, capture_output=True, env=environment(), timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.fixture
def open_stdin(monkeypatch):
    """Where to write what this process finds on its stdin."""
    read, write = os.pipe()
    with open(read) as reader, open(write, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", reader)
        yield writer


def test_an_open_stdin_that_stays_silent_is_given_up(pair, open_stdin, monkeypatch, capfd):
    monkeypatch.setattr(stdin, "_MAX_WAIT_S", 0.1)
    app(["run", *map(str, pair), "-n", "3", "--no-stats", "the cat"], standalone_mode=False)
    out, err = capfd.readouterr()
    assert out == answer(*pair, "-n", 3, "the cat")["text"]
    assert err.startswith("note: nothing arrived on stdin within")


def test_input_that_comes_late_is_used(pair, open_stdin, capfd):
    def write():
        for part in (b"a ", b"dog"):
            time.sleep(0.2)
            open_stdin.write(part)
        open_stdin.close()

    writer = threading.Thread(target=write)
    writer.start()
    app(["run", *map(str, pair), "-n", "3", "--json", "the cat"], standalone_mode=False)
    writer.join()
    found = json.loads(capfd.readouterr().out)
    assert found["tokens"] == answer(*pair, "-n", 3, "the cat", stdin=b"a dog")["tokens"]


def test_a_reader_that_closes_the_pipe_early(pair):
    line = f"{EXECUTABLE} run -m {pair[1]} -d {pair[3]} 'the cat' | head -c 10; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", line], capture_output=True, env=environment(), timeout=60, check=False)
    assert (result.returncode, len(result.stdout), result.stderr) == (0, 10, b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("shape", [None, "--json", "--jsonl"])
def test_ctrl_c_and_sigterm_keep_what_is_there(toy_models, shape, number, code):
    models = ["-m", toy_models["endless"], "--speculate", "off", "-c", 100_000]
    options = {None: [], "--json": ["--json", "-v"], "--jsonl": ["--jsonl"]}[shape]
    with started("run", *models, *options) as process:
        process.stdin.write(b"the cat")
        process.stdin.close()
        process.stdin = None
        if shape == "--json":
            wait_for_log(process, b"n_threads=")  # the last thing said before the answer begins
            time.sleep(0.2)
            beginning = b""
        else:
            beginning = process.stdout.read(5)  # is written while the rest is still to come
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err if shape == "--json" else err == b""
    out = (beginning + out).decode()
    if shape:
        *pieces, last = map(json.loads, out.splitlines())
        assert last["finish_reason"] == "interrupted"
        assert not pieces or "".join(piece["text"] for piece in pieces) == last["text"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_before_anything_is_there(pair, number, code):
    with started("run", *pair) as process:
        wait_for_handlers(process)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, b"")


def test_ctrl_c_during_a_long_prefill(pair):
    with started("run", *pair, "-c", 50_000, "-v") as process:
        process.stdin.write(b"x" * 40_000)
        process.stdin.close()
        process.stdin = None
        wait_for_log(process, b"n_threads=")  # the last thing said before it begins
        time.sleep(0.2)  # one thread takes far longer for all of it
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err


def test_a_stream_of_objects(pair):
    fixed = [*pair, "-n", 30, "--speculate", "fixed", "the cat"]
    result = specgguf("run", "--jsonl", *fixed)
    assert (result.returncode, result.stderr) == (0, b"")
    *pieces, last = map(json.loads, result.stdout.decode().splitlines())
    assert len(pieces) > 1
    assert all(list(piece) == ["text"] and piece["text"] for piece in pieces)
    assert "".join(piece["text"] for piece in pieces) == last["text"]
    assert {**last, "timings": None} == {**answer(*fixed), "timings": None}
    assert b"exclude" in specgguf("run", "--json", "--jsonl", *fixed).stderr


def test_a_reader_of_the_log_that_leaves(pair):
    line = f"{EXECUTABLE} run -m {pair[1]} -d {pair[3]} -n 3 -v 'the cat' 2> >(head -c 1 >/dev/null)"
    result = subprocess.run(["bash", "-c", line], capture_output=True, env=environment(), timeout=60, check=False)
    assert (result.returncode, result.stdout.decode()) == (0, answer(*pair, "-n", 3, "the cat")["text"])


def test_stop_strings_end_the_text_before_them(pair, forced):
    found = answer(*pair, *forced, "--stop", "no such text", "--stop", " gam", "the cat")
    assert found["text"] == "alpha beta"
    assert found["finish_reason"] == "stop_string"
    assert found["tokens"] == answer(*pair, *forced, "the cat")["tokens"][: found["output_tokens"]]
    assert specgguf("run", *pair, *forced, "--stop", " gam", "the cat").stdout == b"alpha beta"


def test_a_stop_that_is_split_over_tokens_inside_an_accepted_block(pair, tmp_path):
    texts = {"intact": "alpha beta delta beta gam", "ended": "alpha beta delta beta gamma end"}
    for name, text in texts.items():
        (tmp_path / name).write_text(f'root ::= "{text}"\n')
        found = answer(
            *pair, "-k", 7, "--speculate", "fixed", "--grammar", tmp_path / name, "--stop", "beta gamma", "hi"
        )
        assert found["speculation"]["accepted"] > 10
        if name == "ended":
            assert (found["text"], found["finish_reason"]) == ("alpha beta delta ", "stop_string")
        else:
            assert (found["text"], found["finish_reason"]) == (text, "stop")


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        ("<|im_start|>", "vwx", "stop_string"),
        ("<|tool|>", "vwxy", "stop_string"),
        ("<|im_start|>y", "vwx", "stop_string"),
        ("wx<|im_start|>", "v", "stop_string"),
        ("x<|im_start|>y<|tool|>", "vw", "stop_string"),
        ("x<|tool|>", "vwxyz", "length"),
        ("<|im_start|><|tool|>", "vwxyz", "length"),
        ("xyz", "vw", "stop_string"),
        ("z<|im_start|>", "vwxyz", "length"),
    ],
)
def test_a_stop_may_name_control_tokens_which_print_nothing(tmp_path, stop, text, reason):
    pieces, controls = ["v", "w", "x", "<|im_start|>", "y", "<|tool|>", "z"], ["<|im_start|>", "<|tool|>"]
    options = [*saying(tmp_path / "says.gguf", pieces, "{{ messages[0].content }}", (), controls), "--stop", stop]
    found = answer(*options, "?")
    assert (found["text"], found["finish_reason"]) == (text, reason)
    assert specgguf("run", *options, "?").stdout.decode() == text
    (line,) = specgguf("run", *options, "--lines", stdin=b"?\n").stdout.splitlines()
    assert {**json.loads(line), "timings": None} == {"line": 1, **found, "timings": None, "cached_tokens": 0}


def test_seeds(pair):
    warm = [*pair, "-n", 20, "--temp", 1, "--top-k", 0, "--top-p", 1, "--min-p", 0]
    first, second = answer(*warm, "the cat"), answer(*warm, "the cat")
    assert first["seed"] != second["seed"]
    assert first["tokens"] != second["tokens"]
    assert answer(*warm, "--seed", first["seed"], "the cat")["tokens"] == first["tokens"]
    assert answer(*pair, "-n", 20, "the cat")["seed"] == 0


def test_the_context_ends_the_text(pair):
    found = answer(*pair, "-c", 80, "the cat")
    assert (found["finish_reason"], found["prompt_tokens"] + found["output_tokens"]) == ("length", 81)


@pytest.mark.parametrize("draft", ["padded", "draft"])
def test_vocabularies_of_different_sizes(toy_models, draft):
    other = {"padded": "target", "draft": "padded"}[draft]
    models = ["-m", toy_models[other], "-d", toy_models[draft]]
    found = answer(*models, "-n", 40, "--speculate", "fixed", "the cat")
    assert found["output_tokens"] == 40
    assert found["speculation"]["drafted"] > 0


def test_a_target_without_a_draft(toy_models):
    result = specgguf("run", "-m", toy_models["target"], "-n", 3, "the cat")
    assert result.returncode == 0
    assert (
        result.stderr
        == b"note: no draft model: there is no --draft, and none on this machine fits and is small enough\n"
    )
    assert specgguf("run", "-m", toy_models["target"], "-n", 3, "--speculate", "off", "the cat").stderr == b""


@pytest.mark.parametrize("role", ["-m", "-d"])
def test_a_recurrent_model_drafts_and_is_drafted_for(toy_models, role):
    models = {"-m": toy_models["target"], "-d": toy_models["target"], role: toy_models["recurrent"]}
    arguments = [part for option in models.items() for part in option]
    found = answer(*arguments, *STEADY, "--speculate", "fixed", "-k", 3, "-n", 20, "the cat")
    plain = answer("-m", models["-m"], *STEADY, "--speculate", "off", "-n", 20, "the cat")
    assert found["tokens"] == plain["tokens"]
    assert found["speculation"]["drafted"] > 0


def test_statistics_on_request(pair):
    result = specgguf("run", *pair, "-n", 20, "--stats", "--speculate", "fixed", "the cat")
    line = r"20 tokens, [\d.]+ tokens/s; acceptance rate \d+%, mean acceptance length [\d.]+; "
    line += r"model \d+/\d+ accepted in \d+ of \d+ rounds\n"
    assert re.fullmatch(line, result.stderr.decode())
    plain = specgguf("run", *pair, "-n", 20, "--stats", "--speculate", "off", "the cat")
    assert re.fullmatch(r"20 tokens, [\d.]+ tokens/s\n", plain.stderr.decode())


@pytest.mark.parametrize("columns", [24, 40, 300])
def test_statistics_in_a_narrow_terminal_break_between_words(pair, columns):
    options = [*pair, "--speculate", "fixed", "--regex", "x{20}", "the cat"]
    shown, _ = on_terminal("run", *options, columns=columns, NO_COLOR=1)
    answered, *lines = shown.decode().splitlines()
    assert answered == "x" * 20
    assert len(lines) > 80 // columns
    assert max(map(len, lines)) <= columns
    line = r"21 tokens, [\d.]+ tokens/s; acceptance rate \d+%, mean acceptance length [\d.]+; "
    line += r"(\w+ \d+/\d+(, )?)+ accepted in \d+ of \d+ rounds"
    assert re.fullmatch(line, " ".join(part.rstrip() for part in lines))


def test_verbose_shows_what_is_in_effect_on_stderr(pair):
    result = specgguf("run", *pair, "-n", 5, "-v", "-t", 1, "--cache-type-k", "bf16", "the cat")
    assert result.stdout == specgguf("run", *pair, "-n", 5, "-t", 1, "--cache-type-k", "bf16", "the cat").stdout
    log = result.stderr.decode()
    assert "llama_model_loader" in log
    assert "tokenizers identical" in log
    assert "n_threads=1, cache_type_k='bf16'" in log


def test_on_a_terminal(pair):
    text = visible(answer(*pair, "-n", 20, "the cat")["text"])
    shown, code = on_terminal("run", *pair, "-n", 20, "the cat", columns=300)
    assert code == 0
    plain = re.sub(rb"\x1b\[[\d;]*m", b"", shown).decode()
    assert plain.startswith(text.replace("\n", "\r\n") + "\r\n")
    assert re.fullmatch(r"20 tokens, .*\r\n", plain[len(text.replace("\n", "\r\n")) + 2 :])
    assert (
        on_terminal("run", *pair, "-n", 20, "--no-stats", "the cat")[0].decode() == text.replace("\n", "\r\n") + "\r\n"
    )


def test_no_color(pair):
    text = visible(answer(*pair, "-n", 20, "the cat")["text"]).replace("\n", "\r\n").encode()
    shown, _ = on_terminal("run", *pair, "-n", 20, "the cat", NO_COLOR="1")
    assert not re.search(rb"\x1b\[3\d", shown.removeprefix(text))
    assert on_terminal("run", "-p", "no-such-pair", "the cat", NO_COLOR="1")[0].startswith(b"error: unknown pair")


def test_help_names_every_option_and_the_exit_is_0():
    result = specgguf("run", "--help")
    assert (result.returncode, result.stderr) == (0, b"")
    for option in ("--pair", "--target", "--draft", "--speculate", "--seed", "--stop", "--json", "--gpu-layers"):
        assert option.encode() in result.stdout


def test_python_m():
    result = subprocess.run([sys.executable, "-m", "specgguf", "--help"], capture_output=True, check=True)
    assert b"run" in result.stdout


def test_nothing_is_stored_of_what_was_said(pair, tmp_path):
    folders = {"HOME": tmp_path, "SPECGGUF_HOME": tmp_path / "store", "XDG_CONFIG_HOME": None, "XDG_CACHE_HOME": None}
    answer(*pair, "-n", 5, "a secret of mine", **folders)
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert b"secret" not in file.read()


@pytest.mark.parametrize("opens", [True, False])
def test_thoughts_are_hidden_on_request(toy_models, tmp_path, opens):
    """A thought that never ends hides everything."""
    template = tmp_path / "think.jinja"
    template.write_text("{{ messages[0].content }}" + ("<think>\n" if opens else ""))
    always_x = ["--logit-bias", f"{3 + ord('x')}=1000", "-n", 30]
    command = ["-m", toy_models["target"], "--speculate", "off", *always_x, "--chat-template", template, "the cat"]
    everything = "x" * 30
    assert specgguf("run", *command).stdout.decode() == everything
    hidden = "" if opens else everything
    assert specgguf("run", *command, "--no-think").stdout.decode() == hidden
    assert answer(*command, "--no-think")["text"] == hidden.strip()
    *pieces, last = map(json.loads, specgguf("run", *command, "--no-think", "--jsonl").stdout.splitlines())
    assert ("".join(piece["text"] for piece in pieces), last["text"]) == (hidden, hidden.strip())
    lines = specgguf("run", *command[:-1], "--no-think", "--lines", stdin=b"the cat\n").stdout
    assert json.loads(lines)["text"] == hidden.strip()


def test_a_grammar_leaves_no_room_for_a_thought(toy_models, tmp_path):
    template = tmp_path / "think.jinja"
    template.write_text("{{ messages[0].content }}<think>\n")
    command = ["-m", toy_models["target"], "--speculate", "off", "--chat-template", template, "--no-think", "x"]
    assert specgguf("run", *command, "--json-schema", '{"const": 1}').stdout == b"1"


def test_accepted_guesses_are_marked_on_a_terminal_only(pair, forced):
    command = [*pair, *forced, "--speculate", "fixed", "-k", 3, "--show-draft", "the cat"]
    assert specgguf("run", *command).stdout.decode() == FORCED
    rounds = [(FORCED[start : start + 3], FORCED[start + 3 : start + 4]) for start in range(0, len(FORCED), 4)]
    for colours, mark in (({}, "\x1b[32m{}\x1b[0m"), ({"NO_COLOR": 1}, "[{}]")):
        shown, _ = on_terminal("run", *command, "--no-stats", **colours)
        assert shown.decode() == "".join(mark.format(guessed) + bonus for guessed, bonus in rounds) + "\r\n"
