"""Chat templates that behave like those of known families, in a few lines each."""

import pytest

from specgguf.errors import ModelError
from specgguf.llama.model import Model
from specgguf.llama.templates import ChatTemplate
from specgguf.models.header import ModelHeader
from specgguf.text.thought import opened

PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}"
TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
ALTERNATE = """{% for m in messages %}
{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% endfor %}"""
FAMILIES = {
    # A system message of its own where none is given.
    "qwen2.5": "{% if messages[0].role != 'system' %}<system>I am a model.</s>{% endif %}" + TURNS + PROMPT,
    # Drops thoughts of earlier turns, keeps that of the last; enable_thinking=false puts an empty thought in front.
    "qwen3": """{% set ns = namespace(last=0) %}{% for m in messages %}
{%- if m.role == 'user' %}{% set ns.last = loop.index %}{% endif %}
{%- endfor %}{% for m in messages %}<{{ m.role }}>
{%- if m.reasoning_content and loop.index > ns.last %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}</s>{% endfor %}<assistant>
{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}""",
    # Opens the thought itself and writes the BOS.
    "deepseek-r1": "{{ bos_token }}" + TURNS + "<assistant><think>\n",
    # Keeps every thought.
    "keeps": """{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}
{{- m.content }}</s>{% endfor %}"""
    + PROMPT,
    # No system role: an error.
    "gemma2": """{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}
{%- endif %}{{- ''}}"""
    + TURNS
    + PROMPT,
    # Takes the system message into the first user turn itself.
    "gemma3": """{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}
{%- set messages = messages[1:] %}{% endif %}{% for m in messages %}<{{ m.role }}>
{%- if loop.first %}{{ first }}{% endif %}{{ m.content }}</s>{% endfor %}"""
    + PROMPT,
    "llama3": "{{ bos_token }}" + TURNS + PROMPT,
    # No system role: it is left out in silence. Roles must alternate.
    "mistral": "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}"
    + ALTERNATE
    + "{{ bos_token }}"
    + TURNS,
}
HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2.", "reasoning_content": "hm"},
    {"role": "user", "content": "Sure?"},
]


@pytest.fixture(scope="module")
def open_model(toy_models):
    opened = {}
    yield lambda name: opened.setdefault(name, Model(ModelHeader.of_file(toy_models[name], "target"), 0))
    for model in opened.values():
        model.close()


@pytest.fixture
def template_of(open_model):
    return lambda source: ChatTemplate(source, "the template", open_model("target").vocab)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_system_message_is_there_once_and_nothing_is_lost(template_of, family):
    prompt = template_of(FAMILIES[family]).render(HISTORY)
    places = [prompt.index(message["content"]) for message in HISTORY]
    assert places == sorted(places)
    assert prompt.count("Be brief.") == 1
    assert ("<system>" in prompt) is (family not in ("gemma2", "gemma3", "mistral"))
    if "<system>" not in prompt:
        assert "<user>Be brief.\n\n1+1?" in prompt


@pytest.mark.parametrize("family", FAMILIES)
def test_thoughts_of_earlier_turns_are_kept_only_where_the_template_wants_them(template_of, family):
    assert ("hm" in template_of(FAMILIES[family]).render(HISTORY)) is (family == "keeps")


def test_no_thinking_where_the_template_knows_how(template_of):
    template = template_of(FAMILIES["qwen3"])
    assert template.render(HISTORY).endswith("<assistant>")
    asked = template.render(HISTORY, think=False)
    assert asked.endswith("<think>\n\n</think>\n\n")
    assert not opened(asked)


def test_a_template_that_opens_the_thought(template_of):
    for think in (True, False):
        assert opened(template_of(FAMILIES["deepseek-r1"]).render(HISTORY, think))


@pytest.mark.parametrize(("name", "count"), [("target", 1), ("no-bos", 0)])
@pytest.mark.parametrize("family", ["qwen2.5", "llama3"])  # writes no BOS, writes one
def test_a_prompt_has_exactly_one_bos_or_none(open_model, name, count, family):
    vocab = open_model(name).vocab
    source = FAMILIES[family] if count else FAMILIES["qwen2.5"]
    ids = vocab.tokenize(ChatTemplate(source, "it", vocab).render(HISTORY))
    assert ids.count(vocab.bos) == count
    assert ids[:count] == [vocab.bos] * count
    assert vocab.tokenize("the cat").count(vocab.bos) == count


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (FAMILIES["mistral"], "it fails: roles must alternate"),
        ("{{ raise_exception('no\nmore') }}", "it fails: no\nmore"),
        ("{% for %}", "it fails in line 1: "),
        ("{{ 1 // 0 }}", "it fails: .*zero"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "it fails: .*unsafe"),
    ],
)
def test_a_template_that_fails_is_an_error_with_its_message(open_model, source, reason):
    twice = [HISTORY[1], HISTORY[1]]
    with pytest.raises(ModelError, match=reason):
        ChatTemplate(source, "it", open_model("target").vocab).render(twice)
