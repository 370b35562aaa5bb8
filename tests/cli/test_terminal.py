"""What a model says cannot command the terminal."""

from tests.cli.program import on_terminal, specgguf

ANSWER = "\x1b]0;t\x07\x1b]52;c;aGk=\x07\x9b31mred\rgone\x08\x7f\u202e\u2066x\n\ty"
SHOWN = "␛]0;t␇␛]52;c;aGk=␇\\u009b31mred␍gone␈\\u007f\\u202e\\u2066x\n\ty"


def test_control_characters_are_shown_on_a_terminal_and_left_alone_in_a_pipe(toy_models, tmp_path):
    grammar = tmp_path / "answer.gbnf"
    spelled = "".join(f"\\U{ord(character):08x}" for character in ANSWER)
    grammar.write_text(f'root ::= "{spelled}"')
    options = ["-m", toy_models["target"], "--speculate", "off", "--no-stats", "--grammar", grammar, "the cat"]
    assert specgguf("run", *options).stdout.decode() == ANSWER
    shown, code = on_terminal("run", *options)
    assert code == 0
    assert shown.decode() == SHOWN.replace("\n", "\r\n") + "\r\n"


def test_neither_can_what_a_template_says(tmp_path):
    from tests import tiny as models

    template = "{{ raise_exception('no \x1b]0;title\x07') }}"
    path = models.write_attention(tmp_path / "bad.gguf", template=template)
    shown, code = on_terminal("run", "-m", path, "--speculate", "off", "hi", NO_COLOR=1)
    assert code == 1
    assert b"\x1b" not in shown
    assert "no ␛]0;title␇" in shown.decode()
