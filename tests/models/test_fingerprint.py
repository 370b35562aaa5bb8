import os

import pytest

from specgguf.models.fingerprint import fingerprint


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(os.urandom(3_000_000))
    return path


def test_it_is_of_the_content_wherever_that_is(path):
    before = fingerprint(path)
    assert len(before) == 16
    assert fingerprint(path.rename(path.with_name("other"))) == before


@pytest.mark.parametrize("change", ["first byte", "last byte", "weights", "shorter", "longer"])
def test_another_content_has_another(path, change):
    content, before = bytearray(path.read_bytes()), fingerprint(path)
    if change == "weights":
        content[1000:] = os.urandom(len(content) - 1000)
    elif change == "shorter":
        del content[-1]
    elif change == "longer":
        content += b"\0"
    else:
        content[0 if change == "first byte" else -1] ^= 1
    path.write_bytes(content)
    assert fingerprint(path) != before


@pytest.mark.parametrize("size", [1, 4095, 4097, 200_000])
def test_small_files_are_read_whole(path, size):
    content = os.urandom(size)
    path.write_bytes(content)
    before = fingerprint(path)
    for place in range(0, size, 997):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert fingerprint(path) != before
