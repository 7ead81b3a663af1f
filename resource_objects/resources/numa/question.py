"""An amount laid over host cells: who may be where, before anything is chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.cells import Cell
from resource_objects.resources.numa.order import Order
from resource_objects.resources.numa.pair import NO_BOUNDS, Bounds, Need, Pick, needs_of, pick
from resource_objects.resources.together import Near

#: How many choices of cells next to networks and devices, or of totals, are looked at.
BUDGET = 10_000

#: What the tunnelled networks are called where networks have names.
TUNNEL = "tunnelled networks"


class Limit(Protocol):
    """Totals per host cell."""

    def of_cell(self, cell: int) -> Bounds:
        """Return the bounds on shared vCPUs and memory of one host cell."""


class Question(NamedTuple):
    """An amount laid over host cells; places are indices of ``cells``."""

    cells: Sequence[Cell]
    amount: NUMATopologyAmount
    needs: Sequence[Need]  #: by guest cell
    bounds: Sequence[Bounds]  #: by place
    room: Mapping[str, int] | None
    order: Order
    allowed: int  #: places that may be used, as a mask
    picks: Mapping[Need, Sequence[Pick | None]]  #: by need, then place
    networks: Mapping[str, int]  #: places next to each network that is asked for, where it counts
    nears: Sequence[Near]  #: what others need of the cells that are used

    def may(self, within: int) -> list[int]:
        """Return the places where each guest cell may be, as masks."""
        masks = {
            need: sum(1 << place for place, found in enumerate(row) if found) & within
            for need, row in self.picks.items()
        }
        return [masks[need] for need in self.needs]

    def costs(self, need: Need, place: int) -> dict[str, int]:
        """Return what a guest cell takes of the host as a whole at a place where it may be."""
        found = self.picks[need][place]
        assert found is not None, "a guest cell is only put where it may be"
        memory = need.memory_mb if found.page_size_kib is None else 0
        return {"VCPU": need.shared, "PCPU": found.taken.bit_count(), "MEMORY_MB": memory}


def lay(
    cells: Sequence[Cell],
    amount: NUMATopologyAmount,
    limit: Limit | None,
    room: Mapping[str, int] | None,
    order: Order,
    within: Collection[int] | None,
    nears: Sequence[Near] = (),
) -> Question:
    """Return the amount laid over the cells by id, however they are listed: who may be where."""
    cells = sorted(cells, key=lambda cell: cell.facts.id)
    needs = needs_of(amount)
    bounds: list[Bounds] = [NO_BOUNDS] * len(cells)
    if limit is not None:
        bounds = [limit.of_cell(cell.facts.id) for cell in cells]
    allowed = (1 << len(cells)) - 1
    if within is not None:
        ids = set(within)
        allowed = sum(1 << place for place, cell in enumerate(cells) if cell.facts.id in ids)
    picks = {
        need: [
            pick(cell, need, bounds[place]) if allowed >> place & 1 else None
            for place, cell in enumerate(cells)
        ]
        for need in dict.fromkeys(needs)
    }
    networks = networks_of(cells, amount)
    return Question(cells, amount, needs, bounds, room, order, allowed, picks, networks, nears)


def networks_of(cells: Sequence[Cell], amount: NUMATopologyAmount) -> dict[str, int]:
    """Return the places next to each network asked for; one that no cell declares is anywhere.

    Source: Nova's soft rule of network affinity.
    """
    found = {
        name: sum(1 << place for place, cell in enumerate(cells) if name in cell.facts.physnets)
        for name in sorted(amount.physnets)
    }
    if amount.tunneled:
        found[TUNNEL] = sum(1 << place for place, cell in enumerate(cells) if cell.facts.tunneled)
    return {name: places for name, places in found.items() if places}


class Steps:
    """Counted steps, so that every decision ends."""

    def __init__(self) -> None:
        self.left = BUDGET

    def spend(self) -> None:
        """Take a step.

        :raises SearchLimitReached: if none is left
        """
        self.left -= 1
        if self.left < 0:
            raise SearchLimitReached(BUDGET)
