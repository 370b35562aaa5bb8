"""Reads GBNF, llama.cpp's notation for grammars, with llguidance's reader."""

import re
from collections.abc import Iterator

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    GbnfToLarkError,
    GrammarParser,
    LiteralNode,
    RegexNode,
    RepetitionNode,
    RuleRefNode,
    resolve,
)

from specgguf.errors import UsageError

NOTATION = "llama.cpp's grammars/README.md describes its notation, GBNF"
_ROOT = "root"
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


def gbnf_to_lark(text: str) -> tuple[str, list[int]]:
    """The same grammar in llguidance's notation, a line for each rule, and the line of `text` where each one begins.

    Rules without a circle become regular expressions, and so does the whole grammar if none has one. Raises UsageError,
    with the line, if `text` is not GBNF.
    """
    try:
        rules = GrammarParser().parse(_ESCAPE.sub(_plain_escape, text))
    except GbnfToLarkError as error:
        what = " ".join(str(error).partition(" at line ")[0].split())
        rest = error.pos.text[error.pos.pos :].partition("\n")[0]
        where = f" at {rest[:40]!r}" if rest else " at the end of the line"
        raise _mistake(error.pos.text.count("\n", 0, error.pos.pos), what[0].lower() + what[1:] + where) from None
    except (IndexError, RecursionError):
        raise _mistake(text.count("\n"), "it ends too early, or is nested too deeply") from None
    if _ROOT not in rules:
        raise _mistake(0, f"no rule is named {_ROOT}, with which a text begins")
    names = {name: name if name == _ROOT else f"r{number}" for number, name in enumerate(rules)}
    lines = [_line_of(text, rf"^[ \t]*{re.escape(name)}\s*::=") for name in names]
    rules = {names[name]: rule for name, rule in rules.items()}
    for name, rule in rules.items():
        rule.name = name
        for node in _nodes(rule):
            if isinstance(node, RuleRefNode):
                if node.name not in names:
                    line = _line_of(text, rf"(?<![\w-]){re.escape(node.name)}(?![\w-])")
                    raise _mistake(line, f"there is no rule {node.name}")
                node.name = names[node.name]
            _correct(node)
    resolve(rules)
    for node in (node for rule in rules.values() for node in _nodes(rule)):
        if isinstance(node, RepetitionNode) and isinstance(node.node, RepetitionNode):
            node.node = AlternativeNode([node.node])  # in parentheses
    root, first = rules["start"], ""
    if root.alternatives.is_terminal():
        root.name, first = "TEXT", "start: TEXT"
    ordered = sorted(rules.values(), key=lambda rule: rule.order)
    return "\n".join([first, *(f"{rule.name}: {rule.alternatives}" for rule in ordered)]), [0, *lines]


def _mistake(line: int, what: str) -> UsageError:
    return UsageError(f"the grammar, line {line + 1}: {what}", NOTATION)


def _line_of(text: str, pattern: str) -> int:
    """The line, from 0, where a pattern is found first."""
    found = re.search(pattern, text, re.MULTILINE)
    return text.count("\n", 0, found.start()) if found else 0


def _plain_escape(found: re.Match[str]) -> str:
    """An escape in a form that llguidance's reader gets right: the character itself, or two hexadecimal digits."""
    digits = found[1] or found[2] or found[3]
    if digits is None:
        return r"\x2d" if found[4] == "-" else found[0]
    code = int(digits, 16)
    if code < 0x80:
        return chr(code) if chr(code).isalnum() else f"\\x{code:02x}"
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else found[0]


def _nodes(node: ASTNode) -> Iterator[ASTNode]:
    yield node
    for child in node.children():
        yield from _nodes(child)


def _correct(node: ASTNode) -> None:
    """Write a literal or a class so that llguidance takes it for what it is in GBNF."""
    if isinstance(node, LiteralNode):
        value = re.sub(r"\\([\[\]])", r"\1", node.value)
        value = re.sub(r"\\x(..)", r"\\u00\1", value)
        node.value = re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", value)
    elif isinstance(node, RegexNode):
        node.rx = "(?s:.)" if node.rx == "." else re.sub(r"[&~\n\r]", lambda found: f"\\x{ord(found[0]):02x}", node.rx)
