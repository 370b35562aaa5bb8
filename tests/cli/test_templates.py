"""Chat templates, whatever they do: the question is in the prompt, or there is an error."""

import json
import time

import pytest

from tests.cli.program import STEADY, failure, specgguf

TEXTS = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"
IN_PARTS = """{% for m in messages %}<{{ m['role'] }}>{% for part in m['content'] %}
{%- if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}<assistant>"""
ONLY_QUESTIONS_IN_PARTS = """{% for m in messages %}<{{ m['role'] }}>{% if m['role'] == 'user' %}
{%- for part in m['content'] %}{{ part.text }}{% endfor %}{% else %}{{ m['content'] }}{% endif %}
{%- endfor %}<assistant>"""


@pytest.fixture
def model(toy_models):
    return ["-m", toy_models["endless"], "-d", "none", *STEADY, "-n", 12]


@pytest.fixture
def template(tmp_path):
    def template(source):
        path = tmp_path / "own.jinja"
        path.write_text(source)
        return ["--chat-template", path]

    return template


@pytest.mark.parametrize("source", [IN_PARTS, ONLY_QUESTIONS_IN_PARTS])
def test_a_template_that_wants_content_in_parts_gets_the_question(model, template, source):
    found, expected = (
        json.loads(specgguf("run", *model, *template(each), "--json", "--system", "a dog", "the cat").stdout)
        for each in (source, TEXTS)
    )
    assert (found["prompt_tokens"], found["tokens"]) == (expected["prompt_tokens"], expected["tokens"])


@pytest.mark.parametrize("source", [IN_PARTS, ONLY_QUESTIONS_IN_PARTS])
def test_and_so_does_a_chat(model, template, source):
    found, expected = (
        specgguf("chat", *model, *template(each), "--temp", 0, "--system", "a dog", stdin=b"the cat\nthe mat\n")
        for each in (source, TEXTS)
    )
    assert (found.returncode, found.stdout) == (0, expected.stdout)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ bos_token }}You are a model.<assistant>", "never uses the messages: the question is not in the prompt"),
        ("{{ messages | length }}<assistant>", "never uses the messages"),
        ("{% for part in messages[0].content %}{{ part.image }}{% endfor %}<assistant>", "never uses the messages"),
        ("{{ messages[0].content[:3] }}<assistant>", "leaves the question out, or changes it"),
        ("", "gives nothing: the prompt would be empty"),
        (" \n", "gives nothing"),
        ("{% if false %}{{ messages[0].content }}{% endif %}", "gives nothing"),
    ],
)
@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_question_that_does_not_get_into_the_prompt_is_an_error(model, template, source, reason, command):
    message, hint = failure(specgguf(command, *model, *template(source), stdin=b"the cat\n"))
    assert message.startswith(f"the template of --chat-template {reason}")
    assert "--raw" in hint


def test_white_space_of_a_question_is_the_templates_affair(model, template):
    source = "{{ messages[0].content.split() | join(' ') }}<assistant>"
    assert specgguf("run", *model, *template(source), "  the  cat\n sat ").returncode == 0
    assert specgguf("run", *model, *template("{{ messages | tojson }}"), 'the "cat"\n\té').returncode == 0


NUMBERS = "{% set r = range(99999) %}"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            NUMBERS + "{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
            "does not come to an end: it took more than 10 s",
        ),
        (
            NUMBERS + "{% for a in r %}{% for b in r %}{{ messages[0].content * 99 }}{% endfor %}{% endfor %}",
            "takes more",
        ),
        ("{% set n = namespace(x='x') %}{% for a in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "takes more"),
        ("{{ 'x' * 10 ** 12 }}", "takes more than 1024 MiB of memory"),
        ("{% set n = namespace(x=[]) %}" + NUMBERS + "{% for a in r %}{% set n.x = n.x + [n.x, r] %}{% endfor %}", ""),
    ],
)
def test_a_template_that_never_ends_or_grows_is_an_error(model, template, source, reason):
    begin = time.monotonic()
    message, hint = failure(specgguf("run", *model, *template(source + "{{ messages[0].content }}"), "hi"))
    assert message.startswith(f"the template of --chat-template {reason}")
    assert "--chat-template FILE" in hint
    assert time.monotonic() - begin < 60
