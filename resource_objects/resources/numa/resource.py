"""The resource ``NUMA_TOPOLOGY``, and the relaxations of requested topologies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from functools import partial
from math import gcd
from typing import Any

from resource_objects import base
from resource_objects.exceptions import InvalidInput
from resource_objects.resources import abstract
from resource_objects.resources.numa.amount import (
    ISOLATE,
    MAX_GUEST_CELLS,
    PREFER,
    REQUIRE,
    SHARE,
    SHARED,
    GuestCell,
    NUMATopologyAmount,
    NUMATopologyLimit,
    lower_bounds,
    numa,
    require_topology,
)
from resource_objects.resources.numa.cells import ANY, KIB_PER_MIB, LARGE, SMALL, show_kib
from resource_objects.resources.numa.inventory import NUMATopologyInventory
from resource_objects.resources.placed import PlacedResource
from resource_objects.resources.relaxations import RelaxationLadder, RelaxationStep, listed_steps


@base.register
class NUMATopologyResource(
    PlacedResource[NUMATopologyAmount, NUMATopologyInventory], abstract.Resource
):
    """The resource of CPUs and memory of the same NUMA cells; it adds nothing to their counts.

    The text of an amount is ``CELLS[:option=value]...``, of a limit
    ``vcpus=0>16+1>16:memory=0>4096``.

    >>> NUMA_TOPOLOGY.make_amount(cells=2, dedicated=4).cpu_policy
    'dedicated'
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = NUMATopologyAmount
    limit_kind = NUMATopologyLimit
    inventory_kind = NUMATopologyInventory
    requested = staticmethod(numa)
    part_kind = "HostCell"

    def lower_bounds(
        self, amount: abstract.Amount, classes: Collection[str]
    ) -> tuple[Mapping[str, int], ...]:
        """Return the minimum that each guest cell needs of a host cell, by class."""
        return lower_bounds(require_topology(amount), classes)

    def relaxations(
        self, amount: abstract.Amount
    ) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
        """Yield the relaxations of a topology (:func:`topology_relaxations`)."""
        return topology_relaxations(require_topology(amount))

    def parse_limit(self, text_form: str) -> NUMATopologyLimit:
        """Return the limit of a text such as ``vcpus=0>16+1>16:memory=0>4096``."""
        return NUMATopologyLimit.parse(text_form)

    def format_limit(self, limit: abstract.Amount) -> str:
        """Return the text of a limit; :meth:`parse_limit` reads it.

        :raises InvalidInput: for an amount of another kind
        """
        if not isinstance(limit, NUMATopologyLimit):
            raise InvalidInput("kind of amount", "limit", limit, "a NUMATopologyLimit")
        return str(limit)


#: The resource of NUMA topologies.
NUMA_TOPOLOGY = NUMATopologyResource(
    "NUMA_TOPOLOGY", "processor", "cells", "CPUs and memory that are near each other"
)


# --- relaxations ----------------------------------------------------------------------------------


