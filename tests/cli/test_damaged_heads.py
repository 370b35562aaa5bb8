"""Damaged draft heads, and heads misused: two lines, or an answer that is plain decoding's; never a crash."""

import math
import random
import struct

import pytest

from tests.cli.damage import F32, STRING, U32, U32_MAX, Toy, complaints, encoded, flipped, run, value
from tests.tiny_heads import HEADS_AND_TARGETS

NUMBERS = (0, 1, 2, 3, 7, 63, 65, 128, 1000, 2**31, U32_MAX)
FLOATS = (0.0, -1.0, math.nan, math.inf)


def damaged(toy, dice):
    """26 files: cut ones, bits flipped in the header, other numbers, other tensors, weights that are no numbers."""
    whole = toy.file()
    start = len(whole) - len(toy.weights)
    list_start = len(toy.file(tensors=[], num_tensors=len(toy.tensors))) - len(toy.weights) - 32
    for end in (*(dice.randrange(start) for _ in range(3)), start, dice.randrange(start, len(whole))):
        yield f"cut at {end}", whole[:end]
    ends = [dice.randrange(24), *(dice.randrange(24, 600) for _ in range(2))]
    for byte in (*ends, *(dice.randrange(list_start, start) for _ in range(4))):
        bit = dice.randrange(8)
        yield f"bit {bit} of byte {byte} flipped", flipped(whole, byte, bit)
    for name, content in dice.sample(own_keys(toy), 5):
        yield damaged_value(toy, name, content, dice)
    for number in dice.sample(range(len(toy.tensors)), 8):
        yield damaged_tensor(toy, number, dice)
    weights = struct.pack("<f", dice.choice([math.nan, 1e38, 0.0]))
    yield "all weights alike", whole[:start] + weights * (len(toy.weights) // 4)


def own_keys(toy):
    """What the file says of its architecture, and of its mask token, but for texts."""
    keys = [(name[8:].decode(), content) for name, content in toy.keys if content[0] != STRING]
    return [
        (name, content) for name, content in keys if not name.startswith(("general", "tokenizer")) or "mask" in name
    ]


def damaged_value(toy, name, content, dice):
    if dice.random() < 0.2:
        return f"no {name}", toy.having({name: None})
    kind = content[0]
    if kind in (U32, F32):
        number = dice.choice(NUMBERS if kind == U32 else FLOATS)
        return f"{name} is {number}", toy.having({name: value(number, kind)})
    at, other = len(content) - 4, dice.choice(NUMBERS)
    if len(content) < 6:
        return f"{name} is a number", toy.having({name: value(other)})
    return f"{name} ends with {other}", toy.having({name: content[:at] + struct.pack("<I", other)})


def damaged_tensor(toy, number, dice):
    name, dims, kind, offset = toy.tensors[number]
    label = name[8:].decode()
    match dice.randrange(6):
        case 0:
            return f"no {label}", toy.file(tensors=toy.tensors[:number] + toy.tensors[number + 1 :])
        case 1:
            return f"{label} renamed", toy.with_tensor(number, encoded(b"blk.1.nonsense"), dims, kind, offset)
        case 2:
            place = dice.randrange(len(dims))
            other = dice.choice([0, 1, dims[place] - 1, dims[place] // 2, dims[place] + 1, dims[place] * 2, 2**62])
            changed = [*dims[:place], other, *dims[place + 1 :]]
            return f"{label} of shape {changed}", toy.with_tensor(number, name, changed, kind, offset)
        case 3:
            changed = dice.choice([dims[::-1], [math.prod(dims)], [*dims, 1], [1, *dims]])
            return f"{label} of shape {changed}", toy.with_tensor(number, name, changed, kind, offset)
        case 4:
            other = dice.choice([1, 2, 8, 24, 27, 30, 31, 1000, U32_MAX])
            return f"{label} of type {other}", toy.with_tensor(number, name, dims, other, offset)
        case _:
            other = dice.choice([0, 32, offset + 4, offset + 32, 2**40, 2**63])
            return f"{label} at {other}", toy.with_tensor(number, name, dims, kind, other)


def drafted(target, head=None):
    """The command line of a short answer, drafted for in every round."""
    options = ["--draft", head] if head else []
    return ["run", "-m", target, *options, "--speculate", "fixed", "-k", "4", "-t", "1", "-n", "8", "the cat"]


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("name", HEADS_AND_TARGETS)
def test_damaged_heads_fail_in_two_lines_or_change_no_text(toy_heads, tmp_path, name, step):
    target = toy_heads[HEADS_AND_TARGETS[name]]
    mutants = list(damaged(Toy.of_file(toy_heads[name]), random.Random(name)))[::step]
    plain = run(*drafted(target), "--speculate", "off")[0].stdout
    assert plain
    if toy_heads[name] == target:  # what it says may have been damaged too
        found = complaints(mutants, tmp_path, drafted, lambda _: True)
    else:
        found = complaints(mutants, tmp_path, lambda head: drafted(target, head), plain.__eq__)
    assert not found, "\n".join(found)
