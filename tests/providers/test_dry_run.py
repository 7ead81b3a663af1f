"""Columns as they would be: what a decision on several amounts is made on."""

from __future__ import annotations

import resource_objects as ro
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.dry_run import held_in, with_taken, without_consumers
from resource_objects.providers.orders import Use


def _ledger() -> ro.Ledger:
    ledger = ro.connect("memory://")
    host = ro.Provider("host0", "VCPU=8,DISK_GB=9")
    share = ro.Share(resource_class="PCPU", of="host0", of_class="VCPU", factor=2)
    host.add("host0/cell", "PCPU=4", shares=[share])
    ledger.sync(host)
    units = ro.Allocation(
        provider="host0/cell",
        resource_class="PCPU",
        amount=ro.IntegerAmount(2),
        units=("cpu0", "cpu1"),
    )
    ledger.claim("pinned", [units])
    ledger.claim("floating", {"host0": "VCPU=1,DISK_GB=2"})
    return ledger


def _used(columns: Columns) -> dict[str, int]:
    return {
        f"{provider.name} {name}": inventory.to_records()[0].used
        for root in trees(columns)
        for provider in root.walk()
        for name, inventory in provider.inventories.by_name()
    }


def test_what_is_taken_is_used_where_it_shares_too() -> None:
    with _ledger() as ledger:
        columns = ledger.backend.read()
        cell = ledger.provider("host0/cell").uuid or ""
        deltas = [Use(cell, "PCPU", 1, ("cpu3",)), Use("elsewhere", "VCPU", 1)]
        then = with_taken(columns, deltas, "new")
    assert _used(then) == {"host0 VCPU": 7, "host0 DISK_GB": 2, "host0/cell PCPU": 3}
    assert [*zip(then.units.unit, then.units.consumer, strict=True)] == [
        ("cpu0", "pinned"),
        ("cpu1", "pinned"),
        ("cpu3", "new"),
    ]
    assert with_taken(columns, []) == columns  # nothing was changed in place


def test_without_a_consumer_it_holds_nothing() -> None:
    with _ledger() as ledger:
        columns = ledger.backend.read()
        ledger.release("pinned")
        released = ledger.backend.read()
        assert without_consumers(columns, "pinned") == released
        assert without_consumers(columns, "nobody") == columns
        ledger.release("floating")
        assert (
            without_consumers(without_consumers(columns, "pinned"), "floating")
            == ledger.backend.read()
        )


def test_what_a_consumer_holds_is_found_in_columns() -> None:
    with _ledger() as ledger:
        columns = ledger.backend.read()
        for name in ("pinned", "floating"):
            record = ledger.backend.consumer(name)
            assert record is not None
            assert set(held_in(columns, name)) == set(record.held)
        cell = ledger.provider("host0/cell").uuid or ""
        assert list(held_in(columns, "pinned")) == [
            Use(cell, "PCPU", 2, ("cpu0", "cpu1"), "host0/cell")
        ]
        assert list(held_in(columns, "nobody")) == []
