"""NUMA topologies of hosts and guests in Nova's form, read and written.

``compute_nodes.numa_topology``, the topology of a host
-------------------------------------------------------

Every version is read: ``NUMACell`` 1.0 to 1.5, and the plain dicts of releases before Liberty. The
newest version is written.

====================================  =============================================================
Nova                                  here
====================================  =============================================================
``cpuset``, ``pcpuset``               ``shared``, ``dedicated``: disjoint or equal. Without
                                      ``pcpuset`` (before 1.4) they are equal
``memory``                            ``memory_mb``, in pages of any size
``memory_usage``                      all used memory; ``CellUsage.memory_mb`` is the part of it
                                      outside huge pages
``mempages``                          ``pages``, ascending; ``used`` of huge pages is
                                      ``CellUsage.pages``
``used`` of the smallest pages        not read: ``memory_usage`` has the figure, and before Stein
                                      only guests with a page size were counted. Computed on writing
``cpu_usage``                         ``CellUsage.shared``. Before 1.4 it includes pinned CPUs,
                                      since 1.5 it does not; both kinds of hosts wrote 1.4, see
                                      ``counts_pinned``
``siblings``                          ``siblings``. A CPU without siblings is written as a core of
                                      its own, as Nova requires
``network_metadata``                  ``physnets``, ``tunneled``
allocation ratios                     not in the topology: ``cpu_ratio``, ``memory_ratio``
====================================  =============================================================

A topology that is read and written again is unchanged, except: sets are ascending, cores are
ordered by their CPUs, pages by size; empty sibling sets are omitted; ``used`` of the smallest pages
is computed; fields that were not set have their default (0, empty, None); there is no
``nova_object.changes``; and the version is the newest.

Nova has no field for ``distances`` and for ``loose`` CPUs, so writing rejects them.

``instance_extra.numa_topology``, the topology of a guest
---------------------------------------------------------

Every version is read: ``InstanceNUMACell`` 1.0 to 1.6, and the plain dicts of releases before
Liberty. The newest version is written. Dedicated vCPUs are read from ``pcpuset`` or, if that is
empty, from ``cpuset``: the version of a cell can be wrong (Nova's bug 2097360).

The ``id`` of a cell is the number of the host cell if the topology is assigned. Otherwise it is the
number of the guest cell (0, 1, ...), or -1 in every cell after Nova unassigned the topology. The
content decides nearly always:

==========================================================  =======================================
content                                                     the topology is
==========================================================  =======================================
each dedicated vCPU has a CPU                               assigned
dedicated vCPUs, none with a CPU                            not assigned
an id of -1, or a page size in words (``small``, ...)       not assigned
only shared vCPUs, and ids that are not 0, 1, ...           assigned
only shared vCPUs, ids 0, 1, ...                            ambiguous: ``assigned`` decides
==========================================================  =======================================

A topology that contradicts itself or ``assigned`` is rejected, and so is an ambiguous one. An
assigned topology does not contain the CPUs of shared vCPUs, the siblings that ``isolate`` leaves
idle, and (for sizes from 8 to 512 KiB) whether pages are huge: ``host`` provides these. Nova
replaces the requested page size by the assigned size; ``page_size`` is the requested one, by
default the size of the cells.

Nova has no field for requested networks and for one socket, so writing rejects them unless they may
be left out. A topology that is read and written again is unchanged, except: sets are ascending; a
policy of None is ``shared``, and ``mixed`` without shared vCPUs is ``dedicated``; there is no
``cpu_topology``, no ``instance_uuid`` but the argument, and no page size in cells without memory;
ids of -1 are numbers of guest cells; and the version is the newest.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeVar

from resource_objects import base, names
from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE
from resource_objects.interop.nova.primitive import (
    GUEST,
    GUEST_CELL,
    HOST,
    HOST_CELL,
    NETWORKS,
    PAGES,
    Document,
    id_set,
    inexpressible,
    invalid,
    is_wrapped,
    optional_names,
    parse_cpu_spec,
    parse_document,
    reject_unknown,
    require_int,
    require_list,
    require_object,
    reraise_at,
    unwrap,
    wrap,
)
from resource_objects.ratio import to_ratio
from resource_objects.resources.numa import (
    CellUsage,
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
    require_topology,
)
from resource_objects.resources.numa.cells import ANY, KIB_PER_MIB, LARGE, SMALL, parse_page_size
from resource_objects.resources.numa.cpuset import MAX_ID

__all__ = [
    "dump_host_numa_topology",
    "dump_instance_numa_topology",
    "load_host_numa_topology",
    "load_instance_numa_topology",
]

_ROOT: Final = "numa_topology"
_V = TypeVar("_V", bound=base.ResourceObject)


def _read_cells(
    source: object,
    topology: str,
    cell: str,
    fields: Collection[str],
    read_plain: Callable[[object], dict[Any, Any]],
) -> tuple[dict[Any, Any], list[tuple[dict[Any, Any], int]]]:
    """Return the data of a topology, and the data and the minor version of each cell.

    :param fields: the fields of the topology
    :param read_plain: renames the fields of a plain dict, which is of version 0
    """
    data = require_object(parse_document(source, _ROOT), _ROOT)
    is_plain = not is_wrapped(data)
    if not is_plain:
        data = unwrap(data, _ROOT, topology)[0]
    reject_unknown(data, fields, f"{_ROOT}.")
    cells = []
    for index, item in enumerate(require_list(data.get("cells"), f"{_ROOT}.cells")):
        try:
            cells.append((read_plain(item), 0) if is_plain else unwrap(item, "", cell))
        except InvalidInput as error:
            reraise_at(f"{_ROOT}.cells[{index}]", error)
    return data, cells


def _read_plain(
    value: object, fields: Collection[str], memory_fields: Collection[str]
) -> tuple[dict[str, Any], Mapping[Any, Any], Mapping[Any, Any]]:
    """Return the fields that every plain cell has, under their later names; the cell; its memory.

    :param fields: the fields of the cell, ``memory_fields`` those of its memory
    """
    plain = require_object(value, "")
    reject_unknown(plain, fields)
    memory = require_object(plain.get("mem", {}), "mem")
    reject_unknown(memory, memory_fields, "mem.")
    cpus = plain.get("cpus", "")
    try:
        cpuset = tuple(parse_cpu_spec(cpus, "cpus"))
    except InvalidInput as error:
        raise invalid("cpus", cpus, error.expected) from None
    cell = {"id": plain.get("id"), "cpuset": cpuset, "memory": memory.get("total", 0)}
    return cell, plain, memory


# --- hosts: reading -------------------------------------------------------------------------------


def load_host_numa_topology(
    source: Document,
    *,
    cpu_ratio: Decimal | int | str | float = 1,
    memory_ratio: Decimal | int | str | float = 1,
    counts_pinned: bool | None = None,
) -> NUMATopologyInventory:
    """Return the inventory of a host's topology with its usage.

    :param source: JSON text as in ``compute_nodes.numa_topology``, the value of that text, or an
        object ``NUMATopology``
    :param cpu_ratio: ``cpu_allocation_ratio`` of the host
    :param memory_ratio: ``ram_allocation_ratio`` of the host
    :param counts_pinned: whether ``cpu_usage`` includes pinned CPUs. None: the version decides,
        and for 1.4, which both kinds of hosts wrote, the figures
    :raises InvalidInput: if it is not a topology of a known version, or contradicts itself; if
        ``counts_pinned`` is needed; for an invalid ratio

    Cost: 0.2 milliseconds for 8 cells of 16 CPUs, a quarter of it for the JSON.

    >>> old = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 2048, "used": 512}}]}'
    >>> host = load_host_numa_topology(old, cpu_ratio=4)
    >>> host.free_shared, host.free_dedicated, host.free_memory_mb
    (16, 4, 1536)
    """
    _, documents = _read_cells(source, HOST, HOST_CELL, {"cells"}, _read_plain_host)
    if not documents:
        raise invalid(f"{_ROOT}.cells", [], "at least one")
    ratios = to_ratio(cpu_ratio), to_ratio(memory_ratio)
    cells, usage = [], []
    for index, (data, minor) in enumerate(documents):
        try:
            cell, used = _read_host_cell(data, minor, counts_pinned)
        except InvalidInput as error:
            reraise_at(f"{_ROOT}.cells[{index}]", error)
        cells.append(cell)
        usage.append(used)
    try:
        return _construct(
            NUMATopologyInventory,
            resource_class=None,
            cells=tuple(cells),
            usage=tuple(usage),
            cpu_ratio=ratios[0],
            memory_ratio=ratios[1],
            room=None,
            taken=None,
        )
    except InvalidInput as error:
        reraise_at(f"{_ROOT}.cells", error)


_HOST_CELL_FIELDS: Final = frozenset({
    "id", "cpuset", "pcpuset", "memory", "cpu_usage", "memory_usage", "pinned_cpus", "siblings",
    "mempages", "network_metadata", "socket",
})  # fmt: skip
_PAGES_FIELDS: Final = frozenset({"size_kb", "total", "used", "reserved"})
_NETWORK_FIELDS: Final = frozenset({"physnets", "tunneled"})
#: The first version of a cell with dedicated CPUs in a field of their own.
_WITH_DEDICATED: Final = 4


def _construct(cls: type[_V], **values: Any) -> _V:
    """Return an object of checked values: only conditions between fields are checked here."""
    instance = cls._construct(**values)
    instance._validate()
    return instance


#: A host is read again and again, and its cells hardly change.
_host_cell = functools.lru_cache(maxsize=4096)(functools.partial(_construct, HostCell))


def _read_plain_host(value: object) -> dict[Any, Any]:
    # limits belonged to the scheduler, not to the host
    cell, plain, memory = _read_plain(
        value, {"id", "cpus", "mem", "cpu_usage", "cpu_limit"}, {"total", "used", "limit"}
    )
    used = {"cpu_usage": plain.get("cpu_usage", 0), "memory_usage": memory.get("used", 0)}
    return {**cell, **used}


def _read_host_cell(
    data: dict[Any, Any], minor: int, counts_pinned: bool | None
) -> tuple[HostCell, CellUsage]:
    reject_unknown(data, _HOST_CELL_FIELDS)
    get = data.get
    shared = id_set(get("cpuset"), "cpuset")
    dedicated = id_set(data["pcpuset"], "pcpuset") if "pcpuset" in data else shared
    pinned = id_set(get("pinned_cpus", ()), "pinned_cpus")
    pages, used_pages = _read_pages(get("mempages", ()))
    physnets, tunneled = _read_networks(get("network_metadata"))
    socket = get("socket")
    cell_id = require_int(get("id"), "id", 0, MAX_ID)
    cell = _host_cell(
        id=cell_id,
        shared=shared,
        dedicated=dedicated,
        siblings=_read_siblings(get("siblings", ())),
        memory_mb=require_int(get("memory"), "memory"),
        pages=pages,
        socket=None if socket is None else require_int(socket, "socket", -MAX_AMOUNT, MAX_AMOUNT),
        distances=(),
        physnets=physnets,
        tunneled=tunneled,
    )
    used_shared = require_int(get("cpu_usage", 0), "cpu_usage", 0, MAX_AMOUNT)
    if pinned:
        if counts_pinned is None:
            counts_pinned = _counts_pinned(used_shared, minor, shared, pinned)
        if counts_pinned:
            if used_shared < len(pinned):
                expected = f"at least the {len(pinned)} pinned CPUs, which it includes"
                raise invalid("cpu_usage", used_shared, expected)
            used_shared -= len(pinned)
    used_mb = require_int(get("memory_usage", 0), "memory_usage", 0, MAX_AMOUNT)
    huge_mb = _mib_of(used_pages)
    if used_mb < huge_mb:
        raise invalid("memory_usage", used_mb, f"at least the {huge_mb} used in huge pages")
    usage = _construct(
        CellUsage,
        cell=cell_id,
        shared=used_shared,
        pinned=pinned,
        loose=0,
        memory_mb=used_mb - huge_mb,
        pages=used_pages,
    )
    return cell, usage


def _counts_pinned(used: int, minor: int, shared: tuple[int, ...], pinned: tuple[int, ...]) -> bool:
    """Return True if the used CPUs of a cell include the pinned ones."""
    if minor != _WITH_DEDICATED:
        return minor < _WITH_DEDICATED
    if used < len(pinned):
        return False
    if not shared:
        return True
    raise invalid(
        "cpu_usage",
        used,
        f"counts_pinned=True or False: hosts that include the {len(pinned)} pinned CPUs and hosts"
        " that do not both wrote version 1.4",
    )


def _read_siblings(value: object) -> tuple[tuple[int, ...], ...]:
    groups = require_list(value, "siblings")
    if {*map(type, groups)} <= {list}:
        id_set([*itertools.chain.from_iterable(groups)], "siblings")  # one check for all
        return tuple(sorted([tuple(sorted(group)) for group in groups if group]))
    return tuple(sorted([ids for group in groups if (ids := id_set(group, "siblings"))]))


def _read_pages(value: object) -> tuple[tuple[PagePool, ...], tuple[tuple[int, int], ...]]:
    """Return the pages by size, and the used huge pages, ``(size in KiB, count)``."""
    pages = []
    for index, item in enumerate(require_list(value, "mempages")):
        try:
            data, _ = unwrap(item, "", PAGES)
            reject_unknown(data, _PAGES_FIELDS)
            pool = _page_pool(data.get("size_kb"), data.get("total"), data.get("reserved", 0))
            used = require_int(data.get("used", 0), "used", 0, MAX_AMOUNT)
        except TypeError:  # an unhashable figure
            raise invalid(f"mempages[{index}]", data, "pages with whole numbers") from None
        except InvalidInput as error:
            reraise_at(f"mempages[{index}]", error)
        pages.append((pool.size_kib, used, pool))
    pages.sort(key=operator.itemgetter(0))
    used_pages = tuple([(size, used) for size, used, _ in pages[1:] if used])
    return tuple([pool for _, _, pool in pages]), used_pages


@functools.lru_cache(maxsize=4096, typed=True)  # cells of a host have equal pages
def _page_pool(size: Any, total: Any, reserved: Any) -> PagePool:
    return PagePool(
        size_kib=require_int(size, "size_kb", 1),
        total=require_int(total, "total", 0, MAX_AMOUNT),
        reserved=require_int(reserved, "reserved"),
    )


def _read_networks(value: object) -> tuple[frozenset[str], bool]:
    if value is None:
        return frozenset(), False
    data, _ = unwrap(value, "network_metadata", NETWORKS)
    reject_unknown(data, _NETWORK_FIELDS, "network_metadata.")
    physnets, tunneled = data.get("physnets", ()), data.get("tunneled", False)
    if not isinstance(physnets, list | tuple | set | frozenset):
        raise invalid("network_metadata.physnets", physnets, "a list of names")
    if not isinstance(tunneled, bool):
        raise invalid("network_metadata.tunneled", tunneled, "true or false")
    return frozenset([names.label(n, "network_metadata.physnets") for n in physnets]), tunneled


def _mib_of(pages: Iterable[tuple[int, int]]) -> int:
    return sum([size * count for size, count in pages]) // KIB_PER_MIB


# --- hosts: writing -------------------------------------------------------------------------------


def dump_host_numa_topology(
    inventory: NUMATopologyInventory, *, leave_out: Collection[str] = ()
) -> str:
    """Return a host's topology with its usage, as text of ``compute_nodes.numa_topology``.

    :param leave_out: values to omit, as Nova has no field for it: ``distances``
    :raises CannotDowngrade: for distances, and for CPUs that are used without being known
    :raises InvalidInventory: if it is not a topology inventory
    :raises InvalidInput: for another name in ``leave_out``

    >>> from resource_objects.resources.numa import HostCell
    >>> cores = [(0, 1), (2, 3)]
    >>> cell = HostCell(0, shared=[0, 1], dedicated=[2, 3], siblings=cores, memory_mb=512)
    >>> host = NUMATopologyInventory([cell])
    >>> load_host_numa_topology(dump_host_numa_topology(host)) == host
    True
    >>> far = NUMATopologyInventory([cell.replace(distances={0: 10})])
    >>> dump_host_numa_topology(far)
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: NUMACell cannot be expressed in ...
    """
    if not isinstance(inventory, NUMATopologyInventory):
        raise InvalidInventory("inventory", inventory, "a NUMATopologyInventory")
    omitted = optional_names(leave_out, ("distances",))
    cells = []
    for cell, used in zip(inventory.cells, inventory.usage, strict=True):
        if cell.distances and "distances" not in omitted:
            raise inexpressible(HOST_CELL, f"cell {cell.id} has distances")
        if used.loose:
            reason = f"cell {cell.id} has used CPUs whose numbers are not known"
            raise inexpressible(HOST_CELL, reason)
        in_cores = {cpu for core in cell.siblings for cpu in core}
        # Nova does not pin a CPU that is in no sibling set
        cores_of_one = ((cpu,) for cpu in {*cell.shared, *cell.dedicated} - in_cores)
        used_pages, pages = dict(used.pages), []
        for pool in cell.pages:
            size = pool.size_kib
            is_base = size == cell.base_kib
            count = used.memory_mb * KIB_PER_MIB // size if is_base else used_pages.get(size, 0)
            page = {"size_kb": size, "total": pool.total, "used": count, "reserved": pool.reserved}
            pages.append(wrap(PAGES, page))
        networks = {"physnets": sorted(cell.physnets), "tunneled": cell.tunneled}
        data: dict[str, Any] = {
            "id": cell.id,
            "cpuset": cell.shared,
            "pcpuset": cell.dedicated,
            "memory": cell.memory_mb,
            "cpu_usage": used.shared,
            "memory_usage": used.memory_mb + _mib_of(used.pages),
            "pinned_cpus": used.pinned,
            "siblings": sorted([*cell.siblings, *cores_of_one]),
            "mempages": pages,
            "network_metadata": wrap(NETWORKS, networks),
            "socket": cell.socket,
        }
        cells.append(wrap(HOST_CELL, data))
    return json.dumps(wrap(HOST, {"cells": cells}))


# --- guests: reading ------------------------------------------------------------------------------

#: The fields of an amount that Nova stores elsewhere, or not at all.
_OPTIONAL: Final = ("physnets", "tunneled", "one_socket")


def load_instance_numa_topology(
    source: Document,
    *,
    host: NUMATopologyInventory | None = None,
    assigned: bool | None = None,
    page_size: str | int | None = None,
) -> NUMATopologyAmount:
    """Return the amount of a guest's topology, assigned if the topology is.

    :param source: JSON text as in ``instance_extra.numa_topology``, the value of that text, or an
        object ``InstanceNUMATopology``
    :param host: the host of the guest, for an assigned topology that does not contain everything
    :param assigned: whether it is assigned. None: the content decides
    :param page_size: the requested page size, which Nova replaces by the assigned one, as
        :func:`~resource_objects.resources.numa.numa` takes it
    :raises InvalidInput: if it is not a topology of a known version; if it contradicts itself, the
        host or an argument; if an argument is needed; for an invalid ``page_size``

    Cost: 0.1 milliseconds for 2 cells.

    >>> shared = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 1024}}]}'
    >>> print(load_instance_numa_topology(shared, assigned=False).placed_counts)
    {'VCPU': 4, 'MEMORY_MB': 1024}
    >>> load_instance_numa_topology(shared)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: numa_topology.cells: got (0,), expected ...
    """
    requested = page_size if page_size in (None, "") else parse_page_size(page_size)
    fields = {"id", "instance_uuid", "cells", "emulator_threads_policy"}
    data, documents = _read_cells(source, GUEST, GUEST_CELL, fields, _read_plain_guest)
    cells = []
    for index, (document, _) in enumerate(documents):
        try:
            cells.append(_read_guest_cell(document))
        except InvalidInput as error:
            reraise_at(f"{_ROOT}.cells[{index}]", error)
    try:
        emulator_policy = data.get("emulator_threads_policy")
        if emulator_policy is not None and emulator_policy not in EMULATOR_POLICIES:
            raise invalid("emulator_threads_policy", emulator_policy, "share, isolate or null")
        if not cells:
            raise invalid("cells", [], "at least one")
        _check_equal_policies(cells)
        is_assigned = _is_assigned(cells, assigned)
        placed: list[PlacedCell] = []
        for index, cell in enumerate(cells if is_assigned else ()):
            try:
                placed.append(_placed_cell(cell, host))
            except InvalidInput as error:
                reraise_at(f"cells[{index}]", error)
        page_size_text = _requested_size(cells, placed, requested)
        has_emulator_cpu = is_assigned and emulator_policy == ISOLATE
        for index, cell in enumerate(cells):
            count = int(has_emulator_cpu and index == 0)
            if len(cell.reserved) != count and cell.id != _UNASSIGNED:
                expected = "one CPU for the emulator" if count else "none"
                raise invalid(f"cells[{index}].cpuset_reserved", cell.reserved, expected)
        amount = NUMATopologyAmount(
            [cell.guest for cell in cells],
            page_size=page_size_text,
            thread_policy=cells[0].thread_policy,
            emulator_policy=emulator_policy,
            placed=placed,
            emulator_cpu=cells[0].reserved[0] if has_emulator_cpu else None,
        )
        return amount if host is None or not placed else host.refreshed(amount)
    except InvalidInput as error:
        reraise_at(_ROOT, error)


_GUEST_CELL_FIELDS: Final = frozenset({
    "id", "cpuset", "pcpuset", "cpuset_reserved", "memory", "pagesize", "cpu_topology",
    "cpu_pinning_raw", "cpu_policy", "cpu_thread_policy",
})  # fmt: skip
_POLICIES: Final = (SHARED, DEDICATED, MIXED)
#: Page sizes in words as Nova stores them.
_SIZE_WORDS: Final = {-1: SMALL, -2: LARGE, -3: ANY}
_SIZE_NUMBERS: Final = {word: number for number, word in _SIZE_WORDS.items()}
#: The id of each cell after Nova unassigned a topology.
_UNASSIGNED: Final = -1
#: Pages up to the first size are ordinary on every machine, pages from the second on are huge.
_ORDINARY_KIB, _HUGE_KIB = 4, 1024


class _GuestCellData(NamedTuple):
    """A guest cell of a document; its ``id`` can be that of a guest cell or of a host cell."""

    id: int
    guest: GuestCell
    policy: str
    thread_policy: str | None
    pins: Mapping[int, int]
    reserved: tuple[int, ...]
    page_size: str  #: a word, KiB in digits, or "" for none

    @property
    def size_kib(self) -> int | None:
        """The page size as a number, None for a word or no size."""
        return int(self.page_size) if self.page_size.isdecimal() else None


def _read_plain_guest(value: object) -> dict[Any, Any]:
    cell, plain, _ = _read_plain(value, {"id", "cpus", "mem", "pagesize"}, {"total"})
    return {**cell, "pagesize": plain.get("pagesize")}


def _read_guest_cell(data: dict[Any, Any]) -> _GuestCellData:
    reject_unknown(data, _GUEST_CELL_FIELDS)
    raw_pins, pins = data.get("cpu_pinning_raw"), {}
    if raw_pins is not None:
        for vcpu, cpu in require_object(raw_pins, "cpu_pinning_raw").items():
            is_number = isinstance(vcpu, str) and vcpu.isdecimal() and vcpu.isascii()
            if not is_number or len(vcpu) > 7:
                raise invalid("cpu_pinning_raw", vcpu, "the number of a vCPU, as text")
            pins[int(vcpu)] = require_int(cpu, f"cpu_pinning_raw[{vcpu}]", 0, MAX_ID)
    shared, dedicated, policy = _read_vcpus(data, is_pinned=raw_pins is not None)
    if pins.keys() - {*dedicated}:
        raise invalid("cpu_pinning_raw", pins, f"CPUs of dedicated vCPUs: {dedicated}")
    reserved = data.get("cpuset_reserved")
    cell_id = require_int(data.get("id"), "id", _UNASSIGNED, MAX_ID)
    memory_mb = require_int(data.get("memory"), "memory")
    guest = GuestCell(shared=shared, dedicated=dedicated, memory_mb=memory_mb)
    thread_policy = _read_word(data, "cpu_thread_policy", THREAD_POLICIES)
    reserved_ids = () if reserved is None else id_set(reserved, "cpuset_reserved")
    size = data.get("pagesize")
    if size is None:
        size_text = ""
    elif type(size) is int and size in _SIZE_WORDS:
        size_text = _SIZE_WORDS[size]
    elif type(size) is int and 1 <= size <= MAX_FIGURE and not size & (size - 1):
        size_text = str(size)
    else:
        expected = "-1 (small), -2 (large), -3 (any), a power of two in KiB, or null"
        raise invalid("pagesize", size, expected)
    return _GuestCellData(cell_id, guest, policy, thread_policy, pins, reserved_ids, size_text)


def _read_vcpus(
    data: Mapping[Any, Any], *, is_pinned: bool
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return the shared vCPUs, the dedicated vCPUs and the CPU policy of a cell."""
    shared = id_set(data.get("cpuset"), "cpuset")
    dedicated = id_set(data.get("pcpuset", ()), "pcpuset")
    if "cpu_policy" in data:
        policy = _read_word(data, "cpu_policy", _POLICIES) or SHARED
    else:  # before 1.3 a cell was dedicated if it had pins, possibly empty ones
        policy = DEDICATED if is_pinned else SHARED
    if policy == MIXED and "pcpuset" not in data:
        raise invalid("pcpuset", None, "dedicated vCPUs, for the policy is mixed")
    if policy == SHARED and dedicated:
        raise invalid("pcpuset", dedicated, "none, for the policy is shared")
    if policy == DEDICATED and shared:
        if dedicated:
            raise invalid("cpuset", shared, "none, for the policy is dedicated")
        return (), shared, policy
    return shared, dedicated, policy


