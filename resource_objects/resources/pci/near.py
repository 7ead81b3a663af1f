"""How near devices are to the host cells of who asks for them, and which cells they need.

================  ================================================================================
``required``      devices of the chosen host cells alone
``legacy``        these, then devices of which the firmware does not say where they are
``preferred``     these, then devices of which it does not say, then any, the nearest first
``socket``        these, then devices of other cells in the same sockets; if the socket of any host
                  cell is not known, these alone
================  ================================================================================

Who asks for no cells has none to be near to: then any device will do. Each wider ring is only used
for what the narrower ones do not have, device by device. Source: Nova's
``hw:pci_numa_affinity_policy``, which widens for a whole request at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from resource_objects import exceptions
from resource_objects.resources.pci import words
from resource_objects.resources.together import Cells

#: A device that is nowhere near: farther than any distance.
_FAR = 1 << 32


class Where(NamedTuple):
    """The host cells there are, and those that are chosen."""

    cells: Cells
    chosen: frozenset[int]

    @property
    def sockets(self) -> frozenset[int | None]:
        """The sockets of the chosen cells; none if the socket of any host cell is not known."""
        if None in self.cells.sockets.values():
            return frozenset()
        return frozenset(
            self.cells.sockets[cell] for cell in self.chosen if cell in self.cells.sockets
        )


def where_of(cells: object, chosen: object) -> Where | None:
    """Return where somebody is; None if nobody says.

    :raises InvalidInput: for what are no host cells, or chosen ones where there are none
    """
    if cells is None:
        if chosen is not None:
            raise exceptions.InvalidInput("chosen", chosen, "none: no host cells are given")
        return None
    if not isinstance(cells, Cells):
        raise exceptions.InvalidInput("cells", cells, "Cells: the host cells there are")
    if chosen is None:
        return Where(cells, frozenset())
    return Where(cells, words.set_of("chosen", chosen, "ids of host cells"))


def rings(affinity: str, where: Where | None) -> Callable[[int | None], tuple[int, int] | None]:
    """Return what says how far a device of a node is: (ring, distance), None for too far."""
    if where is None:
        return lambda node: (0, 0)
    chosen = where.chosen

    def required(node: int | None) -> tuple[int, int] | None:
        return (0, 0) if node in chosen else None

    def legacy(node: int | None) -> tuple[int, int] | None:
        return (1, 0) if node is None else required(node)

    def preferred(node: int | None) -> tuple[int, int]:
        return legacy(node) or (2, _distance(where, node))

    def socket(node: int | None) -> tuple[int, int] | None:
        beside = node is not None and where.cells.sockets.get(node) in where.sockets
        return required(node) or ((1, _distance(where, node)) if beside else None)

    found: Mapping[str, Callable[[int | None], tuple[int, int] | None]] = {
        words.REQUIRED: required,
        words.LEGACY: legacy,
        words.PREFERRED: preferred,
        words.SOCKET: socket,
    }
    return found[affinity]


def _distance(where: Where, node: int | None) -> int:
    """Return the distance from the nearest chosen cell."""
    table = where.cells.distances
    return min((table.get(cell, {}).get(node, _FAR) for cell in where.chosen), default=_FAR)  # type: ignore[arg-type]  # None is in no table
