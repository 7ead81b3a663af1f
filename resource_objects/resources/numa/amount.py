"""The amount of the resource ``NUMA_TOPOLOGY``: a request, and its assignment to host cells.

:func:`numa` makes a :class:`NUMATopologyAmount`. Its *guest cells* (:class:`GuestCell`) are parts
of the request whose CPUs and memory shall be local to each other. In an assigned amount, a
:class:`PlacedCell` for each describes its *host cell*. Guest cells are numbered by their position
in the amount, *vCPUs* (CPUs as their consumer numbers them) from 0 over all guest cells.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from resource_objects import base, fields
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_FIGURE, FrozenDict
from resource_objects.resources import abstract, text
from resource_objects.resources.numa.cells import (
    ANY,
    KIB_PER_MIB,
    LARGE,
    SMALL,
    page_class,
    page_size_of_class,
    parse_page_size,
    show_kib,
)
from resource_objects.resources.numa.cpuset import MAX_ID, CPUSet, mask_of
from resource_objects.resources.records import AmountRecord

_invalid_amount = functools.partial(InvalidInput, "amount")
_invalid_text = functools.partial(InvalidInput, "text")
_invalid_unassigned_amount = functools.partial(InvalidInput, "unassigned amount")

#: CPU policies; ``mixed`` is shared and dedicated vCPUs in one request.
SHARED, DEDICATED, MIXED = "shared", "dedicated", "mixed"
#: Thread policies of dedicated vCPUs.
PREFER, REQUIRE, ISOLATE = "prefer", "require", "isolate"
THREAD_POLICIES = (PREFER, REQUIRE, ISOLATE)
#: Whether the emulator threads of a hypervisor have a CPU of their own (``isolate``).
SHARE = "share"
EMULATOR_POLICIES = (SHARE, ISOLATE)

#: The maximum number of guest cells, far above the number of NUMA nodes of any machine.
MAX_GUEST_CELLS = 1024


class CellDemand(NamedTuple):
    """The request of one guest cell as the search reads it. Equal demands fit alike."""

    shared: int
    dedicated: int
    memory_mb: int
    has_emulator: bool
    page_size: str
    thread_policy: str | None
    overcommits: bool  #: whether ordinary memory that is allocated more than once suffices
    cpus: int  #: dedicated CPUs, with the emulator's


def _page_size(value: object) -> str:
    return "" if value == "" else parse_page_size(value)


def _nonzero(**counts: int) -> Mapping[str, int]:
    return FrozenDict({name: count for name, count in counts.items() if count})


@base.register
class NUMATopologyAmount(abstract.Amount):
    """Guest cells with their policies; assigned, also their host cells and CPUs.

    The topology adds nothing to the counts of a request: a request of ``VCPU=4`` and a
    topology of 4 shared vCPUs requests 4. :attr:`placed_counts` are its counts.

    ====================  ==========================================================================
    ``cells``             the guest cells; each is placed on a host cell of its own
    ``page_size``         ``""`` (ordinary memory, overcommitted only if all vCPUs are shared),
                          ``small`` (ordinary memory without overcommitment), ``large``, ``any``,
                          or KiB in digits
    ``thread_policy``     of dedicated vCPUs: ``prefer`` threads of one core, ``require`` them, or
                          ``isolate``: a core for each vCPU; None is prefer
    ``emulator_policy``   ``isolate``: an additional dedicated CPU on the host cell of guest cell 0
    ``physnets``,         networks: one of the host cells has to be near each, unless no cell of the
    ``tunneled``          host is
    ``one_socket``        whether all host cells have to be in one socket
    ``placed``            assigned: the host cell of each guest cell; empty in a request
    ``emulator_cpu``      assigned with the emulator policy isolate: the CPU of the emulator
    ``gives_back``        whether the amount is released (the negative of an assigned amount)
    ``beside``            classes that the same amounts also count, so that this one does not
                          allocate them; see :meth:`~.amounts.Amounts.with_implied_counts`
    ====================  ==========================================================================

    >>> from resource_objects.resources.numa import numa
    >>> request = numa(cells=2, dedicated=4, memory_mb=2048, page_size="2MB")
    >>> request.cpu_policy, dict(request.placed_counts), request.is_assigned
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

    # --- the request ---

    @property
    def cpu_policy(self) -> str:
        """``shared``, ``dedicated`` or ``mixed``, by the kinds of the vCPUs."""
        dedicated = any(cell.dedicated for cell in self.cells)
        shared = any(cell.shared for cell in self.cells)
        if dedicated and shared:
            return MIXED
        return DEDICATED if dedicated else SHARED

    @property
    def vcpus(self) -> int:
        """The number of vCPUs of all guest cells."""
        return sum(len(cell.shared) + len(cell.dedicated) for cell in self.cells)

    @property
    def memory_mb(self) -> int:
        """MiB of all guest cells."""
        return sum(cell.memory_mb for cell in self.cells)

    @property
    def has_emulator(self) -> bool:
        """Whether the emulator has a dedicated CPU."""
        return self.emulator_policy == ISOLATE

    @functools.cached_property
    def demands(self) -> tuple[CellDemand, ...]:
        """The request of each guest cell as the search reads it."""
        size, policy, emulator = self.page_size, self.thread_policy, self.has_emulator
        overcommits = not size and self.cpu_policy == SHARED
        demands: list[CellDemand] = []
        for cell in self.cells:  # the emulator is on the host cell of guest cell 0
            counts = len(cell.shared), len(cell.dedicated), cell.memory_mb
            cpus = counts[1] + emulator
            demands.append(CellDemand(*counts, emulator, size, policy, overcommits, cpus))
            emulator = False
        return tuple(demands)

    @functools.cached_property  # read again and again during a decision
    def placed_counts(self) -> Mapping[str, int]:
        """The counts of CPUs, and of memory in pages of any size, by class."""
        shared, dedicated = (sum(d.shared for d in self.demands), sum(d.cpus for d in self.demands))
        return _nonzero(VCPU=shared, PCPU=dedicated, MEMORY_MB=self.memory_mb)

    @functools.cached_property
    def requested_host_usage(self) -> Mapping[str, int]:
        """The counts of the request: memory only if it cannot be in huge pages."""
        if self.page_size in ("", SMALL):
            return self.placed_counts
        return _nonzero(**{**self.placed_counts, "MEMORY_MB": 0})

    @functools.cached_property
    def host_usage(self) -> Mapping[str, int]:
        """The usage of the counts of the whole host: CPUs and ordinary memory, by class.

        For an unassigned amount, the known part of it: memory counts only if it cannot be in huge
        pages, and idle CPUs do not count.
        """
        if not self.placed:
            return self.requested_host_usage
        cpus = sum(len(p.pins) + len(p.idle) for p in self.placed) + self.has_emulator
        pairs = zip(self.cells, self.placed, strict=True)
        memory_mb = sum(cell.memory_mb for cell, p in pairs if p.page_size_kib is None)
        return _nonzero(**{**self.placed_counts, "PCPU": cpus, "MEMORY_MB": memory_mb})

    @property
    def counted_separately(self) -> frozenset[str]:
        """The classes that the same amounts also count: the field ``beside``."""
        return self.beside

    def counting_separately(self, classes: Collection[str]) -> Self:
        """Return this amount where the same amounts also count some classes."""
        return self._evolve(beside=frozenset(classes))

    @property
    def item_count(self) -> int:
        """The number of guest cells."""
        return len(self.cells)

    # --- the interface of amounts ---

    @property
    def is_zero(self) -> bool:
        """False: there is at least one guest cell, and none is empty."""
        return False

    @property
    def is_negative(self) -> bool:
        """Whether the amount is released."""
        return self.gives_back

    @property
    def is_assigned(self) -> bool:
        """Whether the amount is assigned to host cells."""
        return bool(self.placed)

    def __neg__(self) -> Self:
        if not self.placed:
            raise _unassigned_release()
        return self._evolve(gives_back=not self.gives_back)

    def unassigned(self) -> Self:
        """Return the request, without its assignment."""
        return self.replace(placed=(), emulator_cpu=None, gives_back=False, beside=())

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return the plain counts; an inventory knows where they are stored."""
        sign = -1 if self.gives_back else 1
        return tuple(AmountRecord(name, sign * count) for name, count in self.placed_counts.items())

    # --- the assignment ---

    @property
    def host_cells(self) -> frozenset[int]:
        """The ids of the host cells; empty if the amount is not assigned."""
        return frozenset([placed.cell for placed in self.placed])

    @property
    def cpuset(self) -> str:
        """The host CPUs of the vCPUs as a list, for ``taskset -c`` and ``cpuset.cpus``; assigned.

        >>> NUMATopologyAmount([GuestCell(dedicated=[0, 1])],
        ...                    placed=[PlacedCell(0, pins={0: 4, 1: 5})]).cpuset
        '4-5'
        """
        self.check_assigned()
        cpus: set[int] = set()
        for placed in self.placed:
            cpus.update(placed.shared, dict(placed.pins).values())
        return str(CPUSet(cpus))

    @property
    def memory_nodes(self) -> str:
        """The host cells as a list, for ``numactl --membind`` and ``cpuset.mems``; assigned."""
        self.check_assigned()
        return str(CPUSet(self.host_cells))

    @property
    def pages(self) -> Mapping[int, Mapping[int, int]]:
        """``{host cell: {page size in KiB: pages}}`` of huge pages; assigned."""
        self.check_assigned()
        return {
            placed.cell: {size: cell.memory_mb * KIB_PER_MIB // size}
            for cell, placed in zip(self.cells, self.placed, strict=True)
            if (size := placed.page_size_kib) is not None and cell.memory_mb
        }

    def taskset(self) -> tuple[str, ...]:
        """Return the arguments of ``taskset`` that run a command on these CPUs.

        :raises InvalidInput: for a topology without CPUs

        >>> NUMATopologyAmount([GuestCell(dedicated=[0])],
        ...                    placed=[PlacedCell(0, pins={0: 4})]).taskset()
        ('taskset', '--cpu-list', '4')
        """
        cpus = self.cpuset
        if not cpus:
            raise _invalid_amount("CPUs of the topology", "none", "one to run a command on")
        return "taskset", "--cpu-list", cpus

    def numactl(self) -> tuple[str, ...]:
        """Return the arguments of ``numactl`` that run a command on these CPUs and this memory.

        >>> NUMATopologyAmount([GuestCell(dedicated=[0], memory_mb=64)],
        ...                    placed=[PlacedCell(1, pins={0: 4})]).numactl()
        ('numactl', '--physcpubind=4', '--membind=1')
        """
        cpus = (f"--physcpubind={self.cpuset}",) if self.cpuset else ()
        return "numactl", *cpus, f"--membind={self.memory_nodes}"

    def cgroup(self) -> Mapping[str, str]:
        """Return the files of a version 2 control group and their contents.

        >>> amount = NUMATopologyAmount(
        ...     [GuestCell(dedicated=[0], memory_mb=1024)], page_size="2MB",
        ...     placed=[PlacedCell(1, pins={0: 4}, page_size_kib=2048)])
        >>> amount.cgroup()
        {'cpuset.cpus': '4', 'cpuset.mems': '1', 'hugetlb.2MB.max': '1073741824'}
        """
        files = {"cpuset.cpus": self.cpuset, "cpuset.mems": self.memory_nodes}
        sizes: Counter[int] = Counter()
        for pages in self.pages.values():
            sizes.update({size: size * count * KIB_PER_MIB for size, count in pages.items()})
        for size, count in sorted(sizes.items()):
            files[f"hugetlb.{_short_size(size)}.max"] = str(count)
        return {name: content for name, content in files.items() if content}

    def check_assigned(self) -> None:
        """Raise ``InvalidInput`` if the amount is not assigned."""
        if not self.placed:
            raise _invalid_unassigned_amount("topology", self, "an assigned one, as fit() returns")

    def _validate(self) -> None:
        if not 1 <= len(self.cells) <= MAX_GUEST_CELLS:
            raise _invalid_amount("guest cells", len(self.cells), f"1 to {MAX_GUEST_CELLS}")
        vcpus = [vcpu for cell in self.cells for vcpu in (*cell.shared, *cell.dedicated)]
        if len(set(vcpus)) != len(vcpus):
            repeated = sorted(vcpu for vcpu, count in Counter(vcpus).items() if count > 1)
            raise _invalid_amount("vCPUs", repeated, "each in one guest cell, once")
        highest = max(vcpus, default=-1)
        if highest >= len(vcpus):
            missing = CPUSet(set(range(highest + 1)).difference(vcpus))
            raise _invalid_amount("vCPUs", f"without {missing}", "every number from 0 on")
        if self.cpu_policy == SHARED and self.thread_policy is not None:
            expected = "none, because no vCPU is dedicated"
            raise _invalid_amount("thread policy", self.thread_policy, expected)
        if self.cpu_policy == SHARED and self.has_emulator:
            expected = "share, because no vCPU is dedicated"
            raise _invalid_amount("emulator policy", self.emulator_policy, expected)
        if self.placed or self.emulator_cpu is not None:
            self._check_placed()
        elif self.gives_back:
            raise _unassigned_release()

    def _check_placed(self) -> None:
        if len(self.placed) != len(self.cells):
            expected = f"one for each of {len(self.cells)} guest cells"
            raise _invalid_amount("placed", len(self.placed), expected)
        hosts = [placed.cell for placed in self.placed]
        if len(set(hosts)) != len(hosts):
            raise _invalid_amount("host cells", hosts, "another one for each guest cell")
        for number, (cell, placed) in enumerate(zip(self.cells, self.placed, strict=True)):
            pinned = tuple(vcpu for vcpu, _ in placed.pins)
            if pinned != cell.dedicated:
                subject = f"pinned vCPUs of guest cell {number}"
                raise _invalid_amount(subject, pinned, f"{cell.dedicated}")
            if bool(placed.shared) != bool(cell.shared):
                expected = "some if, and only if, it has shared vCPUs"
                subject = f"shared CPUs of guest cell {number}"
                raise _invalid_amount(subject, placed.shared, expected)
            if not self._allows_page_size(placed.page_size_kib, cell.memory_mb):
                expected = f"the requested size: {self.page_size or 'ordinary memory'}"
                subject = f"page size of guest cell {number}"
                raise _invalid_amount(subject, placed.page_size_kib, expected)
        if self.has_emulator != (self.emulator_cpu is not None):
            expected = "one if, and only if, the policy is isolate"
            raise _invalid_amount("emulator CPU", self.emulator_cpu, expected)
        cpus = [cpu for placed in self.placed for cpu in placed.pinned]
        cpus += [] if self.emulator_cpu is None else [self.emulator_cpu]
        if len(set(cpus)) != len(cpus):
            raise _invalid_amount("CPUs", sorted(cpus), "each CPU once")

    def _allows_page_size(self, size: int | None, memory_mb: int) -> bool:
        """Return whether a guest cell may be in pages of a size; a host knows its ordinary size."""
        if size is None:
            return self.page_size != LARGE or not memory_mb
        return memory_mb > 0 and self.page_size in (LARGE, ANY, str(size))

    def __repr__(self) -> str:
        if self.placed:
            return f"<NUMATopologyAmount {self}>"
        return f"NUMATopologyAmount.parse({str(self)!r})"

    def __str__(self) -> str:
        number = len(self.cells)
        counts = {
            "shared": sum(len(cell.shared) for cell in self.cells),
            "dedicated": sum(len(cell.dedicated) for cell in self.cells),
            "memory": self.memory_mb,
        }
        is_even = not any(count % number for count in counts.values())
        if is_even and tuple(_even_cells(number, *counts.values())) == self.cells:
            parts = [str(number), *(f"{name}={count}" for name, count in counts.items() if count)]
        else:
            parts = ["/".join(map(str, self.cells))]
        if self.page_size:
            size = self.page_size
            parts.append(f"page_size={_short_size(int(size)) if size.isdecimal() else size}")
        for name in ("thread_policy", "emulator_policy"):
            if (policy := getattr(self, name)) is not None:
                parts.append(f"{name}={policy}")
        if self.physnets:
            nets = (text.quoted(net, ":") for net in sorted(self.physnets))
            parts.append(f"physnets={'+'.join(nets)}")
        parts += [f"{flag}=yes" for flag in _FLAGS if getattr(self, flag)]
        if self.placed:
            parts.append("on=" + "+".join(str(placed.cell) for placed in self.placed))
            cpus = {cpu for placed in self.placed for cpu in placed.pinned}
            cpus |= set() if self.emulator_cpu is None else {self.emulator_cpu}
            parts += [f"cpus={CPUSet(cpus).text('+')}"] if cpus else []
        return "-" * self.gives_back + ":".join(parts)

    @classmethod
    def parse(cls, text_form: str) -> NUMATopologyAmount:
        """Return the request of its text: ``CELLS[:option=value]...``, as :func:`str` writes it.

        CELLS is the number of guest cells (which have equal parts of ``shared=``, ``dedicated=``
        and ``memory=``), or each guest cell as ``SHARED!DEDICATED@MEMORY`` with lists of vCPUs,
        joined by ``/``. A list has ``+`` in place of commas, which separate resources.

        :raises InvalidInput: if the text does not parse; if the request contradicts itself

        >>> NUMATopologyAmount.parse("2:dedicated=4:memory=1024:page_size=1GB").cells[1].dedicated
        (2, 3)
        >>> [cell.memory_mb for cell in NUMATopologyAmount.parse("0-1!2-3@1024/4-7!@2048").cells]
        [1024, 2048]
        """
        if not isinstance(text_form, str):
            raise _invalid_text(_TEXT, text_form, "text such as 2:dedicated=16:memory=4096")
        first, options = text.total_and_options(text_form, _TEXT, _OPTIONS)
        arguments: dict[str, Any] = {}
        for name, value in options.items():
            subject = f"{_TEXT}, {name}"
            if name in _COUNTS:
                arguments[_COUNTS[name]] = text.integer(value, subject)
            elif name in _FLAGS:
                arguments[name] = text.flag(value, subject)
            elif name == "physnets":
                arguments[name] = [text.unquoted(net, subject) for net in value.split("+") if net]
            elif value not in _POLICIES.get(name, (value,)):
                raise _invalid_text(subject, value, f"one of {', '.join(_POLICIES[name])}")
            elif not value:
                raise _invalid_text(subject, value, "a word")
            else:
                arguments[name] = value
        if "@" in first:
            return numa([*map(_parse_cell, first.split("/"))], **arguments)
        return numa(text.integer(first, f"{_TEXT}, guest cells"), **arguments)


_TEXT = "NUMA topology"
_COUNTS = {"shared": "shared", "dedicated": "dedicated", "memory": "memory_mb"}
_POLICIES = {"thread_policy": THREAD_POLICIES, "emulator_policy": EMULATOR_POLICIES}
_FLAGS = ("tunneled", "one_socket")
_OPTIONS = (*_COUNTS, "page_size", *_POLICIES, "physnets", *_FLAGS)


def _unassigned_release() -> InvalidInput:
    return _invalid_unassigned_amount(
        "topology", "one that is not assigned", "an assigned one: only that can be released"
    )


def _parse_cell(cell: str) -> GuestCell:
    cpus, _, memory = cell.partition("@")
    shared, dedicated = (
        CPUSet.parse(vcpus.replace("+", ","), f"{_TEXT}, CPUs") if vcpus else ()
        for vcpus in cpus.partition("!")[::2]
    )
    memory_mb = text.integer(memory, f"{_TEXT}, MiB of a guest cell")
    return GuestCell(shared=shared, dedicated=dedicated, memory_mb=memory_mb)


def _short_size(kib: int) -> str:
    """Return a page size such as ``2MB``."""
    return show_kib(kib).replace("iB", "B").replace(" ", "")


def require_topology(value: Any) -> NUMATopologyAmount:
    """Return a topology amount unchanged.

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
    """Return a request for a number of guest cells with equal parts of the counts.

    vCPUs are numbered over all guest cells; in each guest cell, shared ones come first.

    :param cells: the number of guest cells; or the guest cells, and then no counts
    :param shared: vCPUs that share CPUs, over all guest cells
    :param dedicated: vCPUs that each use a CPU of their own, over all guest cells
    :param memory_mb: MiB over all guest cells
    :param page_size: ``small``, ``large``, ``any``, ``"1GB"``, KiB as an integer; default: ordinary
        memory
    :param thread_policy: ``prefer``, ``require`` or ``isolate``
    :param emulator_policy: ``isolate`` for an additional dedicated CPU, ``share`` for none
    :param physnets: names of networks that one of the host cells has to be near
    :param tunneled: the same for tunnelled networks
    :param one_socket: whether all host cells have to be in one socket
    :raises InvalidInput: for counts below 0, or that are no multiple of the guest cells; for
        policies that contradict each other; for an empty request; for an unknown page size

    >>> request = numa(cells=2, dedicated=16, memory_mb=4096, page_size="1GB")
    >>> [len(cell.dedicated) for cell in request.cells], request.page_size
    ([8, 8], '1048576')
    >>> numa(cells=2, dedicated=5)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: dedicated: got 5, expected a multiple of 2 guest ...
    """
    counts = {"shared": shared, "dedicated": dedicated, "memory_mb": memory_mb}
    if type(cells) is int:
        if not 1 <= cells <= MAX_GUEST_CELLS:
            raise _invalid_amount("guest cells", cells, f"1 to {MAX_GUEST_CELLS}")
        for name, count in counts.items():
            maximum = MAX_FIGURE * cells if name == "memory_mb" else MAX_ID + 1
            if type(count) is not int or not 0 <= count <= maximum:
                raise _invalid_amount(name, count, f"an integer from 0 to {maximum}")
            if count % cells:
                raise _invalid_amount(name, count, f"a multiple of {cells} guest cells")
        guests = [*_even_cells(cells, *counts.values())]
    else:
        for name, count in counts.items():
            if type(count) is not int or count:
                raise _invalid_amount(name, count, "no count with guest cells that specify it")
        value: Any = cells
        if not isinstance(value, Iterable) or isinstance(value, str | bytes):
            raise _invalid_amount("guest cells", cells, "their number, or the cells")
        guests = [*value]
    return NUMATopologyAmount(
        guests,
        page_size=page_size,
        thread_policy=thread_policy,
        emulator_policy=emulator_policy,
        physnets=physnets,
        tunneled=tunneled,
        one_socket=one_socket,
    )


