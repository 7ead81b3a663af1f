"""Amounts of every kind are asked for class by class, as the records they are kept as."""

from __future__ import annotations

import types

import pytest

from resource_objects import base
from resource_objects.providers import Provider
from resource_objects.providers.columns import UnitColumns
from resource_objects.requests import Request, RequestedCount, RequestGroup
from resource_objects.resources import Amount, Amounts, IntegerAmount
from resource_objects.resources.records import AmountRecord
from resource_objects.search import Snapshot
from resource_objects.testing.refusals import raises_code
from tests.support.columns import columns_of


@base.register
class BoxAmount(Amount):
    """An amount that is kept as whatever records it is given."""

    WIRE_PREFIX = "test_wanted"
    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {}
    is_zero = is_negative = False

    def __neg__(self):
        return self

    def to_records(self, resource_class):
        return RECORDS


RECORDS: tuple[AmountRecord, ...] = ()
ONE = BoxAmount()


@pytest.fixture
def ask(monkeypatch):
    """Ask for counts, and for a box that is kept as some records."""

    def ask(records, **counts):
        monkeypatch.setitem(globals(), "RECORDS", tuple(AmountRecord(*each) for each in records))
        amounts = [("CUSTOM_BOX", ONE)] if records is not None else []
        amounts += list(Amounts(counts).by_name())
        resources = types.SimpleNamespace(by_name=lambda: amounts)
        group = RequestGroup("VCPU=1")
        object.__setattr__(group, "_obj_resources", resources)
        return group

    return ask


def test_a_count_is_asked_as_it_is(ask):
    (one, *rest) = ask([("CUSTOM_BOX", 1)], VCPU=2).counts
    assert one == RequestedCount("CUSTOM_BOX", 1, ONE)
    assert rest == [RequestedCount("VCPU", 2, IntegerAmount(2))]


def test_an_amount_of_several_records_asks_for_each_class(ask):
    records = [("VCPU", 4, ("cpu0", "cpu1")), ("MEMORY_MB", 512), ("VCPU", 2, ("cpu8",))]
    assert ask(records).counts == (
        RequestedCount("VCPU", 6, None, ("cpu0", "cpu1", "cpu8")),
        RequestedCount("MEMORY_MB", 512),
    )


def test_what_locates_a_count_adds_nothing_to_it(ask):
    records = [("VCPU", 4, ("cpu0",)), ("MEMORY_MB", 512)]
    assert ask(records, VCPU=4, DISK_GB=9).counts == (
        RequestedCount("VCPU", 4, None, ("cpu0",)),
        RequestedCount("DISK_GB", 9, IntegerAmount(9)),
        RequestedCount("MEMORY_MB", 512),
    )


def test_a_count_that_does_not_agree_is_refused(ask):
    with raises_code("InvalidRequest", match="VCPU: got 5, expected 4, as in the placed amount"):
        _ = ask([("VCPU", 4), ("MEMORY_MB", 1)], VCPU=5).counts


@pytest.mark.parametrize("records", [[], [("VCPU", 0), ("DISK_GB", 1)], [("CUSTOM_BOX", -1)]])
def test_an_amount_that_counts_nothing_is_refused(ask, records):
    with raises_code("WrongAmountKind"):
        _ = ask(records).counts


def test_a_sum_beyond_64_bits_is_refused(ask):
    with raises_code("InvalidRequest"):
        _ = ask([("VCPU", 2**63 - 1), ("VCPU", 1)]).counts


def test_what_lies_over_a_tree_is_located_and_its_counts_are_not_wanted():
    request = Request("DISK_GB=9,PCPU=4,VCPU=1,NUMA_TOPOLOGY=2:dedicated=4:memory=64")
    assert [(one.resource_class, one.amount) for one in request.unnamed.counts] == [
        ("VCPU", 1),
        ("DISK_GB", 9),
    ]
    assert {name: str(amount) for name, amount in request.unnamed.placed.items()} == {
        "NUMA_TOPOLOGY": "2:dedicated=4:memory=64"
    }
    assert not Request("VCPU=1").unnamed.placed


# --- units ----------------------------------------------------------------------------------------


def search(ask, roots, records, taken=()):
    """Return what a box finds where some ``(provider, unit, consumer)`` are taken."""
    columns = columns_of(roots)
    numbers = dict(zip(columns.providers.name, columns.providers.provider_id, strict=True))
    rows = [(numbers[name], unit, "VGPU", who) for name, unit, who in taken]
    units = UnitColumns(*zip(*rows, strict=True)) if rows else UnitColumns()
    snapshot = Snapshot(type(columns)(columns.providers, columns.inventories, units=units))
    request = Request("VCPU=1")
    object.__setattr__(request, "_obj_groups", (ask(records),))
    return snapshot.candidates(request)


def cards(*sizes):
    host = Provider("host0")
    for number, size in enumerate(sizes):
        host.add(f"card{number}", f"VGPU={size},CUSTOM_Y={size}")
    return [host]


def test_each_record_is_given_and_carries_its_units(ask):
    records = [("VGPU", 2, ("u0", "u1")), ("CUSTOM_Y", 1)]
    (found,) = search(ask, cards(4, 4), records)
    assert str(found) == "VGPU=2,CUSTOM_Y=1 of card0"
    assert [one.units for one in found.allocations] == [("u0", "u1"), ()]
    assert [one.amount for one in found.allocations] == [IntegerAmount(2), IntegerAmount(1)]


def test_units_by_name_are_given_by_one_provider(ask):
    assert not search(ask, cards(2, 2), [("VGPU", 3, ("u0", "u1", "u2")), ("CUSTOM_Y", 1)])
    assert search(ask, cards(2, 2), [("VGPU", 3), ("CUSTOM_Y", 1)])


def test_a_provider_where_a_unit_is_taken_does_not_give_it(ask):
    records = [("VGPU", 2, ("u0", "u1")), ("CUSTOM_Y", 1)]
    taken = [("card0", "u1", "job-1"), ("card1", "u7", "job-2")]
    (found,) = search(ask, cards(4, 4), records, taken)
    assert found.by_provider().keys() == {"card1", "card0"}
    assert str(found) == "VGPU=2 of card1, CUSTOM_Y=1 of card0"


def test_units_that_are_taken_everywhere_are_named_with_who_has_them(ask):
    taken = [("card0", "u1", "job-1"), ("card1", "u0", "job-2"), ("card1", "u1", "job-3")]
    refused = search(ask, cards(4, 4), [("VGPU", 2, ("u0", "u1")), ("CUSTOM_Y", 1)], taken)
    assert not refused
    assert str(refused.explain()) == (
        "host0: card0: VGPU requested 2 with unit u1, which is allocated (job-1 holds 1); "
        "card1: VGPU requested 2 with unit u0, which is allocated (job-2 holds 1)"
    )
