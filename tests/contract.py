"""What every Context must do, run over the toy and over llama.cpp's."""

import numpy as np
import pytest

from specgguf.speculative.context import Context, Part


def decode(context, tokens, rows, width=0, sequence=0):
    """Logits of the last rows."""
    return context.decode([Part(sequence, tokens, rows)], width)[0].logits


class ContextContract:
    """Subclasses give a fixture `context`: empty, n_ctx 64, n_batch 16, max_rows 8, n_seq 2."""

    tokens = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4)
    tolerance = 0.0

    def same(self, one, two):
        np.testing.assert_allclose(one, two, rtol=0, atol=self.tolerance)

    def one_by_one(self, context: Context, tokens):
        """Logits after each token, each decoded alone."""
        context.truncate(0, 0)
        return np.concatenate([decode(context, [token], rows=1).copy() for token in tokens])

    def test_rows_are_the_last_ones_in_order(self, context):
        expected = self.one_by_one(context, self.tokens[:8])
        context.truncate(0, 0)
        logits = decode(context, self.tokens[:8], rows=5)
        assert logits.shape == (5, expected.shape[1])
        self.same(logits, expected[3:])

    def test_no_rows(self, context):
        assert len(decode(context, self.tokens[:8], rows=0)) == 0
        assert context.tokens[0] == list(self.tokens[:8])

    def test_a_cut_cache_is_like_a_fresh_one(self, context):
        expected = self.one_by_one(context, self.tokens[:6])[-1:].copy()
        decode(context, [7, 7, 7], rows=1)
        context.truncate(0, 5)
        assert context.tokens[0] == list(self.tokens[:5])
        self.same(decode(context, self.tokens[5:6], rows=1), expected)

    @pytest.mark.parametrize("length", [1, 3, 5, 6, 7])
    def test_tokens_of_several_batches_are_cut(self, context, length):
        more = [*self.tokens[:length], 7]
        expected = self.one_by_one(context, more)[-1:].copy()
        context.truncate(0, 0)
        decode(context, self.tokens[:3], rows=1)
        decode(context, self.tokens[3:5], rows=2)
        for token in self.tokens[5:8]:
            decode(context, [token], rows=1)
        context.truncate(0, length)
        self.same(decode(context, [7], rows=1), expected)

    def test_a_text_that_was_cut_is_forgotten(self, context):
        one, two, three, *_ = self.tokens
        expected = self.one_by_one(context, [one, 7, three])[-1:].copy()
        context.truncate(0, 0)
        context.sync(0, [one, two])
        context.truncate(0, 1)
        for token in (7, 8):
            decode(context, [token], rows=1)
        context.truncate(0, 2)
        self.same(decode(context, [three], rows=1), expected)

    def test_sync_decodes_only_what_is_missing(self, context, monkeypatch):
        expected = self.one_by_one(context, self.tokens)[-2:].copy()
        context.truncate(0, 0)
        context.sync(0, [*self.tokens[:4], 11, 12, 13])
        batches = []
        evaluate = context._evaluate
        monkeypatch.setattr(
            context,
            "_evaluate",
            lambda parts: batches.append(len(parts[0].tokens)) or evaluate(parts),
        )
        logits = context.sync(0, self.tokens, rows=2)
        assert batches == [16]
        assert context.tokens[0] == list(self.tokens)
        self.same(logits, expected)

    def test_sync_in_chunks(self, context):
        expected = self.one_by_one(context, self.tokens)[-1:].copy()
        context.truncate(0, 0)
        self.same(context.sync(0, self.tokens, rows=1), expected)

    def test_sync_to_what_is_there_gives_its_logits_again(self, context):
        expected = context.sync(0, self.tokens, rows=1).copy()
        self.same(context.sync(0, self.tokens, rows=1), expected)

    def test_sync_to_less(self, context):
        context.sync(0, self.tokens)
        context.sync(0, self.tokens[:3])
        assert context.tokens[0] == list(self.tokens[:3])

    def test_the_context_can_be_filled_to_the_last_token(self, context):
        full = (list(self.tokens) * 4)[:64]
        assert len(context.sync(0, full, rows=1)) == 1
        with pytest.raises(ValueError, match="context of 64"):
            decode(context, [1], rows=1)
        assert context.tokens[0] == full

    @pytest.mark.parametrize(("count", "rows"), [(0, 0), (17, 1), (3, 4), (12, 9), (2, -1)])
    def test_what_does_not_fit_is_refused_before_anything_happens(self, context, count, rows):
        with pytest.raises(ValueError, match=r"rows|for a batch"):
            decode(context, [1] * count, rows=rows)
        assert context.tokens[0] == []

    def test_an_interrupted_batch_leaves_no_trace(self, context, monkeypatch):
        expected = self.one_by_one(context, self.tokens[:6])[-1:].copy()
        context.truncate(0, 5)
        evaluate = context._evaluate

        def interrupted(*arguments):
            evaluate(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(context, "_evaluate", interrupted)
            with pytest.raises(KeyboardInterrupt):
                decode(context, [7, 7], rows=1)
        assert context.tokens[0] == list(self.tokens[:5])
        self.same(decode(context, self.tokens[5:6], rows=1), expected)

    def test_sequences_in_one_batch_know_nothing_of_each_other(self, context):
        expected = self.one_by_one(context, self.tokens[:9])[[6, 8]].copy()
        context.truncate(0, 0)
        context.decode([Part(1, self.tokens[:4]), Part(0, self.tokens[:7])])
        other, one = context.decode([Part(1, self.tokens[4:7], 1), Part(0, self.tokens[7:9], 1)])
        assert (other.sequence, other.start, other.tokens) == (1, 4, self.tokens[4:7])
        assert (one.sequence, one.start, one.tokens) == (0, 7, self.tokens[7:9])
        self.same(np.concatenate([other.logits, one.logits]), expected)
        assert context.tokens == [list(self.tokens[:9]), list(self.tokens[:7])]

    def test_cutting_one_sequence_leaves_the_other(self, context):
        expected = self.one_by_one(context, self.tokens[:6])[-1:].copy()
        context.truncate(0, 0)
        context.decode([Part(0, self.tokens[:5]), Part(1, self.tokens[:5])])
        context.decode([Part(0, [7, 7, 7], 2), Part(1, [8], 1)], width=8)
        context.truncate(0, 0)
        context.truncate(1, 5)
        self.same(decode(context, self.tokens[5:6], rows=1, sequence=1), expected)
        assert context.tokens == [[], list(self.tokens[:6])]

    def test_what_is_fed_comes_back_chunk_by_chunk(self, context):
        context.sync(0, self.tokens[:3])
        found = list(context.feed(0, self.tokens, rows=1))
        assert [(one.start, len(one.tokens), len(one.logits)) for one in found] == [(3, 16, 0), (19, 1, 1)]
