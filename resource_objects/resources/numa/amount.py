"""What is asked of a NUMA topology, and where it went: the amount of the kind.

:func:`numa` makes a :class:`NUMATopologyAmount` from plain words. Its *guest cells*
(:class:`GuestCell`) are parts of the request whose CPUs and memory shall be near each other;
assigned, a :class:`PlacedCell` for each says which *host cell* it is on. Guest cells are numbered
by place in the amount, *vCPUs* (CPUs as their user numbers them) from 0 over all guest cells.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from resource_objects import base, fields
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_FIGURE, FrozenDict
from resource_objects.resources import abstract
from resource_objects.resources.numa import text
from resource_objects.resources.numa.cells import (
    ANY,
    KIB,
    LARGE,
    SMALL,
    page_class,
    parse_page_size,
    show_kib,
    size_of_pages,
)
from resource_objects.resources.numa.cpuset import MAX_ID, CPUSet, mask_of
from resource_objects.resources.records import AmountRecord

_invalid_amount = functools.partial(InvalidInput, "amount")
_invalid_unassigned_amount = functools.partial(InvalidInput, "unassigned amount")

#: How vCPUs use CPUs. ``mixed`` is some of each.
SHARED, DEDICATED, MIXED = "shared", "dedicated", "mixed"
#: How dedicated vCPUs use the threads of a core.
PREFER, REQUIRE, ISOLATE = "prefer", "require", "isolate"
THREAD_POLICIES = (PREFER, REQUIRE, ISOLATE)
#: Whether whatever serves the vCPUs (a hypervisor's emulator threads) has a CPU of its own.
SHARE = "share"
EMULATOR_POLICIES = (SHARE, ISOLATE)


def _page_size(value: object) -> str:
    return "" if value == "" else parse_page_size(value)


@base.register
class NUMATopologyAmount(abstract.Amount):
    """Guest cells with their policies; assigned, also the host cells and CPUs they are on.

    What it says *where* it adds nothing to (D1): a request of ``VCPU=4`` and of a topology with 4
    shared vCPUs asks for 4. :attr:`located` is what it stands for in plain counts.

    ====================  ==========================================================================
    ``cells``             the guest cells; each goes to a host cell of its own
    ``page_size``         ``""`` (ordinary memory), ``small`` (the same, never given out twice),
                          ``large``, ``any``, or KiB in digits
    ``thread_policy``     of dedicated vCPUs: ``prefer`` threads of one core, ``require`` them, or
                          ``isolate``: a core for each; None is prefer
    ``emulator_policy``   ``isolate``: one more dedicated CPU, beside guest cell 0; else none
    ``physnets``,         networks that one of its host cells has to be next to, if any cell of the
    ``tunneled``          host is
    ``one_socket``        whether all its host cells have to be in one socket
    ``placed``            assigned: where each guest cell is; else empty
    ``emulator_cpu``      assigned, and the policy is isolate: the CPU of the emulator
    ``gives_back``        whether this is given back (the negative of an assigned amount)
    ``beside``            classes of the counts that stand beside it in the same amounts, and that
                          it does not take itself; see :meth:`~.amounts.Amounts.with_implied_counts`
    ====================  ==========================================================================

    >>> from resource_objects.resources.numa import numa
    >>> asked = numa(cells=2, dedicated=4, memory_mb=2048, page_size="2MB")
    >>> asked.cpu_policy, dict(asked.located), asked.is_assigned
    ('dedicated', {'PCPU': 4, 'MEMORY_MB': 2048}, False)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    cells: fields.TupleFrom[GuestCell] = fields.tuple_of("GuestCell", kw_only=False)
    page_size: fields.Coerced[str, str | int] = fields.field(
        fields.Checked(_page_size, "a page size", ""), default=""
    )
    thread_policy: str | None = fields.choice(*THREAD_POLICIES, default=None)
    emulator_policy: str | None = fields.choice(*EMULATOR_POLICIES, default=None)
    physnets: fields.Names = fields.labels(default=frozenset())
    tunneled: bool = fields.boolean(default=False)
    one_socket: bool = fields.boolean(default=False)
    placed: fields.TupleFrom[PlacedCell] = fields.tuple_of("PlacedCell", default=())
    emulator_cpu: int | None = fields.integer(0, MAX_ID, default=None)
    gives_back: bool = fields.boolean(default=False)
    beside: fields.Names = fields.labels(default=frozenset())

    # --- what is asked ---

    @property
    def cpu_policy(self) -> str:
        """``shared``, ``dedicated`` or ``mixed``, by what the vCPUs are."""
        dedicated = any(cell.dedicated for cell in self.cells)
        shared = any(cell.shared for cell in self.cells)
        if dedicated and shared:
            return MIXED
        return DEDICATED if dedicated else SHARED

    @property
    def vcpus(self) -> int:
        """How many vCPUs there are, over all guest cells."""
        return sum(len(cell.shared) + len(cell.dedicated) for cell in self.cells)

    @property
    def memory_mb(self) -> int:
        """MiB over all guest cells."""
        return sum(cell.memory_mb for cell in self.cells)

    @property
    def has_emulator(self) -> bool:
        """Whether the emulator has a dedicated CPU of its own."""
        return self.emulator_policy == ISOLATE

    @functools.cached_property  # asked again and again while it is decided
    def placed_counts(self) -> Mapping[str, int]:
        """What this says where it is, as counts: of CPUs, and of memory in pages of any size."""
        dedicated = sum(len(cell.dedicated) for cell in self.cells) + self.has_emulator
        counts = {
            "VCPU": sum(len(cell.shared) for cell in self.cells),
            "PCPU": dedicated,
            "MEMORY_MB": self.memory_mb,
        }
        return FrozenDict({name: count for name, count in counts.items() if count})

    @functools.cached_property
    def host_usage(self) -> Mapping[str, int]:
        """What the host as a whole gives of it, as counts: CPUs, and ordinary memory.

        Of one that is not assigned, what is known: memory counts only if it cannot be in huge
        pages, and CPUs left empty do not count.
        """
        counts = dict(self.placed_counts)
        if self.placed:
            counts["PCPU"] = sum(len(p.pins) + len(p.idle) for p in self.placed) + self.has_emulator
            pairs = zip(self.cells, self.placed, strict=True)
            counts["MEMORY_MB"] = sum(g.memory_mb for g, p in pairs if p.page_size_kib is None)
        elif self.page_size not in ("", SMALL):
            counts.pop("MEMORY_MB", None)
        return FrozenDict({name: count for name, count in counts.items() if count})

    @functools.cached_property
    def requested_host_usage(self) -> Mapping[str, int]:
        """The counts that go with what was asked: memory only if it cannot be in huge pages."""
        counts = self.placed_counts
        if self.page_size in ("", SMALL):
            return counts
        return FrozenDict({name: n for name, n in counts.items() if name != "MEMORY_MB"})

    @property
    def counted_separately(self) -> frozenset[str]:
        """The classes of the host's counts that are requested in addition, as ``beside`` lists."""
        return self.beside

    def counting_separately(self, classes: Collection[str]) -> Self:
        """Return this where these classes are counted beside it."""
        return self._evolve(beside=frozenset(classes))

    @property
    def item_count(self) -> int:
        """How many guest cells there are."""
        return len(self.cells)

    # --- being an amount ---

    @property
    def is_zero(self) -> bool:
        """False: there is at least one guest cell, and none is empty."""
        return False

    @property
    def is_negative(self) -> bool:
        """Whether this is given back."""
        return self.gives_back

    @property
    def is_assigned(self) -> bool:
        """Whether it says where it is."""
        return bool(self.placed)

    def __neg__(self) -> Self:
        if not self.placed:
            raise _invalid_unassigned_amount(
                "topology", "one that is not assigned", "an assigned one: that is given back"
            )
        return self._evolve(gives_back=not self.gives_back)

    def unassigned(self) -> Self:
        """Return what was asked, by itself and without where it went."""
        return self.replace(placed=(), emulator_cpu=None, gives_back=False, beside=())

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return what it stands for in plain counts; where they are kept, its inventory knows."""
        sign = -1 if self.gives_back else 1
        return tuple(AmountRecord(name, sign * count) for name, count in self.placed_counts.items())

    # --- where it is ---

    @property
    def host_cells(self) -> frozenset[int]:
        """The host cells it is on, by id; empty if it is not assigned."""
        return frozenset(placed.cell for placed in self.placed)

    @property
    def cpuset(self) -> str:
        """The host CPUs of the vCPUs as a list, for ``taskset -c`` and ``cpuset.cpus``; assigned.

        >>> NUMATopologyAmount([GuestCell(dedicated=[0, 1])],
        ...                    placed=[PlacedCell(0, pins={0: 4, 1: 5})]).cpuset
        '4-5'
        """
        return cpuset(self._where())

    @property
    def memory_nodes(self) -> str:
        """The host cells as a list, for ``numactl --membind`` and ``cpuset.mems``; assigned."""
        return str(CPUSet(cell.cell for cell in self._where()))

    @property
    def pages(self) -> Mapping[int, Mapping[int, int]]:
        """``{host cell: {page size in KiB: pages}}`` of huge pages; assigned."""
        return pages(self.cells, self._where())

    def taskset(self) -> tuple[str, ...]:
        """Return the arguments of ``taskset`` that run a command on these CPUs.

        :raises InvalidInput: if it has no CPUs, but memory alone

        >>> NUMATopologyAmount([GuestCell(dedicated=[0])],
        ...                    placed=[PlacedCell(0, pins={0: 4})]).taskset()
        ('taskset', '--cpu-list', '4')
        """
        return taskset(self.cpuset)

    def numactl(self) -> tuple[str, ...]:
        """Return the arguments of ``numactl`` that run a command on these CPUs and this memory.

        >>> NUMATopologyAmount([GuestCell(dedicated=[0], memory_mb=64)],
        ...                    placed=[PlacedCell(1, pins={0: 4})]).numactl()
        ('numactl', '--physcpubind=4', '--membind=1')
        """
        return numactl(self.cpuset, self.memory_nodes)

    def cgroup(self) -> Mapping[str, str]:
        """Return the files of a version 2 control group and what to write into them.

        >>> amount = NUMATopologyAmount(
        ...     [GuestCell(dedicated=[0], memory_mb=1024)], page_size="2MB",
        ...     placed=[PlacedCell(1, pins={0: 4}, page_size_kib=2048)])
        >>> amount.cgroup()
        {'cpuset.cpus': '4', 'cpuset.mems': '1', 'hugetlb.2MB.max': '1073741824'}
        """
        return cgroup(self.cpuset, self.memory_nodes, self.pages)

    def _where(self) -> tuple[PlacedCell, ...]:
        if not self.placed:
            raise _invalid_unassigned_amount("topology", self, "an assigned one, as fit() returns")
        return self.placed

    def _validate(self) -> None:
        _check_topology(self)

    def __repr__(self) -> str:
        if self.placed:
            return f"<NUMATopologyAmount {self}>"
        return f"NUMATopologyAmount.parse({str(self)!r})"

    def __str__(self) -> str:
        request = text.format_request(_numa_arguments(self))
        if not self.placed:
            return request
        cpus = [cpu for placed in self.placed for cpu in placed.pinned]
        cpus += [] if self.emulator_cpu is None else [self.emulator_cpu]
        taken = f":cpus={CPUSet(cpus).text('+')}" if cpus else ""
        cells = "+".join(str(placed.cell) for placed in self.placed)
        return f"{'-' if self.gives_back else ''}{request}:on={cells}{taken}"

    @classmethod
    def parse(cls, text_form: str) -> NUMATopologyAmount:
        """Return the amount of its text form; :func:`str` of one that is not assigned.

        :raises InvalidInput: if it does not parse; if what it says contradicts itself

        >>> NUMATopologyAmount.parse("2:dedicated=4:memory=1024").cells[1].dedicated
        (2, 3)
        """
        words = {"thread_policy": THREAD_POLICIES, "emulator_policy": EMULATOR_POLICIES}
        said = text.read_request(text_form, words)
        if isinstance(said["cells"], list):
            said["cells"] = [GuestCell(**cell) for cell in said["cells"]]
        return numa(**said)


def given(value: Any) -> NUMATopologyAmount:
    """Return a topology amount as it is, refusing other kinds.

    :raises InvalidInput: for an amount of another kind
    """
    if not isinstance(value, NUMATopologyAmount):
        raise InvalidInput("kind of amount", "amount", value, "a NUMATopologyAmount")
    return value


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
    :raises InvalidInput: for counts below 0, or that do not divide by the guest cells; for policies
        that contradict each other; if nothing is asked; for a page size that is none

    >>> asked = numa(cells=2, dedicated=16, memory_mb=4096, page_size="1GB")
    >>> [len(cell.dedicated) for cell in asked.cells], asked.page_size
    ([8, 8], '1048576')
    >>> numa(cells=2, dedicated=5)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: dedicated: got 5, expected a multiple of 2 guest ...
    """
    counts = {"shared": shared, "dedicated": dedicated, "memory_mb": memory_mb}
    return NUMATopologyAmount(
        _even_cells(cells, counts) if type(cells) is int else _stated_cells(cells, counts),
        page_size=page_size,
        thread_policy=thread_policy,
        emulator_policy=emulator_policy,
        physnets=physnets,
        tunneled=tunneled,
        one_socket=one_socket,
    )


