"""What a writer does, over and over, on a few providers that everybody wants.

The hosts of :func:`hot_hosts` are small, so that most of what is asked is fought over. A writer
has consumers of its own, of which it knows what they hold, and meets the others at a few common
ones. It tries what it lost the answer to again, with the same operation, and is killed at any
moment.
"""

from __future__ import annotations

import abc
import dataclasses
import logging
import random
import time
import traceback
import uuid as uuids
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.dry_run import without_consumers
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Operation,
    Use,
    Write,
    subject_of,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Amount, Inventories
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.resources.pci import Device, PCIAmount, PCIInventory, devices
from tests.support.diary import Diary

HOSTS = ("hot0", "hot1", "hot2")
CELLS = ("cell0", "cell1")
#: What moves between a host and a child that comes and goes with it.
DISK = "CUSTOM_DISK"
_COMMON = ("common-0", "common-1", "common-2")
_UNITS = tuple(f"cpu{number}" for number in range(6))
#: Consumers of its own that a writer keeps.
_MOST_OWN = 8
#: Nobody knows whether these did something.
UNSURE = ("LostConnection", "DatabaseUnavailable")


def hot_hosts() -> list[Provider]:
    """Return the hosts: two cells each, whose CPUs are dedicated by name and use the host's."""
    return [_hot_host(name) for name in HOSTS]


def _hot_host(name: str) -> Provider:
    root = Provider(name, f"VCPU=24,MEMORY_MB=64,{DISK}=30")
    share = Share(resource_class="PCPU", of=name, of_class="VCPU", factor=2)
    for cell in CELLS:
        root.add(f"{name}/{cell}", f"PCPU={len(_UNITS)}", shares=[share])
    return root


@dataclasses.dataclass(frozen=True)
class Task:
    """What a writer process is given; everything in it survives pickling."""

    backend_class: type[Backend]
    url: str
    who: str
    seed: int
    diary: str
    stop: str  #: a file: the writer ends when it is there
    kind: type[Writer] | None = None  #: None: a :class:`Writer`


def work(task: Task) -> None:
    """Write until told to stop, or killed. An unexpected error is written down and ends it."""
    logging.disable(logging.CRITICAL)  # drivers and pools tell of each connection that was cut
    with Diary(Path(task.diary)) as diary:
        try:
            _work(task, diary)
        except Exception:
            diary.died(traceback.format_exc())
            raise


def _work(task: Task, diary: Diary) -> None:
    backend = _open(task)
    if backend is None:
        return
    try:
        writer = (task.kind or Writer)(task, backend, diary)
        while not Path(task.stop).exists():
            writer.step()
    finally:
        backend.close()


def _open(task: Task) -> Backend | None:
    """Open the ledger, also while the server comes up again."""
    while not Path(task.stop).exists():
        try:
            return task.backend_class.open(task.url)
        except exceptions.DatabaseError as error:
            if not error.matches(*UNSURE):
                raise
            time.sleep(0.1)
    return None


