"""`specgguf chat` in a terminal and in a script."""

import io
import json
import re
import signal
import sys
import time
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import pexpect
import pytest

from specgguf.cli.app import app
from specgguf.cli.opening import open_engine, open_store
from specgguf.cli.options.models import Models
from specgguf.conversation.chat import Answering, Chat
from specgguf.conversation.transcript import Exchange, Transcript, load
from specgguf.engine.engine import Engine
from specgguf.engine.settings import EngineSettings, Mode
from specgguf.engine.workbench import Workbench
from specgguf.text.printable import visible
from tests.cli.program import EXECUTABLE, STEADY, environment, failure, specgguf, started

READY, TAKEN = r"\x1b\[\?2004h", r"\x1b\[\?2004l"  # the input line switches pasting in brackets on and off


class Terminal:
    """A chat as a person has it."""

    def __init__(self, *arguments, **variables):
        plain = environment(**{"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": 1, "NO_COLOR": 1, **variables})
        command = ["chat", "-t", "1", *map(str, arguments)]
        self.child = pexpect.spawn(str(EXECUTABLE), command, env=plain, timeout=120, dimensions=(40, 250))
        self.greeting = self.output()

    def output(self):
        """What is printed until the next message can be typed."""
        self.child.expect(READY)
        return self.child.before.decode(errors="replace").replace("\r\n", "\n")

    def type(self, text, enter="\r"):
        self.child.send(text + enter)
        self.child.expect(TAKEN)

    def say(self, text):
        self.type(text)
        return self.output()

    def leave(self):
        """The exit code."""
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus


@pytest.fixture
def pair(toy_models):
    return ["-m", toy_models["endless"], "-d", toy_models["target"], "--speculate", "fixed", "-k", "3", *STEADY]


@pytest.fixture
def always_x(tmp_path):
    """Options that make every answer of 30 tokens thirty letters."""
    grammar = tmp_path / "x.gbnf"
    grammar.write_text('root ::= "x"{1000}')
    return ["--grammar", grammar, "-n", 30]


@contextmanager
def plain_engine(path, n_ctx=None):
    settings = EngineSettings(mode=Mode.OFF, n_threads=1, n_ctx=n_ctx, cache_type_k="bf16", cache_type_v="bf16")
    models = Models(target=str(path))
    with closing(open_engine(open_store(), models, settings)) as engine:
        yield engine


def fresh_answer(engine, transcript, max_tokens):
    """What plain decoding, of a chat that begins with all but the last answer, says in its place."""
    Workbench(engine, 64).start_cold()
    *before, last = transcript.exchanges
    chat = Chat(engine, Transcript(transcript.system, before, transcript.sampling), Answering(max_tokens))
    with closing(chat.ask(last.question)) as turn:
        list(turn)
    return chat.transcript.exchanges[-1].answer


def resident_kb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def test_a_script(pair, tmp_path):
    saved = tmp_path / "chat.json"
    script = f"the cat\n\n/system be brief\n a dog\n/save {saved}\n"
    result = specgguf("chat", *pair, "-n", 12, "--temp", 0, stdin=script.encode())
    assert result.returncode == 0
    transcript = load(saved)
    assert [exchange.question for exchange in transcript.exchanges] == ["the cat", " a dog"]
    said = [line.strip() for line in result.stdout.decode().split("\n")]
    assert said == [*(exchange.answer for exchange in transcript.exchanges), ""]
    assert (transcript.system, transcript.sampling["temperature"]) == ("be brief", 0.0)
    assert result.stderr.decode().splitlines() == ["note: system message: be brief", f"note: saved {saved}"]
    again = specgguf("chat", *pair, "-n", 12, "--load", saved, stdin=f"/retry\n/save {saved}\n".encode())
    assert again.stdout.decode().strip() == transcript.exchanges[-1].answer
    assert load(saved).sampling["seed"] == transcript.sampling["seed"] + 1
    assert "is there already" in failure(specgguf("chat", *pair, stdin=f"/save {saved}".encode()), code=2)[0]


