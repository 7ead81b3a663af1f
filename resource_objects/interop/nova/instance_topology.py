"""``instance_extra.numa_topology``: a guest's NUMA topology as Nova keeps it, read and written.

Every version is read, ``InstanceNUMACell`` 1.0 to 1.6 and the plain dicts from before Liberty; the
newest is written. Cells are read by what is in them, for their version may lie (Nova's bug
2097360): dedicated vCPUs are in ``pcpuset``, or, where that is empty, in ``cpuset``.

What ``id`` of a cell means is decided here, once:

=============  ====================================================================================
not assigned   the guest cell: 0, 1, ... in their order; or -1 in each, where Nova took the guest
               from its host again
assigned       the host cell
=============  ====================================================================================

Which it is, the content tells nearly always:

==========================================================  =======================================
each dedicated vCPU has a CPU                               assigned
dedicated vCPUs, and none has a CPU                         not assigned
an id of -1, or a page size in words (``small``, ...)       not assigned
shared vCPUs only, and ids that are not 0, 1, ...           assigned
shared vCPUs only, ids 0, 1, ...                            both look the same: ``assigned`` tells
==========================================================  =======================================

Nothing is guessed: what contradicts itself or ``assigned`` is refused, and so is what cannot be
told.

What an assigned topology does not say, and who does:

* the CPUs that shared vCPUs run on, the siblings that ``isolate`` leaves empty, and (for sizes from
  8 to 512 KiB) whether pages are ordinary or huge: ``host``;
* the page size that was asked for: Nova writes the size that was found over it. ``page_size`` says
  it; else it is that size, as long as all cells have the same.

Nova keeps elsewhere, or nowhere, which networks are asked for and whether all has to be in one
socket: writing refuses them, unless they may be left out.

What is read and written again is what it was, up to this: sets ascending; a policy of None is
``shared``, and ``mixed`` without shared vCPUs is ``dedicated``; no ``cpu_topology``, which Nova has
no use for either; no ``instance_uuid`` but the one that is given; no page size in cells without
memory; ids of -1 are those of the guest cells again; and the newest version.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.primitive import (
    GUEST,
    GUEST_CELL,
    Document,
    at,
    bounds,
    ids,
    number,
)
from resource_objects.names import uuid_text
from resource_objects.resources.numa import (
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    PlacedCell,
)
from resource_objects.resources.numa.amount import (
    DEDICATED,
    EMULATOR_POLICIES,
    ISOLATE,
    MIXED,
    SHARED,
    THREAD_POLICIES,
    given,
)
from resource_objects.resources.numa.cells import ANY, LARGE, SMALL, parse_page_size
from resource_objects.resources.numa.cpuset import MAX_ID

_invalid_primitive = functools.partial(InvalidInput, "primitive")

__all__ = ["dump_instance_numa_topology", "load_instance_numa_topology"]

_FIELDS: Final = frozenset({"id", "instance_uuid", "cells", "emulator_threads_policy"})
#: What may be left out, for no version has a word for it.
_OPTIONAL: Final = ("physnets", "tunneled", "one_socket")


def load_instance_numa_topology(
    source: Document,
    *,
    host: NUMATopologyInventory | None = None,
    assigned: bool | None = None,
    page_size: str | int | None = None,
) -> NUMATopologyAmount:
    """Return the amount of a guest's topology, assigned where that is.

    :param source: JSON text as in ``instance_extra.numa_topology``, the mapping it stands for, or
        Nova's own ``InstanceNUMATopology``
    :param host: the host it is on; needed where the module says so
    :param assigned: whether it is assigned; None: as the content tells
    :param page_size: what was asked, where Nova wrote the size that was found over it; as
        :func:`~resource_objects.resources.numa.numa` takes it
    :raises InvalidInput: if it is no topology, in any version, or contradicts itself, the host or
        the parameters; also if it cannot be told what it means without one of them; for a
        ``page_size`` that is none

    Cost: 0.1 milliseconds for 2 cells.

    >>> shared = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 1024}}]}'
    >>> print(load_instance_numa_topology(shared, assigned=False).located)
    {'VCPU': 4, 'MEMORY_MB': 1024}
    >>> load_instance_numa_topology(shared)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: numa_topology.cells: got (0,), expected ...
    """
    requested_size = page_size if page_size in (None, "") else parse_page_size(page_size)
    data, found = primitive.cells_of(source, GUEST, GUEST_CELL, _FIELDS, _of_plain)
    cells = []
    for place, (raw, _) in enumerate(found):
        try:
            cells.append(_read_cell(raw))
        except InvalidInput as error:
            primitive.at(f"{primitive.ROOT}.cells[{place}]", error)
    try:
        return _amount_of(
            cells,
            _read_emulator_policy(data.get("emulator_threads_policy")),
            host,
            assigned,
            requested_size,
        )
    except InvalidInput as error:
        primitive.at(primitive.ROOT, error)


def _read_emulator_policy(value: object) -> str | None:
    if value is None or value in EMULATOR_POLICIES:
        return None if value is None else str(value)
    raise _invalid_primitive("emulator_threads_policy", value, "share, isolate or null")


def dump_instance_numa_topology(
    amount: NUMATopologyAmount,
    *,
    host: NUMATopologyInventory | None = None,
    instance_uuid: str | None = None,
    leave_out: Collection[str] = (),
) -> str:
    """Return a guest's topology as ``instance_extra.numa_topology`` has it.

    :param host: the host an assigned amount is on; needed where any or small pages were asked for
        and it is in ordinary ones: Nova writes their size
    :param instance_uuid: the uuid of the guest, to be written with it
    :param leave_out: what may be left unsaid, for Nova keeps it elsewhere or nowhere:
        ``physnets``, ``tunneled``, ``one_socket``
    :raises CannotDowngrade: for what Nova has no word for
    :raises InvalidInput: if it is no such amount; if something else is to be left out; for a uuid
        that is none
    :raises InvalidInventory: if ``host`` has no such cell

    >>> from resource_objects.resources.numa import numa
    >>> asked = numa(cells=2, dedicated=4, memory_mb=2048, page_size="large")
    >>> load_instance_numa_topology(dump_instance_numa_topology(asked)) == asked
    True
    >>> dump_instance_numa_topology(numa(cells=2, shared=4, memory_mb=2048, physnets=["red"]))
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: InstanceNUMACell cannot be expressed in ...
    """
    topology = given(amount)
    allowed = primitive.left_out(leave_out, _OPTIONAL)
    if topology.gives_back:
        raise primitive.cannot_say(GUEST_CELL, "it is given back")
    for name in _OPTIONAL:
        if getattr(topology, name) and name not in allowed:
            raise primitive.cannot_say(GUEST_CELL, f"it has {name}")
    cells = [
        _written_cell(topology, place, _written_size(topology, place, host))
        for place in range(len(topology.cells))
    ]
    data: dict[str, Any] = {
        "cells": cells,
        "emulator_threads_policy": topology.emulator_policy,
    }
    if instance_uuid is not None:
        data["instance_uuid"] = uuid_text(instance_uuid)
    return primitive.written(primitive.enveloped(GUEST, data))


_CELL_FIELDS: Final = frozenset(
    {
        "id",
        "cpuset",
        "pcpuset",
        "cpuset_reserved",
        "memory",
        "pagesize",
        "cpu_topology",
        "cpu_pinning_raw",
        "cpu_policy",
        "cpu_thread_policy",
    }
)
#: Of the plain dicts; limits were the scheduler's, usage the host's.
_PLAIN_FIELDS: Final = frozenset({"id", "cpus", "mem", "pagesize"})
_PLAIN_MEMORY: Final = frozenset({"total"})

_MEMORY = bounds(GuestCell, "memory_mb")
_SIZE = bounds(PagePool, "size_kib")
_POLICIES: Final = (SHARED, DEDICATED, MIXED)

#: Nova's numbers for page sizes in words.
_PAGE_WORDS: Final = {-1: SMALL, -2: LARGE, -3: ANY}
_PAGE_NUMBERS: Final = {word: number for number, word in _PAGE_WORDS.items()}
#: Id of a cell that was taken from its host.
_CLEARED: Final = -1


class _Cell(NamedTuple):
    """A guest cell as it was found: what its ``id`` means is not decided."""

    id: int
    guest: GuestCell
    policy: str
    thread_policy: str | None
    pins: Mapping[int, int]
    reserved: tuple[int, ...]
    page_size: str  #: a word, KiB in digits, or "" for none

    @property
    def size_kib(self) -> int | None:
        """The page size as a number, None if there is none, or it is a word."""
        return int(self.page_size) if self.page_size.isdecimal() else None


def _read_cell(data: dict[Any, Any]) -> _Cell:
    """Return a cell as it is, by its content: the version may lie."""
    primitive.only(data, _CELL_FIELDS)
    pins = _read_pins(data.get("cpu_pinning_raw"))
    shared, dedicated, policy = _read_vcpus(data, pins)
    if set(pins or ()).difference(dedicated):
        raise _invalid_primitive("cpu_pinning_raw", pins, f"CPUs of dedicated vCPUs: {dedicated}")
    reserved = data.get("cpuset_reserved")
    return _Cell(
        number(data.get("id"), "id", _CLEARED, MAX_ID),
        GuestCell(
            shared=shared,
            dedicated=dedicated,
            memory_mb=number(data.get("memory"), "memory", *_MEMORY),
        ),
        policy,
        _one_of(THREAD_POLICIES, data.get("cpu_thread_policy"), "cpu_thread_policy"),
        pins or {},
        () if reserved is None else ids(reserved, "cpuset_reserved"),
        _read_page_size(data.get("pagesize")),
    )


def _read_vcpus(
    data: Mapping[Any, Any], pins: Mapping[int, int] | None
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return shared and dedicated vCPUs, and the policy."""
    shared = ids(data.get("cpuset"), "cpuset")
    dedicated = ids(data.get("pcpuset", ()), "pcpuset")
    if "cpu_policy" in data:
        policy = _one_of(_POLICIES, data["cpu_policy"], "cpu_policy") or SHARED
    else:  # before 1.3 it was pinning that told, if only to be pinned later
        policy = SHARED if pins is None else DEDICATED
    if policy == MIXED and "pcpuset" not in data:
        raise _invalid_primitive("pcpuset", None, "dedicated vCPUs, for the policy is mixed")
    if policy == SHARED and dedicated:
        raise _invalid_primitive("pcpuset", dedicated, "none, for the policy is shared")
    if policy == DEDICATED and shared:
        if dedicated:
            raise _invalid_primitive("cpuset", shared, "none, for the policy is dedicated")
        shared, dedicated = (), shared
    return shared, dedicated, policy