class Writer:
    """One writer: its consumers, as it was told last, and where things are."""

    def __init__(self, task: Task, backend: Backend, diary: Diary) -> None:
        self._task, self._backend, self._diary = task, backend, diary
        self._chance = random.Random(f"{task.seed}-{task.who}")
        self._own: dict[str, ConsumerRecord] = {}
        self._count = 0
        self._uuid: dict[str, str] = {}
        self._disk: dict[str, str] = {}
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (30, self._claim),
            (20, self._release),
            (12, self._move),
            (8, self._adjust),
            (6, self._swap),
            (6, self._gang),
            (12, self._common),
            (3, self._renew),
            (3, self._resize),
            (3, self._reshape),
        ]

    def step(self) -> None:
        """Do one thing at random. While the ledger cannot be reached, try again."""
        weights = [weight for weight, _ in self._steps]
        [(_, do)] = self._chance.choices(self._steps, weights)
        try:
            if not self._disk:
                self._look()
            do()
        except exceptions.DatabaseError as error:
            if not error.matches(*UNSURE):
                raise
            time.sleep(0.05)  # it was read before a write

    def _look(self) -> None:
        """Find out where things are."""
        columns = self._backend.read(*HOSTS, allocations=False)
        self._uuid = dict(zip(columns.providers.name, columns.providers.uuid, strict=True))
        name = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
        for number, kind, *_ in zip(*columns.inventories, strict=True):
            if kind == DISK:
                self._disk[name[number].partition("/")[0]] = self._uuid[name[number]]

    # --- what is asked ---

    def _write(
        self,
        kind: str,
        orders: Sequence[ConsumerOrder] = (),
        definitions: DefinitionChanges | None = None,
    ) -> tuple[ConsumerRecord, ...] | None:
        """Ask, note what came of it, and return it; None if it was refused or nobody knows."""
        subject = subject_of(one.consumer for one in orders) if orders else "a tree"
        write = Write(Operation(actor=self._task.who), kind, subject, definitions, tuple(orders))
        self._diary.asks(write)
        while True:
            try:
                claims = self._backend.commit(write)
            except (exceptions.CapacityException, exceptions.LedgerError) as error:
                if error.matches(*UNSURE):
                    self._diary.lost(write.operation.id)
                    if self._chance.random() < 0.2 or Path(self._task.stop).exists():
                        self._forget(orders)
                        return None
                    time.sleep(self._chance.uniform(0, 0.05))
                    continue
                self._diary.refused(write.operation.id, error)
                self._disk.clear()  # perhaps it is somewhere else now
                return None
            else:
                self._diary.did(write.operation.id, claims)
                self._note(claims)
                return claims

    def _note(self, claims: Sequence[ConsumerRecord]) -> None:
        for claim in claims:
            if claim.consumer in _COMMON:
                continue
            self._own[claim.consumer] = claim
            if claim.state == "released":
                del self._own[claim.consumer]

    def _forget(self, orders: Sequence[ConsumerOrder]) -> None:
        for one in orders:
            self._own.pop(one.consumer, None)

    def _new_name(self) -> str:
        self._count += 1
        return f"{self._task.who}-{self._count}"

    def _some_own(self, number: int) -> list[str]:
        return self._chance.sample(sorted(self._own), min(number, len(self._own)))

    def _wanted(self) -> tuple[Use, ...]:
        """Return what a consumer is to hold, somewhere: CPUs by count or by name, or disk."""
        host = self._chance.choice(HOSTS)
        root = self._uuid[host]
        what = self._chance.random()
        if what < 0.3:
            cell = self._uuid[f"{host}/{self._chance.choice(CELLS)}"]
            units = tuple(self._chance.sample(_UNITS, self._chance.randint(1, 2)))
            memory = Use(root, "MEMORY_MB", self._chance.randint(1, 4))
            return Use(cell, "PCPU", len(units), units), memory
        if what < 0.55:
            return (Use(self._disk.get(host, root), DISK, self._chance.randint(1, 4)),)
        other = self._uuid[self._chance.choice([name for name in HOSTS if name != host])]
        cpus = Use(root, "VCPU", self._chance.randint(1, 4))
        return cpus, Use(other, "MEMORY_MB", self._chance.randint(1, 8))

    # --- what is done ---

    def _claim(self) -> None:
        if len(self._own) >= _MOST_OWN:
            return self._release()
        self._write(
            "claim", [ConsumerOrder.claim(self._new_name(), self._wanted(), project=self._task.who)]
        )
        return None

    def _release(self) -> None:
        names = self._some_own(self._chance.choice([1, 1, 2]))
        if names:
            self._write("release", [ConsumerOrder.release(name) for name in names])

    def _move(self) -> None:
        for name in self._some_own(1):
            generation = self._chance.choice([None, self._own[name].generation])
            self._write(
                "move", [ConsumerOrder.replace(name, self._wanted(), generation=generation)]
            )

    def _adjust(self) -> None:
        for name in self._some_own(1):
            held = self._chance.choice(self._own[name].held)
            units = held.units[:1]
            less = Use(held.provider_uuid, held.resource_class, -1, units)
            more = Use(held.provider_uuid, held.resource_class, 1)
            self._write(
                "adjust", [ConsumerOrder.adjust(name, (self._chance.choice([less, more]),))]
            )

    def _swap(self) -> None:
        names = self._some_own(2)
        if len(names) == 2:
            first, second = (
                tuple(Use(*one.key, one.amount, one.units) for one in self._own[name].held)
                for name in names
            )
            self._write(
                "swap",
                [ConsumerOrder.replace(names[0], second), ConsumerOrder.replace(names[1], first)],
            )

    def _gang(self) -> None:
        if len(self._own) < _MOST_OWN:
            self._write(
                "gang", [ConsumerOrder.claim(self._new_name(), self._wanted()) for _ in range(3)]
            )

    def _renew(self) -> None:
        for name in self._some_own(1):
            self._write(
                "renew",
                [ConsumerOrder.renew(name, None, self._chance.choice(["held", "confirmed"]))],
            )

    def _common(self) -> None:
        """Change what everybody changes."""
        name = self._chance.choice(_COMMON)
        kept = self._backend.consumer(name)
        generation = kept.generation if kept and self._chance.random() < 0.5 else None
        choices: list[ConsumerOrder] = [
            ConsumerOrder.adjust(name, self._wanted()[:1], generation=generation),
            ConsumerOrder.replace(name, self._wanted(), generation=generation),
        ]
        if kept is not None:
            choices.append(ConsumerOrder.release(name, generation=generation))
        mine = [ConsumerOrder.release(own) for own in self._some_own(1)]
        self._write("common", [self._chance.choice(choices), *mine])

    def _resize(self) -> None:
        """Shrink or grow a host, also below what is used."""
        name = self._chance.choice(HOSTS)
        kept = self._tree(name)
        wanted = kept.obj_clone()
        wanted.inventories["VCPU"] = self._chance.randint(8, 32)
        wanted.inventories["MEMORY_MB"] = self._chance.randint(32, 96)
        self._write("resize", definitions=diff(kept, wanted))

    def _reshape(self) -> None:
        """Move the disk of a host, with all who hold some, to a new child, or back from it."""
        name = self._chance.choice(HOSTS)
        columns = self._backend.read(name)
        [kept] = trees(columns)
        wanted = kept.obj_clone()
        disks = [kind for kind, _ in wanted.inventories.by_name() if kind == DISK]
        if disks:
            there = str(uuids.uuid4())
            wanted.add(f"{name}/disk", {DISK: self._chance.randint(20, 40)}, uuid=there)
            wanted.inventories = Inventories(
                {kind: one for kind, one in wanted.inventories.by_name() if kind != DISK}
            )
        else:
            there = kept.uuid or ""
            wanted.inventories[DISK] = 30
            wanted.children = tuple(one for one in wanted.children if one.name in self._cells(name))
        number = dict(zip(columns.providers.provider_id, columns.providers.uuid, strict=True))
        moves = [
            ConsumerOrder.adjust(
                consumer,
                (Use(number[at], DISK, -amount), Use(there, DISK, amount)),
            )
            for at, kind, consumer, amount in zip(*columns.allocations, strict=True)
            if kind == DISK
        ]
        self._write("reshape", moves, diff(kept, wanted))

    def _cells(self, name: str) -> list[str]:
        return [f"{name}/{cell}" for cell in CELLS]

    def _tree(self, name: str) -> Provider:
        [kept] = trees(self._backend.read(name, allocations=False))
        return kept