def _even_cells(cells: int, counts: dict[str, int]) -> Sequence[GuestCell]:
    if not 1 <= cells <= MAX_GUEST_CELLS:
        raise _invalid_amount("guest cells", cells, f"1 to {MAX_GUEST_CELLS}")
    for name, count in counts.items():
        most = MAX_FIGURE * cells if name == "memory_mb" else MAX_ID + 1
        if type(count) is not int or not 0 <= count <= most:
            raise _invalid_amount(name, count, f"an integer from 0 to {most}")
        if count % cells:
            raise _invalid_amount(name, count, f"a multiple of {cells} guest cells")
    return list(_even(cells, *counts.values()))


def _even(cells: int, shared: int, dedicated: int, memory_mb: int) -> Iterator[GuestCell]:
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


def _numa_arguments(amount: NUMATopologyAmount) -> Mapping[str, Any]:
    """Return what :func:`numa` makes the amount of: counts if its guest cells have equal parts."""
    said = {name: getattr(amount, name) for name in amount.fields}
    counts = {
        "shared": sum(len(cell.shared) for cell in amount.cells),
        "dedicated": sum(len(cell.dedicated) for cell in amount.cells),
        "memory_mb": amount.memory_mb,
    }
    cells = len(amount.cells)
    is_even = not any(count % cells for count in counts.values())
    if is_even and tuple(_even(cells, **counts)) == amount.cells:
        return {**said, **counts, "cells": cells}
    each = [{name: getattr(cell, name) for name in counts} for cell in amount.cells]
    return {**said, "cells": each}


