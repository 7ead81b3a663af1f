"""NUMA: the same questions asked of us and, where it is installed, of Nova's own functions.

Both sides do the same thing in turn, in one process, on CPU time (claims: wall clock); medians of
the rounds are told. Ours include checking, a refusal its reasons for every host cell. What Nova's
figures leave out, :mod:`benchmarks.nova_numa` says. What it does not end in time is not run: a
smaller question stands for it, and its row says so.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks import nova_numa, numa_growth
from benchmarks.measure import Row, rate
from benchmarks.numa_asked import CPUS, MEMORY_MB, host, refusal, row, too_much
from resource_objects.interop.nova import dump_host_numa_topology, load_host_numa_topology
from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory, numa

UNDER_MS = 1.0
CLAIMS = 60  #: in one round


def rows() -> Iterator[Row]:
    """Yield every row."""
    warnings.simplefilter("ignore")
    yield from _fits()
    yield from _refused()
    yield from _usage()
    yield from _loaded()
    yield from _joint()
    yield from _claims()
    yield from numa_growth.rows()


# --- the decision ---------------------------------------------------------------------------------


def _fits() -> Iterator[Row]:
    for kind, counts in (("dedicated", {"dedicated": 16}), ("shared", {"shared": 16})):
        inventory, amount = host(8), numa(cells=4, memory_mb=4096, **counts)
        yield row(
            f"fit: 4 guest cells on 8 host cells, {kind} CPUs",
            "us",
            lambda inventory=inventory, amount=amount: inventory.fit(amount),
            _their_fit(inventory, amount),
            most=1,
            target="no slower",
        )


def _their_fit(
    inventory: NUMATopologyInventory, amount: NUMATopologyAmount, fits: bool = True
) -> Callable[[], Any] | None:
    """Return what asks Nova the same, having seen that it gives the same answer."""
    if not nova_numa.is_installed():
        return None
    _, hardware = nova_numa.nova()
    theirs, limits = nova_numa.host(inventory), nova_numa.limits()
    asked = nova_numa.request(amount)

    def once() -> Any:
        return hardware.numa_fit_instance_to_host(theirs, asked, {}, limits)

    if (once() is not None) is not fits:
        raise AssertionError(f"nova says {'no' if fits else 'yes'} to {amount}")
    return once


def _refused() -> Iterator[Row]:
    """Equal guest cells, none of which any host cell can hold."""
    for size in (2, 4, 6, 7, 8):
        found = _refusal(size, size, beside=True)
        yield found if found.peer is None else dataclasses.replace(found, point=(size, size))
    yield _refusal(4, 16, beside=True)
    yield _refusal(8, 16, f" ({nova_numa.NAME}: {math.perm(16, 8):,} permutations, not run)")


def _refusal(guests: int, hosts: int, said: str = "", *, beside: bool = False) -> Row:
    inventory, amount = host(hosts), too_much(guests)
    return row(
        f"refusal with its reasons: {guests} guest cells on {hosts} host cells{said}",
        "ms",
        lambda: refusal(inventory, amount),
        _their_fit(inventory, amount, fits=False) if beside else None,
        under=UNDER_MS,
        target=f"under {UNDER_MS:g} ms",
        calls=(100, 1),
        rounds=5,
    )


# --- usage and text -------------------------------------------------------------------------------


def _usage() -> Iterator[Row]:
    inventory, amount = host(8), numa(cells=4, dedicated=16, memory_mb=4096)
    empty = host(8)
    taken = inventory.fit(amount)
    given_back = -taken

    def ours() -> None:
        inventory.consume(taken)
        inventory.consume(given_back)

    yield row(
        "usage of 8 host cells: 4 guest cells taken, then given back (ours checked)",
        "us",
        ours,
        _their_usage(empty, amount),
        most=0.1,
        target="at most a tenth",
    )


def _their_usage(
    inventory: NUMATopologyInventory, amount: NUMATopologyAmount
) -> Callable[[], Any] | None:
    if not nova_numa.is_installed():
        return None
    _, hardware = nova_numa.nova()
    theirs = nova_numa.host(inventory)
    taken = hardware.numa_fit_instance_to_host(
        theirs, nova_numa.request(amount), {}, nova_numa.limits()
    )

    def once() -> None:
        used = hardware.numa_usage_from_instance_numa(theirs, taken)
        hardware.numa_usage_from_instance_numa(used, taken, free=True)

    return once


def _loaded() -> Iterator[Row]:
    """A topology of 8 host cells in use, in the words of its newest version."""
    inventory = host(8)
    for _ in range(2):
        inventory.consume(numa(cells=8, shared=16, dedicated=16, memory_mb=8192))
    text = dump_host_numa_topology(inventory)
    theirs = None
    if nova_numa.is_installed():
        objects, _ = nova_numa.nova()
        text = nova_numa.host(inventory)._to_json()

        def theirs() -> Any:
            return objects.NUMATopology.obj_from_db_obj(text)

    yield row(
        "topology of 8 host cells from JSON",
        "us",
        lambda: load_host_numa_topology(text),
        theirs,
        most=1 / 3,
        target="at most a third",
    )


# --- through the doors ----------------------------------------------------------------------------


def _joint() -> Iterator[Row]:
    """The same fit asked of all inventories of a host together."""
    inventory, amount = host(8), numa(cells=4, dedicated=16, memory_mb=4096)
    inventories = ro.Inventories(
        {"VCPU": 64, "PCPU": 64, "MEMORY_MB": 8 * MEMORY_MB, "NUMA_TOPOLOGY": inventory}
    )
    asked = ro.Amounts({"PCPU": 16, "MEMORY_MB": 4096, "NUMA_TOPOLOGY": amount})
    yield row(
        "Inventories.can_provide: 4 guest cells on 8 host cells, with their counts",
        "us",
        lambda: inventories.can_provide(asked),
    )


def _claims() -> Iterator[Row]:
    """A topology of 4 guest cells claimed of a host of 8 cells, and released, on SQLite."""
    with tempfile.TemporaryDirectory() as folder, ro.connect(f"sqlite:///{folder}/db") as ledger:
        yield from _claims_in(ledger)


def _claims_in(ledger: ro.Ledger) -> Iterator[Row]:
    provider = ro.Provider(
        "host", {"VCPU": 8 * CPUS // 2, "PCPU": 8 * CPUS // 2, "MEMORY_MB": 8 * MEMORY_MB}
    )
    provider.add_parts("NUMA_TOPOLOGY", host(8))
    ledger.sync(provider)
    asked = {"host": {"NUMA_TOPOLOGY": numa(cells=4, dedicated=16, memory_mb=4096)}}

    def claimed(number: int) -> None:
        ledger.claim(f"job-{number}", asked)
        ledger.release(f"job-{number}")

    name = "SQLite: 4 guest cells claimed of 8 host cells, and released"
    yield rate(name, claimed, CLAIMS)