def _read_pins(value: object) -> dict[int, int] | None:
    if value is None:
        return None
    pins = {}
    for vcpu, cpu in primitive.mapping(value, "cpu_pinning_raw").items():
        if not isinstance(vcpu, str) or not vcpu.isdecimal() or not vcpu.isascii() or len(vcpu) > 7:
            raise _invalid_primitive("cpu_pinning_raw", vcpu, "the number of a vCPU, as text")
        pins[int(vcpu)] = number(cpu, f"cpu_pinning_raw[{vcpu}]", 0, MAX_ID)
    return pins


def _read_page_size(value: object) -> str:
    if value is None:
        return ""
    if type(value) is int and value in _PAGE_WORDS:
        return _PAGE_WORDS[value]
    size = value if type(value) is int else 0
    if not _SIZE[0] <= size <= _SIZE[1] or size & (size - 1):
        raise _invalid_primitive(
            "pagesize", value, "-1 (small), -2 (large), -3 (any), a power of two in KiB, or null"
        )
    return str(size)


def _one_of(known: tuple[str, ...], value: object, what: str) -> str | None:
    if value is None:
        return None
    if value not in known:
        raise _invalid_primitive(what, value, f"{', '.join(known)} or null")
    return str(value)


def _of_plain(value: object) -> dict[Any, Any]:
    """Return a cell from before Liberty in the names of later ones."""
    cell, plain, _ = primitive.plain_cell(value, _PLAIN_FIELDS, _PLAIN_MEMORY)
    return {**cell, "pagesize": plain.get("pagesize")}


