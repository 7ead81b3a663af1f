"""What makes a topology amount one: every vCPU once, policies that agree, a place for each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from resource_objects.exceptions import InvalidAmount, NotAssigned
from resource_objects.resources.numa import words
from resource_objects.resources.numa.cpus import MAX_ID, format_cpus

if TYPE_CHECKING:
    from resource_objects.resources.numa.amount import NUMATopologyAmount
    from resource_objects.resources.numa.guest import GuestCell, PlacedCell

#: No request has more guest cells: far more than any machine has nodes.
MAX_GUEST_CELLS = 1024


def check(amount: NUMATopologyAmount) -> None:
    """Raise if a topology amount contradicts itself.

    :raises InvalidAmount: naming what is wrong
    :raises NotAssigned: if it gives back without saying where it is
    """
    if not 1 <= len(amount.cells) <= MAX_GUEST_CELLS:
        raise InvalidAmount("guest cells", len(amount.cells), f"1 to {MAX_GUEST_CELLS}")
    _check_vcpus(amount)
    _check_policies(amount)
    if amount.placed or amount.emulator_cpu is not None:
        _check_placed(amount)
    elif amount.gives_back:
        raise NotAssigned(
            "topology", "one that is not assigned", "an assigned one: that is given back"
        )


def check_numbers(what: str, *sets: Iterable[int]) -> None:
    """Raise if a number is higher than any CPU has."""
    highest = max((number for numbers in sets for number in numbers), default=0)
    if highest > MAX_ID:
        raise InvalidAmount(what, highest, f"numbers from 0 to {MAX_ID}")


def _check_vcpus(amount: NUMATopologyAmount) -> None:
    stated = [vcpu for cell in amount.cells for vcpu in (*cell.shared, *cell.dedicated)]
    if len(set(stated)) != len(stated):
        twice = sorted(vcpu for vcpu, count in Counter(stated).items() if count > 1)
        raise InvalidAmount("vCPUs", twice, "each in one guest cell, once")
    highest = max(stated, default=-1)
    if highest >= len(stated):
        missing = sorted(set(range(highest + 1)).difference(stated))
        raise InvalidAmount(
            "vCPUs", f"without {format_cpus(missing)}", "every one from 0 on in a guest cell"
        )


def _check_policies(amount: NUMATopologyAmount) -> None:
    if amount.page_size and words.page_size(amount.page_size) != amount.page_size:
        raise InvalidAmount("page size", amount.page_size, "a word, or KiB in digits")
    if amount.cpu_policy != words.SHARED:
        return
    if amount.thread_policy is not None:
        raise InvalidAmount("thread policy", amount.thread_policy, "none, for no vCPU is dedicated")
    if amount.has_emulator:
        raise InvalidAmount(
            "emulator policy", amount.emulator_policy, "share, for no vCPU is dedicated"
        )


def _check_placed(amount: NUMATopologyAmount) -> None:
    if len(amount.placed) != len(amount.cells):
        raise InvalidAmount(
            "placed", len(amount.placed), f"one for each of {len(amount.cells)} guest cells"
        )
    hosts = [placed.cell for placed in amount.placed]
    if len(set(hosts)) != len(hosts):
        raise InvalidAmount("host cells", hosts, "another for each guest cell")
    for number, (guest, placed) in enumerate(zip(amount.cells, amount.placed, strict=True)):
        _check_one(number, guest, placed, amount.page_size)
    if amount.has_emulator != (amount.emulator_cpu is not None):
        raise InvalidAmount(
            "emulator CPU", amount.emulator_cpu, "one if, and only if, the policy is isolate"
        )
    taken = [cpu for placed in amount.placed for cpu in placed.pinned]
    taken += [] if amount.emulator_cpu is None else [amount.emulator_cpu]
    if len(set(taken)) != len(taken):
        raise InvalidAmount("CPUs", sorted(taken), "each CPU once")


def _check_one(number: int, guest: GuestCell, placed: PlacedCell, asked: str) -> None:
    pinned = tuple(vcpu for vcpu, _ in placed.pins)
    if pinned != guest.dedicated:
        raise InvalidAmount(f"pinned vCPUs of guest cell {number}", pinned, f"{guest.dedicated}")
    if bool(placed.shared) != bool(guest.shared):
        raise InvalidAmount(
            f"shared CPUs of guest cell {number}",
            placed.shared,
            "some if, and only if, it has shared vCPUs",
        )
    if not _is_of_size(placed.page_size_kib, asked, guest.memory_mb):
        raise InvalidAmount(
            f"page size of guest cell {number}",
            placed.page_size_kib,
            f"what was asked: {asked or 'ordinary memory'}",
        )


def _is_of_size(size: int | None, asked: str, memory_mb: int) -> bool:
    """Return whether pages of a size are what was asked; which size is ordinary, a host knows."""
    if size is None:
        return asked != words.LARGE or not memory_mb
    if asked in (words.LARGE, words.ANY):
        return memory_mb > 0
    return str(size) == asked and memory_mb > 0