def _read_word(data: Mapping[Any, Any], name: str, words: tuple[str, ...]) -> str | None:
    value = data.get(name)
    if value is not None and value not in words:
        raise invalid(name, value, f"{', '.join(words)} or null")
    return None if value is None else str(value)


def _check_equal_policies(cells: Sequence[_GuestCellData]) -> None:
    # Nova writes the policies of a topology to each cell
    first = cells[0]
    for index, cell in enumerate(cells):
        for name, value, expected in (
            ("cpu_policy", cell.policy, first.policy),
            ("cpu_thread_policy", cell.thread_policy, first.thread_policy),
        ):
            if value != expected:
                raise invalid(f"cells[{index}].{name}", value, f"{expected}, as in cells[0]")


def _is_assigned(cells: Sequence[_GuestCellData], stated: bool | None) -> bool:
    ids = tuple(cell.id for cell in cells)
    are_guest_ids = ids == tuple(range(len(ids))) or set(ids) == {_UNASSIGNED}
    dedicated = sum(len(cell.guest.dedicated) for cell in cells)
    pinned = sum(len(cell.pins) for cell in cells)
    if pinned and pinned < dedicated:
        expected = f"one for each of {dedicated} dedicated vCPUs, or none"
        raise invalid("cells", f"{pinned} CPUs", expected)
    is_unassigned = _UNASSIGNED in ids or any(cell.page_size in _SIZE_NUMBERS for cell in cells)
    if pinned and is_unassigned:
        raise invalid("cells", ids, "host cells and a page size in KiB, for its vCPUs have CPUs")
    result: bool | None
    if pinned:
        result = True
    elif is_unassigned or dedicated:
        result = False
    else:
        result = None if are_guest_ids else True
    if result is None and stated is None:
        expected = "assigned=True or False: these are ids of guest cells as well as of host cells"
        raise invalid("cells", ids, expected)
    if result is None:
        result = bool(stated)
    elif stated is not None and result != stated:
        raise invalid("cells", ids, f"assigned={result}, which follows from the content")
    if not result and not are_guest_ids:
        expected = "ids 0, 1, ... or all -1, for it is not assigned: no vCPU has a CPU"
        raise invalid("cells", ids, expected)
    return result


