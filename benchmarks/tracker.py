"""What a look of the resource tracker costs: at hosts that did not change, and the first time.

CPU time, the best of several rounds; statements are counted on SQLite. Time that others take on
the same machine is not in it. A claim on a host with cells and devices, and a look at one on which
consumers are, stand beside Nova's own tracker where that is installed
(:mod:`benchmarks.nova_tracker` tells what of it is stood in for).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks import nova_tracker, statements
from benchmarks.measure import Row
from resource_objects.host import Machine, provider_tree
from resource_objects.host.machine import Core, NUMACell, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker import Driver, ResourceTracker
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool
from resource_objects.resources.pci import Device, DeviceSpec

#: Bare-metal hosts of one agent.
HOSTS = 5_000
CELLS, DEVICES = 8, 64
#: Consumers of a host that is reshaped, and the GPUs that its VGPUs become those of.
CONSUMERS, GPUS = 500, 8
#: CPUs and GiB of a cell.
CPUS, MEMORY = 16, 64
DISK_GB = 10_000
_GIB = 2**30
#: What each consumer asks for: pinned CPUs and memory of a cell, disk, and a device.
SIZE = nova_tracker.Size(2, 512, 10, cells=1, devices=(("gpu", 1),))
TAKEN = "PCPU=2,MEMORY_MB=512,DISK_GB=10,PGPU=1"
ALIASES = {"gpu": DeviceSpec(vendor_id="10de", product_id="2330")}
#: Consumers that are there already when a claim is measured, and of looks.
HELD, CROWDS = 32, (0, 8, 32, 64)
#: What a claim may take; on SQLite 300 a second.
CLAIM_MS = {"memory": 1, "SQLite": 3.3}
#: How often a claim is made and given back.
ROUNDS = 30


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

    def __init__(self, crowd: int = 0) -> None:
        self._read = itertools.cycle([_machine(), _machine()])
        self._crowd = crowd

    def hosts(self) -> Iterable[str]:
        """Return its name."""
        return ["large"]

    def get_available_resource(self, host: str) -> Machine:
        """Return the facts."""
        return next(self._read)

    def update_provider_tree(self, tree: ro.Provider, available: Any) -> None:
        """Make the tree of the facts."""
        cpus = f"0-{CELLS * CPUS - 1}"
        made = provider_tree(
            available, HostSettings(device_rules=["10de:*=PGPU"], dedicated=cpus), numa=True
        )
        has = ro.Inventories({**made.inventories, "DISK_GB": DISK_GB})
        tree.update(inventories=has, traits=made.traits, children=made.children)

    def consumers(self, host: str) -> dict[str, str]:
        """Return who runs there, and what each takes."""
        return {f"held-{number}": TAKEN for number in range(self._crowd)}


def _machine() -> Machine:
    cpus = [range(cell * CPUS, cell * CPUS + CPUS) for cell in range(CELLS)]
    return Machine(
        hostname="large",
        cpus=tuple(itertools.chain(*cpus)),
        cores=tuple(Core(c, cell, (c,)) for cell, some in enumerate(cpus) for c in some),
        memory_bytes=CELLS * MEMORY * _GIB,
        cells=tuple(NUMACell(n, tuple(some), MEMORY * _GIB) for n, some in enumerate(cpus)),
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
    yield from _beside_nova()


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


def _beside_nova() -> Iterator[Row]:
    """Yield claims and looks, each beside Nova's own where that is installed."""
    if nova_tracker.is_installed():
        with _nova(HELD) as agent:
            theirs: dict[str, float] = dict(_their_claim(agent))
    else:
        theirs = {}
    what = f"claim with cells and a device, {CELLS} cells, {DEVICES} devices, {HELD} consumers"
    for kind in ("memory", "SQLite"):
        with _ours(kind, HELD) as (one, count):
            taken = _best_ms(
                lambda: one.claim("new", "large", _asked()), after=lambda: one.release("new")
            )
            row = _beside(f"{kind}: {what}", "ms", taken, theirs.get("ms"))
            most = CLAIM_MS[kind]
            yield dataclasses.replace(row, target=f"at most {most:g} ms", met=taken <= most)
            count.reset()
            one.claim("new", "large", _asked())
            sent = count.statements
        if kind == "SQLite":
            name = f"{kind}: statements of a claim (nova: calls of its database)"
            yield _beside(name, "calls", sent, theirs.get("calls"))
    yield from _move_beside()
    for crowd in CROWDS:
        yield from _look_beside(crowd)


def _move_beside() -> Iterator[Row]:
    """Yield a resize within the host, begun and confirmed; of Nova its claim and the drop of it."""
    theirs: dict[str, float] = {}
    if nova_tracker.is_installed():
        with _nova(HELD) as agent:
            theirs = dict(_their_resize(agent))
    what = f"a resize begun and confirmed, {CELLS} cells, {DEVICES} devices, {HELD} consumers"
    for kind in ("memory", "SQLite"):
        with _ours(kind, HELD) as (one, count):

            def resize(one: ResourceTracker = one) -> None:
                one.move("new", "large", _asked()).confirm()

            def begin(one: ResourceTracker = one) -> None:
                one.claim("new", "large", _asked()).confirm()

            taken = _best_ms(resize, before=begin, after=lambda one=one: one.release("new"))
            yield _beside(f"{kind}: {what}", "ms", taken, theirs.get("ms"))
            begin()
            count.reset()
            resize()
            sent = count.statements
        if kind == "SQLite":
            name = f"{kind}: statements of a resize (nova: calls of its database)"
            yield _beside(name, "calls", sent, theirs.get("calls"))


