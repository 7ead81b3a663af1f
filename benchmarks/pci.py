"""Devices: the same questions asked of us and, where it is installed, of Nova's own functions.

Both sides do the same thing in turn, in one process, on CPU time (a fleet: wall clock); medians of
the rounds are told. Ours include checking, a refusal its reasons. Nova's ``support_requests``
copies what it is asked of first, and that is in its figures: it has no other. What Nova does not
end in time is not run: a smaller question stands for it, and its row says so.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import resource_objects as ro
from benchmarks import nova_numa, nova_pci, pci_growth
from benchmarks.measure import Row, per_call
from benchmarks.numa_asked import host, row
from benchmarks.pci_asked import CELLS, GPU, NIC, PART, Joint, asked, gpus, nics
from resource_objects.resources.context import CellMap, ChosenCells, Context
from resource_objects.resources.pci import PCIAmount, PCIInventory

#: At least so many times faster than ``support_requests``.
TIMES = 20
UNDER_MS = 2.0
#: What of Nova would take longer is not run.
BUDGET_NS = 15e9
HOSTS, PER_HOST, LIMIT = 1_000, 8, 10


def rows() -> Iterator[Row]:
    """Yield every row."""
    warnings.simplefilter("ignore")
    yield from _supported()
    yield from _consumed()
    yield from _joint()
    yield from _fleet()
    yield from pci_growth.rows()


# --- who could have what --------------------------------------------------------------------------


def _supported() -> Iterator[Row]:
    one, two = asked(PART, count=2), asked(PART, NIC)
    near = asked(PART, count=2, affinity="preferred")
    for count in (128, 256):
        for label, amount, chosen in (
            ("one request", one, None),
            ("two requests", two, None),
            ("one request near 4 of 8 host cells", near, range(4)),
        ):
            yield _support(f"{count} functions, {label}", count, amount, chosen)


def _support(name: str, count: int, amount: PCIAmount, chosen: range | None) -> Row:
    inventory = nics(count)
    theirs = _their_support(inventory, amount, chosen)
    near: Mapping[str, Any] = {}
    if chosen is not None:
        sockets = {cell.id: cell.socket for cell in host(CELLS).cells}
        near = {"context": Context(chosen=ChosenCells(CellMap(sockets, {}), chosen))}
    return row(
        f"devices could be had: {name}",
        "us",
        lambda: inventory.fit(amount, **near),
        theirs,
        most=1 / TIMES,
        target=f"{TIMES} times faster",
        calls=(200, 5),
    )


def _their_support(
    inventory: PCIInventory, amount: PCIAmount, chosen: range | None
) -> Callable[[], Any] | None:
    """Return what asks Nova the same, having seen that it gives the same answer."""
    if not nova_pci.is_installed():
        return None
    objects, _ = nova_numa.nova()
    stats = nova_pci.stats(inventory, host(CELLS))
    requests = nova_pci.requests(amount.requests)
    cells = None if chosen is None else [objects.InstanceNUMACell(id=cell) for cell in chosen]

    def once() -> Any:
        return stats.support_requests(requests, {}, cells)

    if not once():
        raise AssertionError(f"nova says no to {amount}")
    return once


def _consumed() -> Iterator[Row]:
    for count in (128, 256):
        inventory, amount = nics(count), asked(PART, NIC)

        def ours(inventory: PCIInventory = inventory, amount: PCIAmount = amount) -> None:
            inventory.consume(-inventory.consume(amount))

        yield row(
            f"{count} functions: a part and a whole function claimed, then freed (ours checked)",
            "us",
            ours,
            _their_consuming(inventory, amount),
            most=1,
            target="no slower",
            calls=(100, 3),
        )


def _their_consuming(inventory: PCIInventory, amount: PCIAmount) -> Callable[[], Any] | None:
    """Return what claims and frees as Nova's ``PciDevTracker`` does, without its database."""
    if not nova_pci.is_installed():
        return None
    stats = nova_pci.stats(inventory, host(CELLS))
    requests = nova_pci.requests(amount.requests)
    owner = "00000000-0000-0000-0000-000000000001"

    def once() -> None:
        devices = stats.consume_requests(requests, None)
        for device in devices:
            device.claim(owner)
        for device in devices:
            for freed in device.free():
                stats.add_device(freed)

    return once


