"""What every Context must do, run over the toy and over llama.cpp's."""

import numpy as np
import pytest

from specgguf.speculative.context import Context


class ContextContract:
    """Subclasses give a fixture `context`: empty, n_ctx 64, n_batch 16, max_rows 8."""

    tokens = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4)
    tolerance = 0.0

    def same(self, one, two):
        np.testing.assert_allclose(one, two, rtol=0, atol=self.tolerance)

    def one_by_one(self, context: Context, tokens):
        """Logits after each token, each decoded alone."""
        context.truncate(0)
        return np.concatenate([context.decode([token], rows=1).copy() for token in tokens])

    def test_rows_are_the_last_ones_in_order(self, context):
        expected = self.one_by_one(context, self.tokens[:8])
        context.truncate(0)
        logits = context.decode(self.tokens[:8], rows=5)
        assert logits.shape == (5, expected.shape[1])
        self.same(logits, expected[3:])

    def test_no_rows(self, context):
        assert len(context.decode(self.tokens[:8], rows=0)) == 0
        assert context.tokens == list(self.tokens[:8])

    def test_a_cut_cache_is_like_a_fresh_one(self, context):
        expected = self.one_by_one(context, self.tokens[:6])[-1:].copy()
        context.decode([7, 7, 7], rows=1)
        context.truncate(5)
        assert context.tokens == list(self.tokens[:5])
        self.same(context.decode(self.tokens[5:6], rows=1), expected)

    def test_sync_decodes_only_what_is_missing(self, context, monkeypatch):
        expected = self.one_by_one(context, self.tokens)[-2:].copy()
        context.truncate(0)
        context.sync([*self.tokens[:4], 11, 12, 13])
        batches = []
        evaluate = context._evaluate
        monkeypatch.setattr(
            context,
            "_evaluate",
            lambda tokens, start, rows: batches.append(len(tokens)) or evaluate(tokens, start, rows),
        )
        logits = context.sync(self.tokens, rows=2)
        assert batches == [16]
        assert context.tokens == list(self.tokens)
        self.same(logits, expected)

    def test_sync_in_chunks(self, context):
        expected = self.one_by_one(context, self.tokens)[-1:].copy()
        context.truncate(0)
        self.same(context.sync(self.tokens, rows=1), expected)

    def test_sync_to_what_is_there_gives_its_logits_again(self, context):
        expected = context.sync(self.tokens, rows=1).copy()
        self.same(context.sync(self.tokens, rows=1), expected)

    def test_sync_to_less(self, context):
        context.sync(self.tokens)
        context.sync(self.tokens[:3])
        assert context.tokens == list(self.tokens[:3])

    def test_the_context_can_be_filled_to_the_last_token(self, context):
        full = (list(self.tokens) * 4)[:64]
        assert len(context.sync(full, rows=1)) == 1
        with pytest.raises(ValueError, match="context 64"):
            context.decode([1], rows=1)
        assert context.tokens == full

    @pytest.mark.parametrize(("count", "rows"), [(0, 0), (17, 1), (3, 4), (12, 9), (2, -1)])
    def test_what_does_not_fit_is_refused_before_anything_happens(self, context, count, rows):
        with pytest.raises(ValueError, match=r"rows|tokens for a batch"):
            context.decode([1] * count, rows=rows)
        assert context.tokens == []

    def test_an_interrupted_batch_leaves_no_trace(self, context, monkeypatch):
        expected = self.one_by_one(context, self.tokens[:6])[-1:].copy()
        context.truncate(5)
        evaluate = context._evaluate

        def interrupted(*arguments):
            evaluate(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(context, "_evaluate", interrupted)
            with pytest.raises(KeyboardInterrupt):
                context.decode([7, 7], rows=1)
        assert context.tokens == list(self.tokens[:5])
        self.same(context.decode(self.tokens[5:6], rows=1), expected)
