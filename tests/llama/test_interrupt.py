"""A signal during a C call: at once, as an exception, and without harm to the cache."""

import os
import signal
import threading
import time
from contextlib import closing

import numpy as np
import pytest

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


def interrupt_soon(delay_s):
    timer = threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_a_signal_aborts_the_batch_and_the_context_goes_on(context):
    tokens = list(np.arange(2000) % 200 + 3)
    expected = context.sync(0, tokens, rows=1).copy()
    interrupted = 0
    for attempt in range(20):
        context.truncate(0, 0)
        timer = interrupt_soon(0.01 + 0.005 * attempt)
        try:
            for _ in range(50):
                context.truncate(0, 0)
                context.sync(0, tokens)
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        # What the record says is there can be built upon.
        assert (context.sync(0, tokens, rows=1) == expected).all()
    assert interrupted == 20


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
