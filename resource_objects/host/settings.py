"""The settings that an operator configures for a host, in addition to its reported facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.fields import FrozenDict
from resource_objects.host.device_rules import DeviceRule, read_rules
from resource_objects.ratio import to_ratio
from resource_objects.resources import Amounts, Resource, text
from resource_objects.resources.catalog import by_name
from resource_objects.resources.numa.cells import parse_size_kib, show_kib
from resource_objects.resources.numa.cpuset import CPUSet

if TYPE_CHECKING:
    from resource_objects.host.machine import Machine

__all__ = ["CPUs", "HostSettings", "ReservedPages"]

#: CPUs as a list (``"2-15,^4"``) or as numbers; None if the set is not configured.
CPUs: TypeAlias = str | Iterable[int] | None
#: Pages as ``{cell: {size: count}}`` with sizes in KiB or as text, or as ``"0:2MB=64,1:2MB=64"``.
ReservedPages: TypeAlias = Mapping[int, Mapping[int | str, int]] | str | None

_PAGES = "reserved pages"
_PAGES_FORM = "CELL:SIZE=COUNT such as 0:2MB=64"


@dataclasses.dataclass(frozen=True, init=False)
class HostSettings:
    """The settings of one host, or of all hosts. Frozen; each value is parsed and checked.

    ====================  =========================================================================
    ``shared``            CPUs for shared vCPUs, counted as ``VCPU``
    ``dedicated``         CPUs that are allocated to one vCPU each, counted as ``PCPU``
    ``reserved``          :class:`~resource_objects.resources.Amounts` reserved for the host itself
    ``ratios``            ``{class: allocation ratio}``; None: the stored ratio, for a tracker only
    ``initial_ratios``    ``{class: allocation ratio}`` of inventories that are not stored yet, for
                          a tracker only
    ``reserved_pages``    ``{cell: {size in KiB: count}}``: memory pages reserved for the host
    ``device_rules``      the devices that are offered, and their resource classes
    ====================  =========================================================================

    A tracker is a :class:`~resource_objects.host.tracker.tracker.ResourceTracker`;
    :func:`~resource_objects.host.tree.provider_tree` ignores what is for a tracker only.

    If neither CPU set is configured, all CPUs are shared. If one is, the CPUs in neither set are
    reserved for the host: its kernel, its agents, its emulator threads. Sources: Nova's
    ``cpu_shared_set``, ``cpu_dedicated_set``, ``reserved_huge_pages``, *initial-allocation-ratios*.

    >>> settings = HostSettings(shared="0-1", dedicated="2-7,^4", ratios="VCPU=16",
    ...                         reserved="MEMORY_MB=512", reserved_pages="0:2MB=64",
    ...                         device_rules=["10de:*=PGPU"])
    >>> settings.dedicated, settings.ratios["VCPU"], settings.reserved_counts["MEMORY_MB"]
    ((2, 3, 5, 6, 7), Decimal('16'), 512)
    >>> HostSettings(dedicated="3-1")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: dedicated CPUs: got '3-1', expected a list of CPUs ...
    """

    shared: CPUSet | None
    dedicated: CPUSet | None
    reserved: Amounts | None
    ratios: Mapping[str, Decimal | None]
    initial_ratios: Mapping[str, Decimal]
    reserved_pages: Mapping[int, Mapping[int, int]]
    device_rules: tuple[DeviceRule, ...]

    def __init__(
        self,
        *,
        shared: CPUs = None,
        dedicated: CPUs = None,
        reserved: Any = None,
        ratios: Any = None,
        initial_ratios: Any = None,
        reserved_pages: ReservedPages = None,
        device_rules: Iterable[DeviceRule | str] = (),
    ) -> None:
        """Parse the settings.

        :param shared: as ``"0-3"`` or as numbers; so is ``dedicated``
        :param reserved: as ``"MEMORY_MB=512"`` or as amounts; None if it is not known
        :param ratios: as ``"VCPU=16"`` or as ``{"VCPU": "1.5", "MEMORY_MB": None}``
        :param initial_ratios: the same; None as a ratio is refused
        :param reserved_pages: as ``"0:2MB=64"`` or as ``{0: {2048: 64}}``
        :param device_rules: as rules or their text; the first rule that matches a device applies
        :raises InvalidInput: for a value that does not parse, an empty set of CPUs, a negative
            amount, or a size that is named twice
        :raises InvalidInventory: for a ratio of ``PCPU`` other than 1, a cell that is no
            number, or a count of pages below 0
        """
        values = {
            "shared": _cpus("shared CPUs", shared),
            "dedicated": _cpus("dedicated CPUs", dedicated),
            "reserved": None if reserved is None else Amounts.from_value(reserved),
            "ratios": _ratios("ratios", ratios),
            "initial_ratios": _ratios("initial_ratios", initial_ratios, allow_none=False),
            "reserved_pages": _reserved_pages(reserved_pages),
            "device_rules": read_rules(device_rules),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        for count in self.reserved_counts.values():
            if count < 0:
                raise InvalidInput("negative amount", "reserved", count, "0 or more")

    @property
    def reserved_counts(self) -> dict[str, int]:
        """The reserved amounts as ``{class: count}``, empty if they are not known."""
        return {
            record.resource_class: record.amount
            for name, amount in (self.reserved or Amounts()).by_name()
            for record in amount.to_records(name)
        }

    def cpu_sets(self, machine: Machine) -> tuple[CPUSet, CPUSet]:
        """Return the shared and the dedicated CPUs of a machine, ascending. O(CPUs).

        :raises InvalidInventory: for a CPU that is not online, or is in both sets

        >>> from resource_objects.host.machine import Core, Machine
        >>> machine = Machine(cpus=(0, 1, 2, 3), memory_bytes=0, offline_cpus=(4,),
        ...                   cores=tuple(Core(0, number, (number,)) for number in range(4)))
        >>> HostSettings().cpu_sets(machine)
        ((0, 1, 2, 3), ())
        >>> HostSettings(dedicated="2-3").cpu_sets(machine)
        ((), (2, 3))
        >>> HostSettings(dedicated="2-4").cpu_sets(machine)
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidInventory: dedicated CPUs: got '4', expected CPUs ...
        """
        if self.shared is None and self.dedicated is None:
            return CPUSet(machine.cpus), CPUSet()
        shared, dedicated = self.shared or CPUSet(), self.dedicated or CPUSet()
        online = CPUSet(machine.cpus)
        for subject, cpus in (("shared CPUs", shared), ("dedicated CPUs", dedicated)):
            if offline := cpus - online:
                expected = f"CPUs that are online: {online}"
                raise InvalidInventory(subject, str(offline), expected)
        if both := shared & dedicated:
            raise InvalidInventory("dedicated CPUs", str(both), "CPUs that are not shared too")
        return shared, dedicated


def _cpus(subject: str, value: Any) -> CPUSet | None:
    if value is None:
        return None
    if isinstance(value, str):
        return CPUSet.parse(value, subject)
    numbers = tuple(value) if isinstance(value, Iterable) and not isinstance(value, bytes) else ()
    if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
        raise InvalidInput(
            "value", subject, value, "a list of CPUs such as 0-3,8, or their numbers"
        )
    return CPUSet(numbers)


def _ratios(subject: str, value: Any, *, allow_none: bool = True) -> FrozenDict:
    pairs = (
        value if isinstance(value, Mapping) else text.pairs("" if value is None else value, subject)
    )

    def read(kind: Resource, value: Any) -> Decimal | None:
        name = f"{subject}: {kind.name}"
        if value is None and allow_none:
            return None
        try:
            ratio = to_ratio(value)
        except InvalidInput as error:
            raise error.renamed(name, value) from None
        if kind.name == "PCPU" and ratio != 1:
            raise InvalidInventory(name, value, "1: a dedicated CPU is allocated once")
        return ratio

    return FrozenDict(by_name(pairs, read, subject))


def _reserved_pages(value: Any) -> FrozenDict:
    mapping = _parse_pages(value) if isinstance(value, str) else {} if value is None else value
    if not isinstance(mapping, Mapping):
        raise InvalidInput("value", _PAGES, value, f"counts by cell and size, or {_PAGES_FORM}")
    cells: dict[int, FrozenDict] = {}
    for cell, sizes in mapping.items():
        if type(cell) is not int or cell < 0:
            raise InvalidInventory(f"{_PAGES}: cell", cell, "the number of a cell")
        if not isinstance(sizes, Mapping):
            raise InvalidInput("value", f"{_PAGES} of cell {cell}", sizes, "counts by size")
        counts: dict[int, int] = {}
        for size, count in sizes.items():
            kib = parse_size_kib(size)
            if kib is None:
                raise InvalidInput("text", f"{_PAGES}: size", size, "a page size such as 2MB")
            if kib in counts:
                raise InvalidInput(
                    "repetition", f"{_PAGES} of cell {cell}", show_kib(kib), "each size once"
                )
            if type(count) is not int or count < 0:
                subject = f"{_PAGES} of {show_kib(kib)} of cell {cell}"
                raise InvalidInventory(subject, count, "an integer, 0 or more")
            counts[kib] = count
        cells[cell] = FrozenDict(counts)
    return FrozenDict(cells)


def _parse_pages(value: str) -> dict[int, dict[str, int]]:
    cells: dict[int, dict[str, int]] = {}
    for item in value.split(",") if value.strip() else ():
        pages, equals, count = (part.strip() for part in item.partition("="))
        cell, colon, size = (part.strip() for part in pages.partition(":"))
        if not equals or not colon or not cell.isdecimal():
            raise InvalidInput("text", _PAGES, item, _PAGES_FORM)
        sizes = cells.setdefault(text.integer(cell, f"{_PAGES}: cell"), {})
        if size in sizes:
            raise InvalidInput("repetition", _PAGES, pages, "each size of a cell once")
        sizes[size] = text.integer(count, f"{_PAGES}: count")
    return cells
