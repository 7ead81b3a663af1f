"""What a writer does, over and over, on a few providers that everybody wants.

The hosts of :func:`hot_hosts` are small, so that most of what is asked is fought over. A writer
has consumers of its own, of which it knows what they hold, and meets the others at a few common
ones. It tries what it lost the answer to again, with the same operation, and is killed at any
moment.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
import traceback
import uuid as uuids
from collections.abc import Callable, Sequence
from pathlib import Path

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Operation,
    Order,
    Release,
    Renewal,
    Replacement,
    Write,
    subject_of,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.testing.kill.diary import Diary

HOSTS = ("hot0", "hot1", "hot2")
CELLS = ("cell0", "cell1")
#: What moves between a host and a child that comes and goes with it.
DISK = "CUSTOM_DISK"
_COMMON = ("common-0", "common-1", "common-2")
_UNITS = tuple(f"cpu{number}" for number in range(6))
#: Consumers of its own that a writer keeps.
_MOST_OWN = 8
#: Nobody knows whether these did something.
UNSURE = (exceptions.LostConnection, exceptions.DatabaseUnavailable)


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
        except UNSURE:
            time.sleep(0.1)
    return None


class Writer:
    """One writer: its consumers, as it was told last, and where things are."""

    def __init__(self, task: Task, backend: Backend, diary: Diary) -> None:
        self._task, self._backend, self._diary = task, backend, diary
        self._chance = random.Random(f"{task.seed}-{task.who}")
        self._own: dict[str, ClaimRecord] = {}
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
        except UNSURE:  # of what is read before a write
            time.sleep(0.05)

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
        orders: Sequence[Order] = (),
        definitions: DefinitionChanges | None = None,
    ) -> tuple[ClaimRecord, ...] | None:
        """Ask, note what came of it, and return it; None if it was refused or nobody knows."""
        subject = subject_of(one.consumer for one in orders) if orders else "a tree"
        write = Write(Operation(actor=self._task.who), kind, subject, definitions, tuple(orders))
        self._diary.asks(write)
        while True:
            try:
                claims = self._backend.commit(write)
            except UNSURE:
                self._diary.lost(write.operation.id)
                if self._chance.random() < 0.2 or Path(self._task.stop).exists():
                    self._forget(orders)
                    return None
                time.sleep(self._chance.uniform(0, 0.05))
            except (exceptions.CapacityException, exceptions.LedgerError) as error:
                self._diary.refused(write.operation.id, error)
                self._disk.clear()  # perhaps it is somewhere else now
                return None
            else:
                self._diary.did(write.operation.id, claims)
                self._note(claims)
                return claims

    def _note(self, claims: Sequence[ClaimRecord]) -> None:
        for claim in claims:
            if claim.consumer in _COMMON:
                continue
            self._own[claim.consumer] = claim
            if claim.state == "released":
                del self._own[claim.consumer]

    def _forget(self, orders: Sequence[Order]) -> None:
        for one in orders:
            self._own.pop(one.consumer, None)

    def _new_name(self) -> str:
        self._count += 1
        return f"{self._task.who}-{self._count}"

    def _some_own(self, number: int) -> list[str]:
        return self._chance.sample(sorted(self._own), min(number, len(self._own)))

    def _wanted(self) -> tuple[Delta, ...]:
        """Return what a consumer is to hold, somewhere: CPUs by count or by name, or disk."""
        host = self._chance.choice(HOSTS)
        root = self._uuid[host]
        what = self._chance.random()
        if what < 0.3:
            cell = self._uuid[f"{host}/{self._chance.choice(CELLS)}"]
            units = tuple(self._chance.sample(_UNITS, self._chance.randint(1, 2)))
            memory = Delta(root, "MEMORY_MB", self._chance.randint(1, 4))
            return Delta(cell, "PCPU", len(units), units), memory
        if what < 0.55:
            return (Delta(self._disk.get(host, root), DISK, self._chance.randint(1, 4)),)
        other = self._uuid[self._chance.choice([name for name in HOSTS if name != host])]
        cpus = Delta(root, "VCPU", self._chance.randint(1, 4))
        return cpus, Delta(other, "MEMORY_MB", self._chance.randint(1, 8))

    # --- what is done ---

    def _claim(self) -> None:
        if len(self._own) >= _MOST_OWN:
            return self._release()
        self._write("claim", [ClaimOrder(self._new_name(), self._wanted(), project=self._task.who)])
        return None

    def _release(self) -> None:
        names = self._some_own(self._chance.choice([1, 1, 2]))
        if names:
            self._write("release", [Release(name) for name in names])

    def _move(self) -> None:
        for name in self._some_own(1):
            generation = self._chance.choice([None, self._own[name].generation])
            self._write("move", [Replacement(name, self._wanted(), generation=generation)])

    def _adjust(self) -> None:
        for name in self._some_own(1):
            held = self._chance.choice(self._own[name].held)
            units = held.units[:1]
            less = Delta(held.provider_uuid, held.resource_class, -1, units)
            more = Delta(held.provider_uuid, held.resource_class, 1)
            self._write("adjust", [Adjustment(name, (self._chance.choice([less, more]),))])

    def _swap(self) -> None:
        names = self._some_own(2)
        if len(names) == 2:
            first, second = (
                tuple(Delta(*one.key, one.amount, one.units) for one in self._own[name].held)
                for name in names
            )
            self._write("swap", [Replacement(names[0], second), Replacement(names[1], first)])

    def _gang(self) -> None:
        if len(self._own) < _MOST_OWN:
            self._write("gang", [ClaimOrder(self._new_name(), self._wanted()) for _ in range(3)])

    def _renew(self) -> None:
        for name in self._some_own(1):
            self._write("renew", [Renewal(name, None, self._chance.choice(["held", "confirmed"]))])

    def _common(self) -> None:
        """Change what everybody changes."""
        name = self._chance.choice(_COMMON)
        kept = self._backend.held(name)
        generation = kept.generation if kept and self._chance.random() < 0.5 else None
        choices: list[Order] = [
            Adjustment(name, self._wanted()[:1], generation=generation),
            Replacement(name, self._wanted(), generation=generation),
        ]
        if kept is not None:
            choices.append(Release(name, generation=generation))
        mine = [Release(own) for own in self._some_own(1)]
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
            Adjustment(
                consumer,
                (Delta(number[at], DISK, -amount), Delta(there, DISK, amount)),
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
