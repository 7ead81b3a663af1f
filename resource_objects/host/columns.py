"""The columns of a compute node's record, and how resources are kept in them.

Names are those of Nova's ``compute_nodes`` table (Nova 34). Four sorts:

* *counted*: totals, used figures and ratios of VCPU, MEMORY_MB and DISK_GB, and of counts of
  plug-ins (:class:`CountColumn`);
* *located*: columns of text that say where things are, such as ``numa_topology``
  (:mod:`resource_objects.host.located_columns`, and plug-ins);
* *derived*: ``free_ram_mb`` and ``free_disk_gb``, computed from the counted ones whenever asked;
* *carried*: all others, also those nobody knew when this was written. They are somebody else's:
  kept as they came, type and all, never turned into something else.

A resource says by its :class:`Column` how it is kept: how a row is checked and read, and what is
written. Columns are found by entry point (``resource_objects.columns``), so a kind of a plug-in can
have one. Of a count, two figures of a column are not in its own inventory:

* what a located resource sets *aside* of it: huge pages are within ``memory_mb``, but nobody who
  asks for ``MEMORY_MB`` is given one, so they are reserved in the inventory;
* what is used *beside* it: ``memory_mb_used`` counts used huge pages, ``vcpus_used`` dedicated
  vCPUs. So ``column = used + own reserved + beside``.

**Reserved.** In Nova's record the used figures include what the host keeps for itself, which no
column says: it is a parameter of reading.

**Ratios.** Which ratio counts: the one given, the one the record states, or the initial one, 4.0
for VCPU and 1.0 for MEMORY_MB and DISK_GB (Nova since 27.0). ``None`` and ``0.0`` in a record state
nothing: that is how Nova stored "not set" in two of its ages. Unlike Nova, finding the ratio never
writes it back. Source: Nova's *initial-allocation-ratios* specification (Stein).
"""

from __future__ import annotations

import abc
import base64
import dataclasses
import datetime
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, ClassVar

from resource_objects import exceptions, fields, plugins
from resource_objects._ovo import fields as ovo_fields
from resource_objects.ratio import ratio_from_float_column, to_ratio
from resource_objects.resources import (
    Amounts,
    IntegerInventory,
    Inventories,
    Inventory,
    resource,
    text,
)

NAMESPACE = "resource_objects.columns"

#: ``{derived column: resource class it is the rest of}``
DERIVED = {"free_ram_mb": "MEMORY_MB", "free_disk_gb": "DISK_GB"}

#: What Nova's record counts, in the order of its columns.
_OF_NOVA = ("VCPU", "MEMORY_MB", "DISK_GB")

#: The bound on disk that the host reports, in GiB.
DISK_REPORT = "disk_available_least"

CARRIED = (
    "id",
    "uuid",
    "service_id",
    "host",
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "host_ip",
    "cpu_info",
    "supported_instances",
    "current_workload",
    "running_vms",
    "stats",
    "metrics",
    "mapped",
    "extra_resources",
    "created_at",
    "updated_at",
    "deleted_at",
    "deleted",
)