def _stated_cells(cells: object, counts: dict[str, int]) -> Sequence[GuestCell]:
    for name, count in counts.items():
        if type(count) is not int or count:
            raise _invalid_amount(name, count, "nothing beside guest cells that say it")
    if not isinstance(cells, Iterable) or isinstance(cells, str | bytes):
        raise _invalid_amount("guest cells", cells, "how many, or the cells")
    return list(cells)


# --- guest cells and where they are ------------------------------------------------------------


@base.register
class GuestCell(base.ResourceObject, frozen=True):
    """Some vCPUs and the memory they use most: they go to one host cell, alone of their request.

    >>> GuestCell(dedicated=range(4), memory_mb=1024).vcpus
    (0, 1, 2, 3)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    shared: fields.Ids = fields.ids(default=())
    dedicated: fields.Ids = fields.ids(default=())
    memory_mb: int = fields.integer(0, fields.MAX_FIGURE, default=0)

    @property
    def vcpus(self) -> tuple[int, ...]:
        """All vCPUs, ascending."""
        return tuple(sorted((*self.shared, *self.dedicated)))

    def _validate(self) -> None:
        if not (self.shared or self.dedicated or self.memory_mb):
            raise _invalid_amount("guest cell", "nothing", "vCPUs or memory, or both")
        check_numbers("vCPUs of a guest cell", self.shared, self.dedicated)


@base.register
class PlacedCell(base.ResourceObject, frozen=True):
    """Where one guest cell is: the host cell, a CPU for each dedicated vCPU, the pages.

    ``shared`` are the CPUs on which its shared vCPUs run; ``idle`` those left empty on purpose
    (the siblings of isolated ones), which are taken too. ``page_size_kib`` is that of the huge
    pages it uses, None for ordinary memory.

    >>> PlacedCell(cell=1, pins={0: 4, 1: 12}).pinned
    (4, 12)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    cell: int = fields.integer(0, MAX_ID, kw_only=False)
    pins: fields.Pairs = fields.integer_pairs(default=())
    idle: fields.Ids = fields.ids(default=())
    shared: fields.Ids = fields.ids(default=())
    page_size_kib: int | None = fields.integer(1, fields.MAX_FIGURE, default=None)

    @property
    def pinned(self) -> tuple[int, ...]:
        """The CPUs that are taken for vCPUs, those left empty included."""
        return CPUSet.from_mask(self.pinned_mask)

    @property
    def pinned_mask(self) -> int:
        """The same as a mask."""
        mask = mask_of(self.idle)
        for _, cpu in self.pins:
            mask |= 1 << cpu
        return mask

    def _validate(self) -> None:
        taken = [*(cpu for _, cpu in self.pins), *self.idle]
        check_numbers(f"CPUs of host cell {self.cell}", taken, self.shared)
        if len(set(taken)) != len(taken):
            raise _invalid_amount(f"CPUs of host cell {self.cell}", taken, "each CPU once")


