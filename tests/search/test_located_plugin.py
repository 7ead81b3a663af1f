"""A plug-in's kind that lies over a tree is searched like ours: the search names none (D11)."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

import resource_objects as ro
from resource_objects import base, fields, plugins
from resource_objects.exceptions import CapacityException
from resource_objects.providers import Provider
from resource_objects.providers.provider import Share
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.resources import Amount, Inventory, Resource, catalog
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.context import ANYWHERE
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.resources.placed import PlacedInventory
from resource_objects.resources.records import AmountRecord, InventoryPart, InventoryRecord
from resource_objects.resources.relaxations import RelaxationLadder, RelaxationStep, listed_steps
from resource_objects.testing.refusals import raises_code

LANE = "CUSTOM_LANE"


@base.register
class RingAmount(Amount):
    """Some lanes, all on one switch."""

    WIRE_PREFIX = "test_located_plugin"
    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "lanes": fields.integer(-99, 99),
        "switch": fields.integer(0, nullable=True, default=None),
    }

    is_zero = False

    @property
    def is_negative(self):
        return self.lanes < 0

    @property
    def is_assigned(self):
        return self.switch is not None

    @property
    def placed_counts(self):
        return {LANE: self.lanes}

    def __neg__(self):
        return self.replace(lanes=-self.lanes)

    def to_records(self, resource_class):
        return (AmountRecord(LANE, self.lanes),)


@base.register
class RingInventory(PlacedInventory, Inventory):
    """Switches: total and used lanes of each."""

    WIRE_PREFIX = "test_located_plugin"
    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "totals": fields.Field(fields.TupleOf(fields.StrictInteger(0, 99))),
        "used": fields.Field(fields.TupleOf(fields.StrictInteger(0, 99))),
    }

    def part_ids(self):
        return tuple(range(len(self.totals)))

    def _fit(self, amount, limit, context):
        ids = self.part_ids() if context.allowed is None else sorted(context.allowed)
        for switch in ids:
            if self.totals[switch] - self.used[switch] >= amount.lanes:
                return amount.replace(switch=switch)
        raise CapacityException(
            Reason(Rule.CAPACITY, amount.lanes, self.totals[n], self.used[n], LANE, cell=n)
            for n in ids
        )

    def _apply(self, assigned):
        raise NotImplementedError

    def parts(self):
        return tuple(
            InventoryPart(f"switch{n}", RingInventory(totals=[total], used=[0]), ())
            for n, total in enumerate(self.totals)
        )

    def to_allocations(self, assigned):
        return ((assigned.switch, (AmountRecord(LANE, assigned.lanes),)),)

    def in_use(self):
        return tuple(
            (f"switch{n}", (AmountRecord(LANE, used),)) for n, used in enumerate(self.used) if used
        )

    def from_allocations(self, amount, held, context=ANYWHERE):
        return amount

    def to_records(self):
        (total,), (used,) = self.totals, self.used
        return (InventoryRecord(LANE, total, 0, 1, None, 1, 10**6, total, used),)

    def describe(self):
        return json.dumps({"made of": "copper"})


@base.register
class RingResource(Resource):
    """Rings of switches."""

    WIRE_PREFIX = "test_located_plugin"
    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = RingAmount
    inventory_kind = RingInventory
    is_placed = True

    @on_class_or_instance
    def make_amount(this, /, lanes):  # noqa: N805
        return RingAmount(lanes=lanes)

    @on_class_or_instance
    def make_inventory(this, /, *totals):  # noqa: N805
        return RingInventory(totals=totals, used=[0] * len(totals))

    def inventory_from_records(self, records):
        return self.inventory_from_parts([records])

    def inventory_from_storage(self, records, description):
        totals, used = zip(*((one.total, one.used) for one in records), strict=True)
        return RingInventory(totals=totals, used=used)

    def inventory_from_parts(self, parts, room=None):
        records = [record for part in parts for record in part.records]
        return self.inventory_from_storage(records, None)

    def parse_amount(self, text):
        return RingAmount(lanes=int(text))

    def format_amount(self, amount):
        where = "" if amount.switch is None else f"@{amount.switch}"
        return f"{amount.lanes}{where}"

    def parse_inventory(self, text):
        raise NotImplementedError

    def format_inventory(self, inventory):
        return str(inventory.totals)


RING = RingResource("CUSTOM_RING")


@pytest.fixture(autouse=True)
def plugged_in(monkeypatch):
    """The kind, known as a plug-in's would be."""
    load = plugins.load
    offered = plugins.BUILT_IN[catalog.PLUGIN_NAMESPACE]
    monkeypatch.setitem(offered, RING.name, f"{__name__}:RING")
    monkeypatch.setattr(
        plugins, "load", lambda space, name: RING if name == RING.name else load(space, name)
    )
    catalog.forget()
    yield
    monkeypatch.undo()
    catalog.forget()