def _even_cells(cells: int, shared: int, dedicated: int, memory_mb: int) -> Iterator[GuestCell]:
    """Yield guest cells with equal parts of counts that are multiples of their number."""
    shared, dedicated, memory_mb = shared // cells, dedicated // cells, memory_mb // cells
    for number in range(cells):
        first = number * (shared + dedicated)
        middle = first + shared
        yield GuestCell(
            shared=range(first, middle),
            dedicated=range(middle, middle + dedicated),
            memory_mb=memory_mb,
        )


# --- guest cells and their host cells -----------------------------------------------------------


@base.register
class GuestCell(base.ResourceObject, frozen=True):
    """Some vCPUs and their memory, which are placed on one host cell.

    Each guest cell of a request is on another host cell.

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
        return CPUSet((*self.shared, *self.dedicated))

    def __str__(self) -> str:
        dedicated = f"!{CPUSet(self.dedicated).text('+')}" if self.dedicated else ""
        return f"{CPUSet(self.shared).text('+')}{dedicated}@{self.memory_mb}"

    def _validate(self) -> None:
        if not (self.shared or self.dedicated or self.memory_mb):
            raise _invalid_amount("guest cell", "nothing", "vCPUs or memory, or both")
        _check_ids("vCPUs of a guest cell", *self.shared[-1:], *self.dedicated[-1:])


@base.register
class PlacedCell(base.ResourceObject, frozen=True):
    """The assignment of one guest cell: its host cell, a CPU for each dedicated vCPU, its pages.

    ``shared`` are the CPUs that run the shared vCPUs. ``idle`` are CPUs that are allocated and left
    idle: the siblings of isolated ones. ``page_size_kib`` is the size of the huge pages, None for
    ordinary memory.

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
        """The CPUs that are allocated to vCPUs or left idle for them."""
        return CPUSet.from_mask(self.pinned_mask)

    @property
    def pinned_mask(self) -> int:
        """The mask of these CPUs."""
        mask = mask_of(self.idle)
        for _, cpu in self.pins:
            mask |= 1 << cpu
        return mask

    def _validate(self) -> None:
        cpus = [*(cpu for _, cpu in self.pins), *self.idle]
        _check_ids(f"CPUs of host cell {self.cell}", *cpus, *self.shared[-1:])
        if len(set(cpus)) != len(cpus):
            raise _invalid_amount(f"CPUs of host cell {self.cell}", cpus, "each CPU once")