# --- writing --------------------------------------------------------------------------------------


def _written_cell(amount: NUMATopologyAmount, place: int, page_size: int | None) -> dict[str, Any]:
    """Return a guest cell in wire form."""
    guest = amount.cells[place]
    placed = amount.placed[place] if amount.placed else None
    has_emulator = place == 0 and amount.emulator_cpu is not None
    data: dict[str, Any] = {
        "id": place if placed is None else placed.cell,
        "cpuset": guest.shared,
        "pcpuset": guest.dedicated,
        "cpuset_reserved": [amount.emulator_cpu] if has_emulator else None,
        "memory": guest.memory_mb,
        "pagesize": page_size,
        "cpu_topology": None,
        "cpu_pinning_raw": {str(vcpu): cpu for vcpu, cpu in placed.pins}
        if placed and guest.dedicated
        else None,
        "cpu_policy": amount.cpu_policy,
        "cpu_thread_policy": amount.thread_policy,
    }
    return primitive.enveloped(GUEST_CELL, data)


#: Sizes up to the first are ordinary pages everywhere, from the second on huge ones.
_ORDINARY_KIB, _HUGE_KIB = 4, 1024


def _amount_of(
    cells: Sequence[_Cell],
    emulator_policy: str | None,
    host: NUMATopologyInventory | None,
    assigned: bool | None,
    page_size: str | None,
) -> NUMATopologyAmount:
    """Return the amount of some cells, assigned if they are."""
    if not cells:
        raise _invalid_primitive("cells", [], "at least one")
    _check_alike(cells)
    is_assigned = _is_assigned(cells, assigned)
    has_emulator = emulator_policy == ISOLATE
    placed: list[PlacedCell] = []
    if is_assigned:
        for place, cell in enumerate(cells):
            try:
                placed.append(_placed(cell, host))
            except InvalidInput as error:
                at(f"cells[{place}]", error)
    found = NUMATopologyAmount(
        [cell.guest for cell in cells],
        page_size=_page_size(cells, placed, page_size),
        thread_policy=cells[0].thread_policy,
        emulator_policy=emulator_policy,
        placed=placed,
        emulator_cpu=_emulator(cells, is_assigned and has_emulator),
    )
    return found if host is None or not placed else host.refreshed(found)


