"""What is asked of a NUMA topology, and where it went: the amount of the kind.

Its *guest cells* are parts of the request whose CPUs and memory shall be near each other; assigned,
it says which *host cell* each is on. Guest cells are numbered by their place in the amount.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from resource_objects import base, exceptions, fields
from resource_objects.resources import abstract
from resource_objects.resources.numa import forms, valid, words
from resource_objects.resources.numa.cpus import MAX_ID, format_cpus
from resource_objects.resources.numa.guest import GuestCell, PlacedCell
from resource_objects.resources.numa.host import listed
from resource_objects.resources.records import AmountRecord


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
    ====================  ==========================================================================

    >>> from resource_objects.resources.numa import numa
    >>> asked = numa(cells=2, dedicated=4, memory_mb=2048, page_size="2MB")
    >>> asked.cpu_policy, dict(asked.located), asked.is_assigned
    ('dedicated', {'PCPU': 4, 'MEMORY_MB': 2048}, False)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "cells": fields.TupleOfObjectsField("GuestCell"),
        "page_size": fields.TextField(default=""),
        "thread_policy": fields.ChoiceField(*words.THREAD_POLICIES, nullable=True, default=None),
        "emulator_policy": fields.ChoiceField(
            *words.EMULATOR_POLICIES, nullable=True, default=None
        ),
        "physnets": fields.LabelsField(default=frozenset()),
        "tunneled": fields.BooleanField(default=False),
        "one_socket": fields.BooleanField(default=False),
        "placed": fields.TupleOfObjectsField("PlacedCell", default=()),
        "emulator_cpu": fields.IntegerField(0, MAX_ID, nullable=True, default=None),
        "gives_back": fields.BooleanField(default=False),
    }
    cells: tuple[GuestCell, ...]
    page_size: str
    thread_policy: str | None
    emulator_policy: str | None
    physnets: frozenset[str]
    tunneled: bool
    one_socket: bool
    placed: tuple[PlacedCell, ...]
    emulator_cpu: int | None
    gives_back: bool

    def __init__(
        self,
        cells: Iterable[GuestCell],
        *,
        page_size: str | int = "",
        thread_policy: str | None = None,
        emulator_policy: str | None = None,
        physnets: Iterable[str] = (),
        tunneled: bool = False,
        one_socket: bool = False,
        placed: Iterable[PlacedCell] = (),
        emulator_cpu: int | None = None,
        gives_back: bool = False,
    ) -> None:
        super().__init__(
            cells=listed(cells),
            page_size="" if page_size in ("", None) else words.page_size(page_size),
            thread_policy=thread_policy,
            emulator_policy=emulator_policy,
            physnets=physnets,
            tunneled=tunneled,
            one_socket=one_socket,
            placed=listed(placed),
            emulator_cpu=emulator_cpu,
            gives_back=gives_back,
        )

    # --- what is asked ---

    @property
    def cpu_policy(self) -> str:
        """``shared``, ``dedicated`` or ``mixed``, by what the vCPUs are."""
        dedicated = any(cell.dedicated for cell in self.cells)
        shared = any(cell.shared for cell in self.cells)
        if dedicated and shared:
            return words.MIXED
        return words.DEDICATED if dedicated else words.SHARED

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
        return self.emulator_policy == words.ISOLATE

    @property
    def located(self) -> Mapping[str, int]:
        """What this says where it is, as counts: of CPUs, and of memory in pages of any size."""
        dedicated = sum(len(cell.dedicated) for cell in self.cells) + self.has_emulator
        counts = {
            "VCPU": sum(len(cell.shared) for cell in self.cells),
            "PCPU": dedicated,
            "MEMORY_MB": self.memory_mb,
        }
        return {name: count for name, count in counts.items() if count}

    @property
    def of_host(self) -> Mapping[str, int]:
        """What the host as a whole gives of it, as counts: CPUs, and ordinary memory.

        Of one that is not assigned, what is known: memory counts only if it cannot be in huge
        pages, and CPUs left empty do not count.
        """
        counts = dict(self.located)
        if self.placed:
            counts["PCPU"] = sum(len(p.pins) + len(p.idle) for p in self.placed) + self.has_emulator
            pairs = zip(self.cells, self.placed, strict=True)
            counts["MEMORY_MB"] = sum(g.memory_mb for g, p in pairs if p.page_size_kib is None)
        elif self.page_size not in ("", words.SMALL):
            counts.pop("MEMORY_MB", None)
        return {name: count for name, count in counts.items() if count}

    def at_least(self, classes: Collection[str]) -> tuple[Mapping[str, int], ...]:
        """Return what each guest cell needs of a host cell at least, by class."""
        from resource_objects.resources.numa.least import at_least

        return at_least(self, classes)

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
            raise exceptions.NotAssigned(
                "topology", "one that is not assigned", "an assigned one: that is given back"
            )
        return self._altered(gives_back=not self.gives_back)

    def unassigned(self) -> Self:
        """Return what was asked, without where it went."""
        return self.replace(placed=(), emulator_cpu=None, gives_back=False)

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return what it stands for in plain counts; where they are kept, its inventory knows."""
        sign = -1 if self.gives_back else 1
        return tuple(AmountRecord(name, sign * count) for name, count in self.located.items())

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
        return forms.cpuset(self._where())

    @property
    def memory_nodes(self) -> str:
        """The host cells as a list, for ``numactl --membind`` and ``cpuset.mems``; assigned."""
        return format_cpus(cell.cell for cell in self._where())

    @property
    def pages(self) -> Mapping[int, Mapping[int, int]]:
        """``{host cell: {page size in KiB: pages}}`` of huge pages; assigned."""
        return forms.pages(self.cells, self._where())

    def taskset(self) -> tuple[str, ...]:
        """Return the arguments of ``taskset`` that run a command on these CPUs.

        :raises InvalidAmount: if it has no CPUs, but memory alone

        >>> NUMATopologyAmount([GuestCell(dedicated=[0])],
        ...                    placed=[PlacedCell(0, pins={0: 4})]).taskset()
        ('taskset', '--cpu-list', '4')
        """
        return forms.taskset(self.cpuset)

    def numactl(self) -> tuple[str, ...]:
        """Return the arguments of ``numactl`` that run a command on these CPUs and this memory.

        >>> NUMATopologyAmount([GuestCell(dedicated=[0], memory_mb=64)],
        ...                    placed=[PlacedCell(1, pins={0: 4})]).numactl()
        ('numactl', '--physcpubind=4', '--membind=1')
        """
        return forms.numactl(self.cpuset, self.memory_nodes)

    def cgroup(self) -> Mapping[str, str]:
        """Return the files of a version 2 control group and what to write into them.

        >>> amount = NUMATopologyAmount(
        ...     [GuestCell(dedicated=[0], memory_mb=1024)], page_size="2MB",
        ...     placed=[PlacedCell(1, pins={0: 4}, page_size_kib=2048)])
        >>> amount.cgroup()
        {'cpuset.cpus': '4', 'cpuset.mems': '1', 'hugetlb.2MB.max': '1073741824'}
        """
        return forms.cgroup(self.cpuset, self.memory_nodes, self.pages)

    def _where(self) -> tuple[PlacedCell, ...]:
        if not self.placed:
            raise exceptions.NotAssigned("topology", self, "an assigned one, as fit() returns")
        return self.placed

    def _validate(self) -> None:
        valid.check(self)

    def __repr__(self) -> str:
        from resource_objects.resources.numa.text import format_amount

        return f"NUMATopologyAmount.parse({format_amount(self)!r})"

    def __str__(self) -> str:
        from resource_objects.resources.numa.text import format_amount

        return format_amount(self)

    @classmethod
    def parse(cls, text: str) -> NUMATopologyAmount:
        """Return the amount of its text form; :func:`str` gives it back."""
        from resource_objects.resources.numa.text import parse_amount

        return parse_amount(text)


def given(value: Any) -> NUMATopologyAmount:
    """Return a topology amount as it is, refusing other kinds.

    :raises WrongAmountKind: for an amount of another kind
    """
    if not isinstance(value, NUMATopologyAmount):
        raise exceptions.WrongAmountKind("amount", value, "a NUMATopologyAmount")
    return value
