"""The life of a tracker on every backend, against a naive account."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import hypothesis
import hypothesis.stateful
import pytest

import resource_objects as ro
from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql.backend import SQLBackend
from tests import databases
from tests.support.lengths import examples
from tests.tracker.life import life
from tests.tracker.whole_life import WholeLife

_LESS = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much]


def _settings(count: int, steps: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples(count), stateful_step_count=steps, suppress_health_check=_LESS
    )


@pytest.mark.law(1, 2, 4)
@pytest.mark.drawn
def test_life_in_memory() -> None:
    def opened() -> tuple[ro.Ledger, ro.Ledger, str]:
        backend = MemoryBackend()
        return ro.Ledger(backend, actor="agent"), ro.Ledger(backend, actor="other"), ""

    hypothesis.stateful.run_state_machine_as_test(life(opened), settings=_settings(200, 30))


@pytest.mark.drawn
def test_life_in_a_database(prepared_database: Callable[[databases.Prepare], str]) -> None:
    """Many lives in one ledger: the names of each begin with its number."""
    url = prepared_database(SQLBackend.upgrade_database)
    numbers = itertools.count()

    def opened() -> tuple[ro.Ledger, ro.Ledger, str]:
        agent, other = ro.connect(url, actor="agent"), ro.connect(url, actor="other")
        return agent, other, f"run{next(numbers)}-"

    hypothesis.stateful.run_state_machine_as_test(life(opened), settings=_settings(30, 12))


@pytest.mark.drawn
def test_a_whole_life(everywhere_url: str) -> None:
    """With moves, adoption and reshapes, on every backend."""
    numbers = itertools.count()

    def opened() -> tuple[ro.Ledger, ro.Ledger, str]:
        if everywhere_url == "memory://":
            backend = MemoryBackend()
            return ro.Ledger(backend, actor="agent"), ro.Ledger(backend, actor="other"), ""
        agent, other = (ro.connect(everywhere_url, actor=who) for who in ("agent", "other"))
        return agent, other, f"run{next(numbers)}-"

    machine = life(opened, WholeLife)
    hypothesis.stateful.run_state_machine_as_test(machine, settings=_settings(40, 20))


@pytest.mark.long
def test_a_long_life(tmp_path: Path) -> None:
    numbers = itertools.count()

    def opened() -> tuple[ro.Ledger, ro.Ledger, str]:
        url = f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return ro.connect(url, actor="agent"), ro.connect(url, actor="other"), ""

    hypothesis.stateful.run_state_machine_as_test(life(opened), settings=_settings(40, 100))
