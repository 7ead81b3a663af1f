"""Tests of NUMA cells and devices: stored completely, and no unit is allocated twice."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.providers import Backend, Provider
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.orders import ConsumerOrder, Operation
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape
from resource_objects.resources import Amount
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool, numa
from resource_objects.resources.pci import Device, PCIInventory, devices
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.races import ConcurrentKit
from resource_objects.testing.conformance.scenarios import run

GPU = "PGPU"
_GPU_AT = "host0/0000:03:00.0"


def _cells(count: int = 2) -> NUMATopologyInventory:
    """Return cells of two shared CPUs, four dedicated threads of two cores, and pages."""
    pages = [PagePool(size_kib=4, total=1024 * 256), PagePool(size_kib=2048, total=64, reserved=8)]
    return NUMATopologyInventory(
        [
            HostCell(
                number,
                shared=[first, first + 1],
                dedicated=range(first + 2, first + 6),
                siblings=[(first + 2, first + 4), (first + 3, first + 5)],
                memory_mb=1152,
                pages=pages,
                socket=number // 2,
                distances={n: 10 if n == number else 21 for n in range(count)},
                physnets=["red"] if number else [],
            )
            for number in range(count)
            for first in [6 * number]
        ],
        cpu_ratio="1.5",
    )


def _lab() -> PCIInventory:
    """Return two cards and a GPU with every attribute."""
    gpu = Device(
        "0000:03:00.0",
        "10de",
        "2330",
        resource_class=GPU,
        class_code="030200",
        traits=["CUSTOM_H100"],
        live_migratable=False,
        one_time_use=True,
    )
    cards = [
        *kit.card(1, node=1),
        *kit.card(2, tags={"physnet": "red"}, facts={"mac_address": "00:00"}),
    ]
    return PCIInventory([*cards, gpu])


def _host_with_cells(count: int = 2) -> Provider:
    return kit.host_of("host0", _cells(count), DISK_GB=9)


def _host_with_devices() -> Provider:
    host = Provider("host0", "VCPU=8")
    host.add_parts(kit.DEVICES, _lab())
    return host


def _view(backend: Backend, kind: str) -> LocatedView:
    views = LocatedViews(backend.read("host0"))
    [root] = views.trees(kind)
    located = views.of_tree(root, kind)
    assert located is not None
    return located


def _allocate(backend: Backend, consumer: str, kind: str, amount: Amount) -> Amount:
    """Allocate an amount where it fits; return the assigned amount."""
    located = _view(backend, kind)
    assigned = located.inventory.fit(amount)
    kit.order(backend, ConsumerOrder.claim(consumer, located.deltas(assigned)))
    return assigned


# --- storage and views ---


def _random_amount(kind: str, chance: random.Random) -> Amount:
    if kind == kit.DEVICES:
        return devices(chance.choice([kit.FUNCTION, kit.FUNCTION, kit.CARD]))
    cells = chance.choice([1, 1, 2])
    return numa(cells, dedicated=cells * chance.randint(1, 2), shared=cells)


def claim_placed(backend: Backend, kind: str, worker: str) -> dict[str, set[str]]:
    """Claim and release at random; return the reported units of each remaining consumer."""
    ledger, chance = Ledger(backend), random.Random(worker)
    claimed: dict[str, set[str]] = {}
    for number in range(12):
        name = f"{worker}-{number}"
        try:
            ledger.claim(name, {"host0": {kind: _random_amount(kind, chance)}})
        except exceptions.CapacityException:
            for removed in list(claimed)[:2]:
                ledger.release(removed)
                del claimed[removed]
            continue
        assigned: Any = ledger.assigned_amounts(name)["host0"][kind]
        if kind == kit.DEVICES:
            claimed[name] = {unit for item in assigned.placed for unit in item.units}
        else:
            claimed[name] = {f"cpu{cpu}" for item in assigned.placed for _, cpu in item.pins}
    return claimed


_HOSTS = {kit.TOPOLOGY: _host_with_cells, kit.DEVICES: _host_with_devices}
_each_kind = pytest.mark.parametrize("kind", _HOSTS)


#: Requests that fit one after another.
_REQUESTS: dict[str, list[Any]] = {
    kit.TOPOLOGY: [
        numa(dedicated=1, thread_policy="isolate"),
        numa(2, shared=2, dedicated=2, memory_mb=64),
        numa(dedicated=1, memory_mb=64, page_size="any", emulator_policy="isolate"),
    ],
    kit.DEVICES: [
        devices(kit.FUNCTION, 2) + devices(kit.CARD),
        devices([kit.FUNCTION, GPU], requester="either"),
        devices(GPU),
    ],
}


class PlacedRules(ConcurrentKit):
    """NUMA cells and devices, which have the same rules."""

    @_each_kind
    def test_placed_resources_are_read_as_they_were_defined(
        self, backend: Backend, kind: str
    ) -> None:
        kit.define(backend, _HOSTS[kind]())
        assert not kit.changes_to(backend, _HOSTS[kind]())
        stored = _view(backend, kind).inventory
        if kind == kit.DEVICES:
            assert stored == PCIInventory(_lab().devices, resource_class=kit.DEVICES)
            assert kit.stored_tree(backend, "host0").find(_GPU_AT).traits == {"CUSTOM_H100"}
        else:
            expected = _cells()
            expected.update(room={"VCPU": 6, "PCPU": 8, "MEMORY_MB": 2048})
            assert stored == expected

    @kit.law(3, 5)
    @_each_kind
    def test_the_view_equals_the_inventory_after_the_same_allocations(
        self, backend: Backend, kind: str
    ) -> None:
        kit.define(backend, _HOSTS[kind]())
        model: Any = _view(backend, kind).inventory.obj_clone()
        assigned: dict[str, Any] = {}
        for number, request in enumerate(_REQUESTS[kind]):
            consumer = f"job-{number}"
            assigned[consumer] = _allocate(backend, consumer, kind, request)
            assert model.consume(request) == assigned[consumer]
            if kind == kit.DEVICES:  # a ledger's devices are allocated, not only claimed
                model.update(usage=[use.replace(state="allocated") for use in model.usage])
            assert _view(backend, kind).inventory == model
        kit.release(backend, "job-1")
        model.consume(-assigned.pop("job-1"))
        located = _view(backend, kind)
        assert located.inventory == model
        for consumer, amount in assigned.items():
            record = backend.consumer(consumer)
            assert record is not None
            assert located.assigned_amount(amount.unassigned(), record.held) == amount

    @kit.law(4)
    @_each_kind
    def test_no_unit_is_allocated_twice_at_once(
        self, backend: Backend, kind: str, at_once: Callable[..., list[dict[str, set[str]]]]
    ) -> None:
        """Check that the units that consumers were assigned are those of the ledger."""
        kit.define(backend, _HOSTS[kind]())
        assigned: dict[str, set[str]] = {}
        for claimed in at_once(claim_placed, *((kind, f"w{number}") for number in range(3))):
            assigned |= claimed
        state = kit.ledger_state(backend)
        stored: dict[str, set[str]] = {}
        for (_, unit), (_, consumer) in state.units.items():
            stored.setdefault(consumer, set()).add(unit)
        assert stored == assigned
        assert len(state.units) == sum(map(len, assigned.values()))
        if kind == kit.TOPOLOGY:
            assert state.used("host0", "PCPU") == len(state.units)


# --- trees that are read again ---


def _both(cells: int = 2, *, traits: Iterable[str] = ("CUSTOM_H100",), disk: int = 9) -> Provider:
    """Return a host with cells, a card and a GPU."""
    host = kit.host_of("host0", _cells(cells), DISK_GB=disk)
    gpu = Device("0000:03:00.0", "10de", "2330", resource_class=GPU, numa_node=1, traits=traits)
    host.add_parts(kit.DEVICES, PCIInventory([*kit.card(1, node=1), gpu]))
    host.update(aggregates={"rack-1"})
    return host


def _edit(backend: Backend, **options: Any) -> None:
    tree = kit.stored_tree(backend, "host0")
    tree.update(**options)
    kit.define(backend, tree)


def _define_again(backend: Backend, *, keeps_uuid: bool = False) -> None:
    """Remove the host, and define another one with its name."""
    uuid = backend.uuids(["host0"])["host0"]
    run(backend, "release first\nundefine host0")
    again = _both(1, disk=7)
    if keeps_uuid:
        again.update(uuid=uuid)
    kit.define(backend, again)


def _move_below_device(backend: Backend) -> None:
    tree = kit.stored_tree(backend, "host0")
    gpu = tree.find(_GPU_AT)
    tree.update(children=tuple(item for item in tree.children if item is not gpu))
    gpu.update(children=(tree,))
    backend.define(Operation(), kit.changes_to(backend, gpu))


def _rename_host(backend: Backend) -> None:
    tree = kit.stored_tree(backend, "host0")
    for child in tree.children:
        shares = [
            share.replace(of="host1") if share.of == "host0" else share for share in child.shares
        ]
        child.update(shares=shares)
    tree.update(name="host1")
    kit.define(backend, tree)


def _remove_cell(backend: Backend) -> None:
    kit.release(backend, "first")
    tree = kit.stored_tree(backend, "host0")
    _edit(backend, children=tuple(c for c in tree.children if c.name != "host0/numa1"))


def _move_disk(backend: Backend) -> None:
    """Move the disk with its allocations to a provider of its own."""
    parts = (Part("host0/disk", total=9),)
    reshape = Reshape((Move("host0", "DISK_GB", parts),), (NewProvider("host0/disk", "host0"),))
    Ledger(backend).reshape(reshape)


#: Changes of a host between two reads: statements of a scenario, or a function of the backend.
_CHANGES: dict[str, str | Callable[[Backend], object]] = {
    "nothing": "",
    "a CPU is allocated": "claim other: host0/numa0 PCPU cpu5",
    "CPUs of the host are allocated": "claim other: host0 PCPU=3",
    "all CPUs of the host are allocated": "claim other: host0 PCPU=7",
    "a card is allocated": lambda backend: _allocate(
        backend, "other", kit.DEVICES, devices(kit.CARD)
    ),
    "a GPU is allocated": lambda backend: _allocate(backend, "other", kit.DEVICES, devices(GPU)),
    "a consumer is removed": "release first",
    "it has more": lambda backend: kit.define(backend, _both(disk=12)),
    "it has another cell": lambda backend: kit.define(backend, _both(3)),
    "a device has another trait": lambda backend: kit.define(backend, _both(traits=["CUSTOM_B"])),
    "it is in another aggregate": lambda backend: _edit(backend, aggregates=["rack-2"]),
    "it has another trait": lambda backend: _edit(backend, traits=["CUSTOM_B"]),
    "it has another name": _rename_host,
    "it is below another": _move_below_device,
    "a trait has another name": "rename trait CUSTOM_H100: CUSTOM_B",
    "a class has another name": f"rename class {kit.CARD}: CUSTOM_BOARD",
    "an aggregate has another name": "rename aggregate rack-1: rack-2",
    "it is disabled": "disable host0: fan",
    "a cell is disabled": "disable host0/numa0: fan",
    "a device is disabled": f"disable {_GPU_AT}: fan",
    "it reported": "reported host0",
    "it is reshaped": _move_disk,
    "it has a cell less": _remove_cell,
    "it is removed": "release first\nundefine host0",
    "it is created again": _define_again,
    "it is created again with its uuid": lambda backend: _define_again(backend, keeps_uuid=True),
}


def _comparable(columns: Columns, like: Columns) -> Columns:
    """Return the part of columns that ``read_again`` must return, with allocations of ``like``."""
    times = like.providers
    return dataclasses.replace(
        columns,
        providers=columns.providers._replace(
            reported_at=times.reported_at, adopted_at=times.adopted_at
        ),
        allocations=like.allocations,
        cursor=None,
    )


def _outcome(ledger: Ledger, request: Any) -> Any:
    """Return the allocations of a claim, which is then released, or the reasons of its refusal."""
    try:
        claimed = ledger.claim("job", request)
    except exceptions.CapacityException as refusal:
        return refusal.reasons
    except exceptions.ResourceObjectsError as error:
        return type(error), str(error)
    ledger.release("job")
    return {(item.provider_uuid, item.resource_class): item for item in claimed.allocations}


class AgainRules(kit.Kit):
    """Trees that are read again after a change are current."""

    @kit.law(5)
    @pytest.mark.parametrize("change", _CHANGES)
    def test_a_tree_that_is_read_again_is_current(self, backend: Backend, change: str) -> None:
        uuid = kit.define(backend, _both())["host0"]
        amounts = {
            kit.TOPOLOGY: numa(dedicated=2, memory_mb=64),
            kit.DEVICES: devices(GPU, affinity="required"),
            "DISK_GB": 5,
        }
        request = {"host0": amounts}
        ledger, before = Ledger(backend), backend.read("host0")
        ledger.claim("job", request)
        ledger.release("job")
        ledger.claim("first", {"host0": {kit.TOPOLOGY: numa(dedicated=1), "DISK_GB": 1}})
        work = _CHANGES[change]
        if isinstance(work, str):
            run(backend, work)
        else:
            work(backend)
        again, complete = backend.read_again(before, uuid), backend.read(uuid)
        assert _comparable(again, again) == _comparable(complete, again)
        if again.cursor is not None:
            assert again == complete
        # a ledger that has cached the tree claims like a new one
        outcomes = [_outcome(by, request) for by in (ledger, Ledger(backend), ledger)]
        assert outcomes[0] == outcomes[1] == outcomes[2]
