"""An order may allocate and release units of one provider; a replacement may be planned only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.testing.refusals import raises_code


def one_host(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "PGPU=4"))
    uuid = ledger.provider("host0").uuid or ""
    for name, units in (("job", ("gpu0", "gpu1")), ("other", ("gpu2",))):
        order = ConsumerOrder.claim(name, (Use(uuid, "PGPU", len(units), units),))
        commit(ledger, order)


@pytest.fixture
def ledger(everywhere_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """A ledger with four GPUs, of which job has two and other one."""
    return everywhere_with(one_host)


def commit(ledger: ro.Ledger, *orders: ConsumerOrder) -> None:
    ledger.backend.commit(Write(Operation(), "test", "job", orders=orders))


def exchange(ledger: ro.Ledger, *units: str, released: tuple[str, ...]) -> ConsumerOrder:
    uuid = ledger.provider("host0").uuid or ""
    use = Use(uuid, "PGPU", len(units) - len(released), units, released=released)
    return ConsumerOrder.adjust("job", (use,))


def units_of(ledger: ro.Ledger, consumer: str = "job") -> tuple[str, ...]:
    return ledger.get_claim(consumer).allocations[0].units


@pytest.mark.parametrize(
    ("units", "released", "after"),
    [
        (("gpu3",), ("gpu0",), ("gpu1", "gpu3")),
        (("gpu3",), ("gpu0", "gpu1"), ("gpu3",)),
    ],
)
def test_units_are_exchanged_in_one_order(
    ledger: ro.Ledger, units: tuple[str, ...], released: tuple[str, ...], after: tuple[str, ...]
) -> None:
    cursor = ledger.feed.cursor()
    commit(ledger, exchange(ledger, *units, released=released))
    assert units_of(ledger) == after
    assert ledger.get_claim("job").amounts == ro.Amounts({"PGPU": len(after)})
    uses = [use for entry in ledger.feed.changes(cursor).changes for use in entry.uses]
    assert [(use.allocated_units, use.released_units) for use in uses] == [(units, released)]
    commit(ledger, ConsumerOrder.release("job"))
    commit(ledger, ConsumerOrder.release("other"))
    assert not ledger.usage().consumers


def test_two_consumers_exchange_units_in_one_write(ledger: ro.Ledger) -> None:
    uuid = ledger.provider("host0").uuid or ""
    other = ConsumerOrder.adjust("other", (Use(uuid, "PGPU", 0, ("gpu0",), released=("gpu2",)),))
    commit(ledger, exchange(ledger, "gpu2", released=("gpu0",)), other)
    assert (units_of(ledger), units_of(ledger, "other")) == (("gpu1", "gpu2"), ("gpu0",))


def test_a_unit_of_another_consumer_is_not_allocated(ledger: ro.Ledger) -> None:
    with pytest.raises(exceptions.CapacityException, match="other"):
        commit(ledger, exchange(ledger, "gpu2", released=("gpu0",)))
    with raises_code("UnitNotHeld", match="gpu2"):
        commit(ledger, exchange(ledger, "gpu3", released=("gpu2",)))
    assert units_of(ledger) == ("gpu0", "gpu1")


@pytest.mark.parametrize(
    ("amount", "units", "released", "error"),
    [
        (1, ("gpu3",), ("gpu0",), "InvalidAmount"),
        (0, ("gpu0",), ("gpu0",), "DuplicateKey"),
        (0.0, ("gpu3",), ("gpu0",), "InvalidAmount"),
    ],
)
def test_an_invalid_exchange_is_rejected(
    amount: int, units: tuple[str, ...], released: tuple[str, ...], error: type[Exception]
) -> None:
    use = Use("6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", "PGPU", amount, units, released=released)
    with raises_code(error):
        ConsumerOrder.adjust("job", (use,))
    with raises_code("InvalidField", match="released"):
        ConsumerOrder.replace("job", (use,))
