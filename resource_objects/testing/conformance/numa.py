"""Rules of NUMA topologies: cells are kept whole, a claim of many CPUs is one write, none twice."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.ledger import Ledger
from resource_objects.ledger.retries import RetryPolicy
from resource_objects.providers import Backend
from resource_objects.providers.located import Located, LocatedViews
from resource_objects.providers.orders import ClaimOrder, Delta, Replacement
from resource_objects.resources import Amount
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool, numa
from resource_objects.testing.conformance.base import (
    Kit,
    changes_to,
    define,
    kept,
    law,
    order,
    picture,
    release,
)
from resource_objects.testing.conformance.concurrency import together
from resource_objects.testing.conformance.numa_model import TOPOLOGY, host_of
from resource_objects.testing.conformance.workers import claim_topologies, processes

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


def _view(backend: Backend, host: str = "host0") -> Located:
    views = LocatedViews(backend.read(host))
    [root] = views.trees(TOPOLOGY)
    located = views.of_tree(root, TOPOLOGY)
    assert located is not None
    return located


def _take(backend: Backend, consumer: str, amount: Amount) -> Amount:
    """Take an amount where it fits; return it assigned."""
    located = _view(backend)
    assigned = located.fit(amount)
    order(backend, ClaimOrder(consumer, located.deltas(assigned)))
    return assigned


class TopologyRules(Kit):
    """What becomes of topologies."""

    def test_cells_come_back_whole(self, backend: Backend) -> None:
        _define(backend)
        inventory = _cells()
        assert not changes_to(backend, host_of("host0", inventory, DISK_GB=9))
        for number, child in enumerate(kept(backend, "host0").children):
            (cell,) = child.inventories[TOPOLOGY].cells  # type: ignore[attr-defined]
            assert cell == inventory.cells[number]
        inventory.update(room={"VCPU": 6, "PCPU": 8, "MEMORY_MB": 2048})
        assert _view(backend).inventory == inventory

    @law(1)
    def test_what_is_taken_of_cells_is_the_hosts_too(self, backend: Backend) -> None:
        _define(backend)
        asked = numa(2, shared=2, dedicated=4, memory_mb=256)
        _take(backend, "job", asked)
        found = picture(backend)
        for cell in ("host0/numa0", "host0/numa1"):
            used = [found.used(cell, name) for name in ("VCPU", "PCPU", "MEMORY_MB")]
            assert used == [1, 2, 128]
        assert [found.used("host0", n) for n in ("VCPU", "PCPU", "MEMORY_MB")] == [2, 4, 256]
        assert set(found.units) == {
            ("host0/numa0", "cpu2"),
            ("host0/numa0", "cpu4"),
            ("host0/numa1", "cpu8"),
            ("host0/numa1", "cpu10"),
        }

    @law(1, 6)
    def test_the_host_as_a_whole_bounds_its_cells(self, backend: Backend) -> None:
        names = _define(backend)
        order(backend, ClaimOrder("floating", (Delta(names["host0"], "PCPU", 7),)))
        before = picture(backend)
        cell = names["host0/numa0"]
        with pytest.raises(exceptions.CapacityException) as refused:
            order(backend, ClaimOrder("job", (Delta(cell, "PCPU", 2, ("cpu2", "cpu3")),)))
        [reason] = refused.value.reasons
        assert (reason.rule, reason.where, reason.free) == (Rule.CAPACITY, "host0", 1)
        assert picture(backend) == before
        with pytest.raises(exceptions.CapacityException):
            _view(backend).fit(numa(dedicated=2))
        _take(backend, "job", numa(dedicated=1))

    def test_huge_pages_are_of_their_cell_alone(self, backend: Backend) -> None:
        names = _define(backend)
        _take(backend, "job", numa(dedicated=1, memory_mb=112, page_size="2MB"))
        found = picture(backend)
        assert found.used("host0/numa0", _HUGE) == 56  # all but those that are reserved
        assert [found.used(name, "MEMORY_MB") for name in names] == [0, 0, 0]
        with pytest.raises(exceptions.CapacityException):
            order(backend, ClaimOrder("more", (Delta(names["host0/numa0"], _HUGE, 1),)))
        with pytest.raises(exceptions.CapacityException):  # nor is the host's memory in them
            order(backend, ClaimOrder("more", (Delta(names["host0"], "MEMORY_MB", 2049),)))

    @law(2, 4, 6)
    def test_many_cpus_are_taken_in_one_write_or_none(self, backend: Backend) -> None:
        _define(backend, 8)
        located = _view(backend)
        wanted = located.deltas(located.inventory.fit(numa(8, dedicated=16, memory_mb=8 * 64)))
        [*_, last] = [delta for delta in wanted if delta.units]
        theft = dataclasses.replace(last, amount=1, units=last.units[-1:])
        order(backend, ClaimOrder("thief", (theft,)))
        before = picture(backend)
        with pytest.raises(exceptions.UnitTaken) as refused:
            order(backend, ClaimOrder("job", wanted))
        [reason] = refused.value.reasons
        assert (reason.unit, reason.holders) == (theft.units[0], (("thief", 1),))
        assert picture(backend) == before
        release(backend, "thief")
        order(backend, ClaimOrder("job", wanted))
        assert len(picture(backend).units) == 16

    @law(3, 5)
    def test_the_view_is_the_inventory_that_consumed_the_same(self, backend: Backend) -> None:
        _define(backend)
        model: Any = _view(backend).inventory.obj_clone()
        said: dict[str, Any] = {}
        for number, asked in enumerate(
            [
                numa(dedicated=1, thread_policy="isolate"),
                numa(2, shared=2, dedicated=2, memory_mb=64),
                numa(dedicated=1, memory_mb=64, page_size="any", emulator_policy="isolate"),
            ]
        ):
            said[f"job-{number}"] = _take(backend, f"job-{number}", asked)
            assert model.consume(asked) == said[f"job-{number}"]
            assert _view(backend).inventory == model
        release(backend, "job-1")
        model.consume(-said.pop("job-1"))
        located = _view(backend)
        assert located.inventory == model
        for name, assigned in said.items():
            record = backend.held(name)
            assert record is not None
            assert located.placed(assigned.unassigned(), record.held) == assigned

    @law(2)
    def test_a_topology_changes_places_in_one_write(self, backend: Backend) -> None:
        _define(backend)
        located = _view(backend)
        first, second = (
            located.inventory.fit_within(numa(dedicated=4), [number]) for number in (0, 1)
        )
        order(backend, ClaimOrder("a", located.deltas(first)))
        order(backend, ClaimOrder("b", located.deltas(second)))
        order(
            backend,
            Replacement("a", located.deltas(second)),
            Replacement("b", located.deltas(first)),
        )
        assert {key: who for key, (_, who) in picture(backend).units.items()} == {
            **{("host0/numa1", f"cpu{cpu}"): "a" for cpu in range(8, 12)},
            **{("host0/numa0", f"cpu{cpu}"): "b" for cpu in range(2, 6)},
        }

    @law(4)
    def test_threads_never_get_one_cpu_twice(self, backend: Backend) -> None:
        """All want the same CPUs first; each gets some, for there are enough."""
        _define(backend)
        ledger = Ledger(backend, retries=RetryPolicy(fits=200))
        asked = {"host0": {TOPOLOGY: numa(dedicated=1)}}
        outcomes = together(lambda n: ledger.claim(f"job-{n}", asked), 8)
        assert [one for one in outcomes if isinstance(one, BaseException)] == []
        assert len(picture(backend).units) == 8
        with pytest.raises(exceptions.CapacityException):
            ledger.claim("more", asked)

    @law(4)
    def test_processes_never_get_one_cpu_twice(self, backend: Backend, url: str) -> None:
        self.need("multi_process")
        _define(backend)
        with ProcessPoolExecutor(3, mp_context=processes()) as pool:
            futures: list[Future[dict[str, str]]] = [
                pool.submit(claim_topologies, self.backend_class, url, "host0", f"w{n}", 12)
                for n in range(3)
            ]
            told = {name: cpus for one in futures for name, cpus in one.result().items()}
        found = picture(backend)
        held: dict[str, set[str]] = {}
        for (_, unit), (_, consumer) in found.units.items():
            held.setdefault(consumer, set()).add(unit.removeprefix("cpu"))
        assert held == {name: set(cpus.split(",")) for name, cpus in told.items()}
        assert found.used("host0", "PCPU") == len(found.units)