NOTHING = Amounts()


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What reading a record is told besides: reserved amounts, None if unknown, and ratios."""

    reserved: Amounts | None = None
    ratios: Mapping[str, Decimal] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeState:
    """What is written into columns: the inventories now, and as they were read or saved.

    ``of_ledger`` is whether the figures are a ledger's, which knows the use of each class apart;
    a record's row says some of them together. ``is_kept`` is whether that ledger has the host.
    ``known`` are the columns that the record has now, where these are not those that were read.
    """

    inventories: Inventories
    saved: Inventories
    settings: Settings
    of_ledger: bool = False
    is_kept: bool = True
    known: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def recorded(self, name: str, inventories: Inventories) -> int:
        """Return what a used column of some inventories says of a count."""
        inventory = count_of(inventories, name)
        assert inventory is not None, "it was looked for"
        own = inventory.reserved - aside_of(name, inventories)
        return inventory.used + own + beside_of(name, inventories, self.of_ledger)


class Column(abc.ABC):
    """How one resource is kept in a record of a host.

    A plug-in's class is made without arguments, by entry point. :attr:`is_read_first` is for those
    that set figures of other columns aside.
    """

    #: The resource of what is read from it.
    resource: ClassVar[str]
    #: The columns that it reads and writes.
    names: ClassVar[tuple[str, ...]]
    #: Counts that only this column says, beside its resource.
    counts: ClassVar[tuple[str, ...]] = ()
    is_read_first: ClassVar[bool] = False

    @abc.abstractmethod
    def check(self, row: Mapping[str, Any], settings: Settings) -> None:
        """Raise if the columns cannot be: types and ranges; text is not parsed here.

        :raises InvalidInput: naming the column
        """

    @abc.abstractmethod
    def read(
        self, row: Mapping[str, Any], settings: Settings, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        """Return what the columns say there is, by resource: none if nothing.

        :param found: what columns read before said
        :raises InvalidInput: if a column cannot be read
        """

    @abc.abstractmethod
    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        """Return ``{column: value}``; what says the same as the row came stays as it came.

        :raises CannotDowngrade: if no version of a text can say it
        """

    @abc.abstractmethod
    def stated(
        self, inventory: Inventory, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        """Return what there is by resource, where somebody states the inventory of this one.

        :param found: what there is beside it
        :raises InvalidInventory: if the column cannot say it
        """

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory | None:
        """Return what a host that is made in a ledger has of it.

        :param used: with what is used of it; else nobody uses anything
        """
        return inventory

    def is_same(self, one: Inventory, other: Inventory) -> bool:
        """Return whether two inventories have the same things, and as much of them in use."""
        return one == other

    def close(self, inventory: Inventory) -> None:  # noqa: B027  # not every kind can
        """Let an inventory that a node has no more provide nothing, whoever has it in hand."""

    def aside(self, name: str, inventories: Mapping[str, Inventory]) -> int:
        """Return what this resource sets aside of a count."""
        return 0

    def beside(self, name: str, inventories: Mapping[str, Inventory], of_ledger: bool) -> int:
        """Return what this resource uses that is in a count's column and not in its inventory."""
        return 0


@functools.cache
def columns() -> tuple[Column, ...]:
    """Return the columns of all resources, those first that others depend on.

    :raises PluginError: if a plug-in fails
    """
    made = [plugins.load(NAMESPACE, name)() for name in plugins.names(NAMESPACE)]
    order = [*_OF_NOVA, *(column.resource for column in made)]
    return tuple(sorted(made, key=lambda one: (not one.is_read_first, order.index(one.resource))))


def column_of(name: str) -> Column | None:
    """Return the column that a resource is kept in, None if it is in none."""
    return next((column for column in columns() if column.resource == name), None)


def read_inventories(row: Mapping[str, Any], settings: Settings) -> Inventories:
    """Return what a row says there is.

    :raises InvalidInput: if a column cannot be read
    """
    found: dict[str, Inventory] = {}
    for column in columns():
        found.update(column.read(row, settings, found))
    order = [name for column in COUNTS.values() if (name := column.resource) in found]
    rest = [name for name in found if name not in order]
    return Inventories({name: found[name] for name in (*order, *rest)})


def count_of(inventories: Any, name: str) -> IntegerInventory | None:
    """Return what there is of a count, None if nothing."""
    found = members(inventories).get(name)
    return found if isinstance(found, IntegerInventory) else None


def aside_of(name: str, inventories: Any) -> int:
    """Return what of a count is set aside by others, at most what is reserved of it."""
    by_name, count = members(inventories), count_of(inventories, name)
    aside = sum(column.aside(name, by_name) for column in columns())
    return 0 if count is None else min(aside, count.reserved)


