"""A compute node as a view of a ledger: the rules for counts, cells and devices."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.machine import MIB, Core, Machine, NUMACell, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.host.tree import provider_tree
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.numa import numa
from resource_objects.resources.pci import PCIInventory, devices
from resource_objects.testing.refusals import raises_code
from tests.host.placed import (
    COUNTS,
    GPU,
    KINDS,
    NUMA,
    PCI,
    PF,
    PLACED,
    VF,
    Kind,
    agent,
    card,
    cells,
    consume,
    gpu,
    lab,
    record,
    states,
    sync,
)
from tests.host.takers import taken_by
from tests.host.views import OPERATION, claims, held, lose_connection, owners
from tests.support.lengths import some

CONSUMERS = pytest.mark.parametrize("consumer", [None, "job-1"])
DONE = pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
ALL_KINDS = pytest.mark.parametrize("kind", KINDS, ids=str)
PLACED_KINDS = pytest.mark.parametrize("kind", PLACED, ids=str)
Connect = Callable[[], ro.Ledger]


@pytest.fixture
def host(connect: Connect) -> ro.Ledger:
    """A ledger with host0, which has two cells and devices."""
    ledger = connect()
    sync(ledger, lab(), cells())
    return ledger


def load(ledger: ro.Ledger, consumer: str | None = None) -> ComputeNode:
    return ComputeNode.load(ledger, "host0", consumer)


def assert_nothing_pending(node: ComputeNode) -> None:
    assert not node.pending and not node.pending_placed and not node.save()


# --- saving -------------------------------------------------------------------------------------


def test_reading_writes_nothing(host: ro.Ledger) -> None:
    before = host.provider("host0")
    node = load(host)
    node.reload()
    assert not node.save() and host.provider("host0") == before


def test_a_discovered_machine_is_loaded_with_its_cells_and_devices(connect: Connect) -> None:
    machine = Machine(
        hostname="box",
        cpus=(0, 1, 2, 3),
        cores=tuple(Core(0, n, (n,)) for n in range(4)),
        memory_bytes=4096 * MIB,
        cells=tuple(
            NUMACell(n, (2 * n, 2 * n + 1), 2048 * MIB, distances=(10, 20)) for n in (0, 1)
        ),
        devices=(PCIDevice("0000:3b:00.0", "10de", "2330", "030200", numa_node=1),),
    )
    settings = HostSettings(dedicated="1,3", shared="0,2", device_rules=["10de:*=PGPU"])
    ledger = connect()
    ledger.sync(provider_tree(machine, settings, numa=True))
    node = ComputeNode.load(ledger, "box", "job-1")
    node.inventories.consume(
        {
            NUMA: numa(cells=2, dedicated=2, memory_mb=512),
            PCI: devices("PGPU", affinity="required"),
        }
    )
    row = node.to_row()
    assert [use.pinned for use in node.inventories[NUMA].usage] == [(1,), (3,)]
    node.save()
    assert node.to_row() == row == ComputeNode.load(ledger, "box").to_row()
    assert states(node) == {"0000:3b:00.0": "allocated"}


@pytest.mark.law(1)
@pytest.mark.law(3)
@pytest.mark.parametrize("amounts", [a for k in KINDS for a in k.requests.values()], ids=str)
@CONSUMERS
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_the_view_before_a_save_is_the_view_after(
    host: ro.Ledger, amounts: ro.Amounts, consumer: str | None, together: bool
) -> None:
    node = load(host, consumer)
    empty, provider = node.to_row(), host.provider("host0")
    taken = consume(node, amounts, together)
    before, inventories = node.to_row(), node.get_inventories()
    assert not claims(host)
    result = node.save()
    assert result.claim is not None and result.definition is None
    assert result.claim.allocations == claims(host)[node.consumer] and len(claims(host)) == 1
    assert node.to_row() == before == load(host).to_row()
    assert node.inventories == load(host).inventories
    saved = node.get_inventories()
    assert saved.pop(ro.resource(PCI)).free == inventories.pop(ro.resource(PCI)).free
    assert saved == inventories
    assert_nothing_pending(node)
    node.inventories.consume(-taken)
    node.save()
    assert node.to_row() == empty and held(host, node.consumer) == "nothing"
    assert host.provider("host0") == provider and not claims(host)


@PLACED_KINDS
def test_a_claim_has_the_request_of_its_consumer(host: ro.Ledger, kind: Kind) -> None:
    node = load(host, "job-1")
    taken = node.inventories.consume(kind.first)
    node.save()
    request = host.get_claim("job-1").request
    assert request is not None
    assert str(request.resources[kind.resource].unassigned()) == str(kind.amount)
    assigned = host.assigned_amounts("job-1")["host0"][kind.resource]
    assert str(assigned) == str(taken[kind.resource])


@ALL_KINDS
@CONSUMERS
def test_amounts_released_before_a_save_write_nothing(
    host: ro.Ledger, kind: Kind, consumer: str | None
) -> None:
    node = load(host, consumer)
    node.inventories.consume(-node.inventories.consume(kind.first))
    assert node.changes() == {} and not claims(host)
    assert_nothing_pending(node)


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.law(2)
@ALL_KINDS
@CONSUMERS
@pytest.mark.parametrize("total", [None, 5], ids=["usage", "usage and definition"])
def test_a_refused_save_changes_neither_ledger_nor_view(
    connect: Connect, host: ro.Ledger, kind: Kind, consumer: str | None, total: int | None
) -> None:
    node = load(host, consumer)
    taken = node.inventories.consume(kind.first)
    node.inventories.consume("VCPU=1,MEMORY_MB=64")
    connect().claim("other", {"host0": kind.conflict(taken)})
    if total is not None and kind is not COUNTS:
        node.inventories["VCPU"].total = total
    before = host.provider("host0"), claims(host), copy.deepcopy(node)
    for refused in (node.check_save, node.save):
        with pytest.raises(ro.CapacityException, match="other"):
            refused()
        assert (host.provider("host0"), claims(host), node) == before
    host.release("other")
    row = node.to_row()
    assert node.save() and row["vcpus_used"] == node.vcpus_used
    assert list(claims(host)) == [node.consumer]
    assert node.to_row() == load(host).to_row()


@pytest.mark.law(2)
@ALL_KINDS
def test_counts_are_refused_with_placed_amounts(
    connect: Connect, host: ro.Ledger, kind: Kind
) -> None:
    node = load(host)
    node.inventories.consume(kind.first)
    node.inventories.consume("VCPU=4")
    connect().claim("job-1", {"host0": "VCPU=4"})
    connect().claim("job-2", {"host0": "VCPU=4"})
    view = copy.deepcopy(node)
    with pytest.raises(ro.CapacityException, match="VCPU"):
        node.save()
    assert node == view and sorted(claims(host)) == ["job-1", "job-2"]


@ALL_KINDS
def test_allocations_of_other_consumers_are_never_released(host: ro.Ledger, kind: Kind) -> None:
    owner = load(host, "job-1")
    taken = owner.inventories.consume(kind.first)
    owner.save()
    before = claims(host)
    for consumer in (None, "job-2"):
        node = load(host, consumer)
        node.inventories.consume(-taken)
        view = copy.deepcopy(node)
        with pytest.raises(ro.ResourceObjectsError):
            node.save()
        assert node == view and claims(host) == before


@PLACED_KINDS
def test_one_of_several_views_of_the_same_units_is_saved(
    connect: Connect, host: ro.Ledger, kind: Kind
) -> None:
    views = [load(connect(), name) for name in (None, "job-1", "job-2")]
    taken = views[0].inventories.consume(kind.first)
    for view in views[1:]:
        view.inventories.consume(taken)
    assert views[0].save()
    for view in views[1:]:
        with pytest.raises(ro.CapacityException, match="host0/unattributed"):
            view.save()
        view.reload()
        assert not view.inventories.can_provide(taken)
    assert list(claims(host)) == ["host0/unattributed"]


# --- moving -------------------------------------------------------------------------------------

#: Amounts before and after, and the cells of each.
MOVES: dict[str, tuple[str, Any, Any, Any]] = {
    "to another CPU": (NUMA, numa(dedicated=1), numa(dedicated=1), ([0], [0])),
    "within a cell": (NUMA, numa(dedicated=1, memory_mb=64), numa(dedicated=2), ([0], [0])),
    "to another cell": (NUMA, numa(dedicated=1, memory_mb=64), numa(dedicated=2), ([0], [1])),
    "to another device": (PCI, GPU, GPU, None),
    "to another piece of it": (PCI, VF, VF, None),
    "to another type": (PCI, GPU, VF, None),
    "from a piece to all of it": (PCI, VF, devices("PGPU", 2), None),
}


def moving(host: ro.Ledger, consumer: str | None, name: str) -> tuple[ComputeNode, ro.Amounts]:
    """Return a view that releases saved units and consumes others, and these."""
    resource, first, second, within = MOVES[name]
    node = load(host, consumer)
    contexts = [Context(allowed=cell) for cell in within] if within else [ANYWHERE] * 2
    taken = node.inventories.consume(
        {resource: node.inventories[resource].fit(first, context=contexts[0])}
    )
    node.save()
    moved = node.inventories[resource].fit(second, context=contexts[1])
    node.inventories.consume(-taken)
    return node, node.inventories.consume({resource: moved})


@pytest.mark.law(2)
@pytest.mark.parametrize("name", MOVES)
@CONSUMERS
def test_units_are_moved_by_one_write(
    host: ro.Ledger, name: str, consumer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, moved = moving(host, consumer, name)
    row, again = node.to_row(), copy.deepcopy(node)
    commit, writes = host.backend.commit, []
    monkeypatch.setattr(host.backend, "commit", lambda *args: writes.append(args) or commit(*args))
    node.save(operation=OPERATION)
    assert len(writes) == 1
    assert node.to_row() == row == load(host).to_row()
    resource = MOVES[name][0]
    units = {unit for placed in moved[resource].placed for unit in getattr(placed, "units", ())}
    if resource == PCI:
        assert owners(host) == dict.fromkeys(units, node.consumer)
    if consumer is not None:
        assigned = host.assigned_amounts(consumer)["host0"][resource]
        assert str(assigned) == str(moved[resource])
        request = host.get_claim(consumer).request
        assert request is not None
        assert request.resources[resource].unassigned() == moved[resource].unassigned()
    again.save(operation=OPERATION)  # as another process that repeats the write
    assert again.to_row() == row == load(host).to_row()
    assert_nothing_pending(node)


@pytest.mark.law(2)
@pytest.mark.parametrize("name", MOVES)
@CONSUMERS
def test_a_move_that_does_not_fit_releases_nothing(
    connect: Connect, host: ro.Ledger, name: str, consumer: str | None
) -> None:
    node, moved = moving(host, consumer, name)
    connect().claim("other", {"host0": moved})
    view, before, allocations = copy.deepcopy(node), host.provider("host0"), claims(host)
    with pytest.raises(ro.CapacityException, match="other"):
        node.save()
    assert node == view and host.provider("host0") == before and claims(host) == allocations


# --- lost connections ---------------------------------------------------------------------------


@ALL_KINDS
@CONSUMERS
@DONE
def test_a_save_repeated_after_a_lost_connection_is_done_once(
    host: ro.Ledger, monkeypatch: pytest.MonkeyPatch, kind: Kind, consumer: str | None, done: bool
) -> None:
    node = load(host, consumer)
    node.inventories.consume(kind.first)
    pending = node.pending, node.pending_placed
    lose_connection(monkeypatch, host, done=done)
    with raises_code("LostConnection"):
        node.save()
    assert (node.pending, node.pending_placed) == pending and bool(claims(host)) is done
    if consumer is None or kind is COUNTS:
        node.inventories.consume(kind.further)
    before = node.to_row()
    assert node.save() and node.to_row() == before == load(host).to_row()
    assert list(claims(host)) == [node.consumer]
    assert_nothing_pending(node)


@pytest.mark.parametrize("name", MOVES)
@DONE
def test_a_move_repeated_after_a_lost_connection_is_done_once(
    host: ro.Ledger, monkeypatch: pytest.MonkeyPatch, name: str, done: bool
) -> None:
    node, moved = moving(host, "job-1", name)
    row = node.to_row()
    lose_connection(monkeypatch, host, done=done)
    with raises_code("LostConnection"):
        node.save()
    assert node.save() and node.to_row() == row == load(host).to_row()
    resource = MOVES[name][0]
    assert str(host.assigned_amounts("job-1")["host0"][resource]) == str(moved[resource])


# --- definitions --------------------------------------------------------------------------------


@PLACED_KINDS
def test_units_of_a_stored_host_are_those_of_the_ledger(host: ro.Ledger, kind: Kind) -> None:
    before = host.provider("host0")
    node = record(hypervisor_hostname="host0")
    node.update_inventories({kind.resource: kind.smaller()})
    node.bind(host)
    live = node.inventories[kind.resource]
    stored = getattr(kind.inventory(), kind.parts)
    assert getattr(live, kind.parts) == stored and not node.save()
    assert node.inventories == load(host).inventories
    after = host.provider("host0")
    assert after.inventories == before.inventories and after.children == before.children
    refused = pytest.raises(exceptions.InvalidInventory, match="a sync of the host changes them")
    for other in (kind.smaller(), None):
        with refused:
            node.update_inventories({kind.resource: other})
    live.update(**{kind.parts: getattr(kind.smaller(), kind.parts), "usage": ()})
    for check in (node.check, node.check_save, node.save):
        with refused:
            check()
    node.reload()
    assert getattr(live, kind.parts) == stored
    assert node.update_inventories(node.get_inventories()) is False


@PLACED_KINDS
def test_a_stored_host_without_such_units_has_none(ledger: ro.Ledger, kind: Kind) -> None:
    node = record(hypervisor_hostname="host0")
    text = getattr(node, kind.column)
    if kind.resource == PCI:
        node.update_inventories({PCI: lab()})
    node.bind(ledger)
    for _ in range(2):
        assert kind.resource not in node.inventories and "PCPU" not in node.inventories
        assert getattr(node, kind.column) == text and kind.column not in node.changes()
        node.inventories.consume("VCPU=1")
        node.save()
    with pytest.raises(exceptions.InvalidInventory, match="a sync of the host adds them"):
        node.update_inventories({kind.resource: kind.inventory()})
    placed = agent(hypervisor_hostname="host0")
    placed.inventories.consume({kind.resource: kind.amount})
    view = copy.deepcopy(placed)
    with pytest.raises(ro.CapacityException, match=f"host0: .*{kind.resource}"):
        placed.bind(ledger)
    assert placed == view


@PLACED_KINDS
def test_units_that_a_sync_adds_and_removes_are_reloaded(
    connect: Connect, ledger: ro.Ledger, kind: Kind
) -> None:
    node = ComputeNode.load(ledger, "host0")
    tree = connect().provider("host0")
    tree.add_parts(kind.resource, kind.inventory())
    ledger.sync(tree)
    node.reload()
    live = node.inventories[kind.resource]
    assert getattr(live, kind.parts) == getattr(kind.inventory(), kind.parts)
    assert getattr(node, kind.column) and node.inventories["MEMORY_MB"].reserved == 512
    node.obj_reset_changes()  # it was written to the record
    tree = ledger.provider("host0")
    tree.update(children=[child for child in tree.children if child.name == "host0/gpu0"])
    ledger.sync(tree)
    node.reload()
    assert kind.resource not in node.inventories and node.changes()[kind.column] is None
    assert not live.can_provide(kind.amount)


@PLACED_KINDS
def test_a_pickled_view_is_equal_and_has_no_ledger(host: ro.Ledger, kind: Kind) -> None:
    node = load(host, "job-1")
    node.inventories.consume(kind.first)
    for twin in (
        pickle.loads(pickle.dumps(node)),
        ComputeNode.obj_from_primitive(node.obj_to_primitive()),
    ):
        assert twin == node and twin.to_row() == node.to_row()
        assert twin.inventories == node.inventories
        with raises_code("NotBound"):
            twin.save()
        with pytest.raises(exceptions.InvalidInventory, match="a sync of the host changes them"):
            twin.update_inventories({kind.resource: None})


# --- many at once -------------------------------------------------------------------------------


@pytest.mark.law(4)
@pytest.mark.parametrize(
    ("request_text", "consumers"),
    [
        ("VCPU=1", (None, None, None)),
        ("VCPU=1", ("a", "b", None)),
        ("NUMA_TOPOLOGY=1:dedicated=1", (None, "job-1", None)),
        ("DEVICES=8086.154c", (None, "job-1", None)),
    ],
)
def test_processes_take_each_unit_once(
    sqlite_url: Callable[[str], str], request_text: str, consumers: tuple[str | None, ...]
) -> None:
    url, network_card = sqlite_url("lab.db"), PCIInventory(card(parts=8))
    with ro.connect(url) as ledger:
        sync(ledger, network_card, cells())
    counted = request_text == "VCPU=1"
    taken = taken_by(url, request_text, consumers, **({} if counted else {"most_named": 1}))
    assert [len(amounts) for amounts in taken] and sum(map(len, taken)) == 8
    expected: dict[str, int] = {}
    for consumer, amounts in zip(consumers, taken, strict=True):
        if amounts:
            name = consumer or "host0/unattributed"
            expected[name] = expected.get(name, 0) + len(amounts)
    with ro.connect(url) as ledger:
        if counted:
            assert dict(ledger.usage()["host0", "VCPU"].holders) == expected
            return
        units = owners(ledger)
    assert {name: [*units.values()].count(name) for name in expected} == expected
    if PCI in request_text:
        assert set(units) == {device.address for device in network_card.devices if device.is_part}
        addresses = [a[PCI].addresses[0] for amounts in taken for a in amounts]
        assert sorted(addresses) == sorted(units)
    else:
        cpus = sorted(int(a[NUMA].cpuset) for amounts in taken for a in amounts)
        assert cpus == [4, 5, 6, 7, 12, 13, 14, 15]


@pytest.mark.law(1)
@pytest.mark.parametrize("seed", some(range(12), 4))
def test_views_and_claims_in_any_order_have_the_same_usage(seed: int) -> None:
    """A view is the same before and after a save, and the ledger has the consumed units."""
    chance = random.Random(seed)
    draw = random_topology if seed % 2 else random_devices
    with ro.connect("memory://") as ledger:
        sync(ledger, PCIInventory([gpu("3b", 0), gpu("5e", 1), *card(1, parts=4)]), cells())
        view, stored = load(ledger), list[ro.Amounts]()
        empty = view.to_row()
        for step in range(40):
            if chance.random() < 0.2:
                try:
                    ledger.claim(f"job-{step}", {"host0": draw(chance)})
                except ro.CapacityException:
                    continue
                view.reload()
                assert view.inventories[PCI] == ledger.inventories("host0")[PCI]
                ledger.release(f"job-{step}")
                view.reload()
                continue
            for _ in range(chance.randint(1, 3)):
                together = chance.random() < 0.5
                if stored and chance.random() < 0.4:
                    consume(view, -stored.pop(chance.randrange(len(stored))), together)
                    continue
                try:
                    stored.append(take(view, draw(chance), together))
                except ro.CapacityException:
                    continue
            before = view.to_row(), view.inventories[NUMA], view.inventories["VCPU"].used
            view.save()
            after = view.to_row(), view.inventories[NUMA], view.inventories["VCPU"].used
            assert after == before
            placed = [p for amounts in stored if PCI in amounts for p in amounts[PCI].placed]
            assert set(owners(ledger)).issuperset(unit for p in placed for unit in p.units)
        for amounts in stored:
            view.inventories.consume(-amounts)
        view.save()
        assert load(ledger).to_row() == empty == view.to_row() and not claims(ledger)


def take(view: ComputeNode, amounts: ro.Amounts, together: bool) -> ro.Amounts:
    """Consume amounts; a topology alone implies its counts."""
    if together or PCI in amounts:
        return view.inventories.consume(amounts)
    return ro.Amounts({NUMA: view.inventories[NUMA].consume(amounts[NUMA])})


def random_topology(chance: random.Random) -> ro.Amounts:
    """Return a topology that often fits."""
    request: dict[str, Any] = {"cells": chance.choice([1, 1, 2])}
    kind = chance.choice(["shared", "dedicated", "memory_mb"])
    request[kind] = request["cells"] * chance.choice([1, 1, 2])
    if kind == "dedicated":
        request["thread_policy"] = chance.choice([None, "isolate", "require", "prefer"])
        request["emulator_policy"] = chance.choice([None, "isolate"])
    else:
        request["memory_mb"] = request["cells"] * chance.choice([2, 64, 1024])
        request["page_size"] = chance.choice(["", "any", "large", "2MB", "small"])
    return ro.Amounts({NUMA: numa(**request)})


def random_devices(chance: random.Random) -> ro.Amounts:
    """Return devices that are often free, sometimes near to cells."""
    two = devices("PGPU", 2), devices("8086:154c", 2)
    request = chance.choice([GPU, VF, PF, *two, VF + GPU])
    affinity = chance.choice(["legacy", "preferred", "required"])
    amounts: dict[str, ro.Amount] = {
        PCI: request.replace(
            requests=[part.replace(affinity=affinity) for part in request.requests]
        )
    }
    if chance.random() < 0.5:
        amounts[NUMA] = numa(dedicated=chance.choice([1, 2]))
    return ro.Amounts(amounts).with_implied_counts()