BARE = ("help", "undo", "retry", "clear", "stats", "draft", "exit")
MISTAKES = [
    ("/hlep", "unknown command: /hlep", "did you mean /help"),
    ("/zzz", "unknown command: /zzz", "/help lists"),
    ("/set tmep 1", "nothing that can be set", "temp, "),
    ("/set ctx 100", "nothing that can be set", "others are for the command line"),
    ("/set temp much", "/set temp must be a number, 0 to 100", "--help"),
    ("/set temp -1", "/set temp must be a number, 0 to 100", "--help"),
    ("/set max-tokens", "/set max-tokens must be a whole number, 1 or more", "--help"),
    ("/speculate never", "/speculate must be auto, fixed, model, mtp, eagle3, dflash, ngram or off", "--help"),
    ("/undo", "nothing to take back", "ask"),
    ("/retry", "no answer", "ask"),
    ("/save", "no file", "/save"),
    ("/load", "no file", "/load"),
    ("/save /no/such/folder/x", "cannot write", "place"),
    ("/save /", "cannot write", "place"),
    ("/load /no/such/file", "cannot read", "path"),
    ("/model no-such-pair", "unknown pair", "specgguf pairs"),
    *((f"/{name} x", f"/{name} takes no argument", "alone") for name in BARE),
]


def test_mistakes_end_a_command_and_not_the_chat(pair):
    chat = Terminal(*pair)
    for command, named, hint in MISTAKES:
        error, advice = chat.say(command).splitlines()[-2:]
        assert error.startswith("error: "), error
        assert advice.startswith("hint: "), advice
        assert named in error
        assert hint in advice
    assert re.search(r"^temp +0.8$", chat.say("/set"), re.MULTILINE)
    assert re.search(r"^no-think +false$", chat.say("/set"), re.MULTILINE)
    assert "speculate is fixed" in chat.say("/speculate")
    chat.type("/exit")
    assert chat.leave() == 0


@pytest.mark.parametrize(
    ("line", "named"), [(b"/hlep", "unknown command"), (b"caf\xe9", "line 2 of stdin is not UTF-8")]
)
def test_mistakes_end_a_script(pair, line, named):
    assert named in failure(specgguf("chat", *pair, stdin=b"\n" + line), code=2)[0]


def test_a_damaged_transcript(pair, tmp_path):
    saved = tmp_path / "chat.json"
    saved.write_text(Transcript(sampling={"temperature": 0.0}).dump().replace("0.0", "-1"))
    message, _ = failure(specgguf("chat", *pair, "--load", saved), code=2)
    assert message == f"{saved}: sampling.temperature must be a number, 0 to 100"
    saved.write_bytes(b"\xff")
    assert "is not UTF-8 text" in failure(specgguf("chat", *pair, "--load", saved), code=2)[0]
    saved.write_text("[]")
    assert "no transcript" in failure(specgguf("chat", *pair, "--load", saved), code=2)[0]


def test_in_a_terminal(pair, tmp_path):
    saved = tmp_path / "chat.json"
    chat = Terminal(*pair, "-n", 12, "--temp", 0, "--show-draft")
    assert "/help lists the commands" in chat.greeting
    shown = chat.say("the cat")
    assert re.search(r"\n12 tokens, .* tokens/s; acceptance rate [^;]*(?:;\s[^;]*)*; context \d+ of 8192\n", shown)
    assert "did you mean /undo?" in chat.say("/undp")
    chat.say("/system \x1b[200~pasted,\nwith a break\x1b[201~")
    for keys in ("/he", "\t"):  # the menu, then what it offers
        chat.child.send(keys)
        chat.child.expect("lp")
    chat.type("")
    assert "/speculate [MODE]" in chat.output()
    chat.type("a dog\x1b\rand a mat")
    chat.output()
    assert f"saved {saved}" in chat.say(f"/save {saved}")
    transcript = load(saved)
    assert transcript.system == "pasted,\nwith a break"
    assert [exchange.question for exchange in transcript.exchanges] == ["the cat", "a dog\nand a mat"]
    assert visible(transcript.exchanges[0].answer) in re.sub(r"[\[\]]", "", shown)
    chat.say("/undo")
    chat.type("", enter=" too\r")  # the question taken back stands on the line
    chat.output()
    chat.say(f"/save {saved}")
    assert load(saved).exchanges[-1].question == "a dog\nand a mat too"
    chat.child.sendcontrol("d")
    assert chat.leave() == 0


