"""The command that shows what the library does, on this machine."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.cli import base

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Provider

_UNITS = {"VCPU": "CPUs", "MEMORY_MB": "MiB of memory", "DISK_GB": "GiB of disk"}
_JOBS = ("ann", "bob")
_FAREWELL = """
Now you: resource-objects host sync            keep this machine
         resource-objects claim job-1 VCPU=1   take a CPU
         resource-objects usage --tree         see who uses what
         resource-objects release job-1        give it back"""


@base.command(opens=False)
def tour(command: base.Command, args: Namespace) -> None:
    """Show the library in a minute, on this machine.

    Stores this machine in a ledger in memory, places two jobs on it, shows the refusal of a third,
    and releases everything, with the Python calls of each step (discover and provider_tree are of
    resource_objects.host, the others of resource_objects). No other ledger is read or written.
    """
    from resource_objects.host.discovery import discover
    from resource_objects.host.tree import provider_tree
    from resource_objects.ledger import connect
    from resource_objects.requests import Request

    print("A tour of resource_objects on this machine. It changes nothing.")
    _step(1, "See what there is.", "machine = discover()")
    machine = provider_tree(discover())
    _print(f"{machine.name} has {_offers(machine)}.")
    with connect("memory://") as ledger:
        _step(
            2,
            "Keep it in a ledger: in memory, in a file, or in a database for many machines.",
            'ledger = connect("memory://")',
            "ledger.sync(provider_tree(machine))",
        )
        _print(str(ledger.sync(machine)))
        amounts = half_of(machine)
        if amounts is None:
            raise exceptions.NoCandidates(f"{machine.name} is too small to be shared")
        half = Request(amounts)
        _step(
            3,
            "Two jobs request half of the free amount each. Both are placed.",
            f'half = Request("{half}")',
            f'ledger.claim("{_JOBS[0]}", ledger.snapshot().candidates(half))',
        )
        for job in _JOBS:
            candidates = ledger.snapshot().candidates(half)
            _print(str(ledger.claim(job, candidates)))
        _step(4, "See who uses what.", "ledger.usage()")
        _draw(ledger)
        _step(
            5,
            "A third job requests the same. It is refused, with the reasons.",
            "print(ledger.snapshot().candidates(half).explain())",
        )
        for reason in ledger.snapshot().candidates(half).explain().reasons:
            _print(str(reason))
        _step(6, "The jobs end. Their resources are free again.", f'ledger.release("{_JOBS[0]}")')
        ledger.release_all(_JOBS)
        _draw(ledger)
    print(_FAREWELL)


def _step(number: int, sentence: str, *calls: str) -> None:
    print(f"\n{number}. {sentence}")
    for call in calls:
        print(f"     >>> {call}")


def _print(text: str) -> None:
    for line in text.splitlines():
        print(f"   {line}")


def _draw(ledger: Ledger) -> None:
    from resource_objects.cli import render

    _print(render.usage_tree(ledger.usage(), base.glyphs()))


def _offers(machine: Provider) -> str:
    """Return the resources of a machine in words.

    >>> from resource_objects.providers import Provider
    >>> _offers(Provider("box", "VCPU=1,MEMORY_MB=2048,DISK_GB=9"))
    '1 CPU, 2048 MiB of memory and 9 GiB of disk'
    """
    totals = {
        record.resource_class: record.total for record in base.records_of(machine.inventories)
    }
    parts = [f"{total} {_UNITS[kind]}" for kind, total in totals.items()]
    if totals.get("VCPU") == 1:
        parts[0] = parts[0].removesuffix("s")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def half_of(machine: Provider) -> dict[str, int] | None:
    """Return half of the capacity by class. Twice that fits; None if three times would fit too.

    >>> from resource_objects.providers import Provider
    >>> half_of(Provider("box", "VCPU=3,MEMORY_MB=1001:reserved=1"))
    {'VCPU': 1, 'MEMORY_MB': 500}
    >>> half_of(Provider("box", "VCPU=3")) is None
    True
    """
    capacities = {
        record.resource_class: record.capacity for record in base.records_of(machine.inventories)
    }
    half = {name: capacity // 2 for name, capacity in capacities.items() if capacity > 1}
    return half if any(3 * half[name] > capacities[name] for name in half) else None
