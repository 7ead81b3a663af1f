"""From plain words to a topology amount: :func:`numa`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from resource_objects import exceptions
from resource_objects.fields import MAX_FIGURE
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.cpus import MAX_ID
from resource_objects.resources.numa.guest import GuestCell
from resource_objects.resources.numa.valid import MAX_GUEST_CELLS


def numa(
    cells: int | Iterable[GuestCell] = 1,
    *,
    shared: int = 0,
    dedicated: int = 0,
    memory_mb: int = 0,
    page_size: str | int = "",
    thread_policy: str | None = None,
    emulator_policy: str | None = None,
    physnets: Iterable[str] = (),
    tunneled: bool = False,
    one_socket: bool = False,
) -> NUMATopologyAmount:
    """Return the amount of so many guest cells that have equal parts of what is asked.

    vCPUs are numbered through: in each guest cell the shared ones come first, then the dedicated.

    :param cells: how many guest cells; or the guest cells, and then no counts
    :param shared: vCPUs that may share CPUs, over all guest cells
    :param dedicated: vCPUs that each have a CPU of their own, over all guest cells
    :param memory_mb: MiB over all guest cells
    :param page_size: ``small``, ``large``, ``any``, ``"1GB"``, KiB as an integer; default: ordinary
        memory
    :param thread_policy: ``prefer``, ``require`` or ``isolate``
    :param emulator_policy: ``isolate`` for one more dedicated CPU, ``share`` for none
    :param physnets: names of networks that one of the host cells has to be next to
    :param tunneled: the same of tunnelled networks
    :param one_socket: whether all host cells have to be in one socket
    :raises InvalidAmount: for counts below 0, or that do not divide by the guest cells; for
        policies that contradict each other; if nothing is asked
    :raises InvalidText: for a page size that is none

    >>> asked = numa(cells=2, dedicated=16, memory_mb=4096, page_size="1GB")
    >>> [len(cell.dedicated) for cell in asked.cells], asked.page_size
    ([8, 8], '1048576')
    >>> numa(cells=2, dedicated=5)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidAmount: dedicated: got 5, expected a multiple of 2 guest ...
    """
    counts = {"shared": shared, "dedicated": dedicated, "memory_mb": memory_mb}
    return NUMATopologyAmount(
        _split(cells, counts) if type(cells) is int else _stated(cells, counts),
        page_size=page_size,
        thread_policy=thread_policy,
        emulator_policy=emulator_policy,
        physnets=physnets,
        tunneled=tunneled,
        one_socket=one_socket,
    )


def _split(cells: int, counts: dict[str, int]) -> Sequence[GuestCell]:
    if not 1 <= cells <= MAX_GUEST_CELLS:
        raise exceptions.InvalidAmount("guest cells", cells, f"1 to {MAX_GUEST_CELLS}")
    for name, count in counts.items():
        most = MAX_FIGURE * cells if name == "memory_mb" else MAX_ID + 1
        if type(count) is not int or not 0 <= count <= most:
            raise exceptions.InvalidAmount(name, count, f"an integer from 0 to {most}")
        if count % cells:
            raise exceptions.InvalidAmount(name, count, f"a multiple of {cells} guest cells")
    return list(even(cells, *counts.values()))


def even(cells: int, shared: int, dedicated: int, memory_mb: int) -> Iterator[GuestCell]:
    """Yield guest cells with equal parts of counts that divide by their number."""
    shared, dedicated, memory_mb = shared // cells, dedicated // cells, memory_mb // cells
    for number in range(cells):
        first = number * (shared + dedicated)
        between = first + shared
        yield GuestCell(
            shared=range(first, between),
            dedicated=range(between, between + dedicated),
            memory_mb=memory_mb,
        )


def _stated(cells: object, counts: dict[str, int]) -> Sequence[GuestCell]:
    for name, count in counts.items():
        if type(count) is not int or count:
            raise exceptions.InvalidAmount(name, count, "nothing beside guest cells that say it")
    if not isinstance(cells, Iterable) or isinstance(cells, str | bytes):
        raise exceptions.InvalidAmount("guest cells", cells, "how many, or the cells")
    return list(cells)
