"""Tests of NUMA cells and devices: stored completely, and no unit is allocated twice."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.ledger import Ledger, RetryPolicy
from resource_objects.providers import Backend, Provider
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape
from resource_objects.reasons import Rule
from resource_objects.resources import Amount
from resource_objects.resources.context import Context
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool, numa
from resource_objects.resources.pci import Device, PCIInventory, devices
from resource_objects.testing.conformance.disabled import disable
from resource_objects.testing.conformance.races import (
    claim_devices,
    claim_topologies,
    processes,
    together,
)
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    AGGREGATE,
    CLASS,
    TOPOLOGY,
    TRAIT,
    Kit,
    change_names,
    changes_to,
    define,
    host_of,
    law,
    ledger_state,
    now,
    order,
    release,
    remove,
    rename,
    stored_tree,
)
from resource_objects.testing.refusals import raises_code

_HUGE = "CUSTOM_HUGEPAGES_2048KB"


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


def _define(backend: Backend, count: int = 2) -> dict[str, str]:
    return define(backend, host_of("host0", _cells(count), DISK_GB=9))


def _view(backend: Backend, kind: str) -> LocatedView:
    views = LocatedViews(backend.read("host0"))
    [root] = views.trees(kind)
    located = views.of_tree(root, kind)
    assert located is not None
    return located


def _take(backend: Backend, consumer: str, kind: str, amount: Amount) -> Amount:
    """Allocate an amount where it fits; return the assigned amount."""
    located = _view(backend, kind)
    assigned = located.fit(amount)
    order(backend, ConsumerOrder.claim(consumer, located.deltas(assigned)))
    return assigned


def _take_and_exchange(backend: Backend, kind: str, amount: Amount) -> dict[tuple[str, str], str]:
    """Let two consumers exchange their parts in one write; return the consumer of each unit.

    Keys of the result are (provider, unit).
    """
    located = _view(backend, kind)
    first, second = (
        located.deltas(located.inventory.fit(amount, None, Context(allowed=[number])))
        for number in (0, 1)
    )
    order(backend, ConsumerOrder.claim("a", first))
    order(backend, ConsumerOrder.claim("b", second))
    order(backend, ConsumerOrder.replace("a", second), ConsumerOrder.replace("b", first))
    return {key: consumer for key, (_, consumer) in ledger_state(backend).units.items()}


def _take_by_threads(backend: Backend, kind: str, amount: Amount, count: int) -> None:
    """Let ``count`` threads fill the host with one claim each; no claim is refused."""
    ledger = Ledger(backend, retries=RetryPolicy(assignments=200))
    request = {"host0": {kind: amount}}
    outcomes = together(lambda n: ledger.claim(f"job-{n}", request), count)
    assert [outcome for outcome in outcomes if isinstance(outcome, BaseException)] == []
    assert len(ledger_state(backend).units) == count
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("more", request)


class TopologyRules(Kit):
    """NUMA topologies."""

    def test_cells_are_read_as_they_were_defined(self, backend: Backend) -> None:
        _define(backend)
        inventory = _cells()
        assert not changes_to(backend, host_of("host0", inventory, DISK_GB=9))
        for number, child in enumerate(stored_tree(backend, "host0").children):
            (cell,) = child.inventories[TOPOLOGY].cells
            assert cell == inventory.cells[number]
        inventory.update(room={"VCPU": 6, "PCPU": 8, "MEMORY_MB": 2048})
        assert _view(backend, TOPOLOGY).inventory == inventory

    @law(1)
    def test_an_allocation_at_a_cell_is_used_at_its_host(self, backend: Backend) -> None:
        _define(backend)
        request = numa(2, shared=2, dedicated=4, memory_mb=256)
        _take(backend, "job", TOPOLOGY, request)
        state = ledger_state(backend)
        for cell in ("host0/numa0", "host0/numa1"):
            used = [state.used(cell, name) for name in ("VCPU", "PCPU", "MEMORY_MB")]
            assert used == [1, 2, 128]
        assert [state.used("host0", n) for n in ("VCPU", "PCPU", "MEMORY_MB")] == [2, 4, 256]
        assert set(state.units) == {
            ("host0/numa0", "cpu2"),
            ("host0/numa0", "cpu4"),
            ("host0/numa1", "cpu8"),
            ("host0/numa1", "cpu10"),
        }

    @law(1, 6)
    def test_the_capacity_of_the_host_bounds_its_cells(self, backend: Backend) -> None:
        names = _define(backend)
        order(backend, ConsumerOrder.claim("floating", (Use(names["host0"], "PCPU", 7),)))
        before = ledger_state(backend)
        cell = names["host0/numa0"]
        with pytest.raises(exceptions.CapacityException) as refused:
            order(backend, ConsumerOrder.claim("job", (Use(cell, "PCPU", 2, ("cpu2", "cpu3")),)))
        [reason] = refused.value.reasons
        assert (reason.rule, reason.where, reason.free) == (Rule.CAPACITY, "host0", 1)
        assert ledger_state(backend) == before
        with pytest.raises(exceptions.CapacityException):
            _view(backend, TOPOLOGY).fit(numa(dedicated=2))
        _take(backend, "job", TOPOLOGY, numa(dedicated=1))

    def test_huge_pages_are_counted_at_their_cell_only(self, backend: Backend) -> None:
        names = _define(backend)
        _take(backend, "job", TOPOLOGY, numa(dedicated=1, memory_mb=112, page_size="2MB"))
        state = ledger_state(backend)
        assert state.used("host0/numa0", _HUGE) == 56  # all but the reserved pages
        assert [state.used(name, "MEMORY_MB") for name in names] == [0, 0, 0]
        with pytest.raises(exceptions.CapacityException):
            order(backend, ConsumerOrder.claim("more", (Use(names["host0/numa0"], _HUGE, 1),)))
        with pytest.raises(
            exceptions.CapacityException
        ):  # huge pages are no part of the memory of the host
            order(backend, ConsumerOrder.claim("more", (Use(names["host0"], "MEMORY_MB", 2049),)))

    @law(2, 4, 6)
    def test_many_cpus_are_allocated_in_one_write_or_none(self, backend: Backend) -> None:
        _define(backend, 8)
        located = _view(backend, TOPOLOGY)
        uses = located.deltas(located.inventory.fit(numa(8, dedicated=16, memory_mb=8 * 64)))
        [*_, last] = [delta for delta in uses if delta.units]
        theft = dataclasses.replace(last, amount=1, units=last.units[-1:])
        order(backend, ConsumerOrder.claim("thief", (theft,)))
        before = ledger_state(backend)
        with raises_code("UnitTaken") as refused:
            order(backend, ConsumerOrder.claim("job", uses))
        [reason] = refused.value.reasons
        assert (reason.unit, reason.holders) == (theft.units[0], (("thief", 1),))
        assert ledger_state(backend) == before
        release(backend, "thief")
        order(backend, ConsumerOrder.claim("job", uses))
        assert len(ledger_state(backend).units) == 16

    @law(3, 5)
    def test_the_view_equals_the_inventory_after_the_same_allocations(
        self, backend: Backend
    ) -> None:
        _define(backend)
        model: Any = _view(backend, TOPOLOGY).inventory.obj_clone()
        options: dict[str, Any] = {}
        for number, request in enumerate(
            [
                numa(dedicated=1, thread_policy="isolate"),
                numa(2, shared=2, dedicated=2, memory_mb=64),
                numa(dedicated=1, memory_mb=64, page_size="any", emulator_policy="isolate"),
            ]
        ):
            options[f"job-{number}"] = _take(backend, f"job-{number}", TOPOLOGY, request)
            assert model.consume(request) == options[f"job-{number}"]
            assert _view(backend, TOPOLOGY).inventory == model
        release(backend, "job-1")
        model.consume(-options.pop("job-1"))
        located = _view(backend, TOPOLOGY)
        assert located.inventory == model
        for name, assigned in options.items():
            record = backend.held(name)
            assert record is not None
            assert located.assigned_amount(assigned.unassigned(), record.held) == assigned

    @law(2)
    def test_two_topologies_exchange_their_cells_in_one_write(self, backend: Backend) -> None:
        _define(backend)
        assert _take_and_exchange(backend, TOPOLOGY, numa(dedicated=4)) == {
            **{("host0/numa1", f"cpu{cpu}"): "a" for cpu in range(8, 12)},
            **{("host0/numa0", f"cpu{cpu}"): "b" for cpu in range(2, 6)},
        }

    @law(4)
    def test_threads_never_allocate_one_cpu_twice(self, backend: Backend) -> None:
        _define(backend)
        _take_by_threads(backend, TOPOLOGY, numa(dedicated=1), 8)

    @law(4)
    @requires(Requirement.PROCESSES)
    def test_processes_never_allocate_one_cpu_twice(self, backend: Backend, url: str) -> None:
        _define(backend)
        with ProcessPoolExecutor(3, mp_context=processes()) as pool:
            futures: list[Future[dict[str, str]]] = [
                pool.submit(claim_topologies, self.backend_class, url, "host0", f"w{n}", 12)
                for n in range(3)
            ]
            reported = {name: cpus for future in futures for name, cpus in future.result().items()}
        state = ledger_state(backend)
        uses: dict[str, set[str]] = {}
        for (_, unit), (_, consumer) in state.units.items():
            uses.setdefault(consumer, set()).add(unit.removeprefix("cpu"))
        assert uses == {name: set(cpus.split(",")) for name, cpus in reported.items()}
        assert state.used("host0", "PCPU") == len(state.units)


# --- devices: a card or its functions ---


DEVICES = "DEVICES"
#: The classes of the devices: a whole card, a virtual function of one, a GPU.
CARD, FUNCTION, GPU = "CUSTOM_CARD", "SRIOV_NET_VF", "PGPU"
_WHOLE, _PARTS = "0000:01:00.0", tuple(f"0000:01:02.{number}" for number in range(3))
_SECOND = tuple(f"0000:02:02.{number}" for number in range(3))


def _card(bus: int) -> Iterator[Device]:
    complete = f"0000:{bus:02x}:00.0"
    yield Device(complete, "8086", "1572", "type-PF", resource_class=CARD, numa_node=bus)
    for number in range(3):
        yield Device(
            f"0000:{bus:02x}:02.{number}",
            "8086",
            "154c",
            "type-VF",
            resource_class=FUNCTION,
            parent=complete,
            numa_node=bus,
            tags={"physnet": "red"},
            facts={"mac_address": f"00:00:00:00:00:0{number}"},
        )


def _lab() -> PCIInventory:
    """Return two cards of three functions each, and a GPU with every attribute."""
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
    return PCIInventory([*_card(1), *_card(2), gpu])


def _host() -> Provider:
    host = Provider("host0", "VCPU=8")
    host.add_parts(DEVICES, _lab())
    return host


def _define_devices(backend: Backend) -> dict[str, str]:
    return define(backend, _host())


class DeviceRules(Kit):
    """Devices."""

    def test_devices_are_read_as_they_were_defined(self, backend: Backend) -> None:
        _define_devices(backend)
        assert not changes_to(backend, _host())
        assert _view(backend, DEVICES).inventory == PCIInventory(
            _lab().devices, resource_class=DEVICES
        )
        gpu = next(
            item for item in stored_tree(backend, "host0").children if item.name.endswith("03:00.0")
        )
        assert gpu.traits == {"CUSTOM_H100"}

    @law(1, 4)
    def test_an_allocated_card_blocks_its_functions(self, backend: Backend) -> None:
        names = _define_devices(backend)
        _take(backend, "job", DEVICES, devices(CARD))
        state = ledger_state(backend)
        where = f"host0/{_WHOLE}"
        assert [state.used(where, name) for name in (CARD, FUNCTION)] == [1, 3]
        assert set(state.units) == {(where, unit) for unit in (_WHOLE, *_PARTS)}
        for delta in (
            Use(names[where], FUNCTION, 1, _PARTS[:1]),
            Use(names[where], FUNCTION, 1),
            Use(names[where], CARD, 1, (_WHOLE, *_PARTS)),
        ):
            with pytest.raises(exceptions.CapacityException):
                order(backend, ConsumerOrder.claim("more", (delta,)))
        assert ledger_state(backend) == state

    @law(1, 4)
    def test_an_allocated_function_blocks_its_card(self, backend: Backend) -> None:
        names = _define_devices(backend)
        _take(backend, "job", DEVICES, devices(FUNCTION))
        where = f"host0/{_WHOLE}"
        before = ledger_state(backend)
        for delta in (
            Use(names[where], CARD, 1, (_WHOLE, *_PARTS)),
            Use(names[where], CARD, 1),
        ):
            with pytest.raises(exceptions.CapacityException) as refused:
                order(backend, ConsumerOrder.claim("more", (delta,)))
            [reason] = [reason for reason in refused.value.reasons if reason.rule is Rule.CAPACITY]
            assert (reason.resource, reason.requested, reason.free) == (FUNCTION, 3, 2)
        assert ledger_state(backend) == before
        assert _take(backend, "other", DEVICES, devices(CARD)) is not None  # the other one

    @law(3)
    def test_a_card_can_be_allocated_again_after_its_release(self, backend: Backend) -> None:
        _define_devices(backend)
        before = ledger_state(backend)
        _take(backend, "whole", DEVICES, devices(CARD, 2))
        release(backend, "whole")
        assert ledger_state(backend).units == before.units == {}
        _take(backend, "parts", DEVICES, devices(FUNCTION, 6))
        with pytest.raises(exceptions.CapacityException):
            _view(backend, DEVICES).fit(devices(CARD))
        release(backend, "parts")
        _take(backend, "whole", DEVICES, devices(CARD, 2))

    @law(3, 5)
    def test_the_view_of_devices_equals_the_inventory_after_the_same_allocations(
        self, backend: Backend
    ) -> None:
        _define_devices(backend)
        model = _lab()
        model.update(resource_class=DEVICES)
        options = {}
        amounts = (
            devices(FUNCTION, 2) + devices(CARD),
            devices([FUNCTION, GPU], requester="either"),
            devices(GPU),
        )
        for number, request in enumerate(amounts):
            options[f"job-{number}"] = assigned = _take(backend, f"job-{number}", DEVICES, request)
            taken = model.consume(request)
            assert taken == assigned
            model.allocate(taken)
            assert _view(backend, DEVICES).inventory == model
        for name, assigned in options.items():
            record = backend.held(name)
            assert record is not None
            assert (
                _view(backend, DEVICES).assigned_amount(assigned.unassigned(), record.held)
                == assigned
            )

    @law(2)
    def test_two_consumers_exchange_their_devices_in_one_write(self, backend: Backend) -> None:
        _define_devices(backend)
        result = _take_and_exchange(backend, DEVICES, devices(FUNCTION, 3))
        owners = {unit: consumer for (_, unit), consumer in result.items()}
        assert owners == {**dict.fromkeys(_SECOND, "a"), **dict.fromkeys(_PARTS, "b")}

    @law(2, 4)
    def test_a_card_and_its_function_replace_each_other(self, backend: Backend) -> None:
        """A replacement allocates the whole card or one function of its released units."""
        names = _define_devices(backend)
        where = names[f"host0/{_WHOLE}"]
        complete = (Use(where, CARD, 1, (_WHOLE, *_PARTS)),)
        part = (Use(where, FUNCTION, 1, _PARTS[:1]),)
        order(backend, ConsumerOrder.claim("job", complete))
        order(backend, ConsumerOrder.replace("job", part))
        assert ledger_state(backend).used(f"host0/{_WHOLE}", FUNCTION) == 1
        order(backend, ConsumerOrder.replace("job", complete))
        state = ledger_state(backend)
        assert state.used(f"host0/{_WHOLE}", FUNCTION) == 3 and len(state.units) == 4

    @law(4)
    def test_threads_never_allocate_one_device_twice(self, backend: Backend) -> None:
        _define_devices(backend)
        _take_by_threads(backend, DEVICES, devices(FUNCTION), 6)

    @law(4)
    def test_threads_allocate_a_card_or_its_functions(self, backend: Backend) -> None:
        """Some threads claim the card, others its functions: never both."""
        _define_devices(backend)
        ledger = Ledger(backend, retries=RetryPolicy(assignments=200))

        def claim(number: int) -> object:
            kind = CARD if number % 2 else FUNCTION
            return ledger.claim(f"job-{number}", {"host0": {DEVICES: devices(kind)}})

        together(claim, 8)
        state = ledger_state(backend)
        for bus in ("01", "02"):
            where = f"host0/0000:{bus}:00.0"
            complete, parts = state.used(where, CARD), state.used(where, FUNCTION)
            assert parts == 3 if complete else parts <= 3
            assert len([unit for at, unit in state.units if at == where]) == parts + complete

    @law(4)
    @requires(Requirement.PROCESSES)
    def test_processes_never_allocate_one_device_twice(self, backend: Backend, url: str) -> None:
        _define_devices(backend)
        with ProcessPoolExecutor(3, mp_context=processes()) as pool:
            futures: list[Future[dict[str, list[str]]]] = [
                pool.submit(claim_devices, self.backend_class, url, "host0", f"w{n}", 12)
                for n in range(3)
            ]
            reported = {
                name: claimed for future in futures for name, claimed in future.result().items()
            }
        uses: dict[str, list[str]] = {}
        for (_, unit), (_, consumer) in sorted(ledger_state(backend).units.items()):
            uses.setdefault(consumer, []).append(unit)
        assert uses == {name: sorted(claimed) for name, claimed in reported.items()}


# --- trees that are read again ---


_GPU_AT = "host0/0000:03:00.0"


def _both(cells: int = 2, *, traits: Iterable[str] = ("CUSTOM_H100",), disk: int = 9) -> Provider:
    """Return a host with cells, a card and a GPU."""
    host = host_of("host0", _cells(cells), DISK_GB=disk)
    gpu = Device("0000:03:00.0", "10de", "2330", resource_class=GPU, numa_node=1, traits=traits)
    host.add_parts(DEVICES, PCIInventory([*_card(1), gpu]))
    host.update(aggregates={"rack-1"})
    return host


def _edited(backend: Backend, **options: Any) -> None:
    tree = stored_tree(backend, "host0")
    tree.update(**options)
    define(backend, tree)


def _back(backend: Backend, uuid: str | None = None) -> None:
    """Remove the host, and define another one with its name."""
    remove(backend, "host0")
    back = _both(1, disk=7)
    if uuid is not None:
        back.update(uuid=uuid)
    define(backend, back)


def _below_another(backend: Backend) -> None:
    tree = stored_tree(backend, "host0")
    gpu = tree.find(_GPU_AT)
    tree.update(children=tuple(item for item in tree.children if item is not gpu))
    gpu.update(children=(tree,))
    backend.define(Operation(), changes_to(backend, gpu))


def _renamed(backend: Backend) -> None:
    tree = stored_tree(backend, "host0")
    for child in tree.children:
        child.update(
            shares=[
                share.replace(of="host1") if share.of == "host0" else share
                for share in child.shares
            ]
        )
    tree.update(name="host1")
    define(backend, tree)


def _without_cell(backend: Backend) -> None:
    tree = stored_tree(backend, "host0")
    remaining = tuple(item for item in tree.children if item.name != "host0/numa1")
    tree.update(children=remaining)
    define(backend, tree)


def _disk_apart(backend: Backend) -> None:
    """Move the disk with its allocations to a provider of its own."""
    parts = (Part("host0/disk", total=9),)
    Ledger(backend).reshape(
        Reshape((Move("host0", "DISK_GB", parts),), (NewProvider("host0/disk", "host0"),))
    )


_Change = Callable[[Backend, dict[str, str]], object]
#: Changes of a host between two reads.
_CHANGES: dict[str, _Change] = {
    "nothing": lambda backend, names: None,
    "a CPU is taken": lambda backend, names: order(
        backend, ConsumerOrder.claim("other", (Use(names["host0/numa0"], "PCPU", 1, ("cpu5",)),))
    ),
    "the host is taken of": lambda backend, names: order(
        backend, ConsumerOrder.claim("other", (Use(names["host0"], "PCPU", 3),))
    ),
    "the host has none left": lambda backend, names: order(
        backend, ConsumerOrder.claim("other", (Use(names["host0"], "PCPU", 7),))
    ),
    "a card is taken": lambda backend, names: _take(backend, "other", DEVICES, devices(CARD)),
    "a GPU is taken": lambda backend, names: _take(backend, "other", DEVICES, devices(GPU)),
    "who held something is gone": lambda backend, names: release(backend, "first"),
    "it has more": lambda backend, names: define(backend, _both(disk=12)),
    "it has another cell": lambda backend, names: define(backend, _both(3)),
    "it has a cell less": lambda backend, names: _without_cell(backend),
    "a device has another trait": lambda backend, names: define(
        backend, _both(traits=["CUSTOM_B"])
    ),
    "it is in another aggregate": lambda backend, names: _edited(backend, aggregates=["rack-2"]),
    "it has another trait": lambda backend, names: _edited(backend, traits=["CUSTOM_B"]),
    "it has another name": lambda backend, names: _renamed(backend),
    "it is below another": lambda backend, names: _below_another(backend),
    "it is gone": lambda backend, names: remove(backend, "host0"),
    "it is back": lambda backend, names: _back(backend),
    "it is back with its uuid": lambda backend, names: _back(backend, names["host0"]),
    "a trait has another name": lambda backend, names: change_names(
        backend, rename(TRAIT, "CUSTOM_H100", "CUSTOM_B")
    ),
    "a class has another name": lambda backend, names: change_names(
        backend, rename(CLASS, CARD, "CUSTOM_BOARD")
    ),
    "an aggregate has another name": lambda backend, names: change_names(
        backend, rename(AGGREGATE, "rack-1", "rack-2")
    ),
    "it is disabled": lambda backend, names: disable(backend, names["host0"]),
    "a cell is disabled": lambda backend, names: disable(
        backend, names["host0/numa0"], until=now() + datetime.timedelta(hours=1)
    ),
    "a device is disabled": lambda backend, names: disable(backend, names[_GPU_AT]),
    "it reported": lambda backend, names: backend.commit(
        Write(Operation(), "report", "host0", reported=(names["host0"],))
    ),
    "it is reshaped": lambda backend, names: _disk_apart(backend),
}
#: Changes that need a host without allocations.
_OF_FREE = {"it has a cell less", "it is gone", "it is back", "it is back with its uuid"}


def _changed(backend: Backend, change: str, names: dict[str, str]) -> None:
    if change in _OF_FREE:
        release(backend, "first")
    _CHANGES[change](backend, names)


def _known_of(columns: Columns, like: Columns) -> Columns:
    """Return the part of columns that ``read_again`` must return, with allocations of ``like``."""
    values = like.providers
    return dataclasses.replace(
        columns,
        providers=columns.providers._replace(
            reported_at=values.reported_at, adopted_at=values.adopted_at
        ),
        allocations=like.allocations,
        cursor=None,
    )


_parametrized = pytest.mark.parametrize("change", _CHANGES)


class AgainRules(Kit):
    """Trees that are read again after a change are current."""

    @law(5)
    @_parametrized
    def test_a_tree_that_is_read_again_is_current(self, backend: Backend, change: str) -> None:
        names = define(backend, _both())
        before = backend.read("host0")
        _take(backend, "first", TOPOLOGY, numa(dedicated=1))
        _changed(backend, change, names)
        again, complete = backend.read_again(before, names["host0"]), backend.read(names["host0"])
        assert _known_of(again, again) == _known_of(complete, again)
        if again.cursor is not None:
            assert again == complete

    @law(5)
    @_parametrized
    def test_a_claim_does_not_depend_on_a_cached_tree(self, backend: Backend, change: str) -> None:
        names = define(backend, _both())
        request = {
            "host0": {
                TOPOLOGY: numa(dedicated=2, memory_mb=64),
                DEVICES: devices(GPU, affinity="required"),
                "DISK_GB": 5,
            }
        }
        before = Ledger(backend)
        before.claim("job", request)
        before.release("job")
        before.claim("first", {"host0": {TOPOLOGY: numa(dedicated=1), "DISK_GB": 1}})
        _changed(backend, change, names)
        result = [_outcome(item, request) for item in (before, Ledger(backend), before)]
        assert result[0] == result[1] == result[2]


def _outcome(ledger: Ledger, request: Any) -> Any:
    """Return the allocations of a claim, which is then released, or the reasons of its refusal."""
    try:
        uses = ledger.claim("job", request)
    except exceptions.CapacityException as refusal:
        return refusal.reasons
    except exceptions.ResourceObjectsError as error:
        return type(error), str(error)
    ledger.release("job")
    return {
        (allocation.provider_uuid, allocation.resource_class): allocation
        for allocation in uses.allocations
    }
