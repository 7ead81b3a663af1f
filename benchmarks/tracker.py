"""What a look of the resource tracker costs: at hosts that did not change, and the first time.

CPU time, the best of several rounds; statements are counted on SQLite. Time that others take on
the same machine is not in it.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks import statements
from benchmarks.measure import Row
from resource_objects.host import Machine, provider_tree
from resource_objects.host.facts import Core, NUMACell, PCIDevice
from resource_objects.host.tracker import Driver, ResourceTracker
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape

#: Bare-metal hosts of one agent.
HOSTS = 5_000
CELLS, DEVICES = 8, 64
#: Consumers of a host that is reshaped, and the GPUs that its VGPUs become those of.
CONSUMERS, GPUS = 500, 8
_GIB = 2**30


class BareMetal(Driver):
    """Hosts that are one unit each."""

    def __init__(self, count: int) -> None:
        self._hosts = [f"node-{number:04}" for number in range(count)]

    def hosts(self) -> Iterable[str]:
        """Return their names."""
        return self._hosts

    def get_available_resource(self, host: str) -> str:
        """Return the one unit."""
        return "CUSTOM_BAREMETAL=1"


class Large(Driver):
    """A host with cells and devices, read anew for each look: equal to what was read before."""

    def __init__(self) -> None:
        self._read = itertools.cycle([_machine(), _machine()])

    def hosts(self) -> Iterable[str]:
        """Return its name."""
        return ["large"]

    def get_available_resource(self, host: str) -> Machine:
        """Return the facts."""
        return next(self._read)

    def update_provider_tree(self, tree: ro.Provider, available: Any) -> None:
        """Make the tree of the facts."""
        made = provider_tree(available, rules=["10de:*=PGPU"], numa=True)
        tree.update(inventories=made.inventories, traits=made.traits, children=made.children)


def _machine() -> Machine:
    cpus = [range(cell * 16, cell * 16 + 16) for cell in range(CELLS)]
    return Machine(
        hostname="large",
        cpus=tuple(itertools.chain(*cpus)),
        cores=tuple(Core(c, cell, (c,)) for cell, some in enumerate(cpus) for c in some),
        memory_bytes=CELLS * 64 * _GIB,
        cells=tuple(NUMACell(n, tuple(some), 64 * _GIB) for n, some in enumerate(cpus)),
        devices=tuple(
            PCIDevice(f"0000:{n:02x}:00.0", "10de", "2330", "030200", numa_node=n % CELLS)
            for n in range(DEVICES)
        ),
    )


def rows() -> Iterator[Row]:
    """Yield rows in memory, then what is sent to a database."""
    with ro.connect("memory://") as ledger:
        fleet = ResourceTracker(ledger, BareMetal(HOSTS))
        first = f"memory: {HOSTS:,} bare-metal hosts"
        yield Row(f"{first}, the first look", "ms", _ms(fleet.update_available_resource, 1))
        yield _within(f"{first}, unchanged", _ms(fleet.update_available_resource), 1_000)
        again = ResourceTracker(ledger, BareMetal(HOSTS))
        yield Row(f"{first}, by a new tracker", "ms", _ms(again.update_available_resource, 1))
    hosts = {"a plain host": BareMetal(1), f"{CELLS} cells, {DEVICES} devices": Large()}
    for name, driver in hosts.items():
        for kind in ("memory", "SQLite"):
            with tempfile.TemporaryDirectory() as place:
                url = "memory://" if kind == "memory" else f"sqlite:///{place}/ledger.db"
                with ro.connect(url) as ledger:
                    one = ResourceTracker(ledger, driver)
                    one.update_available_resource()
                    look = _ms(one.update_available_resource, 50)
                    yield _within(f"{kind}: {name}, unchanged", look, 1)
    yield from _sent()
    yield from _reshaped()


def _sent() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory() as place,
        statements.counted() as count,
        ro.connect(f"sqlite:///{place}/ledger.db") as ledger,
    ):
        fleet = ResourceTracker(ledger, BareMetal(HOSTS))
        for what in ("the first look", "after that", "unchanged"):
            count.reset()
            fleet.update_available_resource()
            name = f"SQLite: statements for {HOSTS:,} hosts, {what}"
            yield Row(name, "statements", count.statements)


class Reshaping(Driver):
    """A host whose VGPUs are counted by the host, and from some time on by its GPUs."""

    is_nested = False

    def hosts(self) -> Iterable[str]:
        """Return its name."""
        return ["box"]

    def get_available_resource(self, host: str) -> bool:
        """Return how they are counted."""
        return self.is_nested

    def update_provider_tree(self, tree: ro.Provider, available: Any) -> Iterable[Move]:
        """Make the tree, and say which consumer is where."""
        has = {"VCPU": 4 * CONSUMERS}
        if not available:
            tree.update(inventories=ro.Inventories({**has, "VGPU": CONSUMERS}))
            return ()
        gpus = [ro.Provider(f"box/gpu{n}", {"VGPU": CONSUMERS}) for n in range(GPUS)]
        tree.update(inventories=ro.Inventories(has), children=gpus)
        return (Move("box", "VGPU", _parts()),)


def _parts() -> tuple[Part, ...]:
    owners = [{f"vm-{n}": 1 for n in range(gpu, CONSUMERS, GPUS)} for gpu in range(GPUS)]
    return tuple(
        Part(f"box/gpu{gpu}", total=CONSUMERS, consumers=own) for gpu, own in enumerate(owners)
    )


def _reshaped() -> Iterator[Row]:
    """Yield what it takes to reshape a host, by its tracker and by the ledger alone."""
    create = tuple(NewProvider(f"box/gpu{n}", "box") for n in range(GPUS))
    alone = Reshape((Move("box", "VGPU", _parts(), total=CONSUMERS),), create)
    for kind in ("memory", "SQLite"):
        taken: dict[str, list[float]] = {"by the ledger": [], "by the tracker": []}
        for name, times in taken.items():
            for _ in range(5):
                with tempfile.TemporaryDirectory() as place:
                    url = "memory://" if kind == "memory" else f"sqlite:///{place}/ledger.db"
                    with ro.connect(url) as ledger:
                        driver = Reshaping()
                        tracker = ResourceTracker(ledger, driver)
                        tracker.update_available_resource()
                        for n in range(CONSUMERS):
                            ledger.claim(f"vm-{n}", {"box": "VCPU=4,VGPU=1"})
                        driver.is_nested = True
                        done: Callable[[], object] = tracker.update_available_resource
                        if name == "by the ledger":
                            done = functools.partial(ledger.reshape, alone)
                        times.append(_ms(done, 1))
        ledger_alone, by_tracker = map(min, taken.values())
        what = f"{kind}: a host with {CONSUMERS} consumers, reshaped"
        yield Row(f"{what} by the ledger", "ms", ledger_alone)
        yield _within(f"{what} by the tracker", by_tracker, round(1.2 * ledger_alone, 1))


def _within(name: str, taken: float, most: float) -> Row:
    return Row(name, "ms", taken, target=f"at most {most:g} ms", met=taken <= most)


def _ms(function: Callable[[], object], rounds: int = 7) -> float:
    """Return the CPU milliseconds of the best round."""
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        function()
        taken.append(time.process_time() - start)
    return min(taken) * 1000