def _check_ids(subject: str, *ids: int) -> None:
    highest = max(ids, default=0)
    if highest > MAX_ID:
        raise _invalid_amount(subject, highest, f"numbers from 0 to {MAX_ID}")


# --- limits ---------------------------------------------------------------------------------------


@base.register
class NUMATopologyLimit(abstract.Amount):
    """The maximum usage of each host cell: shared vCPUs and MiB of ordinary memory.

    A cell that is not listed is unbounded. Dedicated CPUs and huge pages have no limit, because
    they are not overcommitted.

    >>> limit = NUMATopologyLimit(vcpus={0: 16, 1: 16})
    >>> limit.of_cell(0), limit.of_cell(7)
    ((16, None), (None, None))
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    vcpus: fields.Pairs = fields.integer_pairs(default=())
    memory_mb: fields.Pairs = fields.integer_pairs(default=())

    @classmethod
    def parse(cls, text_form: str) -> NUMATopologyLimit:
        """Return the limit of ``vcpus=0>16+1>16:memory=0>4096``; :func:`str` is the reverse.

        :raises InvalidInput: if the text does not parse
        """
        if not isinstance(text_form, str):
            raise _invalid_text(_TEXT, text_form, "text such as vcpus=0>16+1>16")
        _, options = text.total_and_options(f":{text_form}", f"{_TEXT} limit", ("vcpus", "memory"))
        limits: dict[str, list[tuple[int, int]]] = {"vcpus": [], "memory": []}
        for name, value in options.items():
            for item in filter(None, value.split("+")):
                cell, _, limit = item.partition(">")
                subject = f"{_TEXT}, number"
                limits[name].append((text.integer(cell, subject), text.integer(limit, subject)))
        return cls(vcpus=limits["vcpus"], memory_mb=limits["memory"])

    def __str__(self) -> str:
        cpus, memory = (
            "+".join(f"{cell}>{limit}" for cell, limit in pairs)
            for pairs in (self.vcpus, self.memory_mb)
        )
        return f"vcpus={cpus}" + (f":memory={memory}" if memory else "")

    def of_cell(self, cell: int) -> tuple[int | None, int | None]:
        """Return the limits of shared vCPUs and of memory of one host cell, None for no limit."""
        return dict(self.vcpus).get(cell), dict(self.memory_mb).get(cell)

    @property
    def is_zero(self) -> bool:
        """False: a limit of zero is a limit."""
        return False

    @property
    def is_negative(self) -> bool:
        """False: limits are 0 or more."""
        return False

    def __neg__(self) -> Self:
        raise InvalidInput("negative amount", "limit", self, "a limit, which is never released")

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return nothing: limits are not stored."""
        return ()