def _their_resize(agent: nova_tracker.Agent) -> Iterator[tuple[str, float]]:
    """Yield what Nova's claim of a resize and its drop take, and how often its database is called.

    Instances are deleted after a look: who was resized on its host is not tracked before that.
    """
    numbers = itertools.count()
    running: list[Any] = []

    def begin() -> None:
        running[:] = [agent.instance(f"new-{next(numbers)}", SIZE)]
        agent.claim(running[0])
        agent.built(running[0])

    def resize() -> None:
        agent.confirm(running[0], agent.resize(running[0], SIZE))

    def end() -> None:
        agent.look()
        agent.delete(running[0])

    yield "ms", _best_ms(resize, before=begin, after=end)
    begin()
    agent.database.calls.clear()
    resize()
    yield "calls", agent.database.calls.total()


def _look_beside(crowd: int) -> Iterator[Row]:
    """Yield looks at a host that did not change, with so many consumers on it."""
    ms = calls = None
    if nova_tracker.is_installed():
        with _nova(crowd) as agent:
            ms = _ms(agent.look)
            agent.database.calls.clear()
            agent.look()
            calls = agent.database.calls.total()
    what = f"a look, {CELLS} cells, {DEVICES} devices, {crowd} consumers, unchanged"
    for kind in ("memory", "SQLite"):
        with _ours(kind, crowd) as (one, count):
            yield _beside(f"{kind}: {what}", "ms", _ms(one.update_available_resource, 50), ms)
            both = f"{kind}: the same, and who runs there compared with the ledger"
            yield _beside(f"{both}, {crowd} consumers", "ms", _ms(lambda: _audit(one)), ms)
            count.reset()
            one.update_available_resource()
            sent = count.statements
        if kind == "SQLite":
            name = f"{kind}: statements of that look (nova: calls of its database)"
            yield _beside(f"{name}, {crowd} consumers", "calls", sent, calls)


def _audit(one: ResourceTracker) -> None:
    """Look, and compare who runs there with the ledger, as Nova's look counts its instances."""
    one.update_available_resource()
    if drift := one.drift():
        raise AssertionError(drift)


def _asked() -> dict[str, Any]:
    return SIZE.asked(ALIASES)


@contextlib.contextmanager
def _ours(kind: str, crowd: int) -> Iterator[tuple[ResourceTracker, statements.Count]]:
    """Open a tracker of the large host with so many consumers on it."""
    with tempfile.TemporaryDirectory() as place, statements.counted() as count:
        url = "memory://" if kind == "memory" else f"sqlite:///{place}/ledger.db"
        with ro.connect(url) as ledger:
            one = ResourceTracker(ledger, Large(crowd))
            one.update_available_resource()
            for number in range(crowd):
                one.claim(f"held-{number}", "large", _asked())
            one.update_available_resource()
            yield one, count


@contextlib.contextmanager
def _nova(crowd: int) -> Iterator[nova_tracker.Agent]:
    """Open Nova's tracker of the same host with as many instances on it."""
    database = nova_tracker.Database()
    with database.in_place(ALIASES):
        totals = {
            "vcpus": CELLS * CPUS,
            "memory_mb": CELLS * MEMORY * 1024,
            "local_gb": DISK_GB,
        }
        agent = nova_tracker.Agent("large", database, _cells(), _devices(), totals)
        agent.look()
        for number in range(crowd):
            instance = agent.instance(f"held-{number}", SIZE)
            agent.claim(instance)
            agent.built(instance)
        agent.look()
        yield agent


def _cells() -> NUMATopologyInventory:
    """Return the cells of the large host; each CPU is a core, which Nova has to be told."""
    return NUMATopologyInventory(
        [
            HostCell(
                cell,
                dedicated=cpus,
                siblings=[[cpu] for cpu in cpus],
                memory_mb=MEMORY * 1024,
                pages=[PagePool(size_kib=4, total=MEMORY * 1024 * 256)],
            )
            for cell in range(CELLS)
            for cpus in [range(cell * CPUS, cell * CPUS + CPUS)]
        ]
    )


def _devices() -> tuple[Device, ...]:
    return tuple(
        Device(one.address, one.vendor_id, one.product_id, numa_node=one.numa_node)
        for one in _machine().devices
    )


def _their_claim(agent: nova_tracker.Agent) -> Iterator[tuple[str, float]]:
    """Yield what Nova's claim takes, and how often it calls its database."""
    numbers = itertools.count()

    def begin() -> Any:
        return agent.instance(f"new-{next(numbers)}", SIZE)

    taken = []
    for _ in range(ROUNDS):
        instance = begin()
        start = time.process_time()
        claim = agent.claim(instance)
        taken.append(time.process_time() - start)
        agent.abort(claim, instance)
    yield "ms", min(taken) * 1000
    agent.database.calls.clear()
    agent.claim(begin())
    yield "calls", agent.database.calls.total()


def _best_ms(
    step: Callable[[], object],
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> float:
    """Return the CPU milliseconds of the best step; what is before and after is not in it."""
    taken = []
    for _ in range(ROUNDS):
        before()
        start = time.process_time()
        step()
        taken.append(time.process_time() - start)
        after()
    return min(taken) * 1000


def _beside(name: str, unit: str, ours: float, theirs: float | None) -> Row:
    if theirs is None:
        return Row(name, unit, ours)
    return Row(name, unit, ours, theirs, nova_tracker.NAME, ours / theirs if theirs else None)


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