def test_thought_is_told_apart_or_hidden(toy_models, tmp_path):
    template = tmp_path / "think.jinja"
    template.write_text("{{ messages[-1].content }}<think>\n")
    models = ["-m", toy_models["endless"], "--speculate", "off", "-n", 9, "--temp", 0, "--chat-template", template]
    shown = Terminal(*models, "--no-stats").say("the cat")
    assert re.fullmatch(r".*<think>\n.+\n</think>\n\n", shown, re.DOTALL)
    hidden = Terminal(*models, "--no-stats", "--no-think").say("the cat")
    assert re.fullmatch(r"\n?note: there is nothing but a thought, which --no-think hides: .+", hidden.strip())
    assert "\x1b[2m" in Terminal(*models, "--no-stats", NO_COLOR=None).say("the cat")


def test_the_system_message_can_be_removed(pair, tmp_path):
    script = (
        f"/system be brief\n/save {tmp_path / 'with'}\n/system none\n/system\nthe cat\n/save {tmp_path / 'without'}\n"
    )
    result = specgguf("chat", *pair, "-n", 3, stdin=script.encode())
    assert result.returncode == 0
    assert [load(tmp_path / name).system for name in ("with", "without")] == ["be brief", ""]
    assert result.stderr.count(b"note: system message: none\n") == 2


def test_a_dumb_terminal_whose_answers_go_elsewhere(pair, tmp_path):
    command = f"{EXECUTABLE} chat {' '.join(map(str, pair))} -n 3 --no-stats >{tmp_path / 'answers'}"
    child = pexpect.spawn("bash", ["-c", command], env=environment(TERM="dumb"), timeout=40)
    child.expect("> ")
    child.send("the cat\r")
    child.expect("> ")
    child.send("/exit\r")
    shown = child.before + child.read()
    child.close()
    assert (child.exitstatus, b"\x1b" in shown) == (0, False)
    assert (tmp_path / "answers").read_text().strip()
    assert ">" not in (tmp_path / "answers").read_text()


