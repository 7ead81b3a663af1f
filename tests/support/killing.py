"""Steps in processes of their own: killed before a statement of theirs, or all at once."""

from __future__ import annotations

import itertools
import multiprocessing.synchronize
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import resource_objects as ro
from resource_objects.testing.conformance.races import processes

#: What is done to a ledger; pickled, so a function of a module or a partial of one.
Step: TypeAlias = Callable[[ro.Ledger], object]


def deaths(url: str, step: Step, every: int = 1) -> Iterator[bool]:
    """Take a step again and again, each time killed before a later statement than the last.

    Yields after each time whether it was done to its end, which is the last.

    :param every: how many statements later
    """
    for statements in itertools.count(step=every):
        process = processes().Process(target=_killed_before, args=(statements, url, step))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        yield process.exitcode == 0
        if process.exitcode == 0:
            return


def all_or_nothing(
    url: str, step: Step, held: Callable[[ro.Ledger], Any], after: Any, every: int
) -> None:
    """Take a step that dies at each of its statements; until it is done, nothing is.

    :param held: what is looked at
    :param after: what that is when the step is done
    """
    with ro.connect(url) as ledger:
        before = held(ledger)
    found = []
    for _ in deaths(url, step, every):
        with ro.connect(url) as ledger:
            found.append(held(ledger))
            assert found[-1] in (before, after)
            assert not ledger.audit()
    assert found.count(before) > 1
    assert found[-1] == after


def _killed_before(statements: int, url: str, step: Step) -> None:
    import sqlalchemy as sa
    from sqlalchemy.engine import Engine

    left = [statements]

    def count(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with ro.connect(url) as ledger:
        sa.event.listen(Engine, "before_cursor_execute", count)
        sa.event.listen(Engine, "commit", count)
        step(ledger)


def all_at_once(url: str, step: Callable[[ro.Ledger, int], object], workers: int) -> None:
    """Let so many processes take a step at the same moment, and wait for all; none may fail.

    :param step: is given the number of its process
    """
    context = processes()
    gate = context.Barrier(workers)
    started = [
        context.Process(target=_at_the_gate, args=(url, step, number, gate))
        for number in range(workers)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
        assert process.exitcode == 0


def _at_the_gate(
    url: str,
    step: Callable[[ro.Ledger, int], object],
    number: int,
    gate: multiprocessing.synchronize.Barrier,
) -> None:
    with ro.connect(url) as ledger:
        gate.wait(60)
        step(ledger, number)
