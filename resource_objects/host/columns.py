"""The columns of a compute node's record, and how resources are read from and written to them.

Names are those of Nova's ``compute_nodes`` table (Nova 34). There are four kinds:

* *counted*: total, used figure and ratio of VCPU, MEMORY_MB, DISK_GB, and of counts of plug-ins
  (:class:`CountColumn`);
* *placed*: texts about cells and devices, such as ``numa_topology``
  (:mod:`resource_objects.host.nova_columns`, and plug-ins);
* *derived*: ``free_ram_mb`` and ``free_disk_gb``, total less used;
* *carried*: all others, also unknown ones. They come back with their value and type.

Each resource has a :class:`Column`, found by entry point (``resource_objects.columns``), so that a
plug-in can add one. The inventory of a count and its columns differ by three figures:

======================  ===========================================================================
reserved by the host    within the used figure, and in no column: a parameter of reading
reserved elsewhere      by another resource: huge pages are within ``memory_mb``, but a request for
                        ``MEMORY_MB`` gets none, so they are reserved in the inventory
used elsewhere          by another resource: ``memory_mb_used`` includes used huge pages,
                        ``vcpus_used`` includes dedicated vCPUs
======================  ===========================================================================

So ``used column = used + reserved by the host + used elsewhere``.

The ratio is the one that was passed, else the one in the record, else the initial one: 4.0 for VCPU
and 1.0 for MEMORY_MB and DISK_GB (Nova since 27.0). ``None`` and ``0.0`` in a record are no ratio:
two releases of Nova stored "not set" so. Unlike in Nova, reading a ratio never writes it back.
Source: Nova's *initial-allocation-ratios* specification (Stein).
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
from resource_objects.resources.integer import follow_total

NAMESPACE = "resource_objects.columns"

#: ``{derived column: resource class}``
DERIVED = {"free_ram_mb": "MEMORY_MB", "free_disk_gb": "DISK_GB"}

#: The counts of Nova's record, in the order of its columns.
_NOVA_COUNTS = ("VCPU", "MEMORY_MB", "DISK_GB")

#: The free disk that the host reports, in GiB.
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

#: The figures of a definition that a compute node has columns for.
FIGURES = ("total", "reserved", "allocation_ratio")

NOTHING = Amounts()


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The parameters of reading a record: reserved amounts, None if unknown, and ratios."""

    reserved: Amounts | None = None
    ratios: Mapping[str, Decimal] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeState:
    """The arguments of writing columns: the inventories now, and as they were read or saved.

    ``of_ledger`` is whether the figures are those of a ledger, which records the usage of each
    class separately; a record sums some of them. ``is_stored`` is whether that ledger has the host.
    ``last_row`` are the columns that the record has now, where these differ from those that were
    read.
    """

    inventories: Inventories
    saved: Inventories
    settings: Settings
    of_ledger: bool = False
    is_stored: bool = True
    last_row: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Column(abc.ABC):
    """How one resource is stored in a record of a host: one column or several.

    :meth:`read` and :meth:`write` are the two directions, :meth:`check` and :meth:`accept` the
    checks before them. A plug-in's class is instantiated without arguments, by entry point.
    """

    #: The resource of the inventory.
    resource: ClassVar[str]
    #: The columns that it reads and writes.
    names: ClassVar[tuple[str, ...]]
    #: Further counts that only these columns contain.
    counts: ClassVar[tuple[str, ...]] = ()
    #: Whether other columns need its inventory, because it reserves some of theirs.
    is_read_first: ClassVar[bool] = False

    @abc.abstractmethod
    def check(self, row: Mapping[str, Any], settings: Settings) -> None:
        """Check the types and ranges of the columns; text is not parsed here.

        :raises InvalidInput: naming the column
        """

    @abc.abstractmethod
    def read(
        self, row: Mapping[str, Any], settings: Settings, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        """Return the inventories of the columns by resource, none if the host has none.

        :param inventories: the inventories of the columns before
        :raises InvalidInput: if a column cannot be read
        """

    @abc.abstractmethod
    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        """Return ``{column: value}``; a column with unchanged content has the value of ``row``.

        :raises CannotDowngrade: if no version of a text can express it
        """

    @abc.abstractmethod
    def accept(
        self, inventory: Inventory, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        """Return the inventories, by resource, of an inventory that a caller specifies.

        :param inventories: the inventories of other resources
        :raises InvalidInventory: if the columns cannot express it
        """

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory | None:
        """Return the inventory of a host that is created in a ledger, None if it has none.

        :param used: whether its usage is included
        """
        return inventory

    def is_same(self, inventory: Inventory, other: Inventory) -> bool:
        """Return whether two inventories are equal, with their usage."""
        return inventory == other

    def close(self, inventory: Inventory) -> None:
        """Make an inventory that was removed from a node provide nothing to its other users."""
        if isinstance(inventory, IntegerInventory):
            inventory.usage_limit = 0

    def reserved_elsewhere(self, name: str, inventories: Mapping[str, Inventory]) -> int:
        """Return the amount of a count that this resource reserves."""
        return 0

    def used_elsewhere(
        self, name: str, inventories: Mapping[str, Inventory], of_ledger: bool
    ) -> int:
        """Return the amount that this resource adds to the used column of a count."""
        return 0


@functools.cache
def columns() -> tuple[Column, ...]:
    """Return the columns of all resources; those that others depend on come first.

    :raises PluginError: if a plug-in fails
    """
    loaded = [_load(name) for name in plugins.names(NAMESPACE)]
    order = [*_NOVA_COUNTS, *(column.resource for column in loaded)]

    def position(column: Column) -> tuple[bool, int]:
        return not column.is_read_first, order.index(column.resource)

    return tuple(sorted(loaded, key=position))


def _load(name: str) -> Column:
    plugin = plugins.load(NAMESPACE, name)
    try:
        column = plugin()
    except Exception as error:  # a plug-in may fail in any way
        raise exceptions.PluginError(NAMESPACE, name, f"{type(error).__name__}: {error}") from error
    if not isinstance(column, Column):
        kind = type(column).__name__
        raise exceptions.PluginError(NAMESPACE, name, f"it made a {kind}, no Column")
    required = ("total", "used", "ratio") if isinstance(column, CountColumn) else ()
    missing = [field for field in ("resource", "names", *required) if not hasattr(column, field)]
    if missing:
        raise exceptions.PluginError(NAMESPACE, name, f"it does not define {', '.join(missing)}")
    return column


def column_of(resource_class: str) -> Column | None:
    """Return the column of a resource class, None if it has none."""
    return next((column for column in columns() if column.resource == resource_class), None)


def read_inventories(row: Mapping[str, Any], settings: Settings) -> Inventories:
    """Return the inventories of a row.

    :raises InvalidInput: if a column cannot be read
    """
    inventories: dict[str, Inventory] = {}
    for column in columns():
        inventories.update(column.read(row, settings, inventories))
    order = [name for name in COUNTS if name in inventories]
    further = [name for name in inventories if name not in order]
    return Inventories({name: inventories[name] for name in (*order, *further)})


def members(inventories: Inventories | Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{class: inventory}``."""
    return dict(inventories.by_name() if isinstance(inventories, Inventories) else inventories)


def count_of(inventories: Inventories | Mapping[str, Any], name: str) -> IntegerInventory | None:
    """Return the inventory of a count, None if there is none."""
    inventory = inventories.get(name)
    return inventory if isinstance(inventory, IntegerInventory) else None


def reserved_elsewhere(name: str, inventories: Inventories | Mapping[str, Any]) -> int:
    """Return the amount of a count that other resources reserve, at most its reserved amount."""
    count = count_of(inventories, name)
    if count is None or not count.reserved:
        return 0
    return min(reserved_by_others(name, members(inventories)), count.reserved)


def reserved_by_others(name: str, by_name: Mapping[str, Inventory]) -> int:
    """Return the amount of a count that other resources reserve, whatever its total is."""
    return sum(column.reserved_elsewhere(name, by_name) for column in _of_others(columns()))


def used_elsewhere(name: str, inventories: Inventories | Mapping[str, Any], of_ledger: bool) -> int:
    """Return the amount that other resources add to the used column of a count."""
    by_name = members(inventories)
    of_others = _of_others(columns())
    return sum(column.used_elsewhere(name, by_name, of_ledger) for column in of_others)


@functools.lru_cache(maxsize=4)
def _of_others(all_columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns whose resource reserves or uses amounts of counts."""
    hooks = ("reserved_elsewhere", "used_elsewhere")
    return tuple(
        column
        for column in all_columns
        if any(getattr(type(column), hook) is not getattr(Column, hook) for hook in hooks)
    )


# --- counts ---------------------------------------------------------------------------------------

_TOTAL = fields.integer(0, fields.MAX_FIGURE)
_USED = fields.integer(0)


class CountColumn(Column):
    """The columns of a count: total, used figure and allocation ratio, with its initial ratio."""

    #: The columns of the total and of the used figure.
    total: ClassVar[str]
    used: ClassVar[str]
    #: The column of the ratio. Outside ``names`` it is read and written, but no attribute of nodes.
    ratio: ClassVar[str]
    #: The ratio of a count for which neither a parameter nor the record has one.
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
        """Return the ratio: the one that was passed, the one of the record, or the initial one."""
        passed = settings.ratios.get(self.resource)
        return passed or recorded_ratio(self.ratio, row.get(self.ratio)) or self.initial_ratio

    def recorded_usage(self, row: Mapping[str, Any], settings: Settings) -> int | None:
        """Return the used figure of a record without the reserved amount, None if it is not set."""
        used = row.get(self.used)
        return None if used is None else max(0, used - reserved_of(settings, self.resource))

    def read(
        self, row: Mapping[str, Any], settings: Settings, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not row.get(self.total) or self.used not in row:
            return {}  # nothing can be allocated of an unknown amount
        total, own_reserved = row[self.total], reserved_of(settings, self.resource)
        reserved = reserved_by_others(self.resource, inventories)
        inventory = IntegerInventory(
            total,
            min(total, own_reserved + reserved),
            max_unit=total,
            allocation_ratio=self.ratio_of(row, settings),
            used=max(
                0, row[self.used] - own_reserved - used_elsewhere(self.resource, inventories, False)
            ),
            resource_class=self.resource,
        )
        return {self.resource: inventory}

    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        """Return the columns; the used figure depends on the source of the inventories.

        ===============  ========================================================================
        of a ledger      the usage, the reserved amount and the usage elsewhere
        of a record      the figure of the record, changed by the same difference as that sum: an
                         unchanged row comes back, even if it contradicts itself
        count removed    of a ledger: the reserved amount and the usage before; of a record: as in
                         the record, but with the change of the usage elsewhere
        ===============  ========================================================================
        """
        name = self.resource
        written = {column: row[column] for column in self.names if column in row}
        now, before = count_of(state.inventories, name), count_of(state.saved, name)
        if now is None:
            return {**written, **self._without_count(row, state, before)}
        used = _used_column(name, now, state.inventories, state.of_ledger)
        if not state.of_ledger and before is not None and row.get(self.total) and self.used in row:
            change = used - _used_column(name, before, state.saved, False)
            used = max(0, row[self.used] + change)
        if now.allocation_ratio != self.ratio_of(row, state.settings):
            written[self.ratio] = float(now.allocation_ratio)
        return {**written, self.total: now.total, self.used: used}

    def _without_count(
        self, row: Mapping[str, Any], state: NodeState, before: IntegerInventory | None
    ) -> dict[str, Any]:
        name = self.resource
        if state.of_ledger and (state.is_stored or self.total in row):
            used = reserved_of(state.settings, name) + (0 if before is None else before.used)
            return {self.total: 0, self.used: used}
        if before is not None:
            return {self.total: 0}
        if state.of_ledger or self.used not in row:
            return {}
        now, saved = (
            used_elsewhere(name, inventories, False)
            for inventories in (state.inventories, state.saved)
        )
        return {self.used: max(0, row[self.used] + now - saved)}

    def accept(
        self, inventory: Inventory, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not isinstance(inventory, IntegerInventory):
            raise exceptions.InvalidInventory(self.resource, inventory, "an IntegerInventory")
        coerced(self.used, _USED, {self.used: inventory.used + inventory.reserved})
        return {self.resource: inventory}

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory:
        return inventory.obj_clone() if used else unused(inventory)


def unused(count: Inventory) -> Inventory:
    """Return a copy of a count without its usage."""
    copied = count.obj_clone()
    copied.update(used=0)
    return copied


def _used_column(
    name: str, count: IntegerInventory, inventories: Inventories, of_ledger: bool
) -> int:
    own_reserved = count.reserved - reserved_elsewhere(name, inventories)
    return count.used + own_reserved + used_elsewhere(name, inventories, of_ledger)


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
    """The columns of counts by resource class: those of Nova's record first, then of plug-ins."""

    def __getitem__(self, name: str) -> CountColumn:
        return _counts_of(columns())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_counts_of(columns()))

    def __len__(self) -> int:
        return len(_counts_of(columns()))


@functools.lru_cache(maxsize=4)
def _counts_of(all_columns: tuple[Column, ...]) -> dict[str, CountColumn]:
    return {column.resource: column for column in all_columns if isinstance(column, CountColumn)}


#: ``{resource class: its columns}`` of counts.
COUNTS: Mapping[str, CountColumn] = _Counts()


def reserved_of(settings: Settings, name: str) -> int:
    """Return the amount of a count that the host reserves for itself."""
    return 0 if settings.reserved is None else units(settings.reserved, name)


def units(amounts: Amounts, resource_class: str) -> int:
    """Return the number of units of a resource in amounts.

    >>> units(Amounts("VCPU=-2"), "VCPU"), units(Amounts("VCPU=-2"), "DISK_GB")
    (-2, 0)
    """
    amount = dict(amounts.by_name()).get(resource_class)
    if amount is None:
        return 0
    return sum(record.amount for record in amount.to_records(resource_class))


# --- inventories that a caller specifies ----------------------------------------------------------
#
# They are facts, whatever the capacity is, but only what the columns can express: a resource with a
# column, no unit rules, and as many dedicated CPUs as the cells have. Cells and devices of a ledger
# are changed by a sync of the host.


def check_expressible(inventories: Inventories, saved: Inventories) -> None:
    """Raise if no column can express inventories.

    :raises InvalidInventory: for a resource without a column, a used figure that is too large, or
        other dedicated CPUs than the cells have
    """
    implied = {name for column in columns() for name in column.counts}
    by_name, before = members(inventories), members(saved)
    for name, inventory in by_name.items():
        if name in implied:
            _check_figures(name, inventory, before.get(name))
        elif column_of(name) is None:
            raise exceptions.InvalidInventory(
                "inventories of a compute node", name, "a resource that has a column"
            )
        elif name in COUNTS and inventory.used + inventory.reserved > fields.MAX_AMOUNT:
            raise exceptions.InvalidInventory(
                f"{name} used",
                inventory.used,
                f"with the reserved at most {fields.MAX_AMOUNT}",
            )


def specified(inventories: Mapping[Any, Inventory | None]) -> dict[str, Inventory | None]:
    """Return copies of inventories that a caller specifies, by name, in the order to apply them.

    Placed resources come first, as counts depend on them, and counts that only these contain last.

    :raises InvalidInventory: for a resource without a column, or an inventory of another kind
    :raises InvalidInput: for a resource that is named twice or is unknown
    """
    by_name: dict[str, Inventory | None] = {}
    implied = {name for column in columns() for name in column.counts}
    for key, inventory in inventories.items():
        name = resource(key).name
        if name in by_name:
            raise exceptions.InvalidInput("repetition", "inventories", name, "each resource once")
        if name not in implied and column_of(name) is None:
            names = ", ".join(dict.fromkeys((*COUNTS, *(c.resource for c in columns()))))
            expected = f"a resource that a compute node has columns for: {names}"
            raise exceptions.InvalidInventory("inventories of a compute node", name, expected)
        kind = resource(name).inventory_kind
        if inventory is not None and not isinstance(inventory, kind):
            raise exceptions.InvalidInventory(name, inventory, f"{kind.__name__}, or None")
        by_name[name] = None if inventory is None else Inventories({name: inventory}).get(name)
    return dict(sorted(by_name.items(), key=lambda pair: (pair[0] in implied, pair[0] in COUNTS)))


def apply_specified(
    values: Mapping[str, Inventory | None],
    saved: Mapping[str, Any],
    now: Mapping[str, Any],
    row: Mapping[str, Any] | None,
    settings: Settings,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inventories of a node, saved and now, after a caller specified some.

    :param values: as of :func:`specified`; None for a resource that the node does not have
    :param row: the record that the node was read from, None if its inventories are a ledger's
    :raises InvalidInventory: if no column, or the ledger, can express it
    """
    before, saved, now = now, dict(saved), dict(now)
    for name, inventory in values.items():
        column = column_of(name)
        if name in COUNTS:
            recorded = None if row is None else COUNTS[name].recorded_usage(row, settings)
            _specify_count(now, saved, name, inventory, recorded)
        elif column is None:
            _specify_implied(now, name, inventory)
        elif row is None:
            _check_stored(column, inventory, before)
        else:
            _specify_placed(column, inventory, now, saved)
    return saved, now


def _specify_count(
    now: dict[str, Any],
    saved: dict[str, Any],
    name: str,
    inventory: Inventory | None,
    recorded: int | None,
) -> None:
    """Set the figures of a count; its unit rules, which no column contains, stay.

    :param recorded: the used figure of the record, None if it is not set
    """
    before, stored = now.pop(name, None), count_of(saved, name)
    if inventory is None:
        if before is not None and before.used != (0 if stored is None else stored.used):
            expected = "nothing pending of it: save it or release it first"
            raise exceptions.InvalidInventory(name, f"{before.used} used", expected)
        return
    count = COUNTS[name].accept(inventory, now)[name]
    assert isinstance(count, IntegerInventory)
    rules: dict[str, Any] = {"min_unit": 1, "max_unit": count.total, "step_size": 1}
    former = stored if before is None else before
    if former is not None:
        max_unit = follow_total(former.max_unit, former.total, count.total)
        rules = {"min_unit": former.min_unit, "max_unit": max_unit, "step_size": former.step_size}
    defaults = {"min_unit": 1, "max_unit": None, "step_size": 1}
    for rule, value in rules.items():
        if getattr(count, rule) not in (value, defaults[rule]):
            raise exceptions.InvalidInventory(
                f"{name} {rule}", getattr(count, rule), f"{value}: no column contains it"
            )
    count.update(**rules)
    now[name] = count
    if stored is None and recorded is not None:  # a record with a used figure and no total
        saved[name] = count.obj_clone()
        saved[name].update(used=recorded)


def _specify_implied(now: dict[str, Any], name: str, inventory: Inventory | None) -> None:
    """Set the usage of a count that only a placed resource contains, such as PCPU."""
    present = count_of(now, name)
    if inventory is None and name not in now:
        return
    if not isinstance(inventory, IntegerInventory) or present is None:
        total = 0 if present is None else present.total
        expected = f"an IntegerInventory of the {total} of the cells"
        raise exceptions.InvalidInventory(name, inventory, expected)
    _check_figures(name, inventory, present)
    now[name] = present.obj_clone()
    now[name].update(used=inventory.used)


def _check_figures(name: str, inventory: Any, present: Any) -> None:
    for figure in FIGURES:
        value, expected = getattr(inventory, figure), getattr(present, figure, None)
        if value != expected:
            raise exceptions.InvalidInventory(f"{name} {figure}", value, str(expected))


def _specify_placed(
    column: Column, inventory: Inventory | None, now: dict[str, Any], saved: dict[str, Any]
) -> None:
    """Set a placed inventory with its usage, which is not pending.

    The columns of counts stay: their reserved and used figures follow the other amounts in them.
    """
    accepted = {} if inventory is None else dict(column.accept(inventory, now))
    if column.resource in now and now[column.resource] == accepted.get(column.resource):
        return
    for state in (now, saved):
        before = dict(state)
        for name in (column.resource, *column.counts):
            state.pop(name, None)
        state.update({name: copied.obj_clone() for name, copied in accepted.items()})
        for name in COUNTS:
            count = count_of(state, name)
            if count is None:
                continue
            own_reserved = count.reserved - reserved_elsewhere(name, before)
            reserved = reserved_by_others(name, state)
            change = used_elsewhere(name, state, False) - used_elsewhere(name, before, False)
            figures = min(count.total, own_reserved + reserved), max(0, count.used - change)
            if figures != (count.reserved, count.used):
                state[name] = count.obj_clone()
                state[name].update(reserved=figures[0], used=figures[1])


def _check_stored(column: Column, inventory: Inventory | None, before: Mapping[str, Any]) -> None:
    """Raise if specified cells or devices are not those of the ledger."""
    name, present = column.resource, before.get(column.resource)
    if inventory == present:
        return
    if present is None:
        expected = "none, as the host in the ledger: a sync of the host adds them"
        raise exceptions.InvalidInventory(name, inventory, expected)
    if inventory is None or column.accept(inventory, before).get(name) != present:
        expected = "what the ledger has: a sync of the host changes them"
        raise exceptions.InvalidInventory(name, inventory, expected)


# --- parameters -----------------------------------------------------------------------------------


def read_reserved(value: Any) -> Amounts:
    """Return the amounts that a host reserves for itself.

    :param value: amounts, or an argument of ``Amounts``
    :raises InvalidInput: if it is no amounts, or one is negative
    :raises InvalidInventory: for a resource that is no count of a compute node
    """
    reserved = Amounts.from_value(value)
    for name, amount in reserved.by_name():
        _count_class(name, "reserved")
        if amount.is_negative:
            raise exceptions.InvalidInput(
                "negative amount", f"reserved {name}", amount, "0 or more"
            )
    return reserved


def read_ratios(value: Any, parameter: str = "ratios") -> dict[str, Decimal]:
    """Return the ratios of a parameter: text, or a mapping of resources or their names.

    None, as a whole or for one resource, means no ratio.

    :raises InvalidInput: for an invalid ratio, text that does not parse, or an unknown resource
    :raises InvalidInventory: for a resource that is no count of a compute node

    >>> read_ratios("VCPU=16,MEMORY_MB=1.5")
    {'VCPU': Decimal('16'), 'MEMORY_MB': Decimal('1.5')}
    """
    if value is None:
        return {}
    ratios: dict[str, Decimal] = {}
    for key, ratio in (
        value if isinstance(value, Mapping) else text.pairs(value, parameter)
    ).items():
        name = _count_class(key, parameter)
        if name in ratios:
            raise exceptions.InvalidInput("repetition", parameter, name, "each resource once")
        if ratio is not None:
            ratios[name] = _ratio(to_ratio, ratio, f"{parameter}: {name}")
    return ratios


def recorded_ratio(column: str, value: float | Decimal | None) -> Decimal | None:
    """Return the ratio in a column of a record, None if it has none.

    A 32-bit float that was widened to 64 bits is read by its 32-bit form.

    :raises InvalidInput: naming the column, for a ratio that is out of range or too precise

    >>> recorded_ratio("ram_allocation_ratio", 1.149999976158142)
    Decimal('1.15')
    >>> recorded_ratio("ram_allocation_ratio", 0.0) is None
    True
    """
    if value is None or value == 0:
        return None
    return _ratio(ratio_from_float_column, value, column, ", or 0 for none")


def _ratio(read: Callable[[Any], Decimal], value: Any, name: str, further: str = "") -> Decimal:
    try:
        return read(value)
    except exceptions.InvalidInput as error:
        if not error.is_about("ratio"):
            raise
        expected = f"{error.expected}{further}"
        raise exceptions.InvalidInput("ratio", name, value, expected) from error


def _count_class(key: Any, parameter: str) -> str:
    name = resource(key).name
    if name not in COUNTS:
        expected = f"a resource that a compute node has columns for: {', '.join(COUNTS)}"
        raise exceptions.InvalidInventory(parameter, name, expected)
    return name


# --- types of columns -----------------------------------------------------------------------------


def coerced(column: str, field: fields.Field[Any], row: Mapping[str, Any]) -> Any:
    """Return the value of a column as its field stores it, None if the row does not have it.

    :raises InvalidInput: naming the column, for an invalid value
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
        subject = f"ComputeNode.{column}"
        raise exceptions.InvalidInput("field", subject, value, field.describe()) from error


_JSON_TYPES = (str, int, float, bool)

#: ``{type: (name on the wire, to text, from text)}`` of types that JSON lacks.
_TEXT_FORMS: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    datetime.datetime: (
        "datetime",
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    Decimal: ("decimal", str, Decimal),
    bytes: ("bytes", lambda raw: base64.b64encode(raw).decode(), base64.b64decode),
}
_READERS = {name: read for name, _, read in _TEXT_FORMS.values()}


class CarriedValue(ovo_fields.FieldType[Any]):
    """The value of a column that is passed through, or None: text, bytes, a number, a date or time.

    Its type is preserved. Objects, which no wire can transport, and lists and dicts, which another
    owner could change, are refused.
    """

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            value.encode()  # half of a surrogate pair is no text: no wire or database accepts it
            return str(value)
        if type(value) not in _JSON_TYPES and type(value) not in _TEXT_FORMS:
            raise ValueError(attr)
        if isinstance(value, Decimal) and value.is_snan():  # it cannot even be compared
            raise ValueError(attr)
        return value

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if value is None or type(value) in _JSON_TYPES:
            return value
        name, write, _ = _TEXT_FORMS[type(value)]
        return {name: write(value)}

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((name, text_form),) = value.items()
        return _READERS[name](text_form)

    def describe(self) -> str:
        return "text, bytes, a number, a date or a time"


def carried_field(**options: Any) -> fields.Field[Any]:
    """Return the field of a column that is passed through."""
    return fields.Field(CarriedValue(), nullable=True, **options)


class _RatioColumn(CarriedValue):
    """An allocation ratio of a record as it was read; 0 is none."""

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if value is None:
            return None
        is_number = type(value) in (int, float, Decimal)
        finite = value.is_finite if isinstance(value, Decimal) else lambda: math.isfinite(value)
        if not is_number or not finite() or value < 0:
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


#: ``{column: value}`` of a row.
ROW = fields.FrozenDictOf(_column_name, CarriedValue())
#: ``{resource class: allocation ratio}``, exact.
RATIOS = fields.FrozenDictOf(_count_name, fields.RatioType())
