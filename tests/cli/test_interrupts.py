"""A sandbox in the background of a script can be interrupted, though shells start such programs with that ignored."""

from __future__ import annotations

import signal

import pytest

from ranking_evaluate.cli.sandbox import termination_as_interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_was_ignored_before_interrupts_the_block_and_is_ignored_again_after(
    number: signal.Signals,
) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