# --- lower bounds ---


def lower_bounds(
    amount: NUMATopologyAmount, classes: Collection[str]
) -> tuple[Mapping[str, int], ...]:
    """Return what each guest cell needs of its host cell at least, by class.

    Necessary, not sufficient: thread policies, whole pages and memory that is given out once are
    decided by :mod:`.cell_fit`.

    :param classes: those that the host cell is kept as; they name its sizes of huge pages

    >>> asked = numa(cells=2, dedicated=4, memory_mb=64, page_size="2MB")
    >>> lower_bounds(asked, ["PCPU", "MEMORY_MB", "CUSTOM_HUGEPAGES_2048KB"])[1]
    {'PCPU': 2, 'CUSTOM_HUGEPAGES_2048KB': 16}
    """
    found: list[Mapping[str, int]] = []
    for number, cell in enumerate(amount.cells):
        emulator = amount.has_emulator and not number  # it runs beside guest cell 0
        counts = {"VCPU": len(cell.shared), "PCPU": len(cell.dedicated) + emulator}
        counts |= _least_memory(cell.memory_mb, amount.page_size, classes)
        found.append({name: count for name, count in counts.items() if count})
    return tuple(found)


def _least_memory(mebibytes: int, page_size: str, classes: Collection[str]) -> dict[str, int]:
    """Return what memory needs, if that is known: pages of which size depends on the host cell."""
    if page_size in ("", SMALL):
        return {"MEMORY_MB": mebibytes}
    if page_size == ANY:
        return {}
    sizes = [size for name in classes if (size := size_of_pages(name)) is not None]
    if page_size == LARGE:
        if len(sizes) != 1:
            return {}
        (size,) = sizes
    else:
        size = int(page_size)
        if size not in sizes:  # its ordinary pages are of that size, or none are
            return {"MEMORY_MB": mebibytes}
    return {page_class(size): mebibytes * KIB // size}


# --- what makes an amount valid ---


#: No request has more guest cells: far more than any machine has nodes.
MAX_GUEST_CELLS = 1024


def _check_topology(amount: NUMATopologyAmount) -> None:
    """Raise if a topology amount contradicts itself.

    :raises InvalidInput: naming what is wrong; if it gives back without saying where it is
    """
    if not 1 <= len(amount.cells) <= MAX_GUEST_CELLS:
        raise _invalid_amount("guest cells", len(amount.cells), f"1 to {MAX_GUEST_CELLS}")
    _check_vcpus(amount)
    _check_policies(amount)
    if amount.placed or amount.emulator_cpu is not None:
        _check_placed(amount)
    elif amount.gives_back:
        raise _invalid_unassigned_amount(
            "topology", "one that is not assigned", "an assigned one: that is given back"
        )


def check_numbers(what: str, *sets: Iterable[int]) -> None:
    """Raise if a number is higher than any CPU has."""
    highest = max((number for numbers in sets for number in numbers), default=0)
    if highest > MAX_ID:
        raise _invalid_amount(what, highest, f"numbers from 0 to {MAX_ID}")


def _check_vcpus(amount: NUMATopologyAmount) -> None:
    stated = [vcpu for cell in amount.cells for vcpu in (*cell.shared, *cell.dedicated)]
    if len(set(stated)) != len(stated):
        twice = sorted(vcpu for vcpu, count in Counter(stated).items() if count > 1)
        raise _invalid_amount("vCPUs", twice, "each in one guest cell, once")
    highest = max(stated, default=-1)
    if highest >= len(stated):
        missing = sorted(set(range(highest + 1)).difference(stated))
        raise _invalid_amount(
            "vCPUs", f"without {CPUSet(missing)!s}", "every one from 0 on in a guest cell"
        )


def _check_policies(amount: NUMATopologyAmount) -> None:
    if amount.cpu_policy != SHARED:
        return
    if amount.thread_policy is not None:
        raise _invalid_amount(
            "thread policy", amount.thread_policy, "none, for no vCPU is dedicated"
        )
    if amount.has_emulator:
        raise _invalid_amount(
            "emulator policy", amount.emulator_policy, "share, for no vCPU is dedicated"
        )


def _check_placed(amount: NUMATopologyAmount) -> None:
    if len(amount.placed) != len(amount.cells):
        raise _invalid_amount(
            "placed", len(amount.placed), f"one for each of {len(amount.cells)} guest cells"
        )
    hosts = [placed.cell for placed in amount.placed]
    if len(set(hosts)) != len(hosts):
        raise _invalid_amount("host cells", hosts, "another for each guest cell")
    for number, (guest, placed) in enumerate(zip(amount.cells, amount.placed, strict=True)):
        _check_placed_cell(number, guest, placed, amount.page_size)
    if amount.has_emulator != (amount.emulator_cpu is not None):
        raise _invalid_amount(
            "emulator CPU", amount.emulator_cpu, "one if, and only if, the policy is isolate"
        )
    taken = [cpu for placed in amount.placed for cpu in placed.pinned]
    taken += [] if amount.emulator_cpu is None else [amount.emulator_cpu]
    if len(set(taken)) != len(taken):
        raise _invalid_amount("CPUs", sorted(taken), "each CPU once")


def _check_placed_cell(number: int, guest: GuestCell, placed: PlacedCell, page_size: str) -> None:
    pinned = tuple(vcpu for vcpu, _ in placed.pins)
    if pinned != guest.dedicated:
        raise _invalid_amount(f"pinned vCPUs of guest cell {number}", pinned, f"{guest.dedicated}")
    if bool(placed.shared) != bool(guest.shared):
        raise _invalid_amount(
            f"shared CPUs of guest cell {number}",
            placed.shared,
            "some if, and only if, it has shared vCPUs",
        )
    if not _is_of_size(placed.page_size_kib, page_size, guest.memory_mb):
        raise _invalid_amount(
            f"page size of guest cell {number}",
            placed.page_size_kib,
            f"what was asked: {page_size or 'ordinary memory'}",
        )


def _is_of_size(size: int | None, page_size: str, memory_mb: int) -> bool:
    """Return whether pages of a size are what was asked; which size is ordinary, a host knows."""
    if size is None:
        return page_size != LARGE or not memory_mb
    if page_size in (LARGE, ANY):
        return memory_mb > 0
    return str(size) == page_size and memory_mb > 0


# --- where an assigned amount is, for taskset, numactl and cgroups ---


def cpuset(placed: Iterable[PlacedCell]) -> str:
    """Return the host CPUs of all vCPUs as a list."""
    return str(
        CPUSet({cpu for cell in placed for cpu in (*cell.shared, *dict(cell.pins).values())})
    )


def pages(
    cells: Iterable[GuestCell], placed: Iterable[PlacedCell]
) -> Mapping[int, Mapping[int, int]]:
    """Return ``{host cell: {page size in KiB: pages}}`` of huge pages."""
    return {
        on.cell: {on.page_size_kib: guest.memory_mb * KIB // on.page_size_kib}
        for guest, on in zip(cells, placed, strict=True)
        if on.page_size_kib is not None and guest.memory_mb
    }


def taskset(cpus: str) -> tuple[str, ...]:
    """Return the arguments of ``taskset`` for a list of CPUs."""
    if not cpus:
        raise _invalid_amount("CPUs of the topology", "none", "one to run a command on")
    return "taskset", "--cpu-list", cpus


def numactl(cpus: str, nodes: str) -> tuple[str, ...]:
    """Return the arguments of ``numactl`` for a list of CPUs, perhaps empty, and of nodes."""
    bound = (f"--physcpubind={cpus}",) if cpus else ()
    return "numactl", *bound, f"--membind={nodes}"


def cgroup(cpus: str, nodes: str, used: Mapping[int, Mapping[int, int]]) -> Mapping[str, str]:
    """Return the files of a version 2 control group and what to write into them.

    :param used: huge pages by host cell and size
    """
    files = {"cpuset.cpus": cpus} if cpus else {}
    files["cpuset.mems"] = nodes
    by_size: Counter[int] = Counter()
    for of_cell in used.values():
        by_size.update({size: size * count * KIB for size, count in of_cell.items()})
    for size, count in sorted(by_size.items()):
        name = show_kib(size).replace("iB", "B").replace(" ", "")
        files[f"hugetlb.{name}.max"] = str(count)
    return files
