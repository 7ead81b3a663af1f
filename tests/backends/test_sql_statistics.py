"""Statistics in a database: sources that tell of one provider at once, one after the other."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.statistics import changed
from resource_objects.store import write
from resource_objects.testing.conformance.statistics import BUILDS, LOAD, put, read
from resource_objects.testing.conformance.suite import two_hosts

#: Seconds in which whoever need not wait for somebody's transaction is done.
_SOON = 1.0


@pytest.mark.law(4)
@pytest.mark.parametrize("first", ["agent", "bmc"])
def test_one_source_takes_nothing_away_that_another_says_meanwhile(
    ledger: SQLBackend, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Who drops a statistic and who takes it over: whoever is first, it is there afterwards."""
    host, _ = two_hosts(ledger)
    put(ledger, host, LOAD(1), BUILDS(1), source="agent")
    says = {"agent": (BUILDS(1),), "bmc": (LOAD(2),)}
    second = "bmc" if first == "agent" else "agent"
    other = threading.Thread(
        target=put, args=(ledger, host, *says[second]), kwargs={"source": second}
    )

    sources: list[str] = []

    def after_the_other(kept: Any, said: Any, source: str, now: Any) -> Any:
        sources.append(source)
        if source == first and sources.count(first) == 2:  # in the transaction that writes
            other.start()
            other.join(_SOON)
        return changed(kept, said, source, now)

    monkeypatch.setattr(write, "changed", after_the_other)
    put(ledger, host, *says[first], source=first)
    other.join()
    found = read(ledger)["host0"]
    assert {name: (one.value, one.source) for name, one in found.items()} == {
        "cpu.percent": (2, "bmc"),
        "failed_builds": (1, "agent"),
    }