def host(*totals, name="host0"):
    """A host with a switch for each total.

    host0
    +- switch0      CUSTOM_RING: CUSTOM_LANE=4
    +- switch1      CUSTOM_RING: CUSTOM_LANE=8
    """
    root = Provider(name, "VCPU=8")
    root.add_parts(RING, RING.make_inventory(*totals))
    return root


def kept(*hosts):
    ledger = ro.connect("memory://")
    ledger.sync(*hosts)
    return ledger


def test_it_is_found_and_claimed():
    ledger = kept(host(4, 8), Provider("bare", "VCPU=8"))
    found = ledger.snapshot().candidates("VCPU=1,CUSTOM_RING=6")
    assert [str(one) for one in found] == ["VCPU=1 of host0, CUSTOM_LANE=6 of host0/switch1"]
    assert found[0].located == ro.Amounts({RING: RingAmount(lanes=6, switch=1)})
    ledger.claim("a", found)
    refused = ledger.snapshot().candidates("CUSTOM_RING=5")
    assert str(refused.explain()).splitlines() == [
        "bare: CUSTOM_RING requested 1, there is none",
        "host0: cell 0: CUSTOM_LANE requested 5, free 4 of 4; "
        "cell 1: CUSTOM_LANE requested 5, free 2 of 8 (a holds 6)",
    ]


def test_a_count_agrees_with_it_or_is_refused():
    snapshot = kept(host(4, 8)).snapshot()
    assert len(snapshot.candidates("CUSTOM_LANE=6,CUSTOM_RING=6")) == 1
    with raises_code("InvalidRequest"):
        snapshot.candidates("CUSTOM_LANE=7,CUSTOM_RING=6")


def fewer_lanes(resource, amount):
    """Yield fewer lanes, one by one, and what is no such amount."""

    def step(number):
        told = f"{amount.lanes - number} lanes"
        size = Fraction(number, amount.lanes)
        return RelaxationStep(told, size, lambda: amount.replace(lanes=amount.lanes - number))

    yield RelaxationLadder("amount", "lanes", amount.lanes - 1, step)
    yield listed_steps("policy", "bent", ("bent", lambda: amount.replace(lanes="many")))


def test_it_says_by_itself_how_less_is_asked(monkeypatch):
    snapshot = kept(host(4, 8)).snapshot()
    kinds = ["amount", "policy"]
    assert not snapshot.relaxations("VCPU=1,CUSTOM_RING=9", kinds=kinds)
    monkeypatch.setattr(RingResource, "relaxations", fewer_lanes)
    (found,) = snapshot.relaxations("CUSTOM_LANE=9,CUSTOM_RING=9", kinds=kinds)
    assert (found.description, found.cost) == ("8 lanes", Fraction(1, 9))
    assert str(found.request) == "CUSTOM_LANE=8,CUSTOM_RING=8"


def test_traits_narrow_it():
    root = host(8, 8)
    root.find("host0/switch1").update(traits=["CUSTOM_FAST"])
    snapshot = kept(root).snapshot()
    for options, switch in (
        ({"required": ["CUSTOM_FAST"]}, 1),
        ({"forbidden": ["CUSTOM_FAST"]}, 0),
    ):
        (found,) = snapshot.candidates(Request("CUSTOM_RING=6", **options))
        assert found.located[RING.name].switch == switch


def both(lanes, cpus):
    """A host with a switch and a cell, whose CPUs use lanes of the switch too."""
    root = host(lanes)
    inventory = NUMATopologyInventory([HostCell(0, dedicated=range(cpus))])
    (cell,) = root.add_parts("NUMA_TOPOLOGY", inventory)
    cell.update(shares=[Share(resource_class="PCPU", of="host0/switch0", of_class=LANE)])
    return root


def test_two_located_amounts_fit_together_or_not_at_all():
    request = "CUSTOM_RING=6,NUMA_TOPOLOGY=1:dedicated=3"
    (found,) = kept(both(9, 4)).snapshot().candidates(request)
    assert str(found) == "CUSTOM_LANE=6 of host0/switch0, PCPU=3 of host0/cell0".replace(
        "cell", "numa"
    )
    assert len(found.located) == 2


def test_two_located_amounts_that_do_not_fit_as_tried_are_left_undecided():
    """Each fits alone; whether another way of the first leaves room is not searched for."""
    found = kept(both(8, 4)).snapshot().candidates("CUSTOM_RING=6,NUMA_TOPOLOGY=1:dedicated=3")
    assert found.cut_short
    assert found.explain().undecided == ("host0",)
