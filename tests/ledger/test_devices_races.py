"""Several who want the same devices at the same moment: exactly one gets each, nothing leaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy
from resource_objects.testing.conformance.races import together
from tests.ledger.device_hosts import (
    CARD,
    DEVICES,
    FUNCTION,
    TOPOLOGY,
    card,
    functions,
    gpu,
    host_of,
    raw,
    states,
    taken,
)

ONE = "0000:01:00.0"
WHERE = f"host0/{ONE}"


def race(ledger: ro.Ledger, *asked: Any) -> list[str]:
    """Let consumers claim at the same moment; return who got something."""

    def work(number: int) -> str:
        ledger.claim(f"job-{number}", asked[number])
        return f"job-{number}"

    done = together(work, len(asked))
    lost = (exceptions.CapacityException, exceptions.NoCandidates)
    assert all(isinstance(one, str | exceptions.ResourceObjectsError) for one in done), done
    assert all(isinstance(one, lost) for one in done if not isinstance(one, str)), done
    return [one for one in done if isinstance(one, str)]


def check(ledger: ro.Ledger, winners: list[str]) -> None:
    """Every unit has one owner, and after all is given back nothing is taken."""
    units = [unit for name in winners for _, own in taken(ledger, name).values() for unit in own]
    assert len(set(units)) == len(units)
    assert list(ledger.audit()) == []
    ledger.release_all(winners)
    assert states(ledger) == {}
    assert [use.used for use in ledger.usage() if use.used] == []


ASKS: dict[str, Callable[[ro.Ledger, str], Any]] = {
    "searched": lambda ledger, kind: ledger.snapshot().candidates({DEVICES: ro.devices(kind)}),
    "counted": lambda ledger, kind: ledger.snapshot().candidates({kind: 1}),
    "direct": lambda ledger, kind: {"host0": {DEVICES: ro.devices(kind)}},
    "by name": lambda ledger, kind: [
        raw(WHERE, kind, ONE if kind == CARD else functions(1)[0], amount=1)
    ],
    "by number": lambda ledger, kind: {WHERE: {kind: 1}},
}


@pytest.mark.law(2, 4)
@pytest.mark.parametrize("how", ASKS)
def test_the_last_function_goes_to_exactly_one(ledger: ro.Ledger, how: str) -> None:
    ledger.sync(host_of(card(1, 1)))
    winners = race(ledger, *(ASKS[how](ledger, FUNCTION) for _ in range(2)))
    assert len(winners) == 1
    check(ledger, winners)


@pytest.mark.law(2, 4)
@pytest.mark.parametrize("how", ASKS)
@pytest.mark.parametrize("other", ASKS)
def test_a_card_or_a_function_of_it_goes_to_exactly_one(
    ledger: ro.Ledger, how: str, other: str
) -> None:
    ledger.sync(host_of(card(1)))
    winners = race(ledger, ASKS[how](ledger, CARD), ASKS[other](ledger, FUNCTION))
    assert len(winners) == 1
    check(ledger, winners)


@pytest.mark.law(4, 6)
@pytest.mark.parametrize("how", ["searched", "counted", "direct"])
def test_as_many_as_there_are_get_one_each(ledger: ro.Ledger, how: str) -> None:
    ledger._context.retries = RetryPolicy(assignments=20, searches=20)
    ledger.sync(host_of([*card(1, 2), *card(2, 2)]))
    winners = race(ledger, *(ASKS[how](ledger, FUNCTION) for _ in range(6)))
    assert len(winners) == 4
    check(ledger, winners)


@pytest.mark.law(2, 4)
def test_cells_and_devices_go_together_or_not_at_all(ledger: ro.Ledger) -> None:
    ledger._context.retries = RetryPolicy(assignments=20)
    ledger.sync(host_of([gpu(0x10, 0), gpu(0x20, 1)], cells=2))
    near = {TOPOLOGY: ro.numa(dedicated=3), DEVICES: ro.devices("PGPU", affinity="required")}
    winners = race(ledger, *({"host0": near} for _ in range(4)))
    assert len(winners) == 2
    cells = [ledger.assigned_amounts(name)["host0"][TOPOLOGY].host_cells for name in winners]
    assert sorted(map(min, cells)) == [0, 1]
    check(ledger, winners)


def _meanwhile(ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
    """Let something happen between a read of trees and what is decided on it, once."""
    read = ledger.backend.read

    def reading(*trees: str, **how: Any) -> Any:
        columns = read(*trees, **how)
        monkeypatch.setattr(ledger.backend, "read", read)
        step()
        return columns

    monkeypatch.setattr(ledger.backend, "read", reading)


@pytest.mark.law(4)
def test_another_device_is_taken_if_somebody_was_faster(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: a claim of what is not assigned retries on a unit conflict."""
    ledger.sync(host_of(card(1)))
    first = [raw(WHERE, FUNCTION, functions(1)[0])]
    _meanwhile(ledger, monkeypatch, lambda: ledger.claim("faster", first))
    ledger.claim("job", {"host0": {DEVICES: ro.devices(FUNCTION)}})
    assert taken(ledger, "job") == {(WHERE, FUNCTION): (1, (functions(1)[1],))}


@pytest.mark.law(2, 4)
def test_a_card_is_refused_if_a_function_of_it_went_meanwhile(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.sync(host_of(card(1)))
    first = [raw(WHERE, FUNCTION, functions(1)[0])]
    _meanwhile(ledger, monkeypatch, lambda: ledger.claim("faster", first))
    with pytest.raises(exceptions.CapacityException, match="faster holds 1"):
        ledger.claim("job", {"host0": {DEVICES: ro.devices(CARD)}})
    check(ledger, ["faster"])


@pytest.mark.law(4)
def test_a_card_that_was_defined_anew_meanwhile_is_named_with_what_it_has_now(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.sync(host_of(card(1, 2)))
    _meanwhile(ledger, monkeypatch, lambda: ledger.sync(host_of(card(1, 3))))
    ledger.claim("job", [raw(WHERE, CARD, ONE)])
    assert taken(ledger, "job") == {(WHERE, CARD): (1, (ONE, *functions(1)))}
    check(ledger, ["job"])