def _placed_cell(cell: _GuestCellData, host: NUMATopologyInventory | None) -> PlacedCell:
    host_cell = None if host is None else host.cell(cell.id)
    pinned = {*cell.pins.values(), *cell.reserved}
    idle: set[int] = set()
    if cell.thread_policy == ISOLATE and pinned:
        if host_cell is None:
            expected = "host=, whose siblings remain idle"
            raise invalid("cpu_thread_policy", cell.thread_policy, expected)
        cores = [core for core in host_cell.siblings if pinned.intersection(core)]
        idle = {*host_cell.dedicated}.intersection(itertools.chain(*cores)) - pinned
    shared: tuple[int, ...] = ()
    if cell.guest.shared:
        if host_cell is None:
            raise invalid("cpuset", cell.guest.shared, "host=, for the CPUs of shared vCPUs")
        shared = host_cell.shared
        if not shared:
            expected = f"none: host cell {host_cell.id} has no shared CPUs"
            raise invalid("cpuset", cell.guest.shared, expected)
    page_size_kib = _huge_page_kib(cell, host_cell)
    return PlacedCell(
        cell.id, pins=cell.pins, idle=sorted(idle), shared=shared, page_size_kib=page_size_kib
    )


def _huge_page_kib(cell: _GuestCellData, host_cell: HostCell | None) -> int | None:
    """Return the size of the huge pages of a cell, None for ordinary memory."""
    size = cell.size_kib
    if size is None or not cell.guest.memory_mb:
        return None
    if host_cell is None:
        if _ORDINARY_KIB < size < _HUGE_KIB:
            raise invalid("pagesize", size, "host=, for pages of this size can be huge or ordinary")
        return None if size <= _ORDINARY_KIB else size
    sizes = [pool.size_kib for pool in host_cell.pages]
    if size not in sizes:
        raise invalid("pagesize", size, f"a size of the host cell: {sizes}")
    return None if size == host_cell.base_kib else size


