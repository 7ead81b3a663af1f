"""The devices of a compute node as a view of a ledger: loads and saves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop.nova.pci_devices import (
    device_pools,
    load_pci_pools,
)
from resource_objects.resources.numa import NUMATopologyInventory, numa
from resource_objects.resources.pci import DeviceUse, PCIAmount, PCIInventory, devices
from resource_objects.testing.refusals import raises_code
from tests.host.placed import (
    NUMA,
    PCI,
    PF,
    VF,
    WHOLE,
    addresses,
    cells,
    gpu,
    lab,
    live_of,
    pools_of,
    record,
    states,
    sync,
)
from tests.host.test_compute_node_pci import located, of_record, outcome
from tests.host.views import owners, pending_devices
from tests.support.lengths import examples
from tests.support.pci_strategies import JointQuestion, joint_questions


@pytest.fixture
def host(connect: Callable[[], ro.Ledger]) -> ro.Ledger:
    """A ledger with host0, which has devices."""
    created = connect()
    sync(created, lab())
    return created


@pytest.fixture
def near(connect: Callable[[], ro.Ledger]) -> ro.Ledger:
    """A ledger with host0, which has two cells, and devices next to one of them."""
    created = connect()
    sync(created, PCIInventory([gpu("5e", 1), gpu("5f", 1)]), cells())
    return created


def take(node: ComputeNode, amount: PCIAmount) -> PCIAmount:
    """Take devices; return them assigned."""
    result = node.inventories.consume({PCI: amount})[PCI]
    assert isinstance(result, PCIAmount)
    return result


def give_back(node: ComputeNode, taken: PCIAmount) -> None:
    node.inventories.consume({PCI: -taken})


def used(ledger: ro.Ledger) -> dict[str, int]:
    """Return the used counts of each class, over the tree."""
    result: dict[str, int] = {}
    for use in ledger.usage():
        result[use.resource_class] = result.get(use.resource_class, 0) + use.used
    return {name: count for name, count in result.items() if count}


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


# --- saving -------------------------------------------------------------------------------------


def test_a_consumer_with_a_name_is_reported_one_amount(host: ro.Ledger) -> None:
    """The ledger merges amounts that a consumer took one by one."""
    node = ComputeNode.load(host, "host0", "job-1")
    take(node, devices("PGPU", alias="a"))
    take(node, VF)
    node.save()
    message = host.assigned_amounts("job-1")["host0"][PCI]
    assert isinstance(message, PCIAmount)
    assert message.of("a") == ("0000:3b:00.0",) and message.count == 2
    view = copy.deepcopy(node)
    take(node, devices("PGPU"))
    with raises_code("InvalidAmount", match="job-1 has one already"):
        node.save()
    node.reload()
    assert node == view


def test_what_is_taken_and_released_is_nothing_to_save(host: ro.Ledger) -> None:
    for consumer in (None, "job-1"):
        node = ComputeNode.load(host, "host0", consumer)
        give_back(node, take(node, devices("PGPU", 2)))
        assert node.changes() == {} and not pending_devices(node) and not node.save()
        taken = take(node, devices("PGPU"))
        node.save()
        give_back(node, taken)
        again = take(node, devices("PGPU", alias="again"))
        assert again.addresses == taken.addresses and pending_devices(node)
        if consumer is None:  # the same device again; the unattributed consumer has no request
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
@pytest.mark.parametrize("mine", [PF, VF], ids=["whole", "piece"])
def test_what_another_consumer_took_of_the_same_card_refuses(
    connect: Callable[[], ro.Ledger], host: ro.Ledger, mine: PCIAmount
) -> None:
    """A physical function and its virtual functions exclude each other, in any order."""
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


# --- moving -------------------------------------------------------------------------------------


def test_only_some_of_what_was_taken_is_released(host: ro.Ledger) -> None:
    for consumer in (None, "job-1"):
        node = ComputeNode.load(host, "host0", consumer)
        two = take(node, devices("PGPU", 2))
        item = PCIAmount(devices("PGPU").requests, placed=[two.placed[0].replace(request=0)])
        give_back(node, item)
        row = node.to_row()
        node.save()
        assert node.to_row() == row and owners(host) == {two.addresses[1]: node.consumer}
        host.release(node.consumer)


# --- near cells ---------------------------------------------------------------------------------


@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_a_required_affinity_chooses_the_cells(near: ro.Ledger, consumer: str | None) -> None:
    """b.8, D13: the devices are next to cell 1, and cell 0 would be taken first."""
    node = ComputeNode.load(near, "host0", consumer)
    request = {NUMA: numa(dedicated=2), PCI: devices("PGPU", affinity="required")}
    taken = node.inventories.consume(request)
    assert taken[NUMA].host_cells == {1}
    node.save()
    assert {use.provider for use in near.usage() if use.used and use.resource_class == "PCPU"} == {
        "host0",
        "host0/numa1",
    }
    assert node.inventories == ComputeNode.load(near, "host0").inventories
    other = ComputeNode.load(near, "host0", "job-2").inventories
    assert not other.can_provide({**request, NUMA: numa(dedicated=3)})
    assert other.can_provide({NUMA: numa(dedicated=3), PCI: devices("PGPU")}) is False
    assert other.can_provide({NUMA: numa(dedicated=3), PCI: devices("PGPU", affinity="preferred")})
    node.inventories.consume(-taken)
    node.save()
    assert not used(near)


def test_a_save_refuses_devices_that_are_not_near_the_cells(near: ro.Ledger) -> None:
    """Consumed one by one, affinity is not checked; consumed through the inventories, it is."""
    far = devices("PGPU", affinity="required")
    node = ComputeNode.load(near, "host0", "job-1")
    node.inventories[NUMA].consume(numa(dedicated=2))  # on cell 0: no devices were requested
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
    many.inventories[PCI].consume(far)  # possibly for different consumers
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
        near.adjust("job-1", {"host0": {PCI: far}})  # the ledger refuses it too
    assert ComputeNode.load(near, "host0", "job-2").inventories.can_provide({PCI: far})
    node.inventories.consume(-taken)
    assert node.inventories[PCI].can_provide(far)
    assert node.inventories.consume({NUMA: numa(dedicated=4), PCI: far})[NUMA].host_cells == {1}
    assert node.save()
    node.reload()
    assert node.inventories[PCI].can_provide(far)


# --- definitions --------------------------------------------------------------------------------


def test_devices_are_made_with_a_host_that_is_not_there(connect: Callable[[], ro.Ledger]) -> None:
    ledger = connect()
    node = record()
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
    """An allocated device has a consumer; a spent or removed one remains so."""
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
    """The pools of a record are counts, not devices that can be allocated."""
    ledger = connect()
    node = record()
    text = node.pci_stats
    assert PCI not in node.inventories
    node.bind(ledger)
    assert PCI not in node.inventories and node.pci_stats == text
    node.save()
    names = [provider.name for provider in ledger.provider("host1").walk()]
    assert names == ["host1", "host1/numa0", "host1/numa1"]
    assert PCI not in node.inventories and node.pci_stats == text
    assert "pci_stats" not in node.changes()


def test_what_is_pending_is_laid_over_what_the_ledger_has(
    connect: Callable[[], ro.Ledger], host: ro.Ledger
) -> None:
    """Pending devices of a record are consumed in the ledger, or the bind is refused."""
    agent = record(hypervisor_hostname="host0")
    agent.update_inventories({PCI: lab()})
    take(agent, devices("PGPU"))
    twin, stored = copy.deepcopy(agent), copy.deepcopy(agent)
    agent.bind(host)
    assert states(agent)["0000:3b:00.0"] == "claimed" and agent.save()
    with pytest.raises(ro.CapacityException, match=r"host0: .*0000:3b:00\.0"):
        twin.bind(connect())
    assert twin == stored


def test_an_unreadable_column_is_the_record_s_affair(
    connect: Callable[[], ro.Ledger], host: ro.Ledger
) -> None:
    """A view of a ledger ignores the pools of the record and reports those of the ledger."""
    node = record(hypervisor_hostname="host0", pci_stats="nothing").bind(host)
    assert live_of(node) == lab()
    assert load_pci_pools(node.pci_stats) == device_pools(lab(), per_device=True)


def test_a_column_that_is_unreadable_remains_without_devices(
    ledger: ro.Ledger,
) -> None:
    node = record(hypervisor_hostname="host0", pci_stats="nothing").bind(ledger)
    node.inventories.consume("VCPU=1")
    assert node.save() and node.to_row()["pci_stats"] == "nothing"


# --- many at once -------------------------------------------------------------------------------


@pytest.mark.law(5)
@pytest.mark.law(6)
@settings(deadline=None, max_examples=examples(60))
@given(joint_questions(), st.sampled_from([None, "job-1"]))
def test_what_a_view_decides_can_be_saved(question: JointQuestion, consumer: str | None) -> None:
    """A view decides as its inventories, and the ledger accepts and releases its amounts."""
    stated = PCIInventory(question.devices)
    node = of_record(stated, NUMATopologyInventory(question.cells.cells))
    with ro.connect("memory://") as ledger:
        try:
            node.bind(ledger).save()
        except exceptions.InvalidInventory:
            assume(
                False
            )  # CPUs of both sorts, or a card in the class of its functions: no ledger stores them
        view = ComputeNode.load(ledger, "host0", consumer)
        assert live_of(view).devices == live_of(node).devices
        before, stored = view.to_row(), ledger.provider("host0")
        model = ro.Inventories(view.get_inventories())
        request = {NUMA: question.topology, PCI: question.amount}
        result = outcome(view.inventories, request)
        assert located(result) == located(outcome(model, request))
        if not isinstance(result, ro.Amounts):
            assert view.to_row() == before and not view.save()
            return
        row = view.to_row()
        assert view.save() and view.to_row() == row
        assert view.inventories == ComputeNode.load(ledger, "host0", consumer).inventories
        assert set(_units(result)).issubset(owners(ledger))
        if consumer is not None:
            message = ledger.assigned_amounts(consumer)["host0"]
            assert addresses(message) == addresses(result)
        view.inventories.consume(-result)
        assert view.save() and not owners(ledger)
        assert ledger.provider("host0") == stored
        once = {device.address for device in stated.devices if device.one_time_use}
        assert once.intersection(addresses(result)) or view.to_row() == before


def _units(amounts: ro.Amounts) -> Iterable[str]:
    devices = [item for _, item in amounts.by_name() if isinstance(item, PCIAmount)]
    return (unit for amount in devices for item in amount.placed for unit in item.units)
