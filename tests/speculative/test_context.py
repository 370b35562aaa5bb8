import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgguf.speculative.context import common_prefix
from tests.contract import ContextContract
from tests.speculative.toy import ToyContext, table


class TestToyContext(ContextContract):
    @pytest.fixture
    def context(self):
        return ToyContext(table(1, num_tokens=20), n_ctx=64, n_seq=2)


@given(st.integers(0, 600), st.integers(0, 600), st.integers(0, 3))
def test_common_prefix(shared, rest, difference):
    one = list(range(shared + rest))
    two = [*range(shared), *([-1] * difference)]
    expected = shared if difference or rest == 0 else min(len(one), len(two))
    assert common_prefix(one, two) == min(expected, len(one))
    assert common_prefix(two, one) == min(expected, len(one))
