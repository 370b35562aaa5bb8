"""A signal during a C call: at once, as an exception, and without harm to the cache."""

import os
import signal
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from llama_cpp import llama_cpp as lib

from specgguf.llama.context import ContextSettings, LlamaContext
from specgguf.llama.interrupt import interruptible
from specgguf.llama.model import Model
from specgguf.models.header import ModelHeader
from tests.contract import decode

SETTINGS = ContextSettings(n_ctx=2048, n_threads=2, cache_type_k="f16", cache_type_v="f16", max_rows=1, n_batch=512)


@pytest.fixture
def context(toy_models):
    with (
        closing(Model(ModelHeader.of_file(toy_models["target"], "target"), 0)) as model,
        closing(LlamaContext(model, SETTINGS)) as context,
    ):
        yield context


def test_a_signal_aborts_the_batch_at_once(context, monkeypatch):
    codes, original = [], lib.llama_decode

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        codes.append(original(*arguments))
        return codes[-1]

    monkeypatch.setattr(lib, "llama_decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decode(context, [5, 6, 7], rows=1)
    assert codes == [2]  # llama.cpp's "aborted": the batch was not computed
    assert context.tokens == [[]]


def prefill_for_ever(context, tokens):
    while True:
        context.truncate(0, 0)
        context.sync(0, tokens)


def test_a_context_goes_on_wherever_a_signal_came(context):
    tokens = list(np.arange(2000) % 200 + 3)
    expected = context.sync(0, tokens, rows=1).copy()
    for attempt in range(20):
        timer = threading.Timer(0.01 + 0.005 * attempt, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            prefill_for_ever(context, tokens)
        # What the record says is there can be built upon.
        assert (context.sync(0, tokens, rows=1) == expected).all()


def test_an_abort_without_a_signal_of_ours_does_not_end_the_decoding(context):
    expected = decode(context, [5, 6, 7], rows=1).copy()
    context.truncate(0, 0)
    from specgguf.llama import interrupt

    interrupt._page[0] = signal.SIGWINCH  # as another handler's signal would
    assert (decode(context, [5, 6, 7], rows=1) == expected).all()


def test_handlers_are_back_afterwards():
    handler, wakeup = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not handler
    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.set_wakeup_fd(wakeup) == wakeup


def test_the_exception_comes_when_the_c_call_is_over():
    reached = []

    def call():
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            reached.append(True)  # no exception so far: it would be lost inside a ctypes callback

    with pytest.raises(KeyboardInterrupt):
        call()
    assert reached


def test_an_ignored_signal_stays_ignored():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, previous)


def test_other_threads_have_no_handlers_to_set():
    failures = []

    def work():
        try:
            with interruptible():
                pass
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