# --- amounts that say where they are ---
# Fitted on what is read, then taken. Between the two anything may happen: somebody else takes one
# of the units, or what there is changes.


class LocatedWriter(Writer, abc.ABC):
    """A writer of amounts of one kind, on hosts of its own."""

    hosts: ClassVar[tuple[str, ...]]
    kind: ClassVar[str]

    def __init__(self, task: Task, backend: Backend, diary: Diary) -> None:
        super().__init__(task, backend, diary)
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (32, self._place),
            (16, self._release),
            (10, self._replace),
            (10, self._give_back),
            (10, self._steal),
            (10, self._exchange),
            (5, self._switch),
        ]

    def _look(self) -> None:
        """Find nothing: what is where is read before each decision."""
        self._disk["read"] = "each time"

    # --- what differs ---

    @abc.abstractmethod
    def _amount(self) -> Amount:
        """Return something to ask for."""

    @abc.abstractmethod
    def _units(self, located: LocatedView) -> Use:
        """Return a change that takes units by name, be they free or not."""

    @abc.abstractmethod
    def _switch(self) -> None:
        """Change what there is, be it taken or not."""

    # --- what is asked ---

    def _fitted(self, columns: Columns) -> tuple[Use, ...]:
        """Return what some amount would take, nothing if it does not fit."""
        located = self._view(columns)
        try:
            return located.deltas(located.inventory.fit(self._amount()))
        except exceptions.CapacityException:
            return ()

    def _read(self) -> Columns:
        return self._backend.read(self._chance.choice(self.hosts))

    def _view(self, columns: Columns) -> LocatedView:
        views = LocatedViews(columns)
        [root] = views.trees(self.kind)
        located = views.of_tree(root, self.kind)
        assert located is not None, "every host has some"
        return located

    # --- what is done ---

    def _place(self) -> None:
        """Take an amount; many units of several providers in one write."""
        deltas = self._fitted(self._read()) if len(self._own) < 8 else ()
        if deltas:
            self._write("place", [ConsumerOrder.claim(self._new_name(), deltas)])
        else:
            self._release()

    def _release(self) -> None:
        names = self._some_own(self._chance.choice([1, 1, 2]))
        if names:
            self._write("free", [ConsumerOrder.release(name) for name in names])

    def _replace(self) -> None:
        """Exchange an amount for another one, on whichever host, within what it gives back."""
        for name in self._some_own(1):
            deltas = self._fitted(without_consumers(self._read(), name))
            if deltas:
                self._write("replace", [ConsumerOrder.replace(name, deltas)])

    def _give_back(self) -> None:
        """Give back all of one, unit by unit, as a negative amount does."""
        for name in self._some_own(1):
            held = self._own[name].held
            deltas = tuple(Use(*one.key, -one.amount, one.units) for one in held)
            self._write("give back", [ConsumerOrder.adjust(name, deltas)])

    def _steal(self) -> None:
        """Ask for units by name that somebody may have."""
        delta = self._units(self._view(self._read()))
        self._write("take by name", [ConsumerOrder.claim(self._new_name(), (delta,))])

    def _exchange(self) -> None:
        """Let two change places, also on full hosts."""
        names = self._some_own(2)
        if len(names) == 2:
            first, second = (_deltas(self._own[name]) for name in names)
            orders = [
                ConsumerOrder.replace(names[0], second),
                ConsumerOrder.replace(names[1], first),
            ]
            self._write("exchange", orders)