# --- lower bounds ---------------------------------------------------------------------------------


def lower_bounds(
    amount: NUMATopologyAmount, classes: Collection[str]
) -> tuple[Mapping[str, int], ...]:
    """Return the least usage of each guest cell on any host cell, by class.

    It is necessary, not sufficient: :mod:`.cell_fit` also checks thread policies, whole pages and
    overcommitment.

    :param classes: the resource classes of the host cells, with their sizes of huge pages

    >>> request = numa(cells=2, dedicated=4, memory_mb=64, page_size="2MB")
    >>> lower_bounds(request, ["PCPU", "MEMORY_MB", "CUSTOM_HUGEPAGES_2048KB"])[1]
    {'PCPU': 2, 'CUSTOM_HUGEPAGES_2048KB': 16}
    """
    size = amount.page_size
    sizes = [str(kib) for name in classes if (kib := page_size_of_class(name)) is not None]
    if size == LARGE and len(sizes) == 1:
        size = sizes[0]
    bounds: list[Mapping[str, int]] = []
    for demand in amount.demands:
        counts = {"VCPU": demand.shared, "PCPU": demand.cpus}
        if size in sizes:
            counts[page_class(int(size))] = demand.memory_mb * KIB_PER_MIB // int(size)
        elif size not in (LARGE, ANY):  # ordinary memory, also where its pages have this size
            counts["MEMORY_MB"] = demand.memory_mb
        bounds.append({name: count for name, count in counts.items() if count})
    return tuple(bounds)
