"""Files damaged on purpose, and how the program ends that is given them."""

import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from gguf import GGUFReader

from tests.cli.program import EXECUTABLE, environment, failure

MOST_SECONDS = 10
"""Of the processor's time: a busy machine has others to serve."""
PATIENCE_S = 120
MOST_BYTES = 1 << 30

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
CODES = {U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q"}
USUAL = {int: U32, float: F32, bytes: STRING}
U32_MAX = 2**32 - 1
HUGE = (2**64 - 1, 2**63, 2**40, 2**32 + 1)  # as a length or a count


def encoded(text, length=None):
    return struct.pack("<Q", len(text) if length is None else length) + text


def bare(kind, content):
    return encoded(content) if kind == STRING else struct.pack("<" + CODES[kind], content)


def value(content, kind=None):
    kind = USUAL[type(content)] if kind is None else kind
    return struct.pack("<I", kind) + bare(kind, content)


def array(kind, items):
    return struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(bare(kind, item) for item in items)


@dataclass
class Toy:
    """A GGUF file in parts that can be exchanged."""

    keys: list[tuple[bytes, bytes]]
    """Names and values, as they are encoded in the file."""
    tensors: list[tuple[bytes, list[int], int, int]]
    """Encoded name, dimensions, type, offset."""
    weights: bytes
    tokens: list[bytes]

    @classmethod
    def of_file(cls, path):
        reader = GGUFReader(path)
        fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        return cls(
            keys=[
                (encoded(name.encode()), b"".join(part.tobytes() for part in field.parts[2:]))
                for name, field in fields.items()
            ],
            tensors=[
                (encoded(name.tobytes()), dims.tolist(), int(kind[0]), int(offset[0]))
                for _, name, _, dims, kind, offset in (tensor.field.parts for tensor in reader.tensors)
            ],
            weights=path.read_bytes()[reader.data_offset :],
            tokens=[token.encode() for token in fields["tokenizer.ggml.tokens"].contents()],
        )

    def file(self, keys=None, tensors=None, num_keys=None, num_tensors=None, version=3):
        keys, tensors = self.keys if keys is None else keys, self.tensors if tensors is None else tensors
        num_keys, num_tensors = (
            len(items) if count is None else count for items, count in ((keys, num_keys), (tensors, num_tensors))
        )
        data = b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys)
        data += b"".join(name + content for name, content in keys)
        for name, dims, kind, offset in tensors:
            data += name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        return data + bytes(-len(data) % 32) + self.weights

    def __getitem__(self, name):
        return dict(self.keys)[encoded(name.encode())]

    def having(self, changes):
        """With other values by name, new ones at the end; without those that are None."""
        keys = {**dict(self.keys), **{encoded(name.encode()): content for name, content in changes.items()}}
        return self.file(keys=[(name, content) for name, content in keys.items() if content is not None])

    def with_tensor(self, number, *changed):
        return self.file(tensors=[*self.tensors[:number], changed, *self.tensors[number + 1 :]])


def flipped(data, byte, bit):
    result = bytearray(data)
    result[byte] ^= 1 << bit
    return bytes(result)


def run(*arguments):
    """The program's end, its peak of memory in bytes and the processor's seconds; killed if it never ends."""
    command = [EXECUTABLE, *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment())
        clock = threading.Timer(PATIENCE_S, os.kill, (process.pid, signal.SIGKILL))
        clock.start()
        _, status, usage = os.wait4(process.pid, 0)
        clock.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        result = subprocess.CompletedProcess(command, process.returncode, out.read(), err.read())
        num_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return result, num_bytes, usage.ru_utime + usage.ru_stime


def complaint(arguments, answer=None):
    """What is wrong with the end of the program, None if nothing is: it must fail, or give an answer that is right.

    `answer` tells whether what is on stdout is right; None: it must fail.
    """
    result, num_bytes, seconds = run(*arguments)
    try:
        if answer and result.returncode == 0:
            assert answer(result.stdout)
            assert all(line.startswith(b"note: ") for line in result.stderr.splitlines())
        else:
            failure(result)
    except AssertionError:
        return f"exit code {result.returncode}, stdout {result.stdout[:200]!r}, stderr {result.stderr[-1000:]!r}"
    if num_bytes > MOST_BYTES or seconds > MOST_SECONDS:
        return f"{num_bytes} bytes of memory, {seconds} s"
    return None


def chosen(mutants, most):
    """At most so many of them, from the first to the last; None: all."""
    mutants = list(mutants)
    return mutants[:: math.ceil(len(mutants) / most)] if most else mutants


def complaints(mutants, folder, arguments, answer=None):
    """Run the program on all of them, two at a time; all complaints.

    `arguments`: by the path of a mutant, the command line; `answer` as in `complaint`.
    """

    def every_second(first):
        path, found = folder / f"mutated-{first}.gguf", []
        for label, data in mutants[first::2]:
            path.write_bytes(data)
            problem = complaint(arguments(path), answer)
            found += [f"{label}: {problem}"] if problem else []
        return found

    with ThreadPoolExecutor(2) as pool:
        return list(chain.from_iterable(pool.map(every_second, (0, 1))))