def _check_alike(cells: Sequence[_Cell]) -> None:
    """Refuse policies that differ: Nova writes them to each cell, and means one."""
    first = cells[0]
    for place, cell in enumerate(cells):
        for name, value, expected in (
            ("cpu_policy", cell.policy, first.policy),
            ("cpu_thread_policy", cell.thread_policy, first.thread_policy),
        ):
            if value != expected:
                raise _invalid_primitive(
                    f"cells[{place}].{name}", value, f"{expected}, as in cells[0]"
                )


# --- assigned or not ---


def _is_assigned(cells: Sequence[_Cell], stated: bool | None) -> bool:
    found = _told(cells)
    numbers = tuple(cell.id for cell in cells)
    if found is None and stated is None:
        raise _invalid_primitive(
            "cells",
            numbers,
            "assigned=True or False: these ids are those of guest cells as well as of host cells",
        )
    if found is not None and stated is not None and found != stated:
        raise _invalid_primitive("cells", numbers, f"assigned={found}, which the content tells")
    is_assigned = stated if found is None else found
    if not is_assigned and not _are_guests(numbers):
        raise _invalid_primitive(
            "cells", numbers, "ids 0, 1, ... or all -1, for it is not assigned: no vCPU has a CPU"
        )
    return bool(is_assigned)


def _told(cells: Sequence[_Cell]) -> bool | None:
    """Return whether the content says that it is assigned, None if it does not tell."""
    dedicated = sum(len(cell.guest.dedicated) for cell in cells)
    pinned = sum(len(cell.pins) for cell in cells)
    numbers = tuple(cell.id for cell in cells)
    if pinned and pinned < dedicated:
        raise _invalid_primitive(
            "cells", f"{pinned} CPUs", f"one for each of {dedicated} dedicated vCPUs, or none"
        )
    is_not = _CLEARED in numbers or any(cell.page_size in _PAGE_NUMBERS for cell in cells)
    if pinned and is_not:
        raise _invalid_primitive(
            "cells", numbers, "host cells and a page size in KiB, for its vCPUs have CPUs"
        )
    if pinned:
        return True
    if is_not or dedicated:
        return False
    return None if _are_guests(numbers) else True


def _are_guests(numbers: tuple[int, ...]) -> bool:
    """Return whether ids are such as guest cells have."""
    return numbers == tuple(range(len(numbers))) or set(numbers) == {_CLEARED}


# --- where ---


def _placed(cell: _Cell, host: NUMATopologyInventory | None) -> PlacedCell:
    there = None if host is None else host.cell(cell.id)
    return PlacedCell(
        cell.id,
        pins=cell.pins,
        idle=_idle(cell, there),
        shared=_shared(cell, there),
        page_size_kib=_huge_kib(cell, there),
    )