def test_a_dumb_terminal(pair):
    command = ["chat", *map(str, pair), "-n", "3", "--show-draft"]
    child = pexpect.spawn(str(EXECUTABLE), command, env=environment(TERM="dumb"), timeout=120)
    child.expect("> ")
    child.send("the cat\r")
    child.expect("3 tokens")
    assert b"\x1b" not in child.before
    child.expect("> ")
    child.send("/exit\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_keys_that_are_no_text(pair):
    chat = Terminal(*pair, "-n", 3, "--temp", 0)
    chat.child.send(b"caf\xe9 the cat\r")
    assert "3 tokens" in chat.output()
    assert "cannot read" in chat.say("/load ~nobody-of-that-name/x")


def test_another_pair_goes_on_with_the_chat(pair, tmp_path):
    saved = tmp_path / "chat.json"
    chat = Terminal(*pair, "-n", 3, "--temp", 0)
    chat.say("the cat")
    assert "the next answer is of SmolLM2" in chat.say("/model tiny")
    assert re.search(r"^\d tokens?[,;]", chat.say("Name a bird."), re.MULTILINE)
    chat.say(f"/save {saved}")
    assert len(load(saved).exchanges) == 2
    assert load(saved).models["pair"] == "tiny"


def test_ctrl_c_at_the_prompt(pair):
    chat = Terminal(*pair)
    chat.child.send("half a line")
    chat.child.sendcontrol("c")
    assert "Ctrl-C again leaves" in chat.output()
    chat.child.send("another one")
    chat.child.sendcontrol("c")  # clears the line: to leave, nobody types first
    assert "Ctrl-C again leaves" in chat.output()
    chat.say("/system x")
    chat.child.sendcontrol("c")
    chat.output()
    chat.child.sendcontrol("c")
    assert chat.leave() == 130


def test_ctrl_c_in_a_long_prefill(pair, toy_models, tmp_path):
    """The prompt is back before the prefill's end, and the next turn is right."""
    saved = tmp_path / "chat.json"
    chat = Terminal(*pair, "-n", 12, "--temp", 0, "-c", 40_000)
    chat.say("Name a bird.")
    chat.type("\x1b[200~" + "The cat sat on the mat. " * 1100 + "\x1b[201~")
    time.sleep(0.2)  # one thread takes far longer for 26,000 tokens
    chat.child.sendcontrol("c")
    assert "0 tokens" in chat.output()
    chat.say("/undo")
    chat.child.send("\x15")  # not that question again
    chat.say("Name a fish.")
    chat.say(f"/save {saved}")
    chat.child.sendcontrol("c")
    chat.output()
    chat.child.sendcontrol("c")
    assert chat.leave() == 130
    transcript = load(saved)
    assert [exchange.question for exchange in transcript.exchanges] == ["Name a bird.", "Name a fish."]
    with plain_engine(toy_models["endless"]) as engine:
        assert fresh_answer(engine, transcript, 12) == transcript.exchanges[-1].answer


@pytest.mark.parametrize("turns", [12, pytest.param(40, marks=pytest.mark.sweep)])
def test_many_turns(toy_models, pair, tmp_path, turns):
    """With undo, retry, interruptions and a full context, every answer is what a fresh chat says."""
    n_ctx, limit = 25 * turns, 12
    chat = Terminal(*pair, "-n", limit, "--temp", 0, "-c", n_ctx, "--context-shift")
    snapshots, dropped = [], 0
    for number in range(turns):
        stopped = number in (7, 23)
        if stopped:
            chat.say("/set max-tokens 100000")
            chat.type(f"the cat {number}")
            chat.child.expect("[^\r\n]")
            chat.child.sendcontrol("c")
            shown = chat.output()
            chat.say(f"/set max-tokens {limit}")
        elif number % 10 == 5:
            shown = chat.say("/retry")
        else:
            if number % 10 == 9:
                chat.say("/undo")
                chat.child.send("\x15")
            shown = chat.say(f"the cat {number} sat, and the dog")
        dropped += "dropped" in shown
        path = tmp_path / f"{number}.json"
        chat.say(f"/save {path}")
        snapshots.append((path, stopped))
    chat.type("/exit")
    assert chat.leave() == 0
    assert dropped >= 1  # a turn takes more than 50 tokens
    with plain_engine(toy_models["endless"], n_ctx) as engine:
        for path, stopped in snapshots:
            transcript = load(path)
            said = transcript.exchanges[-1].answer
            if stopped:
                assert fresh_answer(engine, transcript, len(said.encode())).startswith(said)
            else:
                assert fresh_answer(engine, transcript, limit) == said


@pytest.mark.sweep
def test_memory_does_not_grow(pair):
    """In a chat that has filled its context once: before, llama.cpp touches more and more of its buffers."""
    chat = Terminal(*pair, "-n", 12, "--temp", 0, "-c", 1500, "--context-shift")
    assert "context 13" in chat.say("\x1b[200~" + "the cat " * 110 + "\x1b[201~")
    resident = []
    for number in range(140):
        if number >= 40 and number % 20 == 0:
            resident.append(resident_kb(chat.child.pid))
        chat.say(f"the cat {number} sat, and the dog")
    resident.append(resident_kb(chat.child.pid))
    grown = [after - before for before, after in pairwise(resident)]
    assert median(grown) < 160, resident  # kB in 20 turns; a leak grows steadily, an allocator now and then


def test_a_full_context_is_said_and_asked_about(pair, always_x):
    chat = Terminal(*pair, *always_x, "-c", 140)
    chat.say("the cat sat")
    chat.type("the dog sat on the mat, and the cat sat on the dog")
    chat.child.expect("the context is full: .* Drop the oldest turns.*: ")
    for no in ("n\r", "\x04"):  # the latter is Ctrl-D
        chat.child.send(no)
        assert "error: the context is full" in chat.output()
        chat.type("")  # the question is on the line again
        chat.child.expect("Drop the oldest turns.*: ")
    chat.child.send("y\r")
    assert "the oldest turn was dropped" in chat.output()


def test_a_question_that_was_not_asked_survives_commands(pair, always_x, tmp_path):
    saved = tmp_path / "chat.json"
    chat = Terminal(*pair, *always_x, "-c", 140)
    chat.say("the cat sat")
    chat.type("the dog sat on the mat, and the cat sat on the dog")
    chat.child.expect("Drop the oldest turns.*: ")
    chat.child.send("n\r")
    chat.output()
    for command, said in (("/hlep", "unknown"), ("/stats", "30 tokens"), ("/undo", "taken back")):
        assert said in chat.say(f"\x15{command}")  # Ctrl-U takes it from the line
    assert "30 tokens" in chat.say(" again")  # now there is room: asked as it was edited
    chat.say(f"/save {saved}")
    questions = [exchange.question for exchange in load(saved).exchanges]
    assert questions == ["the dog sat on the mat, and the cat sat on the dog again"]


def test_a_full_context_ends_a_script(pair):
    command = ["chat", *pair, "-n", 30, "-c", 150, "--temp", 0]
    result = specgguf(*command, stdin=b"the cat sat\n" * 9)
    assert result.returncode == 1
    assert "--context-shift" in result.stderr.decode()
    assert specgguf(*command, "--context-shift", stdin=b"the cat sat\n" * 9).returncode == 0


def test_a_system_message_that_no_question_fits_behind(pair, tmp_path):
    saved, long = tmp_path / "chat.json", "the cat " * 30
    chat = Terminal(*pair, "-n", 3, "-c", 150, "--temp", 0)
    chat.say("/system be brief")
    shown = chat.say(f"/system {long}")
    assert re.search(r"error: the system message is too long: .* takes \d+ of 150 tokens", shown)
    assert "larger --ctx" in shown
    assert "system message: be brief" in chat.say("/system")
    saved.write_text(Transcript(long).dump())
    assert "too long" in chat.say(f"/load {saved}")
    assert "3 tokens" in chat.say("the dog")
    for option in (["--system", long], ["--load", saved]):
        assert "too long" in failure(specgguf("chat", *pair, "-c", 150, *option))[0]
    assert specgguf("chat", *pair, "-c", 2000, "-n", 1, "--system", long, stdin=b"the cat").returncode == 0


def test_what_is_loaded_is_said(pair, tmp_path):
    saved = tmp_path / "chat.json"
    for exchanges, said in ([Exchange("the cat", "sat")], "1 turn of"), ([Exchange("a", "b")] * 2, "2 turns of"):
        saved.write_text(Transcript(exchanges=exchanges).dump())
        chat = Terminal(*pair, "--load", saved)
        assert f"{said} {saved}" in chat.greeting
        assert f"{said} {saved}" in chat.say(f"/load {saved}")


def test_every_answer_is_of_the_grammar(pair, tmp_path):
    grammar, template = tmp_path / "pet.gbnf", tmp_path / "think.jinja"
    grammar.write_text('root ::= ("cat" | "dog") "!"{3}')
    template.write_text("{{ messages[-1].content }}<think>\n")  # what a grammar allows is no thought
    options = ["--chat-template", template, "--temp", 1, "--seed", 4]
    for constraint in (["--grammar", grammar], ["--json-schema", '{"enum": ["cat!!!", "dog!!!"]}']):
        result = specgguf("chat", *pair, *options, *constraint, stdin=b"the cat\na dog\n/retry\n")
        answers = [line.strip('"') for line in result.stdout.decode().splitlines()]
        assert len(answers) == 3
        assert set(answers) <= {"cat!!!", "dog!!!"}


@pytest.mark.parametrize("option", ["--grammar", "--json-schema", "--ngram-store"])
def test_a_file_that_cannot_be_used_is_found_before_the_model_is_loaded(tmp_path, option):
    path = tmp_path / "bad"
    path.write_text("nothing ( of use")
    failure(specgguf("chat", "-m", "none.gguf", option, path), code=2)


def test_answers_are_drafted_from_in_later_chats_if_they_are_to_be_kept(toy_models, tmp_path, monkeypatch, capfd):
    store, drafted_from = tmp_path / "answers.npz", []
    monkeypatch.setattr(Engine, "draft_from", lambda _, texts: drafted_from.extend(texts))
    command = ["chat", "-m", str(toy_models["endless"]), "-t", "1", "--speculate", "ngram", "-n", "5", "--temp", "0"]
    for options in ([], ["--ngram-store", str(store)], ["--ngram-store", str(store)]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na dog\n")))
        assert store.exists() is (len(drafted_from) > 0)
        app([*command, *options], standalone_mode=False)
    first, second, *again = drafted_from
    assert (len(first), len(second)) == (5, 5)
    assert again == [first, second] * 2  # what was stored, then the same answers again


def test_the_draft_has_its_own_context(toy_models):
    """Case 4 of USERS.md: beyond it nothing is drafted, and the text is the same."""
    command = ["-m", toy_models["endless"], "-d", toy_models["target"], "--speculate", "fixed", "-k", 3, *STEADY]
    command += ["-c", 2048, "-n", 600]
    long, short, capped = (
        json.loads(specgguf("run", *command, *more, "--json", "the cat").stdout)
        for more in ([], ["--draft-ctx", 64], ["--draft-ctx", 256])
    )
    assert len(long["tokens"]) == 600
    assert long["tokens"] == short["tokens"] == capped["tokens"]
    drafted = [found["speculation"]["drafted"] for found in (short, capped, long)]
    assert 0 < drafted[0] < drafted[1] < drafted[2]
    rounds = [found["speculation"]["rounds"] for found in (short, capped)]
    assert rounds[0] >= 600 - 64
    assert rounds[1] >= 600 - 256
    script = b"the cat\nthe dog\n/clear\nthe cat\n"
    said = [
        specgguf("chat", *command, "-n", 60, "--temp", 0, *more, stdin=script).stdout
        for more in ([], ["--draft-ctx", 64])
    ]
    assert said[0] == said[1]


def test_ctrl_c_in_a_script_keeps_what_is_there(pair):
    with started("chat", *pair, "--temp", "0", "-c", "50000") as process:
        process.stdin.write(b"the cat\n")
        begun = process.stdout.read(10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert (begun + out).endswith(b"\n")


def test_nothing_typed_is_kept_unless_asked_for(pair, tmp_path):
    folders = {"HOME": tmp_path, "SPECGGUF_HOME": tmp_path / "store", "XDG_CONFIG_HOME": None, "XDG_CACHE_HOME": None}
    for asked in (False, True):
        chat = Terminal(*pair, "-n", 3, *(["--history", tmp_path / "history"] if asked else []), **folders)
        chat.say("a secret of mine")
        chat.child.sendcontrol("d")
        assert chat.leave() == 0
        holding = [path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
        assert holding == ([tmp_path / "history"] if asked else [])
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o600


def test_json_that_is_cut_off_is_told(toy_models):
    command = ["chat", "-m", toy_models["endless"], "-d", "none", "--json-schema", '{"const": "a cat"}']
    told = b"note: the answer was cut off before it was complete: give a larger --max-tokens\n"
    assert specgguf(*command, "-n", 3, stdin=b"hi\n").stderr == told
    assert specgguf(*command, "-n", 60, stdin=b"hi\n").stderr == b""
