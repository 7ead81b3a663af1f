"""A kind that is kept as several records comes back whole, on every backend."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from resource_objects import base, exceptions, fields, plugins
from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Backend, Provider
from resource_objects.resources import Amount, Inventory, Resource, catalog
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.records import AmountRecord, InventoryRecord
from resource_objects.testing.conformance.suite import (
    changes_to,
    claim,
    define,
    ledger_state,
    release,
    stored_tree,
)
from resource_objects.testing.refusals import raises_code
from tests.support.checker import problems

_PREFIX = "test_kinds"
_SLOT, _WATT = "CUSTOM_TRAY_SLOT", "CUSTOM_TRAY_WATT"


@base.register
class TrayAmount(Amount):
    """Some slots, each with the watts of what is put into it."""

    WIRE_PREFIX = _PREFIX
    VERSION = "1.0"

    fields = {"slots": fields.integer(-99, 99), "watts": fields.integer(-9999, 9999)}

    @property
    def is_zero(self) -> bool:
        return self.slots == self.watts == 0

    @property
    def is_negative(self) -> bool:
        return self.slots < 0

    def __neg__(self) -> TrayAmount:
        return TrayAmount(slots=-self.slots, watts=-self.watts)

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        return AmountRecord(_SLOT, self.slots), AmountRecord(_WATT, self.watts)


@base.register
class TrayInventory(Inventory):
    """A tray: slots and watts are counted, its colour is only told."""

    WIRE_PREFIX = _PREFIX
    VERSION = "1.0"

    fields = {
        "slots": fields.integer(1, 99),
        "watts": fields.integer(1, 9999),
        "colour": fields.text(),
    }

    def fit(
        self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
    ) -> Amount:
        return amount

    def apply(self, assigned: Any) -> None:
        raise NotImplementedError

    def to_records(self) -> tuple[InventoryRecord, ...]:
        return tuple(
            InventoryRecord(name, total, 0, 1, None, 1, 1_000_000, total)
            for name, total in ((_SLOT, self.slots), (_WATT, self.watts))
        )

    def describe(self) -> str:
        return json.dumps({"colour": self.colour})


@base.register
class TrayResource(Resource):
    """A resource of trays."""

    WIRE_PREFIX = _PREFIX
    VERSION = "1.0"

    amount_kind = TrayAmount
    inventory_kind = TrayInventory

    @on_class_or_instance
    def make_amount(this: Any, /, slots: int, watts: int) -> TrayAmount:  # noqa: N805
        return TrayAmount(slots=slots, watts=watts)

    @on_class_or_instance
    def make_inventory(this: Any, /, slots: int, watts: int, colour: str) -> TrayInventory:  # noqa: N805
        return TrayInventory(slots=slots, watts=watts, colour=colour)

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> TrayInventory:
        raise NotImplementedError

    def inventory_from_storage(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> TrayInventory:
        total = {record.resource_class: record.total for record in records}
        colour = json.loads(description or "{}")["colour"]
        return self.make_inventory(total[_SLOT], total[_WATT], colour)

    def parse_amount(self, text: str) -> TrayAmount:
        raise NotImplementedError

    def format_amount(self, amount: Any) -> str:
        return f"{amount.slots} slots"

    def parse_inventory(self, text: str) -> TrayInventory:
        raise NotImplementedError

    def format_inventory(self, inventory: Any) -> str:
        return f"{inventory.slots} slots"


TRAY = TrayResource("CUSTOM_TRAY")


@pytest.fixture(autouse=True)
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kind, known as a plug-in's would be."""
    offered = plugins.BUILT_IN[catalog.PLUGIN_NAMESPACE]
    monkeypatch.setitem(offered, TRAY.name, f"{__name__}:TRAY")
    monkeypatch.setattr(plugins, "load", lambda namespace, name: TRAY)
    catalog.forget()
    yield
    monkeypatch.undo()
    catalog.forget()


def _check(backend: Backend) -> None:
    tray = TRAY.make_inventory(8, 500, "rot")
    names = define(backend, Provider("shelf", {TRAY: tray, "DISK_GB": 9}))
    assert stored_tree(backend, "shelf").inventories[TRAY] == tray
    assert not changes_to(backend, Provider("shelf", {TRAY: tray, "DISK_GB": 9}))
    claim(backend, "job", {names["shelf"]: {TRAY: TRAY.make_amount(2, 90)}})
    assert ledger_state(backend).holds("job") == {("shelf", _SLOT): 2, ("shelf", _WATT): 90}
    with pytest.raises(exceptions.CapacityException):
        claim(backend, "job-2", {names["shelf"]: {TRAY: TRAY.make_amount(1, 411)}})
    define(backend, Provider("shelf", {TRAY: TRAY.make_inventory(8, 600, "blau")}))
    assert stored_tree(backend, "shelf").inventories[TRAY].colour == "blau"
    with raises_code("InventoryInUse"):
        define(backend, Provider("shelf", "DISK_GB=9"))
    release(backend, "job")
    define(backend, Provider("shelf", "DISK_GB=9"))
    found = ledger_state(backend).providers["shelf"]
    assert set(found.inventories) == {"DISK_GB"} and not found.kinds


def test_a_kind_of_several_records_in_memory() -> None:
    _check(MemoryBackend.open("memory://"))


def test_a_kind_of_several_records_in_a_database(ledger: SQLBackend, ledger_url: str) -> None:
    _check(ledger)
    assert problems(ledger_url) == []