def _shared(cell: _Cell, there: HostCell | None) -> tuple[int, ...]:
    """Return the CPUs that shared vCPUs may run on: all that the host cell has for them."""
    if not cell.guest.shared:
        return ()
    if there is None:
        raise _invalid_primitive("cpuset", cell.guest.shared, "host=, whose CPUs these run on")
    if not there.shared:
        expected = f"none: host cell {there.id} has none for them"
        raise _invalid_primitive("cpuset", cell.guest.shared, expected)
    return there.shared


def _idle(cell: _Cell, there: HostCell | None) -> tuple[int, ...]:
    """Return the CPUs left empty beside isolated vCPUs and an isolated emulator."""
    taken = {*cell.pins.values(), *cell.reserved}
    if cell.thread_policy != ISOLATE or not taken:
        return ()
    if there is None:
        raise _invalid_primitive(
            "cpu_thread_policy", cell.thread_policy, "host=, whose siblings are left empty"
        )
    beside = {cpu for core in there.siblings if taken.intersection(core) for cpu in core}
    beside.intersection_update(there.dedicated)
    return tuple(sorted(beside.difference(taken)))


def _huge_kib(cell: _Cell, there: HostCell | None) -> int | None:
    """Return the size of the huge pages that a cell is in, None for ordinary memory."""
    size = cell.size_kib
    if size is None or not cell.guest.memory_mb:
        return None
    if there is None:
        if _ORDINARY_KIB < size < _HUGE_KIB:
            raise _invalid_primitive(
                "pagesize", size, "host=, which has it as ordinary or huge pages"
            )
        return None if size <= _ORDINARY_KIB else size
    sizes = [pool.size_kib for pool in there.pages]
    if size not in sizes:
        raise _invalid_primitive("pagesize", size, f"one of the host cell's: {sizes}")
    return None if size == there.base_kib else size


def _emulator(cells: Sequence[_Cell], is_placed: bool) -> int | None:
    for place, cell in enumerate(cells):
        expected = int(is_placed and place == 0)
        if len(cell.reserved) != expected and cell.id != _CLEARED:
            raise _invalid_primitive(
                f"cells[{place}].cpuset_reserved",
                cell.reserved,
                "one CPU for the emulator" if expected else "none",
            )
    return cells[0].reserved[0] if is_placed else None


# --- page sizes ---


def _page_size(cells: Sequence[_Cell], placed: Sequence[PlacedCell], stated: str | None) -> str:
    """Return the page size that was asked for."""
    counted = [place for place, cell in enumerate(cells) if cell.guest.memory_mb] or range(
        len(cells)
    )
    found = list(dict.fromkeys(cells[place].page_size for place in counted))
    if stated is None:
        if len(found) > 1:
            raise _invalid_primitive(
                "cells", found, "one pagesize in all, or page_size=: the one asked"
            )
        return found[0]
    for place in counted:
        cell = cells[place]
        if cell.guest.memory_mb and not _agrees(stated, cell, placed[place] if placed else None):
            raise _invalid_primitive(
                f"cells[{place}].pagesize", cell.page_size, f"what page_size={stated!r} may lead to"
            )
    return stated


def _agrees(requested: str, cell: _Cell, placed: PlacedCell | None) -> bool:
    if requested == cell.page_size:
        return True
    if cell.size_kib is None or not requested or requested.isdecimal():
        return False
    if placed is None or requested == ANY:
        return True
    return (placed.page_size_kib is None) == (requested == SMALL)


def _written_size(
    amount: NUMATopologyAmount, place: int, host: NUMATopologyInventory | None
) -> int | None:
    """Return the page size of a guest cell as Nova has it, in KiB or as the number of a word.

    :raises CannotDowngrade: if it is not known, or not what was asked
    """
    requested, guest = amount.page_size, amount.cells[place]
    said = int(requested) if requested.isdecimal() else None
    if not amount.placed:
        return _PAGE_NUMBERS.get(requested, said)
    if not guest.memory_mb:
        return said
    size = amount.placed[place].page_size_kib
    if size is not None or not requested:
        return size
    base = host.cell(amount.placed[place].cell).base_kib if host else said
    is_known_huge = host is None and base is not None and base >= _HUGE_KIB
    if said not in (None, base) or is_known_huge:
        reason = f"guest cell {place} is in ordinary memory, and asked for huge pages"
        raise primitive.cannot_say(GUEST_CELL, reason)
    if base is None:
        reason = f"guest cell {place} is in pages whose size only host= tells"
        raise primitive.cannot_say(GUEST_CELL, reason)
    return base