def beside_of(name: str, inventories: Any, of_ledger: bool) -> int:
    """Return what is used beside the inventory of a count."""
    by_name = members(inventories)
    return sum(column.beside(name, by_name, of_ledger) for column in columns())


def members(inventories: Any) -> dict[str, Any]:
    """Return ``{class: inventory}`` of what is there."""
    return dict(inventories.by_name() if isinstance(inventories, Inventories) else inventories)


# --- counts ---------------------------------------------------------------------------------------

_TOTAL = fields.integer(0, fields.MAX_FIGURE)
_USED = fields.integer(0)


class CountColumn(Column):
    """The columns of one counted resource, and the ratio it has when nobody states one."""

    total: ClassVar[str]
    used: ClassVar[str]
    ratio: ClassVar[str]
    initial_ratio: ClassVar[Decimal] = Decimal(1)

    def check(self, row: Mapping[str, Any], settings: Settings) -> None:
        coerced(self.total, _TOTAL, row)
        coerced(self.used, _USED, row)
        coerced(self.ratio, _RATIO, row)
        total = row.get(self.total, 0)
        if not total:
            return
        reserved = reserved_of(settings, self.resource)
        if reserved > total:
            expected = f"at least the {reserved} reserved"
            raise exceptions.InvalidInventory(self.total, total, expected)
        if row.get(self.used, reserved) < reserved:
            expected = f"at least the {reserved} reserved, which it includes"
            raise exceptions.InvalidInventory(self.used, row[self.used], expected)
        self.ratio_of(row, settings)

    def ratio_of(self, row: Mapping[str, Any], settings: Settings) -> Decimal:
        """Return the ratio that counts: given, stated by the record, or the initial one."""
        given = settings.ratios.get(self.resource)
        return given or stated_ratio(self.ratio, row.get(self.ratio)) or self.initial_ratio

    def read(
        self, row: Mapping[str, Any], settings: Settings, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not row.get(self.total) or self.used not in row:
            return {}  # of what is unknown, nothing is given out
        total, own = row[self.total], reserved_of(settings, self.resource)
        aside = sum(column.aside(self.resource, found) for column in columns())
        beside = sum(column.beside(self.resource, found, False) for column in columns())
        inventory = IntegerInventory(
            total,
            min(total, own + aside),
            max_unit=total,
            allocation_ratio=self.ratio_of(row, settings),
            used=max(0, row[self.used] - own - beside),
            resource_class=self.resource,
        )
        return {self.resource: inventory}

    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        name, said = self.resource, {c: row[c] for c in self.names if c in row}
        now, before = count_of(state.inventories, name), count_of(state.saved, name)
        if now is None:
            if state.of_ledger and (state.is_kept or self.total in row):
                used = reserved_of(state.settings, name) + (0 if before is None else before.used)
                return {**said, self.total: 0, self.used: used}
            if before is None and not state.of_ledger and self.used in row:
                # dedicated CPUs are in the column too, also of a host that shares none
                beside = [beside_of(name, kept, False) for kept in (state.inventories, state.saved)]
                said[self.used] = max(0, row[self.used] + beside[0] - beside[1])
            return said if before is None else {**said, self.total: 0}
        used = state.recorded(name, state.inventories)
        if not state.of_ledger and before is not None and row.get(self.total) and self.used in row:
            # an untouched row comes back, even one that contradicts itself
            used = max(0, row[self.used] + used - state.recorded(name, state.saved))
        if now.allocation_ratio != self.ratio_of(row, state.settings):
            said[self.ratio] = float(now.allocation_ratio)
        return {**said, self.total: now.total, self.used: used}

    def stated(
        self, inventory: Inventory, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not isinstance(inventory, IntegerInventory):
            raise exceptions.InvalidInventory(self.resource, inventory, "an IntegerInventory")
        coerced(self.used, _USED, {self.used: inventory.used + inventory.reserved})
        return {self.resource: inventory}

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory:
        made = inventory.obj_clone()
        if not used:
            made.update(used=0)
        return made


class VCPUColumn(CountColumn):
    """The columns of VCPU."""

    resource = "VCPU"
    total, used, ratio = names = ("vcpus", "vcpus_used", "cpu_allocation_ratio")
    initial_ratio = Decimal(4)


class MemoryColumn(CountColumn):
    """The columns of MEMORY_MB."""

    resource = "MEMORY_MB"
    total, used, ratio = names = ("memory_mb", "memory_mb_used", "ram_allocation_ratio")


class DiskColumn(CountColumn):
    """The columns of DISK_GB."""

    resource = "DISK_GB"
    total, used, ratio = names = ("local_gb", "local_gb_used", "disk_allocation_ratio")


class _Counts(Mapping[str, CountColumn]):
    """Those of a record of Nova's first, then those of plug-ins."""

    def __getitem__(self, name: str) -> CountColumn:
        return _counted(columns())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_counted(columns()))

    def __len__(self) -> int:
        return len(_counted(columns()))


@functools.lru_cache(maxsize=4)
def _counted(every: tuple[Column, ...]) -> dict[str, CountColumn]:
    return {one.resource: one for one in every if isinstance(one, CountColumn)}


#: ``{resource class: its columns}`` of what is counted.
COUNTS: Mapping[str, CountColumn] = _Counts()


def reserved_of(settings: Settings, name: str) -> int:
    """Return what the host keeps for itself of a count."""
    return 0 if settings.reserved is None else units(settings.reserved, name)


def units(amounts: Amounts, resource_class: str) -> int:
    """Return how many units of a resource there are in amounts.

    >>> units(Amounts("VCPU=-2"), "VCPU"), units(Amounts("VCPU=-2"), "DISK_GB")
    (-2, 0)
    """
    found = dict(amounts.by_name()).get(resource_class)
    return 0 if found is None else sum(r.amount for r in found.to_records(resource_class))


# --- parameters -----------------------------------------------------------------------------------


def read_reserved(given: Any) -> Amounts:
    """Return what a host keeps for itself: amounts, or what they are made from.

    :raises InvalidInput: if they cannot be amounts; if one gives back
    :raises InvalidInventory: for a resource that a compute node does not count
    """
    reserved = Amounts.from_value(given)
    for name, amount in reserved.by_name():
        counted_class(name, "reserved")
        if amount.is_negative:
            raise exceptions.InvalidInput(
                "negative amount", f"reserved {name}", amount, "0 or more"
            )
    return reserved


def read_ratios(given: Any, what: str = "ratios") -> dict[str, Decimal]:
    """Return the ratios of a parameter: text, or a mapping of resources or their names.

    None, as a whole or for one resource, states nothing.

    :raises InvalidInput: for a ratio that is none; for text that does not parse; for a resource
        that nobody knows
    :raises InvalidInventory: for a resource that a compute node does not count

    >>> read_ratios("VCPU=16,MEMORY_MB=1.5")
    {'VCPU': Decimal('16'), 'MEMORY_MB': Decimal('1.5')}
    """
    if given is None:
        return {}
    pairs = given if isinstance(given, Mapping) else text.pairs(given, what)
    found: dict[str, Decimal] = {}
    for key, value in pairs.items():
        name = counted_class(key, what)
        if name in found:
            raise exceptions.InvalidInput("repetition", what, name, "each resource once")
        if value is None:
            continue
        try:
            found[name] = to_ratio(value)
        except exceptions.InvalidInput as error:
            if not error.is_about("ratio"):
                raise
            raise exceptions.InvalidInput(
                "ratio", f"{what}: {name}", value, error.expected
            ) from error
    return found


def counted_class(key: Any, what: str) -> str:
    """Return the name of a resource that a compute node counts.

    :raises InvalidInput: if nobody knows it
    :raises InvalidInventory: if a compute node has no columns for it
    """
    name = resource(key).name
    if name not in COUNTS:
        expected = f"a resource that a compute node has columns for: {', '.join(COUNTS)}"
        raise exceptions.InvalidInventory(what, name, expected)
    return name


def stated_ratio(column: str, value: float | Decimal | None) -> Decimal | None:
    """Return the ratio that a column of a record states, None if it states none.

    A 32-bit float that was widened to 64 bits is taken by its 32-bit form.

    :raises InvalidInput: naming the column, for a ratio that is out of range or too precise

    >>> stated_ratio("ram_allocation_ratio", 1.149999976158142)
    Decimal('1.15')
    >>> stated_ratio("ram_allocation_ratio", 0.0) is None
    True
    """
    if value is None or value == 0:
        return None
    try:
        return ratio_from_float_column(value)
    except exceptions.InvalidInput as error:
        if not error.is_about("ratio"):
            raise
        raise exceptions.InvalidInput(
            "ratio", column, value, f"{error.expected}, or 0 for none"
        ) from error


# --- types of columns -----------------------------------------------------------------------------


def coerced(column: str, field: fields.Field[Any], row: Mapping[str, Any]) -> Any:
    """Return the value of a column as its field keeps it, None if it is not there.

    :raises InvalidInput: naming the column, for a value that it cannot hold
    """
    if column not in row:
        return None
    value = row[column]
    try:
        if value is None and not field.nullable:
            raise ValueError(column)
        return field.coerce(None, column, value)
    except exceptions.ResourceObjectsError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        what = f"ComputeNode.{column}"
        raise exceptions.InvalidInput("field", what, value, field.describe()) from error


_AS_IT_IS = (str, int, float, bool)

#: ``{type: (name on the wire, to text, from text)}`` for what JSON has no word for.
_SPELLED: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    datetime.datetime: (
        "datetime",
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    Decimal: ("decimal", str, Decimal),
    bytes: ("bytes", lambda raw: base64.b64encode(raw).decode(), base64.b64decode),
}
_READERS = {name: read for name, _, read in _SPELLED.values()}


class CarriedValue(ovo_fields.FieldType[Any]):
    """The value of a column that is somebody else's, or None: kept, type and all.

    Takes what a database row holds: text, bytes, numbers, dates. An object would not survive a
    wire, and a list or dict could be changed behind our back: both are refused.
    """

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            value.encode()  # half of a surrogate pair is no text: no wire or database takes it
            return str(value)
        if type(value) not in _AS_IT_IS and type(value) not in _SPELLED:
            raise ValueError(attr)
        if isinstance(value, Decimal) and value.is_snan():  # it cannot even be compared
            raise ValueError(attr)
        return value

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if value is None or type(value) in _AS_IT_IS:
            return value
        name, write, _ = _SPELLED[type(value)]
        return {name: write(value)}

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((name, text_form),) = value.items()
        return _READERS[name](text_form)

    def describe(self) -> str:
        return "text, bytes, a number, a date or a time"


def carried_field(**options: Any) -> fields.Field[Any]:
    """Return the field of a column that is somebody else's."""
    return fields.Field(CarriedValue(), nullable=True, **options)


def _is_finite(value: Any) -> bool:
    return value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)


class _RatioColumn(CarriedValue):
    """An allocation ratio as the record states it; 0 states none. Never rewritten by reading."""

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in (int, float, Decimal) or not _is_finite(value) or value < 0:
            raise ValueError(attr)
        return value

    def describe(self) -> str:
        return "a number from 0 (none stated)"


_RATIO = fields.Field(_RatioColumn(), nullable=True)


def _column_name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("column")
    value.encode()
    return str(value)


def _count_name(value: object) -> str:
    if value not in COUNTS:
        raise ValueError("resource class")
    return str(value)


#: ``{column: value}`` as a row has them.
ROW = fields.FrozenDictOf(_column_name, CarriedValue())
#: ``{resource class: allocation ratio}``, exact.
RATIOS = fields.FrozenDictOf(_count_name, fields.RatioType())
