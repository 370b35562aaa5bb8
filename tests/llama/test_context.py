from contextlib import closing
from dataclasses import replace

import pytest

from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.model import Model
from specgguf.models.header import ModelHeader
from tests.contract import ContextContract, decode

SETTINGS = ContextSettings(n_ctx=64, n_threads=2, cache_type_k="f16", cache_type_v="f16", max_rows=8, n_batch=512)


@pytest.fixture(scope="module")
def model(toy_models):
    with closing(Model(ModelHeader.of_file(toy_models["target"], "target"), 0)) as model:
        yield model


class TestLlamaContext(ContextContract):
    tolerance = 0.05  # llama.cpp rounds differently at other batch widths

    @pytest.fixture
    def context(self, model):
        with closing(LlamaContext(model, replace(SETTINGS, n_batch=16, n_seq=2))) as context:
            yield context


def test_the_settings_in_effect_can_be_read(model):
    with closing(LlamaContext(model, SETTINGS)) as context:
        assert context.settings == replace(SETTINGS, n_batch=64)
        assert (context.n_ctx, context.n_batch, context.max_rows) == (
            64,
            64,
            8,
        )  # a batch is never longer than the context


def test_logits_are_a_view_of_the_rows_asked_for(model):
    with closing(LlamaContext(model, SETTINGS)) as context:
        logits = decode(context, [5, 6, 7, 8], rows=2)
        assert logits.shape == (2, model.vocab.num_tokens)
        assert logits.base is not None
        first = logits[0].copy()
        decode(context, [9], rows=1)
        assert (logits[0] != first).any()  # the same memory, filled anew


def test_a_closed_context_is_an_error_and_no_crash(model):
    context = LlamaContext(model, SETTINGS)
    context.close()
    context.close()
    with pytest.raises(ValueError, match="closed"):
        decode(context, [5], rows=1)


def test_time_inside_llama_is_counted(model):
    with closing(LlamaContext(model, SETTINGS)) as context:
        decode(context, [5, 6, 7], rows=1)
        assert 0 < context.decode_s < 10