def _requested_size(
    cells: Sequence[_GuestCellData], placed: Sequence[PlacedCell], stated: str | None
) -> str:
    """Return the requested page size: the stated one, if the cells agree with it."""
    with_memory = [index for index, cell in enumerate(cells) if cell.guest.memory_mb]
    sizes = list(dict.fromkeys(cells[n].page_size for n in with_memory or range(len(cells))))
    if stated is None:
        if len(sizes) > 1:
            raise invalid("cells", sizes, "one pagesize in all, or page_size=: the requested one")
        return sizes[0]
    for index in with_memory:
        size, assigned = cells[index], placed[index] if placed else None
        if stated == size.page_size:
            continue
        agrees = size.size_kib is not None and bool(stated) and not stated.isdecimal()
        if agrees and assigned is not None and stated != ANY:
            agrees = (assigned.page_size_kib is None) == (stated == SMALL)
        if not agrees:
            expected = f"a size that page_size={stated!r} allows"
            raise invalid(f"cells[{index}].pagesize", size.page_size, expected)
    return stated


# --- guests: writing ------------------------------------------------------------------------------


def dump_instance_numa_topology(
    amount: NUMATopologyAmount,
    *,
    host: NUMATopologyInventory | None = None,
    instance_uuid: str | None = None,
    leave_out: Collection[str] = (),
) -> str:
    """Return a guest's topology as text of ``instance_extra.numa_topology``.

    :param host: the host of an assigned amount; needed for ordinary memory of a guest that
        requested any or small pages: Nova stores their size
    :param instance_uuid: the uuid of the guest, which is written if it is passed
    :param leave_out: values to omit, as Nova stores it elsewhere or not at all: ``physnets``,
        ``tunneled``, ``one_socket``
    :raises CannotDowngrade: for a value that Nova cannot express
    :raises InvalidInput: if it is not such an amount; for another name in ``leave_out``; for an
        invalid uuid
    :raises InvalidInventory: if ``host`` does not have the cell

    >>> from resource_objects.resources.numa import numa
    >>> request = numa(cells=2, dedicated=4, memory_mb=2048, page_size="large")
    >>> load_instance_numa_topology(dump_instance_numa_topology(request)) == request
    True
    >>> dump_instance_numa_topology(numa(cells=2, shared=4, memory_mb=2048, physnets=["red"]))
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: InstanceNUMACell cannot be expressed in ...
    """
    topology = require_topology(amount)
    omitted = optional_names(leave_out, _OPTIONAL)
    if topology.gives_back:
        raise inexpressible(GUEST_CELL, "it is released")
    for name in _OPTIONAL:
        if getattr(topology, name) and name not in omitted:
            raise inexpressible(GUEST_CELL, f"it has {name}")
    cells = []
    for index, guest in enumerate(topology.cells):
        placed = topology.placed[index] if topology.placed else None
        has_emulator = index == 0 and topology.emulator_cpu is not None
        pins = {str(vcpu): cpu for vcpu, cpu in placed.pins} if placed else {}
        cell = {
            "id": index if placed is None else placed.cell,
            "cpuset": guest.shared,
            "pcpuset": guest.dedicated,
            "cpuset_reserved": [topology.emulator_cpu] if has_emulator else None,
            "memory": guest.memory_mb,
            "pagesize": _written_size(topology, index, host),
            "cpu_topology": None,
            "cpu_pinning_raw": pins if placed and guest.dedicated else None,
            "cpu_policy": topology.cpu_policy,
            "cpu_thread_policy": topology.thread_policy,
        }
        cells.append(wrap(GUEST_CELL, cell))
    data: dict[str, Any] = {
        "cells": cells,
        "emulator_threads_policy": topology.emulator_policy,
    }
    if instance_uuid is not None:
        data["instance_uuid"] = names.uuid_text(instance_uuid)
    return json.dumps(wrap(GUEST, data))


def _written_size(
    amount: NUMATopologyAmount, index: int, host: NUMATopologyInventory | None
) -> int | None:
    """Return the page size of a guest cell in KiB, or the number of a word.

    :raises CannotDowngrade: if it is not known, or differs from the requested size
    """
    requested = amount.page_size
    requested_kib = int(requested) if requested.isdecimal() else None
    if not amount.placed:
        return _SIZE_NUMBERS.get(requested, requested_kib)
    if not amount.cells[index].memory_mb:
        return requested_kib
    placed = amount.placed[index]
    if placed.page_size_kib is not None or not requested:
        return placed.page_size_kib
    base_kib = host.cell(placed.cell).base_kib if host else requested_kib
    is_huge = host is None and base_kib is not None and base_kib >= _HUGE_KIB
    if requested_kib not in (None, base_kib) or is_huge:
        reason = f"guest cell {index} is in ordinary memory, and requested huge pages"
        raise inexpressible(GUEST_CELL, reason)
    if base_kib is None:
        reason = f"guest cell {index} is in ordinary pages, whose size is known with host= only"
        raise inexpressible(GUEST_CELL, reason)
    return base_kib