# --- together with host cells ---------------------------------------------------------------------


def _joint() -> Iterator[Row]:
    for guests in (1, 4):
        question = Joint(guests, 8, holds=True)
        yield row(
            f"together: {guests} guest cell{'s' * (guests > 1)} on 8 host cells, each with a GPU "
            "of its own",
            "ms",
            question.fits,
            _their_joint(question),
            most=1,
            target="no slower",
            calls=(50, 2),
            rounds=5,
        )
    small = _never(3, 7, is_run=True)
    yield small
    more = math.perm(8, 4) / math.perm(7, 3)
    is_run = small.peer is not None and small.peer * 1e6 * more <= BUDGET_NS
    yield _never(4, 8, is_run=is_run)
    yield _never(8, 8, is_run=False)


def _never(guests: int, hosts: int, *, is_run: bool) -> Row:
    """Return a refusal: there is a GPU for each guest cell and one more, but none so near."""
    question = Joint(guests, hosts, holds=False)
    theirs = _their_joint(question, holds=False) if is_run else None
    said = ""
    if theirs is None and not is_run:
        said = f" ({nova_pci.NAME}: {math.perm(hosts, guests):,} permutations, not run)"
    name = f"together: {guests} guest cells on {hosts} host cells, one GPU more than is near{said}"
    found = row(
        name,
        "ms",
        question.fits,
        under=UNDER_MS,
        target=f"under {UNDER_MS:g} ms",
        calls=(50, 1),
        rounds=5,
    )
    if theirs is None:
        return found
    peer = per_call(theirs, 1) / 1e6  # once: it takes seconds
    return Row(
        name, "ms", found.ours, peer, nova_pci.NAME, found.ours / peer, found.target, found.met
    )


def _their_joint(question: Joint, *, holds: bool = True) -> Callable[[], Any] | None:
    if not nova_pci.is_installed():
        return None
    _, hardware = nova_numa.nova()
    theirs = nova_numa.host(question.cells)
    stats = nova_pci.pools(nova_pci.stats(question.devices, question.cells))
    requests = nova_pci.requests(question.asked.requests)
    limits = nova_numa.limits()

    def once() -> None:
        found = hardware.numa_fit_instance_to_host(
            theirs, nova_numa.request(question.topology), {}, limits, requests, stats
        )
        if (found is not None) is not holds:
            raise AssertionError(f"nova says {'no' if holds else 'yes'} to {question.amounts}")

    return once


# --- a fleet --------------------------------------------------------------------------------------


def _fleet() -> Iterator[Row]:
    """Candidates in a kept snapshot of hosts with devices, each its own provider."""
    with ro.connect("memory://") as ledger:
        ledger.sync(*map(_host, range(HOSTS)))
        snapshot = ledger.snapshot()
        counts = {"VCPU": 4, "MEMORY_MB": 4096}
        for said, count in (("2 GPUs", 2), ("more GPUs than a host has", PER_HOST + 1)):
            request = ro.Request({**counts, "DEVICES": asked(GPU, count=count)})
            expected = LIMIT if count <= PER_HOST else 0

            def search(request: ro.Request = request, expected: int = expected) -> None:
                found = snapshot.candidates(request, limit=LIMIT)
                if len(found) != expected:
                    raise AssertionError(f"{len(found)} candidates, not {expected}")

            search()
            name = f"{HOSTS:,} hosts of {PER_HOST} devices, {LIMIT} candidates for {said}"
            yield Row(name, "ms", _milliseconds(search))


def _milliseconds(once: Callable[[], Any]) -> float:
    """Return the median of what a call takes by wall clock."""
    found = []
    for _ in range(21):
        start = time.perf_counter()
        once()
        found.append((time.perf_counter() - start) * 1e3)
    return statistics.median(found)


def _host(number: int) -> ro.Provider:
    found = ro.Provider(f"host-{number}", {"VCPU": 64, "MEMORY_MB": 262144})
    found.add_parts("DEVICES", gpus(PER_HOST))
    return found
