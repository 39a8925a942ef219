"""Signals: held back where half a step would do harm, and never raised inside a task."""

import asyncio
import os
import signal

import pytest

from collbench.engine.interrupts import handling, raise_outside_tasks, undisturbed


class Stop(KeyboardInterrupt):
    """What the handler raises."""


def stopping(_number, _frame):
    raise_outside_tasks(Stop())


def test_without_a_loop_it_is_raised_at_once():
    with handling(stopping), pytest.raises(Stop):
        os.kill(os.getpid(), signal.SIGINT)


def test_in_a_loop_it_is_raised_out_of_it_and_the_task_lives_on():
    loop = asyncio.new_event_loop()
    steps = []

    async def work():
        os.kill(os.getpid(), signal.SIGTERM)
        steps.append("after the signal")
        await asyncio.sleep(0)
        steps.append("after the interruption")

    try:
        task = loop.create_task(work())
        with handling(stopping), pytest.raises(Stop):
            loop.run_until_complete(task)
        assert steps[:1] == ["after the signal"]
        loop.run_until_complete(task)
        assert steps == ["after the signal", "after the interruption"]
    finally:
        loop.close()


def test_a_signal_in_an_undisturbed_part_comes_after_it():
    seen = []

    def handler(number, _frame):
        seen.append(signal.Signals(number))

    with handling(handler):
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
