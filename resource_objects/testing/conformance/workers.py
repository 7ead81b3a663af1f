"""What test processes run: functions of a module that a new process can import."""

from __future__ import annotations

import multiprocessing.context
import os
import random
from collections.abc import Sequence
from typing import Any

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.providers import Backend
from resource_objects.resources.numa import numa
from resource_objects.resources.pci import devices
from resource_objects.testing.conformance.base import adjust, claim, define, host, release

#: What processes begin with; what is not installed is left out.
_PRELOADED = [
    __name__,
    "resource_objects.backends.sql.backend",
    "resource_objects.testing.kill",
    "psycopg",
    "pymysql",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.mysql.pymysql",
]

#: (consumer, resource class): amount
Holdings = dict[tuple[str, str], int]


def processes() -> multiprocessing.context.ForkServerContext:
    """Return what makes processes for tests: clean ones, that have the library imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def define_and_claim(backend_class: type[Backend], url: str, number: int) -> None:
    """Open a ledger, define a host of one's own and claim of it."""
    backend = backend_class.open(url)
    try:
        names = define(backend, host(f"host{number}"))
        claim(backend, f"job{number}", {names[f"host{number}"]: "VCPU=1"})
    finally:
        backend.close()


def hammer(backend: Backend, uuid: str, who: str, tries: int) -> Holdings:
    """Claim, adjust and release at random; return what this worker believes to hold."""
    chance = random.Random(who)
    holds: Holdings = {}
    for number in range(tries):
        consumer = f"{who}-{number}"
        amounts = {name: chance.randint(1, 3) for name in ("VCPU", "MEMORY_MB")}
        try:
            claim(backend, consumer, {uuid: amounts})
            holds.update({(consumer, name): amount for name, amount in amounts.items()})
        except exceptions.CapacityException:
            _give_back(backend, uuid, holds, chance)
    return holds


def _give_back(backend: Backend, uuid: str, holds: Holdings, chance: random.Random) -> None:
    """Release or shrink one holding, so that the others go on."""
    if not holds:
        return
    consumer, resource_class = chance.choice(sorted(holds))
    amount = holds[consumer, resource_class]
    if amount > 1 and chance.random() < 0.5:
        adjust(backend, consumer, {uuid: {resource_class: -1}})
        holds[consumer, resource_class] = amount - 1
        return
    release(backend, consumer)
    for name in ("VCPU", "MEMORY_MB"):
        holds.pop((consumer, name), None)


def hammer_elsewhere(
    backend_class: type[Backend], url: str, uuid: str, who: str, tries: int
) -> Holdings:
    """Open a ledger and :func:`hammer` it."""
    backend = backend_class.open(url)
    try:
        return hammer(backend, uuid, who, tries)
    finally:
        backend.close()


def claim_topologies(
    backend_class: type[Backend], url: str, host: str, who: str, tries: int
) -> dict[str, str]:
    """Claim topologies of a host at random, and release; return who then has which CPUs."""
    ledger = Ledger(backend_class.open(url))
    chance = random.Random(who)
    cpus: dict[str, str] = {}
    with ledger:
        for number in range(tries):
            name = f"{who}-{number}"
            cells = chance.choice([1, 1, 2])
            amount = numa(cells, dedicated=cells * chance.randint(1, 2), shared=cells)
            try:
                ledger.claim(name, {host: {"NUMA_TOPOLOGY": amount}})
                cpus[name] = _dedicated(ledger, name, host)
            except exceptions.CapacityException:
                for gone in list(cpus)[:2]:
                    ledger.release(gone)
                    del cpus[gone]
    return cpus


def _dedicated(ledger: Ledger, name: str, host: str) -> str:
    assigned: Any = ledger.assigned(name)[host]["NUMA_TOPOLOGY"]
    return ",".join(str(cpu) for placed in assigned.placed for _, cpu in placed.pins)


def claim_devices(
    backend_class: type[Backend], url: str, host: str, who: str, tries: int
) -> dict[str, list[str]]:
    """Claim devices of a host at random, and release; return who then has which units."""
    ledger = Ledger(backend_class.open(url))
    chance = random.Random(who)
    had: dict[str, list[str]] = {}
    with ledger:
        for number in range(tries):
            name = f"{who}-{number}"
            amount = devices(chance.choice(["SRIOV_NET_VF", "SRIOV_NET_VF", "CUSTOM_CARD"]))
            try:
                ledger.claim(name, {host: {"PCI_DEVICES": amount}})
                assigned: Any = ledger.assigned(name)[host]["PCI_DEVICES"]
                had[name] = [unit for one in assigned.placed for unit in one.units]
            except exceptions.CapacityException:
                for gone in list(had)[:2]:
                    ledger.release(gone)
                    del had[gone]
    return had


def claim_until_killed(
    backend_class: type[Backend], url: str, uuids: Sequence[str], who: str, diary: str
) -> None:
    """Claim and release for ever; write into a file what was acknowledged.

    Lines are ``claimed NAME``, ``releasing NAME`` (asked, not yet answered) and ``released NAME``.
    """
    backend = backend_class.open(url)
    with open(diary, "ab", buffering=0) as file:
        number = 0
        while True:
            name = f"{who}-{os.getpid()}-{number}"
            number += 1
            try:
                claim(backend, name, dict.fromkeys(uuids, "VCPU=1,MEMORY_MB=3"))
            except exceptions.CapacityException:
                continue
            file.write(f"claimed {name}\n".encode())
            if number % 2 == 0:
                file.write(f"releasing {name}\n".encode())
                release(backend, name)
                file.write(f"released {name}\n".encode())
