"""The resource tracker: updates, claims and resizes, next to Nova's if it is installed.

CPU time, the best of several rounds; statements are counted on SQLite. The docstring of
:mod:`benchmarks.nova_tracker` lists the parts of Nova that are replaced by stubs.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import resource_objects as ro
from benchmarks import nova_objects, nova_tracker, statements
from benchmarks.measure import Row, least_seconds, milliseconds
from resource_objects.host.tracker import Driver, ResourceTracker
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool
from resource_objects.resources.pci import Device, DeviceSpec, PCIInventory

BARE_METAL = 5_000  #: hosts of one agent
CELLS, DEVICES, CONSUMERS = 8, 64, 32
CPUS, MEMORY_MB = 16, 65536  #: of a cell
DISK_GB = 10_000
#: Each consumer has pinned CPUs and memory of a cell, disk and a device.
SIZE = nova_tracker.Size(2, 512, 10, cells=1, devices=(("gpu", 1),))
ALIASES = {"gpu": DeviceSpec(vendor_id="10de", product_id="2330")}
CLAIM_MS = {"memory": 0.8, "SQLite": 2.5}
ROUNDS = 30
HOST = "large"


def rows() -> Iterator[Row]:
    """Yield the rows of many hosts, then those of a large host."""
    with ro.connect("memory://") as ledger:
        tracker = ResourceTracker(ledger, BareMetal())
        title = f"memory: {BARE_METAL:,} bare-metal hosts"
        update = tracker.update_available_resource
        yield milliseconds(f"{title}, the first update", update, rounds=1)
        yield milliseconds(f"{title}, an update without changes", update, limit=1_000, rounds=3)
    nova = dict(_nova_figures()) if nova_objects.is_installed() else {}
    for backend in ("memory", "SQLite"):
        yield from _large_host(backend, nova)


class BareMetal(Driver):
    """A driver of hosts with one unit each."""

    def hosts(self) -> Iterable[str]:
        """Return the names of the hosts."""
        return [f"node-{number:04}" for number in range(BARE_METAL)]

    def get_available_resource(self, host: str) -> str:
        """Return the one unit."""
        return "CUSTOM_BAREMETAL=1"


class LargeHost(Driver):
    """A driver of one host with cells and devices, which are equal at each update."""

    def hosts(self) -> Iterable[str]:
        """Return the name of the host."""
        return [HOST]

    def get_available_resource(self, host: str) -> str:
        """Return a description of the hardware, which the tracker compares with the last one."""
        return f"{CELLS} cells, {DEVICES} devices"

    def update_provider_tree(self, tree: ro.Provider, available: Any) -> None:
        """Build the tree of the host."""
        provider = ro.Provider(HOST, {"DISK_GB": DISK_GB, "PCPU": CELLS * CPUS})
        provider.add_parts("NUMA_TOPOLOGY", _cells())
        provider.add_parts("DEVICES", _devices("PGPU"))
        tree.update(inventories=provider.inventories, children=provider.children)


def _cells() -> NUMATopologyInventory:
    return NUMATopologyInventory(
        [
            HostCell(
                cell,
                dedicated=range(cell * CPUS, (cell + 1) * CPUS),
                siblings=[[cpu] for cpu in range(cell * CPUS, (cell + 1) * CPUS)],
                memory_mb=MEMORY_MB,
                pages=[PagePool(size_kib=4, total=MEMORY_MB * 256)],
                socket=cell,
            )
            for cell in range(CELLS)
        ]
    )


def _devices(resource_class: str | None = None) -> PCIInventory:
    extra = {} if resource_class is None else {"resource_class": resource_class}
    return PCIInventory(
        [
            Device(f"0000:{n:02x}:00.0", "10de", "2330", numa_node=n % CELLS, **extra)
            for n in range(DEVICES)
        ]
    )


# --- a large host ---------------------------------------------------------------------------------


def _large_host(backend: str, nova: Mapping[str, float]) -> Iterator[Row]:
    """Yield claims, resizes and updates of the large host with its consumers."""
    amounts = SIZE.amounts(ALIASES)
    with tempfile.TemporaryDirectory() as folder, statements.counted() as count:
        url = "memory://" if backend == "memory" else f"sqlite:///{folder}/ledger.db"
        with ro.connect(url) as ledger:
            tracker = ResourceTracker(ledger, LargeHost())
            tracker.update_available_resource()
            for number in range(CONSUMERS):
                tracker.claim(f"job-{number}", HOST, amounts)
            tracker.update_available_resource()

            def claim() -> Any:
                return tracker.claim("new", HOST, amounts)

            def resize() -> None:
                tracker.move("new", HOST, amounts).confirm()

            def release() -> None:
                tracker.release("new")

            def begin() -> None:
                claim().confirm()

            update = tracker.update_available_resource
            for title, step, options, limit in (
                ("claim", claim, {"after": release}, CLAIM_MS[backend]),
                ("resize", resize, {"before": begin, "after": release}, None),
                ("update", update, {}, None),
            ):
                figure = least_seconds(step, rounds=ROUNDS, **options) * 1e3
                yield Row(
                    f"{backend}: {TITLES[title]}",
                    "ms",
                    figure,
                    nova.get(f"{title} ms"),
                    nova_objects.NAME,
                    limit,
                )
            if backend == "SQLite":
                count.reset()
                claim()
                name = "SQLite: statements of a claim (nova: calls of its database)"
                sent = count.statements
                yield Row(name, "statements", sent, nova.get("claim calls"), nova_objects.NAME)


_HOST_TITLE = f"{CELLS} cells, {DEVICES} devices, {CONSUMERS} consumers"
TITLES = {
    "claim": f"claim with cells and a device, {_HOST_TITLE}",
    "resize": f"a resize begun and confirmed, {_HOST_TITLE}",
    "update": f"update of an unchanged host, {_HOST_TITLE}",
}


# --- nova -----------------------------------------------------------------------------------------


def _nova_figures() -> Iterator[tuple[str, float]]:
    """Yield the figures of Nova's tracker for the same host and instances."""
    numbers = itertools.count()
    with _nova() as agent:

        def instance() -> Any:
            return agent.instance(f"new-{next(numbers)}", SIZE)

        instances: list[Any] = [instance()]
        claims: list[Any] = []

        def claim() -> None:
            claims[:] = [agent.claim(instances[0])]

        def abort() -> None:
            agent.abort(claims[0], instances[0])
            instances[:] = [instance()]

        yield "claim ms", _best_ms(claim, after=abort)
        agent.database.calls.clear()
        claim()
        yield "claim calls", agent.database.calls.total()
        abort()

        def begin() -> None:
            instances[:] = [instance()]
            agent.claim(instances[0])
            agent.finish_build(instances[0])

        def resize() -> None:
            agent.confirm(instances[0], agent.resize(instances[0], SIZE))

        def end() -> None:
            agent.update()  # before it, Nova does not track an instance that was resized here
            agent.delete(instances[0])

        yield "resize ms", _best_ms(resize, before=begin, after=end)
        yield "update ms", _best_ms(agent.update)


def _best_ms(step: Callable[[], object], **options: Any) -> float:
    return least_seconds(step, rounds=ROUNDS, **options) * 1e3


@contextlib.contextmanager
def _nova() -> Iterator[nova_tracker.Agent]:
    """Open Nova's tracker of the same host with as many instances."""
    database = nova_tracker.Database()
    with database.in_place(ALIASES):
        totals = {
            "vcpus": CELLS * CPUS,
            "memory_mb": CELLS * MEMORY_MB,
            "local_gb": DISK_GB,
        }
        agent = nova_tracker.Agent(HOST, database, _cells(), _devices().devices, totals)
        agent.update()
        for number in range(CONSUMERS):
            instance = agent.instance(f"job-{number}", SIZE)
            agent.claim(instance)
            agent.finish_build(instance)
        agent.update()
        yield agent
