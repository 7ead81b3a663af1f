"""A compute node of a record: the rules that hold for its cells and for its devices."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.testing.refusals import raises_code
from tests.host.placed import NUMA, PCI, PLACED, Kind, agent, consume, record

TOGETHER = pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])


@pytest.fixture(params=PLACED, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    placed: Kind = request.param
    return placed


# --- the column ---------------------------------------------------------------------------------


def test_a_column_is_made_of_an_inventory_and_follows_it(kind: Kind) -> None:
    node = ComputeNode(**{kind.column: kind.inventory()})
    assert node.inventories[kind.resource] == kind.inventory()
    text = getattr(node, kind.column)
    assert node.changes()[kind.column] == text and isinstance(text, str)
    for change in (lambda: setattr(node, kind.column, text), lambda: delattr(node, kind.column)):
        with pytest.raises(exceptions.FrozenValue, match=kind.column):
            change()
    with pytest.raises(exceptions.FieldNotSet, match=kind.column):
        getattr(ComputeNode(), kind.column)
    with raises_code("InvalidField", match=kind.column):
        ComputeNode(**{kind.column: json.loads(text)})


@pytest.mark.parametrize("form", [str, str.encode], ids=["text", "bytes"])
def test_a_column_that_was_changed_back_is_the_stored_one(
    kind: Kind, form: Callable[[str], object]
) -> None:
    raw = form(json.dumps(json.loads(getattr(record(), kind.column)), indent=3))
    node = record(**{kind.column: raw})
    before = node.get_inventories().get(ro.resource(kind.resource))
    assert node.to_row()[kind.column] is raw and node.changes() == {}
    node.update_inventories({kind.resource: kind.smaller()})
    changed = getattr(node, kind.column)
    assert changed != raw and type(changed) is type(raw)
    assert node.changes()[kind.column] == node.to_row()[kind.column] == changed
    node.update_inventories({kind.resource: before})
    assert node.changes() == {} and node.to_row()[kind.column] == raw


# --- consuming and releasing --------------------------------------------------------------------


@pytest.mark.law(3)
@pytest.mark.parametrize(
    "amounts", [ro.Amounts(a) for k in PLACED for a in k.requests.values()], ids=str
)
@TOGETHER
@pytest.mark.parametrize("released_together", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("bound", [True, False], ids=["of a ledger", "of a record"])
def test_release_restores_the_node(
    amounts: ro.Amounts, together: bool, released_together: bool, bound: bool
) -> None:
    with ro.connect("memory://") as ledger:
        node = agent()
        if bound:
            node.bind(ledger)
        before = copy.deepcopy(node)
        taken = consume(node, amounts, together)
        assert node != before and node.changes() != before.changes()
        consume(node, -taken, released_together)
        assert node == before and node.changes() == before.changes()
        assert node.inventories == before.inventories and node.to_row() == before.to_row()
        assert not node.pending and not node.pending_placed


@pytest.mark.law(2)
def test_amounts_are_consumed_together_or_not_at_all(kind: Kind) -> None:
    node = agent()
    for wrong in (
        {**kind.first, "VCPU": 99} if kind.resource == PCI else {**kind.first, "PCPU": 9},
        {"DISK_GB": 1, **kind.first},
    ):
        with pytest.raises(ro.ResourceObjectsError):
            node.inventories.consume(wrong)
        assert node == agent() and node.inventories == agent().inventories


def test_an_amount_of_another_host_changes_nothing(kind: Kind) -> None:
    node, foreign = agent(), kind.foreign()
    live = node.inventories[kind.resource]
    for wrong in (foreign, -foreign):
        with pytest.raises(exceptions.ForeignAmount):
            live.consume(wrong)
    with pytest.raises(ro.CapacityException, match="releases"):
        live.consume(-live.fit(kind.amount))
    with raises_code("WrongAmountKind"):
        live.consume(ro.IntegerAmount(1))
    with raises_code("WrongAmountKind"):
        live.fit(kind.amount, ro.IntegerAmount(1))
    assert node == agent()


# --- inventories --------------------------------------------------------------------------------


def test_get_inventories_returns_copies(kind: Kind) -> None:
    node = agent()
    inventories = node.get_inventories()
    assert [str(resource) for resource in inventories] == ["VCPU", "MEMORY_MB", "PCPU", NUMA, PCI]
    plain = inventories[ro.resource(kind.resource)]
    assert type(plain) is type(kind.inventory()) and plain == node.inventories[kind.resource]
    plain.consume(kind.amount)
    assert node == agent()


def test_an_update_by_the_own_inventories_changes_nothing(kind: Kind) -> None:
    node = agent()
    node.inventories.consume(kind.first)
    before = copy.deepcopy(node)
    assert node.update_inventories(node.get_inventories()) is False and node == before
    other = record()
    other.update_inventories(node.get_inventories())
    assert other.get_inventories() == node.get_inventories() and not other.pending_placed
    assert getattr(other, kind.column) == getattr(node, kind.column)


def test_an_update_by_none_removes_the_inventory(kind: Kind) -> None:
    for none in (None, type(kind.inventory())()):
        node = agent()
        live = node.inventories[kind.resource]
        assert node.update_inventories({kind.resource: none}) is True
        assert kind.resource not in node.inventories and getattr(node, kind.column) is None
        assert not live.can_provide(kind.amount)
        with pytest.raises(ro.CapacityException):
            live.consume(kind.amount)
        assert node.update_inventories({kind.resource: none}) is False
        assert ComputeNode().update_inventories({kind.resource: none}) is False


@pytest.mark.parametrize(("wrong", "named"), [row for k in PLACED for row in k.invalid])
@pytest.mark.parametrize("make", [record, agent])
def test_an_invalid_update_is_refused_and_changes_nothing(
    make: Callable[[], ComputeNode], wrong: dict[str, Any], named: str
) -> None:
    node, before = make(), make()
    inventories = node.inventories
    with pytest.raises(exceptions.InvalidInventory, match=named):
        node.update_inventories({"MEMORY_MB": ro.IntegerInventory(9000), **wrong})
    assert node == before and inventories == before.inventories


# --- copies and the wire ------------------------------------------------------------------------


def consumed(kind: Kind) -> ComputeNode:
    node = agent()
    node.inventories.consume(kind.first)
    node.inventories.consume("PCPU=1")
    return node


def over_the_wire(node: ComputeNode) -> ComputeNode:
    return ComputeNode.obj_from_primitive(json.loads(json.dumps(node.obj_to_primitive())))


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda node: pickle.loads(pickle.dumps(node)),
        lambda node: ComputeNode.obj_from_primitive(
            json.loads(json.dumps(node.obj_to_primitive()))
        ),
        lambda node: ComputeNode.obj_from_primitive(node.obj_to_primitive("1.0")),
    ],
    ids=["copy", "deepcopy", "pickle", "wire", "wire of a version"],
)
def test_a_copy_is_equal_and_independent(
    kind: Kind, copied: Callable[[ComputeNode], ComputeNode]
) -> None:
    node = consumed(kind)
    twin = copied(node)
    assert twin == node and twin.changes() == node.changes()
    assert twin.inventories == node.inventories
    assert (twin.pending, twin.pending_placed) == (node.pending, node.pending_placed)
    twin.inventories.consume(kind.further)
    assert node == consumed(kind)


def test_a_live_inventory_equals_its_copies(kind: Kind) -> None:
    live = agent().inventories[kind.resource]
    plain = ro.Inventories(agent().inventories)[kind.resource]
    back = type(plain).obj_from_primitive(live.obj_to_primitive())
    assert live == plain and plain == live and live != 5 and repr(live) == repr(plain)
    for twin in (plain, back, copy.copy(live), pickle.loads(pickle.dumps(live)), live.obj_clone()):
        assert type(twin) is type(kind.inventory()) and twin == live


def test_a_wire_form_that_contradicts_itself_is_refused(kind: Kind) -> None:
    primitive = consumed(kind).obj_to_primitive()
    data = primitive["versioned_object.data"]
    wrongs: list[dict[str, Any]] = [
        *({"row": {**data["row"], kind.column: value}} for value in ({kind.parts: 5}, [5])),
        {"inventories": 5},
        {"inventories": data["inventories"]["versioned_object.data"]},
        {"of_ledger": 1},
        {"saved": {}},
        {"given_ratios": {"VCPU": "0"}},
    ]
    for wrong in wrongs:
        broken = {**primitive, "versioned_object.data": {**data, **wrong}}
        with pytest.raises(ro.ResourceObjectsError):
            ComputeNode.obj_from_primitive(broken)


def test_a_node_read_from_a_node_is_independent(kind: Kind) -> None:
    first = consumed(kind)
    second = ComputeNode.read(first)
    assert second.inventories[kind.resource] == first.inventories[kind.resource]
    assert second.changes() == {} and not second.pending and not second.pending_placed
    assert getattr(second, kind.column) == getattr(first, kind.column)
    second.inventories.consume(kind.further)
    assert first == consumed(kind)
    assert ComputeNode.read(record()).inventories == record().inventories
