"""The devices of a compute node as a view of a ledger: what it reads, what a save writes."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.settings import HostSettings
from resource_objects.interop.nova.pci_devices import (
    DevicePool,
    device_pools,
    dump_pci_pools,
    load_pci_pools,
)
from resource_objects.resources.numa import NUMATopologyInventory, numa
from resource_objects.resources.pci import DeviceUse, PCIAmount, PCIInventory, devices
from resource_objects.testing.refusals import raises_code
from tests.host.takers import taken_by
from tests.host.test_compute_node_pci import (
    NUMA,
    PCI,
    WHOLE,
    addresses,
    card,
    cells,
    gpu,
    lab,
    live_of,
    located,
    of_record,
    outcome,
    pools_of,
    states,
)
from tests.host.views import held, pending_devices
from tests.support.lengths import examples, some
from tests.support.pci_strategies import JointQuestion, joint_questions

OPERATION = "0b6f7c1e-58a5-4a5b-8c39-3d7f3f0f5f11"
PF = devices("8086:1572", types=["type-PF"])
VF = devices("8086:154c")


def sync(ledger: ro.Ledger, inventory: PCIInventory, *, numa: bool = False) -> None:
    """Make host0 with such devices."""
    root = ro.Provider("host0", "VCPU=8:allocation_ratio=2,PCPU=8,MEMORY_MB=8192")
    if numa:
        root.add_parts(NUMA, cells())
    root.add_parts(PCI, inventory)
    ledger.sync(root)


@pytest.fixture
def host(connect: Callable[[], ro.Ledger]) -> ro.Ledger:
    """A ledger with host0, which has devices."""
    made = connect()
    sync(made, lab())
    return made


@pytest.fixture
def near(connect: Callable[[], ro.Ledger]) -> ro.Ledger:
    """A ledger with host0, which has two cells, and devices next to one of them."""
    made = connect()
    sync(made, PCIInventory([gpu("5e", 1), gpu("5f", 1)]), numa=True)
    return made


def take(node: ComputeNode, amount: PCIAmount) -> PCIAmount:
    """Take devices; return them assigned."""
    found = node.inventories.consume({PCI: amount})[PCI]
    assert isinstance(found, PCIAmount)
    return found


def give_back(node: ComputeNode, taken: PCIAmount) -> None:
    node.inventories.consume({PCI: -taken})


def used(ledger: ro.Ledger) -> dict[str, int]:
    """Return what is used of which class, over the tree, by allocations of it."""
    found: dict[str, int] = {}
    for use in ledger.usage():
        found[use.resource_class] = found.get(use.resource_class, 0) + use.used
    return {name: count for name, count in found.items() if count}


def owners(ledger: ro.Ledger) -> dict[str, str]:
    """Return who has which unit."""
    consumers = {one for use in ledger.usage() for one, _ in use.holders}
    return {
        unit: name
        for name in consumers
        for one in ledger.get_claim(name).allocations
        for unit in one.units
    }


# --- loading ------------------------------------------------------------------------------------


@pytest.mark.law(1)
def test_load_of_a_host_with_devices_gives_the_view(host: ro.Ledger) -> None:
    host.claim("job-1", {"host0": {PCI: devices("PGPU")}})
    host.claim("job-2", {"host0": {PCI: VF}})
    node = ComputeNode.load(host, "host0")
    assert node.inventories[PCI] == host.inventories("host0")[PCI]
    assert states(node) == {
        "0000:3b:00.0": "allocated",
        "0000:5e:00.0": "available",
        WHOLE: "unavailable",
        "0000:81:02.0": "allocated",
        "0000:81:02.1": "available",
    }
    assert pools_of(node) == {("2330", 1): 1, ("154c", None): 1}
    assert node.changes() == {} and not pending_devices(node)


def test_reading_writes_nothing(host: ro.Ledger) -> None:
    before = host.provider("host0")
    node = ComputeNode.load(host, "host0")
    node.reload()
    assert not node.save() and host.provider("host0") == before


def test_a_machine_that_was_discovered_is_loaded_with_its_devices(
    connect: Callable[[], ro.Ledger],
) -> None:
    from resource_objects.host.machine import MIB, Core, Machine, PCIDevice
    from resource_objects.host.tree import provider_tree

    machine = Machine(
        hostname="box",
        cpus=(0, 1),
        cores=(Core(0, 0, (0,)), Core(0, 1, (1,))),
        memory_bytes=4096 * MIB,
        devices=(PCIDevice("0000:3b:00.0", "10de", "2330", "030200", numa_node=0),),
    )
    ledger = connect()
    ledger.sync(provider_tree(machine, HostSettings(device_rules=["10de:*=PGPU"])))
    node = ComputeNode.load(ledger, "box", "job-1")
    take(node, devices("PGPU", affinity="required"))
    node.save()
    assert states(node) == {"0000:3b:00.0": "allocated"}
    assert node.to_row() == ComputeNode.load(ledger, "box").to_row()


# --- saving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_the_loop_of_the_specification_is_one_guarded_claim(
    host: ro.Ledger, consumer: str | None
) -> None:
    compute_node = ComputeNode.load(host, "host0", consumer)
    request_spec = ro.Request({"VCPU": 2, PCI: devices("PGPU", 2) + PF})
    for resource, amount in request_spec.resources.items():
        if compute_node.inventories[resource].can_provide(amount):
            compute_node.inventories[resource].consume(amount)
    assert held(host, compute_node.consumer) == "nothing"
    before = compute_node.to_row()
    result = compute_node.save()
    assert result.claim is not None and result.definition is None
    assert {unit for one in result.claim.allocations for unit in one.units} == set(
        states(compute_node)
    )
    assert set(owners(host).values()) == {compute_node.consumer}
    assert used(host)["VCPU"] == 2 and used(host)["PGPU"] == 2
    assert compute_node.to_row() == before and not pending_devices(compute_node)
    assert not compute_node.save()


ASKED = {
    "one": devices("PGPU"),
    "two": devices("PGPU", 2),
    "whole": PF,
    "pieces": devices("8086:154c", 2),
    "mixed": devices("PGPU") + VF,
    "any of": devices(["PGPU", "8086:154c"], 3),
}


@pytest.mark.law(1)
@pytest.mark.law(3)
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("consumer", [None, "job-1"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_the_view_before_a_save_is_the_view_after(
    host: ro.Ledger, name: str, consumer: str | None, together: bool
) -> None:
    node = ComputeNode.load(host, "host0", consumer)
    empty, nothing = node.to_row(), host.provider("host0")
    amounts = ro.Amounts({PCI: ASKED[name], "VCPU": 1})
    taken = (
        node.inventories.consume(amounts)
        if together
        else ro.Amounts({r: node.inventories[r].consume(a) for r, a in amounts.items()})
    )
    assert {states(node)[address] for address in addresses(taken)} == {"claimed"}
    before, pools = node.to_row(), device_pools(live_of(node))
    node.save()
    assert node.to_row() == before == ComputeNode.load(host, "host0").to_row()
    assert device_pools(live_of(node)) == pools
    assert {states(node)[address] for address in addresses(taken)} == {"allocated"}
    assert node.inventories == ComputeNode.load(host, "host0").inventories
    node.inventories.consume(-taken)
    node.save()
    assert node.to_row() == empty and held(host, node.consumer) == "nothing"
    assert host.provider("host0") == nothing and not used(host) and not owners(host)


def test_the_ledger_knows_what_a_consumer_asked_for(host: ro.Ledger) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    taken = take(node, devices("PGPU", affinity="preferred", alias="gpu"))
    node.save()
    request = host.get_claim("job-1").request
    assert request is not None and request.resources[PCI].unassigned() == taken.unassigned()
    assert host.assigned_amounts("job-1") == {"host0": ro.Amounts({PCI: taken})}


def test_devices_taken_one_by_one_are_one_claim(host: ro.Ledger) -> None:
    for consumer in (None, "job-1"):
        node = ComputeNode.load(host, "host0", consumer)
        first, second = take(node, devices("PGPU")), take(node, devices("PGPU"))
        assert pending_devices(node) == (first, second)
        before = node.to_row()
        claim = node.save().claim
        assert claim is not None and node.to_row() == before
        assert owners(host) == dict.fromkeys(["0000:3b:00.0", "0000:5e:00.0"], node.consumer)
        for taken in (first, second):
            give_back(node, taken)
        node.save()
        assert not owners(host)


def test_a_consumer_with_a_name_is_told_one_amount(host: ro.Ledger) -> None:
    """What it took bit by bit the ledger can tell again, and claim again elsewhere."""
    node = ComputeNode.load(host, "host0", "job-1")
    take(node, devices("PGPU", alias="a"))
    take(node, VF)
    node.save()
    told = host.assigned_amounts("job-1")["host0"][PCI]
    assert isinstance(told, PCIAmount)
    assert told.of("a") == ("0000:3b:00.0",) and told.count == 2
    view = copy.deepcopy(node)
    take(node, devices("PGPU"))
    with raises_code("InvalidAmount", match="job-1 has one already"):
        node.save()
    node.reload()
    assert node == view


def test_what_is_taken_and_given_back_is_nothing_to_save(host: ro.Ledger) -> None:
    for consumer in (None, "job-1"):
        node = ComputeNode.load(host, "host0", consumer)
        give_back(node, take(node, devices("PGPU", 2)))
        assert node.changes() == {} and not pending_devices(node) and not node.save()
        taken = take(node, devices("PGPU"))
        node.save()
        give_back(node, taken)
        again = take(node, devices("PGPU", alias="again"))
        assert again.addresses == taken.addresses and pending_devices(node)
        if consumer is None:  # it is the same device, and nobody is told what it was asked for
            assert not node.save() and not pending_devices(node)
        else:
            node.save()
            assert pending_devices(node) == ()
            assert host.assigned_amounts("job-1")["host0"] == ro.Amounts({PCI: again})
        assert owners(host) == {"0000:3b:00.0": node.consumer}
        give_back(node, again)
        node.save()


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.law(2)
@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_refused_nothing_changed_in_the_ledger_nor_in_the_view(
    connect: Callable[[], ro.Ledger], host: ro.Ledger, consumer: str | None
) -> None:
    node = ComputeNode.load(host, "host0", consumer)
    taken = take(node, devices("PGPU"))
    node.inventories.consume("VCPU=1")
    connect().claim("other", {"host0": {PCI: taken}})
    before, view = host.provider("host0"), copy.deepcopy(node)
    with pytest.raises(ro.CapacityException, match=r"0000:3b:00\.0.*other"):
        node.save()
    assert host.provider("host0") == before and node == view
    assert held(host, node.consumer) == "nothing" and node.vcpus_used == 1
    node.reload()
    assert not pending_devices(node)
    assert take(node, devices("PGPU")).addresses == ("0000:5e:00.0",)
    assert node.save() and used(host)["PGPU"] == 2


@pytest.mark.law(2)
@pytest.mark.parametrize("mine", [PF, VF], ids=["whole", "piece"])
def test_what_somebody_took_of_the_same_card_refuses(
    connect: Callable[[], ro.Ledger], host: ro.Ledger, mine: PCIAmount
) -> None:
    """A physical function and those split off it exclude each other, whoever was first."""
    theirs = VF if mine is PF else PF
    for consumer in (None, "job-1"):
        node = ComputeNode.load(host, "host0", consumer)
        take(node, mine)
        connect().claim("other", {"host0": {PCI: theirs}})
        view = copy.deepcopy(node)
        with pytest.raises(ro.CapacityException):
            node.save()
        assert node == view and set(owners(host).values()) == {"other"}
        host.release("other")
        assert node.save()
        host.release(node.consumer)


@pytest.mark.law(2)
def test_counts_and_devices_are_refused_together(
    connect: Callable[[], ro.Ledger], host: ro.Ledger
) -> None:
    node = ComputeNode.load(host, "host0")
    take(node, devices("PGPU"))
    node.inventories.consume("VCPU=8")
    connect().claim("job-1", {"host0": "VCPU=8"})
    connect().claim("job-2", {"host0": "VCPU=1"})
    view = copy.deepcopy(node)
    with pytest.raises(ro.CapacityException, match="VCPU"):
        node.save()
    assert node == view and not owners(host)


def test_somebody_else_s_device_is_never_given_back(host: ro.Ledger) -> None:
    owner = ComputeNode.load(host, "host0", "job-1")
    taken = take(owner, devices("PGPU"))
    owner.save()
    for consumer in (None, "job-2"):
        node = ComputeNode.load(host, "host0", consumer)
        give_back(node, taken)
        view = copy.deepcopy(node)
        with pytest.raises(ro.ResourceObjectsError):
            node.save()
        assert node == view and owners(host) == {"0000:3b:00.0": "job-1"}


def test_two_views_race_for_one_device(connect: Callable[[], ro.Ledger], host: ro.Ledger) -> None:
    views = [ComputeNode.load(connect(), "host0", name) for name in (None, "job-1", "job-2")]
    asked = devices("PGPU", address="0000:3b:00.0")
    for view in views:
        take(view, asked)
    assert views[0].save()
    for view in views[1:]:
        with pytest.raises(ro.CapacityException, match="host0/unattributed"):
            view.save()
        view.reload()
        assert not view.inventories.can_provide({PCI: asked})
    assert owners(host) == {"0000:3b:00.0": "host0/unattributed"}


# --- moving -------------------------------------------------------------------------------------


def moving(
    host: ro.Ledger, consumer: str | None, before: PCIAmount, after: PCIAmount
) -> ComputeNode:
    """Return a view that gives back what was saved, and takes something else."""
    node = ComputeNode.load(host, "host0", consumer)
    first = take(node, before)
    node.save()
    second = node.inventories[PCI].fit(after)
    assert isinstance(second, PCIAmount)
    give_back(node, first)
    assert node.inventories.consume({PCI: second})[PCI] == second
    return node


MOVES = {
    "to another device": (devices("PGPU"), devices("PGPU")),
    "to another piece of it": (VF, VF),
    "to another kind": (devices("PGPU"), VF),
    "from a piece to all of it": (VF, devices("PGPU", 2)),
}


@pytest.mark.law(2)
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_a_device_is_moved_within_one_save(
    host: ro.Ledger, name: str, consumer: str | None
) -> None:
    node = moving(host, consumer, *MOVES[name])
    (wanted,) = [one for one in pending_devices(node) if not one.is_negative]
    row = node.to_row()
    again = copy.deepcopy(node)
    node.save(operation=OPERATION)
    assert node.to_row() == row and not pending_devices(node)
    assert set(owners(host)) == {unit for one in wanted.placed for unit in one.units}
    assert set(owners(host).values()) == {node.consumer}
    if consumer is not None:
        assert host.assigned_amounts(consumer) == {"host0": ro.Amounts({PCI: wanted})}
    again.save(operation=OPERATION)  # as another process would, that does not know
    assert again.to_row() == row and node.to_row() == ComputeNode.load(host, "host0").to_row()


@pytest.mark.law(2)
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_a_move_that_does_not_fit_gives_nothing_back(
    connect: Callable[[], ro.Ledger], host: ro.Ledger, name: str, consumer: str | None
) -> None:
    node = moving(host, consumer, *MOVES[name])
    (wanted,) = [one for one in pending_devices(node) if not one.is_negative]
    connect().claim("other", {"host0": {PCI: wanted}})
    kept, before, has = copy.deepcopy(node), host.provider("host0"), owners(host)
    with pytest.raises(ro.CapacityException, match="other"):
        node.save()
    assert node == kept and host.provider("host0") == before and owners(host) == has


def test_a_device_for_another_of_its_kind_is_one_write(
    host: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for consumer in (None, "job-1"):
        node = moving(host, consumer, devices("PGPU"), devices("PGPU"))
        sent: list[Any] = []
        commit = host.backend.commit

        def noted(*args: Any, commit: Any = commit, sent: Any = sent) -> Any:
            sent.append(args)
            return commit(*args)

        monkeypatch.setattr(host.backend, "commit", noted)
        node.save()
        monkeypatch.undo()
        assert len(sent) == 1
        host.release(node.consumer)


def test_only_some_of_what_was_taken_is_given_back(host: ro.Ledger) -> None:
    for consumer in (None, "job-1"):
        node = ComputeNode.load(host, "host0", consumer)
        two = take(node, devices("PGPU", 2))
        one = PCIAmount(devices("PGPU").requests, placed=[two.placed[0].replace(request=0)])
        give_back(node, one)
        row = node.to_row()
        node.save()
        assert node.to_row() == row and owners(host) == {two.addresses[1]: node.consumer}
        host.release(node.consumer)


# --- lost connections ---------------------------------------------------------------------------


def lose_connection(monkeypatch: pytest.MonkeyPatch, ledger: ro.Ledger, *, done: bool) -> None:
    """Lose the connection at the next write, after or before it is done."""
    commit = ledger.backend.commit

    def lost(*args: Any, **kwargs: Any) -> None:
        monkeypatch.undo()
        if done:
            commit(*args, **kwargs)
        raise exceptions.DatabaseError("lost", "ledger")

    monkeypatch.setattr(ledger.backend, "commit", lost)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_after_a_lost_connection_saving_again_takes_it_once(
    host: ro.Ledger, monkeypatch: pytest.MonkeyPatch, done: bool, consumer: str | None
) -> None:
    node = ComputeNode.load(host, "host0", consumer)
    taken = take(node, devices("PGPU"))
    lose_connection(monkeypatch, host, done=done)
    with raises_code("LostConnection"):
        node.save()
    assert pending_devices(node) == (taken,) and len(owners(host)) == done
    if consumer is None:
        take(node, VF)
    before = node.to_row()
    assert node.save() and node.to_row() == before
    assert len(owners(host)) == 1 + (consumer is None) and not node.save()


@pytest.mark.parametrize("done", [True, False])
def test_a_move_goes_on_after_a_lost_connection(
    host: ro.Ledger, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    node = moving(host, "job-1", VF, VF)
    row = node.to_row()
    lose_connection(monkeypatch, host, done=done)
    with raises_code("LostConnection"):
        node.save()
    assert node.save() and node.to_row() == row and list(owners(host)) == ["0000:81:02.1"]


# --- near cells ---------------------------------------------------------------------------------


@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_a_required_affinity_chooses_the_cells(near: ro.Ledger, consumer: str | None) -> None:
    """b.8, D13: the devices are next to cell 1, and cell 0 would be taken first."""
    node = ComputeNode.load(near, "host0", consumer)
    asked = {NUMA: numa(dedicated=2), PCI: devices("PGPU", affinity="required")}
    taken = node.inventories.consume(asked)
    assert taken[NUMA].host_cells == {1}
    node.save()
    assert {use.provider for use in near.usage() if use.used and use.resource_class == "PCPU"} == {
        "host0",
        "host0/numa1",
    }
    assert node.inventories == ComputeNode.load(near, "host0").inventories
    other = ComputeNode.load(near, "host0", "job-2").inventories
    assert not other.can_provide({**asked, NUMA: numa(dedicated=3)})
    assert other.can_provide({NUMA: numa(dedicated=3), PCI: devices("PGPU")}) is False
    assert other.can_provide({NUMA: numa(dedicated=3), PCI: devices("PGPU", affinity="preferred")})
    node.inventories.consume(-taken)
    node.save()
    assert not used(near)


def test_a_save_refuses_devices_that_are_not_near_the_cells(near: ro.Ledger) -> None:
    """One by one, nobody sees what belongs together; through the inventories it is decided."""
    far = devices("PGPU", affinity="required")
    node = ComputeNode.load(near, "host0", "job-1")
    node.inventories[NUMA].consume(numa(dedicated=2))  # on cell 0: nobody spoke of devices
    node.check_save()
    node.inventories[PCI].consume(far)
    before = node.pending, node.pending_placed, node.to_row()
    for refused in (node.check_save, node.save):
        with pytest.raises(ro.CapacityException, match="near"):
            refused()
        assert (node.pending, node.pending_placed, node.to_row()) == before and not used(near)
    node.reload()
    node.inventories.consume({NUMA: numa(dedicated=2), PCI: far})
    node.check_save()
    assert node.save()
    many = ComputeNode.load(near, "host0")
    many.inventories[NUMA].consume(numa(dedicated=2))
    many.inventories[PCI].consume(far)  # perhaps for somebody else
    many.check_save()


def test_devices_taken_later_are_near_the_cells_that_a_consumer_has(near: ro.Ledger) -> None:
    far = devices("PGPU", affinity="required")
    node = ComputeNode.load(near, "host0", "job-1")
    taken = node.inventories.consume({NUMA: numa(dedicated=4)})
    assert taken[NUMA].host_cells == {0} and node.save()
    for view in (node, ComputeNode.load(near, "host0", "job-1")):
        view.inventories[PCI].consume(far)
        for refused in (view.check_save, view.save):
            with pytest.raises(ro.CapacityException, match="near"):
                refused()
        view.reload()
    with pytest.raises(ro.CapacityException, match="near"):
        near.adjust("job-1", {"host0": {PCI: far}})  # which the ledger says too
    assert ComputeNode.load(near, "host0", "job-2").inventories.can_provide({PCI: far})
    node.inventories.consume(-taken)
    assert node.inventories[PCI].can_provide(far)
    assert node.inventories.consume({NUMA: numa(dedicated=4), PCI: far})[NUMA].host_cells == {1}
    assert node.save()
    node.reload()
    assert node.inventories[PCI].can_provide(far)


# --- definitions --------------------------------------------------------------------------------


def record(**changes: object) -> ComputeNode:
    """Return a node of a record that no ledger knows."""
    row = {
        "hypervisor_hostname": "host1",
        "vcpus": 8,
        "vcpus_used": 0,
        "memory_mb": 8192,
        "memory_mb_used": 0,
        "local_gb": 0,
        "local_gb_used": 0,
        "pci_stats": dump_pci_pools([DevicePool("10de", "2330", 7)]),
    }
    return ComputeNode.from_row({**row, **changes})


def test_devices_are_made_with_a_host_that_is_not_there(connect: Callable[[], ro.Ledger]) -> None:
    ledger = connect()
    node = record(numa_topology=ComputeNode(numa_topology=cells()).numa_topology)
    node.update_inventories({PCI: lab()})
    taken = take(node, devices("PGPU"))
    node.bind(ledger)
    before = node.to_row()
    assert node.save().definition is not None and node.to_row() == before
    names = [provider.name for provider in ledger.provider("host1").walk()]
    below = ["0000:3b:00.0", "0000:5e:00.0", WHOLE, "numa0", "numa1"]
    assert names == ["host1", *(f"host1/{name}" for name in below)]
    assert owners(ledger) == dict.fromkeys(taken.addresses, "host1/unattributed")
    assert node.inventories == ComputeNode.load(ledger, "host1").inventories


def test_what_a_record_says_is_taken_of_devices_is_adopted(
    connect: Callable[[], ro.Ledger],
) -> None:
    """Who holds some has a claim, or nothing; what is spent or gone is so whoever has it."""
    stated = PCIInventory(
        [gpu("3b"), gpu("5e"), gpu("5f", one_time_use=True), gpu("60")],
        usage=[
            DeviceUse("0000:3b:00.0", "allocated"),
            DeviceUse("0000:5e:00.0", "claimed", gone=True),
            DeviceUse("0000:5f:00.0", "spent"),
            DeviceUse("0000:60:00.0", "unavailable"),
        ],
    )
    node = record()
    node.update_inventories({PCI: stated})
    node.bind(connect())
    expected = {
        "0000:3b:00.0": "allocated",
        "0000:5f:00.0": "spent",
        "0000:60:00.0": "unavailable",
    }
    assert states(node) == expected
    node.save()
    assert states(node) == {**expected, "0000:60:00.0": "allocated"}


def test_pools_make_no_devices(connect: Callable[[], ro.Ledger]) -> None:
    """Of a ledger, devices are known: what a record counts is no device that could be taken."""
    ledger = connect()
    node = record()
    text = node.pci_stats
    assert PCI not in node.inventories
    node.bind(ledger)
    assert PCI not in node.inventories and node.pci_stats == text
    node.save()
    assert [provider.name for provider in ledger.provider("host1").walk()] == ["host1"]
    assert (
        PCI not in node.inventories and node.pci_stats == text and "pci_stats" not in node.changes()
    )
    with pytest.raises(exceptions.InvalidInventory, match="a sync of the host adds them"):
        node.update_inventories({PCI: lab()})


def test_devices_of_a_host_that_is_there_are_the_ledger_s(host: ro.Ledger) -> None:
    before = host.provider("host0")
    node = record(hypervisor_hostname="host0")
    node.update_inventories({PCI: PCIInventory([gpu("99")])})
    node.bind(host)
    live = live_of(node)
    assert live == lab() and not node.save()
    assert host.provider("host0").children == before.children
    for stated in (
        PCIInventory([gpu("3b")]),
        None,
        PCIInventory(lab().devices, usage=[DeviceUse(WHOLE, "claimed")]),
    ):
        with pytest.raises(exceptions.InvalidInventory, match="a sync of the host changes them"):
            node.update_inventories({PCI: stated})
    for devices_ in ([gpu("3b")], lab().devices[1:]):
        live.update(devices=devices_, usage=())  # by hand, behind the node's back
        for refused in (node.check, node.check_save, node.save):
            with pytest.raises(
                exceptions.InvalidInventory, match="a sync of the host changes them"
            ):
                refused()
        node.reload()
    assert live == lab() and node.update_inventories(node.get_inventories()) is False


def test_a_host_without_devices_has_none_whatever_was_stated(ledger: ro.Ledger) -> None:
    node = record(hypervisor_hostname="host0", memory_mb_used=512)
    text = node.pci_stats
    node.update_inventories({PCI: lab()})
    node.bind(ledger)
    assert PCI not in node.inventories and node.pci_stats == text
    placed = record(hypervisor_hostname="host0", memory_mb_used=512)
    placed.update_inventories({PCI: lab()})
    take(placed, devices("PGPU"))
    kept = copy.deepcopy(placed)
    with pytest.raises(ro.CapacityException, match="host0: DEVICES"):
        placed.bind(ledger)
    assert placed == kept


def test_devices_that_come_and_go_are_seen_by_a_reload(
    connect: Callable[[], ro.Ledger], ledger: ro.Ledger
) -> None:
    node = ComputeNode.load(ledger, "host0")
    tree = connect().provider("host0")
    tree.add_parts(PCI, lab())
    ledger.sync(tree)
    node.reload()
    live = live_of(node)
    assert live == lab() and load_pci_pools(node.pci_stats)
    node.obj_reset_changes()  # it was written to the record
    tree = ledger.provider("host0")
    tree.update(children=[child for child in tree.children if "0000:" not in child.name])
    ledger.sync(tree)
    node.reload()
    assert PCI not in node.inventories and node.changes() == {"pci_stats": None}
    assert not live.can_provide(devices("PGPU"))


@pytest.mark.law(2)
def test_a_definition_is_not_written_for_devices_that_are_gone(
    connect: Callable[[], ro.Ledger], host: ro.Ledger
) -> None:
    node = ComputeNode.load(host, "host0")
    node.inventories["VCPU"].update(total=10)
    taken = take(node, devices("PGPU"))
    connect().claim("other", {"host0": {PCI: taken}})
    before, view = host.provider("host0"), copy.deepcopy(node)
    with pytest.raises(ro.CapacityException, match=r"host0.*0000:3b:00\.0.*other"):
        node.save()
    assert host.provider("host0") == before and node == view
    host.release("other")
    assert node.save() and str(host.provider("host0")).startswith("host0: VCPU=10")
    assert owners(host) == {"0000:3b:00.0": "host0/unattributed"}


def test_what_is_pending_is_laid_over_what_the_ledger_has(
    connect: Callable[[], ro.Ledger], host: ro.Ledger
) -> None:
    """Bound with devices pending: they are taken there, or it says why they cannot be."""
    agent = record(hypervisor_hostname="host0")
    agent.update_inventories({PCI: lab()})
    take(agent, devices("PGPU"))
    twin, kept = copy.deepcopy(agent), copy.deepcopy(agent)
    agent.bind(host)
    assert states(agent)["0000:3b:00.0"] == "claimed" and agent.save()
    with pytest.raises(ro.CapacityException, match=r"host0: .*0000:3b:00\.0"):
        twin.bind(connect())
    assert twin == kept


def test_a_view_that_is_pickled_says_the_same_without_the_ledger(host: ro.Ledger) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    take(node, devices("PGPU"))
    for twin in (
        pickle.loads(pickle.dumps(node)),
        ComputeNode.obj_from_primitive(node.obj_to_primitive()),
    ):
        assert twin == node and twin.to_row() == node.to_row()
        assert twin.inventories[PCI] == node.inventories[PCI]
        with raises_code("NotBound"):
            twin.save()
        with pytest.raises(exceptions.InvalidInventory, match="a sync of the host changes them"):
            twin.update_inventories({PCI: None})


def test_an_unreadable_column_is_the_record_s_affair(
    connect: Callable[[], ro.Ledger], host: ro.Ledger
) -> None:
    """A view of a ledger does not read what the record counts; it says what the ledger has."""
    node = record(hypervisor_hostname="host0", pci_stats="nothing").bind(host)
    assert live_of(node) == lab()
    assert load_pci_pools(node.pci_stats) == device_pools(lab(), per_device=True)


def test_a_column_nobody_can_read_stays_where_the_ledger_has_no_devices(ledger: ro.Ledger) -> None:
    node = record(hypervisor_hostname="host0", memory_mb_used=512, pci_stats="nothing").bind(ledger)
    node.inventories.consume("VCPU=1")
    assert node.save() and node.to_row()["pci_stats"] == "nothing"


# --- many at once -------------------------------------------------------------------------------


@pytest.mark.law(4)
def test_no_device_is_given_twice_by_many_processes(sqlite_url: Callable[[str], str]) -> None:
    url = sqlite_url("lab.db")
    there = PCIInventory(card(parts=8))
    with ro.connect(url) as ledger:
        sync(ledger, there)
    taken = taken_by(url, "DEVICES=8086.154c", (None, "job-1", None), most_named=1)
    found = sorted(found["DEVICES"].addresses[0] for one in taken for found in one)
    assert found == sorted(device.address for device in there.devices if device.is_part)
    with ro.connect(url) as ledger:
        assert sorted(owners(ledger)) == found


@pytest.mark.law(1)
@pytest.mark.parametrize("seed", some(range(6), 2))
def test_views_and_claims_in_any_order_count_the_same(seed: int) -> None:
    """A view before a save says what it says after; and what is kept is what was taken."""
    chance = random.Random(seed)
    with ro.connect("memory://") as ledger:
        sync(ledger, PCIInventory([gpu("3b", 0), gpu("5e", 1), *card(1, parts=4)]), numa=True)
        empty = ComputeNode.load(ledger, "host0").to_row()
        view, kept = ComputeNode.load(ledger, "host0"), list[ro.Amounts]()
        for step in range(40):
            if chance.random() < 0.2:
                try:
                    ledger.claim(f"job-{step}", {"host0": anything(chance)})
                except ro.CapacityException:
                    continue
                view.reload()
                assert view.inventories[PCI] == ledger.inventories("host0")[PCI]
                ledger.release(f"job-{step}")
                view.reload()
                continue
            for _ in range(chance.randint(1, 3)):
                if kept and chance.random() < 0.4:
                    view.inventories.consume(-kept.pop(chance.randrange(len(kept))))
                    continue
                try:
                    kept.append(view.inventories.consume(anything(chance)))
                except ro.CapacityException:
                    continue
            before = view.to_row()
            view.save()
            assert view.to_row() == before
            units = {unit for one in kept for unit in _units(one)}
            assert set(owners(ledger)).issuperset(units)
        for amounts in kept:
            view.inventories.consume(-amounts)
        view.save()
        assert ComputeNode.load(ledger, "host0").to_row() == empty == view.to_row()
        assert not owners(ledger)


@pytest.mark.law(5)
@pytest.mark.law(6)
@settings(deadline=None, max_examples=examples(60))
@given(joint_questions(), st.sampled_from([None, "job-1"]))
def test_what_a_view_decides_can_be_saved(question: JointQuestion, consumer: str | None) -> None:
    """It decides as its inventories do; what it takes the ledger takes, and gives back again."""
    stated = PCIInventory(question.devices)
    node = of_record(stated, NUMATopologyInventory(question.cells.cells))
    with ro.connect("memory://") as ledger:
        try:
            node.bind(ledger).save()
        except exceptions.InvalidInventory:
            assume(False)  # CPUs of two sorts, or a card of the class of its pieces: kept by nobody
        view = ComputeNode.load(ledger, "host0", consumer)
        assert live_of(view).devices == live_of(node).devices
        before, kept = view.to_row(), ledger.provider("host0")
        model = ro.Inventories(view.get_inventories())
        asked = {NUMA: question.topology, PCI: question.amount}
        found = outcome(view.inventories, asked)
        assert located(found) == located(outcome(model, asked))
        if not isinstance(found, ro.Amounts):
            assert view.to_row() == before and not view.save()
            return
        row = view.to_row()
        assert view.save() and view.to_row() == row
        assert view.inventories == ComputeNode.load(ledger, "host0", consumer).inventories
        assert set(_units(found)).issubset(owners(ledger))
        if consumer is not None:
            told = ledger.assigned_amounts(consumer)["host0"]
            assert addresses(told) == addresses(found)
        view.inventories.consume(-found)
        assert view.save() and not owners(ledger)
        assert ledger.provider("host0") == kept
        once = {one.address for one in stated.devices if one.one_time_use}
        assert once.intersection(addresses(found)) or view.to_row() == before


def _units(amounts: ro.Amounts) -> Iterable[str]:
    devices = [one for _, one in amounts.by_name() if isinstance(one, PCIAmount)]
    return (unit for amount in devices for one in amount.placed for unit in one.units)


def anything(chance: random.Random) -> ro.Amounts:
    """Return devices that are often free, sometimes near to cells."""
    kinds = [
        devices("PGPU"),
        devices("PGPU", 2),
        VF,
        devices("8086:154c", 2),
        PF,
        VF + devices("PGPU"),
    ]
    asked = chance.choice(kinds)
    near = chance.choice(["legacy", "preferred", "required"])
    amounts: dict[str, ro.Amount] = {
        PCI: asked.replace(requests=[one.replace(affinity=near) for one in asked.requests])
    }
    if chance.random() < 0.5:
        amounts[NUMA] = numa(dedicated=chance.choice([1, 2]))
    return ro.Amounts(amounts).with_implied_counts()
