"""Writing files: what is at the place already."""

import os

import pytest

from specgguf.text.files import save, write_whole


@pytest.mark.parametrize("write", [write_whole, save])
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path, write):
    # A pipe stands for devices too: a test must not risk those of the machine.
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR)
    try:
        write(path, "some text")
        assert path.is_fifo()
        assert os.read(reader, 100) == b"some text"
    finally:
        os.close(reader)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    for content in ("old", "new"):
        write_whole(path, content)
        assert path.read_text() == content
    assert list(tmp_path.iterdir()) == [path]
