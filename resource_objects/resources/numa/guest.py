"""Guest cells, and where each of them is.

A *guest cell* is a part of a request whose CPUs and memory shall be together; the *host cell* it is
put on is another thing, and nothing here is called by both names. Guest cells are numbered by their
place in the amount, *vCPUs* (CPUs as their user numbers them) from 0 over all guest cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from resource_objects import base, exceptions, fields
from resource_objects.resources.numa import valid
from resource_objects.resources.numa.cpus import MAX_ID, cpus_of, mask_of
from resource_objects.resources.numa.host import listed


@base.register
class GuestCell(base.Value):
    """Some vCPUs and the memory they use most: they go to one host cell, alone of their request.

    >>> GuestCell(dedicated=range(4), memory_mb=1024).vcpus
    (0, 1, 2, 3)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "shared": fields.IdsField(default=()),
        "dedicated": fields.IdsField(default=()),
        "memory_mb": fields.IntegerField(0, fields.MAX_FIGURE, default=0),
    }
    shared: tuple[int, ...]
    dedicated: tuple[int, ...]
    memory_mb: int

    def __init__(
        self, *, shared: Iterable[int] = (), dedicated: Iterable[int] = (), memory_mb: int = 0
    ) -> None:
        super().__init__(shared=shared, dedicated=dedicated, memory_mb=memory_mb)

    @property
    def vcpus(self) -> tuple[int, ...]:
        """All vCPUs, ascending."""
        return tuple(sorted((*self.shared, *self.dedicated)))

    def _validate(self) -> None:
        if not (self.shared or self.dedicated or self.memory_mb):
            raise exceptions.InvalidAmount("guest cell", "nothing", "vCPUs or memory, or both")
        valid.check_numbers("vCPUs of a guest cell", self.shared, self.dedicated)


@base.register
class PlacedCell(base.Value):
    """Where one guest cell is: the host cell, a CPU for each dedicated vCPU, the pages.

    ``shared`` are the CPUs on which its shared vCPUs run; ``idle`` those left empty on purpose
    (the siblings of isolated ones), which are taken too. ``page_size_kib`` is that of the huge
    pages it uses, None for ordinary memory.

    >>> PlacedCell(cell=1, pins={0: 4, 1: 12}).pinned
    (4, 12)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "cell": fields.IntegerField(0, MAX_ID),
        "pins": fields.IntegerPairsField(default=()),
        "idle": fields.IdsField(default=()),
        "shared": fields.IdsField(default=()),
        "page_size_kib": fields.IntegerField(1, fields.MAX_FIGURE, nullable=True, default=None),
    }
    cell: int
    pins: tuple[tuple[int, int], ...]
    idle: tuple[int, ...]
    shared: tuple[int, ...]
    page_size_kib: int | None

    def __init__(
        self,
        cell: int,
        *,
        pins: Mapping[int, int] | Iterable[tuple[int, int]] = (),
        idle: Iterable[int] = (),
        shared: Iterable[int] = (),
        page_size_kib: int | None = None,
    ) -> None:
        super().__init__(
            cell=cell,
            pins=pins if isinstance(pins, Mapping) else listed(pins),
            idle=idle,
            shared=shared,
            page_size_kib=page_size_kib,
        )

    @property
    def pinned(self) -> tuple[int, ...]:
        """The CPUs that are taken for vCPUs, those left empty included."""
        return cpus_of(self.pinned_mask)

    @property
    def pinned_mask(self) -> int:
        """The same as a mask."""
        mask = mask_of(self.idle)
        for _, cpu in self.pins:
            mask |= 1 << cpu
        return mask

    def _validate(self) -> None:
        taken = [*(cpu for _, cpu in self.pins), *self.idle]
        valid.check_numbers(f"CPUs of host cell {self.cell}", taken, self.shared)
        if len(set(taken)) != len(taken):
            raise exceptions.InvalidAmount(f"CPUs of host cell {self.cell}", taken, "each CPU once")