def topology_relaxations(
    amount: NUMATopologyAmount,
) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    """Yield the relaxations of a requested topology, none of an assigned one.

    CPUs and memory are reduced in the largest guest cells first: by one CPU of each, or by a page
    or a MiB, until all guest cells are equally small. Memory in ``large`` pages or in ``any`` is
    not reduced, because the page size depends on the host. Guest cells with equal parts may be up
    to twice as many. Each policy may be dropped, and dedicated CPUs may become shared ones.

    >>> amount = numa(2, shared=2, dedicated=4, thread_policy="isolate", page_size="2MB")
    >>> for ladder in topology_relaxations(amount):
    ...     for number in range(1, ladder.steps + 1):
    ...         print(ladder.kind, "-", ladder.step(number).description)
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
        yield from _fewer_units(amount)
        yield from _dropped_policies(amount)
        yield from _other_cell_counts(amount)


def _units(cell: GuestCell) -> dict[str, int]:
    return {
        "VCPU": len(cell.shared),
        "PCPU": len(cell.dedicated),
        "MEMORY_MB": cell.memory_mb,
    }


def _fewer_units(amount: NUMATopologyAmount) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    cells = [_units(cell) for cell in amount.cells]
    for name in ("VCPU", "PCPU", "MEMORY_MB"):
        unit = 1
        if name == "MEMORY_MB":
            if amount.page_size in (LARGE, ANY):
                continue
            size = 1 if amount.page_size in ("", SMALL) else int(amount.page_size)
            unit = size // gcd(size, KIB_PER_MIB)  # MiB of the fewest pages that are whole MiB
        steps = -(-max(cell[name] for cell in cells) // unit)

        def step(
            number: int, name: str = name, unit: int = unit, steps: int = steps
        ) -> RelaxationStep[NUMATopologyAmount]:
            bound = (steps - number) * unit
            requested = amount.placed_counts[name]
            reduction = sum(max(0, cell[name] - bound) for cell in cells)
            return RelaxationStep(
                f"{name}={requested - reduction} instead of {requested}",
                Fraction(reduction, requested),
                partial(_bounded, amount, {name: bound}),
            )

        if steps:
            yield RelaxationLadder("amount", name, steps, step, is_ordered=name != "PCPU")


def _bounded(amount: NUMATopologyAmount, bounds: dict[str, int]) -> NUMATopologyAmount:
    """Return the amount with at most ``bounds`` of each class in each guest cell."""
    vcpu, pcpu = bounds.get("VCPU"), bounds.get("PCPU")
    cpus = [(cell.shared[:vcpu], cell.dedicated[:pcpu]) for cell in amount.cells]
    # guest CPUs are numbered without gaps
    remaining = sorted(cpu for shared, dedicated in cpus for cpu in (*shared, *dedicated))
    number_of = {cpu: number for number, cpu in enumerate(remaining)}
    cells = [
        GuestCell(
            shared=[number_of[cpu] for cpu in shared],
            dedicated=[number_of[cpu] for cpu in dedicated],
            memory_mb=min(cell.memory_mb, bounds.get("MEMORY_MB", cell.memory_mb)),
        )
        for cell, (shared, dedicated) in zip(amount.cells, cpus, strict=True)
    ]
    return amount.replace(cells=cells)


def _dropped_policies(
    amount: NUMATopologyAmount,
) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    def policy(
        subject: str, *steps: tuple[str, dict[str, Any]]
    ) -> RelaxationLadder[NUMATopologyAmount]:
        makers = [(description, partial(amount.replace, **fields)) for description, fields in steps]
        return listed_steps("policy", subject, *makers)

    if amount.page_size:
        size = amount.page_size
        size = show_kib(int(size)) if size.isdecimal() else size
        steps: list[tuple[str, dict[str, Any]]] = []
        if amount.page_size not in (ANY, SMALL):
            steps.append((f"pages of any size instead of {size}", {"page_size": ANY}))
        steps.append((f"ordinary memory instead of pages of {size}", {"page_size": ""}))
        yield policy("page size", *steps)
    if amount.thread_policy in (REQUIRE, ISOLATE):
        description = f"thread policy {PREFER} instead of {amount.thread_policy}"
        yield policy("thread policy", (description, {"thread_policy": None}))
    if amount.has_emulator:
        description = f"emulator policy {SHARE} instead of {ISOLATE}"
        yield policy("emulator policy", (description, {"emulator_policy": None}))
    if amount.cpu_policy != SHARED:
        description = f"CPU policy {SHARED} instead of {amount.cpu_policy}"
        cells = [GuestCell(shared=cell.vcpus, memory_mb=cell.memory_mb) for cell in amount.cells]
        no_policies = {"thread_policy": None, "emulator_policy": None}
        yield policy("CPU policy", (description, {"cells": cells, **no_policies}))
    if amount.one_socket:
        yield policy("socket", ("guest cells in several sockets", {"one_socket": False}))
    for name in sorted(amount.physnets):
        description = f"not near the network {name}"
        yield policy(f"network {name}", (description, {"physnets": amount.physnets - {name}}))
    if amount.tunneled:
        yield policy("tunneled", ("not near tunnelled networks", {"tunneled": False}))


def _other_cell_counts(
    amount: NUMATopologyAmount,
) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
    cells = [_units(cell) for cell in amount.cells]
    shared, dedicated, memory = (sum(cell[name] for cell in cells) for name in cells[0])
    make = partial(numa, shared=shared, dedicated=dedicated, memory_mb=memory)
    divisor, count = gcd(shared, dedicated, memory), len(cells)
    if divisor % count or make(count).cells != amount.cells:
        return
    cell_counts = [n for n in range(1, min(2 * count, MAX_GUEST_CELLS) + 1) if not divisor % n]
    cell_counts.remove(count)
    cell_counts.sort(key=lambda n: (abs(n - count), n))
    if cell_counts:
        yield listed_steps(
            "topology",
            "guest cells",
            *(
                (
                    f"{n} guest cell{'s' * (n > 1)} instead of {count}",
                    partial(amount.replace, cells=make(n).cells),
                )
                for n in cell_counts
            ),
        )
