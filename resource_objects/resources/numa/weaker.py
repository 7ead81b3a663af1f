"""How a topology may ask for less: CPUs and memory, policies, and the number of guest cells."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import gcd

from resource_objects.resources.numa.amount import (
    ISOLATE,
    MAX_GUEST_CELLS,
    PREFER,
    REQUIRE,
    SHARE,
    SHARED,
    GuestCell,
    NUMATopologyAmount,
    numa,
)
from resource_objects.resources.numa.cells import ANY, KIB, LARGE, SMALL, show_kib
from resource_objects.resources.relaxations import RelaxationLadder, RelaxationStep, stated


def weaker(amount: NUMATopologyAmount) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    """Yield how less could be asked, each by itself; nothing of an amount that is assigned.

    CPUs and memory are less in the guest cells that have most: by one CPU of each, or by a page or
    a MiB, until all have as little. Memory in ``large`` pages or in ``any`` stays as it is, for how
    large these are depends on the host. Another number of guest cells, up to twice as many, is
    tried where these have equal parts; so is no policy, one by one, and of dedicated CPUs shared
    ones.

    >>> for one in weaker(numa(2, shared=2, dedicated=4, thread_policy="isolate", page_size="2MB")):
    ...     for number in range(1, one.steps + 1):
    ...         print(one.kind, "-", one.step(number).told)
    amount - VCPU=0 instead of 2
    amount - PCPU=2 instead of 4
    amount - PCPU=0 instead of 4
    policy - pages of any size instead of 2 MiB
    policy - ordinary memory instead of pages of 2 MiB
    policy - thread policy prefer instead of isolate
    policy - CPU policy shared instead of mixed
    topology - 1 guest cell instead of 2
    """
    if not amount.is_assigned:
        yield from _of_counts(amount)
        yield from _of_policies(amount)
        yield from _of_cells(amount)


# --- CPUs and memory ------------------------------------------------------------------------------

#: A guest cell of so many shared and dedicated CPUs, and MiB.
_Figures = tuple[int, int, int]


def _of_counts(amount: NUMATopologyAmount) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    for place, name in enumerate(("VCPU", "PCPU", "MEMORY_MB")):
        unit = _unit(amount.page_size) if name == "MEMORY_MB" else 1
        if unit is None:
            continue
        most = max(figures[place] for figures in _figures(amount))
        steps = -(-most // unit)
        less = partial(_less, amount, place, name, unit, steps)
        if steps:
            yield RelaxationLadder("amount", name, steps, less, is_ordered=name != "PCPU")


def _unit(page_size: str) -> int | None:
    """Return of how many MiB memory is more or less, None if it depends on the host."""
    if page_size in (LARGE, ANY):
        return None
    size = 1 if page_size in ("", SMALL) else int(page_size)
    return size // gcd(size, KIB)


def _figures(amount: NUMATopologyAmount) -> list[_Figures]:
    return [(len(cell.shared), len(cell.dedicated), cell.memory_mb) for cell in amount.cells]


def _less(
    amount: NUMATopologyAmount, place: int, name: str, unit: int, steps: int, number: int
) -> RelaxationStep[NUMATopologyAmount]:
    """Return the amount no guest cell of which has more than so many units less than the most."""
    most = (steps - number) * unit
    asked = amount.placed_counts[name]
    given_up = sum(max(0, figures[place] - most) for figures in _figures(amount))
    told = f"{name}={asked - given_up} instead of {asked}"
    return RelaxationStep(told, Fraction(given_up, asked), partial(_bounded, amount, place, most))


def _bounded(amount: NUMATopologyAmount, place: int, most: int) -> NUMATopologyAmount:
    bounds = [most if place == number else None for number in range(2)]
    kept = [(cell.shared[: bounds[0]], cell.dedicated[: bounds[1]]) for cell in amount.cells]
    vcpus = sorted(vcpu for both in kept for cpus in both for vcpu in cpus)
    new = {old: number for number, old in enumerate(vcpus)}
    cells = [
        GuestCell(
            shared=[new[vcpu] for vcpu in shared],
            dedicated=[new[vcpu] for vcpu in dedicated],
            memory_mb=min(cell.memory_mb, most) if place == 2 else cell.memory_mb,
        )
        for cell, (shared, dedicated) in zip(amount.cells, kept, strict=True)
    ]
    return amount.replace(cells=cells)


# --- policies -------------------------------------------------------------------------------------


def _of_policies(amount: NUMATopologyAmount) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    def of(
        subject: str, *steps: tuple[str, dict[str, object]]
    ) -> RelaxationLadder[NUMATopologyAmount]:
        made = [(told, partial(amount.replace, **fields)) for told, fields in steps]
        return stated("policy", subject, *made)

    if amount.page_size:
        yield of("page size", *_of_pages(amount.page_size))
    if amount.thread_policy in (REQUIRE, ISOLATE):
        told = f"thread policy {PREFER} instead of {amount.thread_policy}"
        yield of("thread policy", (told, {"thread_policy": None}))
    if amount.has_emulator:
        told = f"emulator policy {SHARE} instead of {ISOLATE}"
        yield of("emulator policy", (told, {"emulator_policy": None}))
    if amount.cpu_policy != SHARED:
        cells = [GuestCell(shared=one.vcpus, memory_mb=one.memory_mb) for one in amount.cells]
        fields: dict[str, object] = {
            "cells": cells,
            "thread_policy": None,
            "emulator_policy": None,
        }
        yield of("CPU policy", (f"CPU policy {SHARED} instead of {amount.cpu_policy}", fields))
    if amount.one_socket:
        yield of("socket", ("guest cells in several sockets", {"one_socket": False}))
    for name in sorted(amount.physnets):
        told = f"not near the network {name}"
        yield of(f"network {name}", (told, {"physnets": amount.physnets - {name}}))
    if amount.tunneled:
        yield of("tunneled", ("not near tunnelled networks", {"tunneled": False}))


def _of_pages(page_size: str) -> Iterator[tuple[str, dict[str, object]]]:
    size = show_kib(int(page_size)) if page_size.isdecimal() else page_size
    if page_size not in (ANY, SMALL):
        yield f"pages of any size instead of {size}", {"page_size": ANY}
    yield f"ordinary memory instead of pages of {size}", {"page_size": ""}


# --- guest cells ----------------------------------------------------------------------------------


def _of_cells(amount: NUMATopologyAmount) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    shared, dedicated, memory = (sum(some) for some in zip(*_figures(amount), strict=True))
    make = partial(numa, shared=shared, dedicated=dedicated, memory_mb=memory)
    every, now = gcd(shared, dedicated, memory), len(amount.cells)
    if every % now or make(now).cells != amount.cells:
        return
    others = [n for n in range(1, min(2 * now, MAX_GUEST_CELLS) + 1) if every % n == 0 and n != now]
    steps = (
        (
            f"{n} guest cell{'s' * (n > 1)} instead of {now}",
            partial(amount.replace, cells=make(n).cells),
        )
        for n in sorted(others, key=lambda n: (abs(n - now), n))
    )
    if others:
        yield stated("topology", "guest cells", *steps)