def _deltas(record: ConsumerRecord) -> tuple[Use, ...]:
    return tuple(Use(*one.key, one.amount, one.units) for one in record.held)


# --- topologies ---
# CPUs float away to who takes of the host by number, or go offline. Nobody takes a dedicated CPU
# of a cell without naming it, so that each one that is counted must be a unit.


NUMA_HOSTS = ("numa0", "numa1")
_TOPOLOGY = "NUMA_TOPOLOGY"
_CPUS = 4  #: dedicated ones of a cell
_PAGES = [PagePool(size_kib=4, total=64 * 256), PagePool(size_kib=2048, total=4)]


def numa_hosts() -> list[Provider]:
    """Return the hosts: three cells each, of two shared CPUs and two cores of two threads."""
    return [_numa_host(name) for name in NUMA_HOSTS]


def _numa_host(name: str) -> Provider:
    cells = [_cell(number) for number in range(3)]
    host = Provider(name, "VCPU=6,PCPU=12,MEMORY_MB=216:reserved=24")
    host.add_parts(_TOPOLOGY, NUMATopologyInventory(cells))
    return host


def _cell(number: int, dedicated: int = _CPUS) -> HostCell:
    """Return a cell, or what is left of it when some of its CPUs are offline."""
    first = 6 * number
    return HostCell(
        number,
        shared=[first, first + 1],
        dedicated=range(first + 2, first + 2 + dedicated),
        siblings=[(first + 2, first + 3), (first + 4, first + 5)],
        memory_mb=72,
        pages=_PAGES,
    )


class TopologyWriter(LocatedWriter):
    """A writer of topologies, on hosts of its own kind."""

    hosts = NUMA_HOSTS
    kind = _TOPOLOGY

    def __init__(self, task: Task, backend: Backend, diary: Diary) -> None:
        super().__init__(task, backend, diary)
        self._steps.append((8, self._float))

    def _amount(self) -> NUMATopologyAmount:
        chance = self._chance
        cells, dedicated = chance.choice([1, 1, 1, 2, 3]), chance.choice([0, 1, 1, 2])
        policy = chance.choice([None, None, "require", "isolate"]) if dedicated else None
        size = chance.choice(["", "", "2MB"])
        return numa(
            cells,
            shared=cells * (chance.randint(0, 1) if dedicated else 1),
            dedicated=cells * dedicated,
            memory_mb=cells * chance.choice([0, 2, 8] if size else [0, 1, 24]),
            page_size=size,
            thread_policy=policy,
        )

    def _units(self, located: LocatedView) -> Use:
        spot = self._chance.choice(located.parts)
        ids = located.inventory.part_ids()
        first = 6 * ids[located.parts.index(spot)] + 2
        units = tuple(f"cpu{first + cpu}" for cpu in sorted(self._chance.sample(range(_CPUS), 2)))
        return Use(spot.uuid, "PCPU", 2, units)

    def _float(self) -> None:
        """Take CPUs of a host as a whole, whichever they are."""
        columns = self._read()
        kind = self._chance.choice(["PCPU", "VCPU"])
        root = columns.providers.uuid[columns.providers.parent_id.index(None)]
        deltas = (Use(root, kind, self._chance.randint(1, 3)),)
        self._write("float", [ConsumerOrder.claim(self._new_name(), deltas)])

    def _switch(self) -> None:
        """Switch CPUs of a cell off or on, taken or not."""
        kept = self._tree(self._chance.choice(NUMA_HOSTS))
        wanted = kept.obj_clone()
        child = self._chance.choice(wanted.children)
        number = int(child.name.rpartition("numa")[2])
        cell = _cell(number, self._chance.choice([_CPUS, _CPUS, _CPUS - 1]))
        child.inventories[_TOPOLOGY] = NUMATopologyInventory([cell])
        changes = diff(kept, wanted)
        if changes:
            self._write("switch", definitions=changes)


