"""A view of NUMA cells that is built from a ledger gives the answers of the inventory in memory.

Random topologies are claimed, replaced, given back and released on random hosts, beside others who
take of the same host by number; after each step the view is what the model is.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import hypothesis.stateful
import pytest

from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.ledger import Ledger
from tests.support import checker
from tests.support.lengths import examples
from tests.support.numa_model import topology_machine

_CHECKS = [
    hypothesis.HealthCheck.too_slow,  # a busy machine
    hypothesis.HealthCheck.function_scoped_fixture,
]


def _run(fresh: Callable[[], Ledger], count: int) -> None:
    settings = hypothesis.settings(
        max_examples=examples(count), stateful_step_count=20, suppress_health_check=_CHECKS
    )
    hypothesis.stateful.run_state_machine_as_test(topology_machine(fresh), settings=settings)


@pytest.mark.law(1, 3, 5)
@pytest.mark.drawn
def test_the_view_of_a_ledger_in_memory() -> None:
    _run(lambda: Ledger(MemoryBackend.open("memory://")), 60)


@pytest.mark.law(1, 3, 5)
@pytest.mark.drawn
def test_the_view_of_a_database(ledger_url: str) -> None:
    _run(lambda: Ledger(SQLBackend.open(ledger_url)), 10)
    assert checker.problems(ledger_url) == []