# --- devices ---
# What a writer of devices does: cards whole, functions split off them, and GPUs.
#
# A card that is taken takes its functions along, and names them. Nobody takes a device without
# naming it, so that each one that is counted must be a unit.


DEVICE_HOSTS = ("dev0", "dev1")
#: Classes of which every one that is taken is a unit.
CARD, FUNCTION, GPU = "CUSTOM_CARD", "SRIOV_NET_VF", "PGPU"
#: How many functions a card is split into.
FUNCTIONS = 3
_KIND = "DEVICES"


def device_hosts() -> list[Provider]:
    """Return the hosts: two cards of three functions each, and two GPUs."""
    return [_device_host(name) for name in DEVICE_HOSTS]


def _device_host(name: str) -> Provider:
    host = Provider(name, "VCPU=8")
    cards = [device for bus in (1, 2) for device in _card(bus)]
    host.add_parts(_KIND, PCIInventory([*cards, *(_gpu(bus) for bus in (3, 4))]))
    return host


def _card(bus: int) -> Iterator[Device]:
    whole = f"0000:{bus:02x}:00.0"
    yield Device(whole, "8086", "1572", "type-PF", resource_class=CARD)
    for number in range(FUNCTIONS):
        part = f"0000:{bus:02x}:02.{number}"
        yield Device(part, "8086", "154c", "type-VF", resource_class=FUNCTION, parent=whole)


def _gpu(bus: int, model: str = "2330") -> Device:
    return Device(f"0000:{bus:02x}:00.0", "10de", model, resource_class=GPU)


class DeviceWriter(LocatedWriter):
    """A writer of devices, on hosts of its own kind."""

    hosts = DEVICE_HOSTS
    kind = _KIND

    def _amount(self) -> PCIAmount:
        chance = self._chance
        kinds = chance.sample([CARD, FUNCTION, FUNCTION, GPU], chance.choice([1, 1, 2, 3]))
        amounts = [devices(kind, chance.choice([1, 1, 2])) for kind in kinds]
        return sum(amounts[1:], amounts[0])

    def _units(self, located: LocatedView) -> Use:
        """Take a card whole, or a function of one, or a GPU, be it free or not."""
        spot = self._chance.choice(located.parts)
        address = spot.name.partition("/")[2]
        bus = int(address[5:7], 16)
        if bus > 2:
            return Use(spot.uuid, GPU, 1, (address,))
        functions = [device.address for device in _card(bus)]
        if self._chance.random() < 0.5:
            return Use(spot.uuid, CARD, 1, tuple(functions))
        return Use(spot.uuid, FUNCTION, 1, (self._chance.choice(functions[1:]),))

    def _switch(self) -> None:
        """Make a GPU one of another model, taken or not."""
        kept = self._tree(self._chance.choice(DEVICE_HOSTS))
        wanted = kept.obj_clone()
        gpus = [child for child in wanted.children if ":00.0" in child.name]
        child = self._chance.choice([one for one in gpus if int(one.name[10:12], 16) > 2])
        gpu = _gpu(int(child.name[10:12], 16), self._chance.choice(["2330", "20b0"]))
        child.inventories[_KIND] = PCIInventory([gpu])
        changes = diff(kept, wanted)
        if changes:
            self._write("switch", definitions=changes)
