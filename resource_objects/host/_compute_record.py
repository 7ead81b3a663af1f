"""The record under a compute node: its fields, what changed since it was read, what it counts.

Three rules live here:

* change tracking compares with what was read: what is changed and changed back is not a change;
* the counted columns, and what else belongs to the inventories, follow the inventories only;
* what is *pending* is every difference in use since the record was read or saved, whoever made it.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Self

from resource_objects import base, exceptions, fields
from resource_objects.host._compute_columns import (
    COUNTED,
    DERIVED,
    DISK_REPORT,
    KINDS,
    CarriedField,
    Kind,
    OtherColumnsField,
    RatioColumnField,
    RatiosField,
)
from resource_objects.host._compute_live import LiveInventories, LiveInventory
from resource_objects.host.ratios import INITIAL_RATIOS, counted_class, read_ratios, stated_ratio
from resource_objects.resources import Amounts, IntegerAmount, IntegerInventory

NOTHING = Amounts()


class _Mark(enum.Enum):
    """Stands where no value is; an enum, because it stays itself through a pickle."""

    UNSET = enum.auto()


_UNSET: Any = _Mark.UNSET

#: Fields that only the inventories change.
_FOLLOWING = frozenset({*COUNTED, "reserved", "ratios", "pending", "disk_limit_gb"})


class Record(base.ResourceObject):
    """Columns that follow inventories; the public half is ``ComputeNode``."""

    PARTIAL = True

    fields = {
        "id": CarriedField(read_only=True),
        "uuid": fields.TextField(nullable=True, read_only=True),
        "service_id": CarriedField(),
        "host": fields.TextField(nullable=True),
        "hypervisor_hostname": fields.TextField(nullable=True),
        "hypervisor_type": CarriedField(),
        "hypervisor_version": CarriedField(),
        "host_ip": CarriedField(),
        "vcpus": fields.IntegerField(0, fields.MAX_FIGURE),
        "vcpus_used": fields.IntegerField(0),
        "cpu_allocation_ratio": RatioColumnField(),
        "memory_mb": fields.IntegerField(0, fields.MAX_FIGURE),
        "memory_mb_used": fields.IntegerField(0),
        "ram_allocation_ratio": RatioColumnField(),
        "local_gb": fields.IntegerField(0, fields.MAX_FIGURE),
        "local_gb_used": fields.IntegerField(0),
        "disk_allocation_ratio": RatioColumnField(),
        "disk_available_least": fields.IntegerField(
            -fields.MAX_FIGURE, fields.MAX_FIGURE, nullable=True
        ),
        "cpu_info": CarriedField(),
        "numa_topology": CarriedField(),
        "pci_stats": CarriedField(),
        "supported_instances": CarriedField(),
        "current_workload": CarriedField(),
        "running_vms": CarriedField(),
        "stats": CarriedField(),
        "metrics": CarriedField(),
        "mapped": CarriedField(),
        "extra_resources": CarriedField(),
        "created_at": CarriedField(),
        "updated_at": CarriedField(),
        "deleted_at": CarriedField(),
        "deleted": CarriedField(),
        "other_columns": OtherColumnsField(read_only=True),
        "reserved": fields.ObjectField("Amounts"),
        "ratios": RatiosField(),
        "pending": fields.ObjectField("Amounts", default=NOTHING),
        "disk_limit_gb": fields.IntegerField(0, nullable=True, default=None),
    }
    id: Any
    uuid: str | None
    service_id: Any
    host: str | None
    hypervisor_hostname: str | None
    hypervisor_type: Any
    hypervisor_version: Any
    host_ip: Any
    vcpus: int
    vcpus_used: int
    cpu_allocation_ratio: float | Decimal | None
    memory_mb: int
    memory_mb_used: int
    ram_allocation_ratio: float | Decimal | None
    local_gb: int
    local_gb_used: int
    disk_allocation_ratio: float | Decimal | None
    disk_available_least: int | None
    cpu_info: Any
    numa_topology: Any
    pci_stats: Any
    supported_instances: Any
    current_workload: Any
    running_vms: Any
    stats: Any
    metrics: Any
    mapped: Any
    extra_resources: Any
    created_at: Any
    updated_at: Any
    deleted_at: Any
    deleted: Any
    other_columns: Mapping[str, Any]
    reserved: Amounts
    ratios: Mapping[str, Decimal]
    pending: Amounts
    disk_limit_gb: int | None

    #: ``{changed field: value as read}``, ``_UNSET`` where that is unset or not known.
    _originals: Mapping[str, Any] = {}
    _live: LiveInventories | None = None

    # --- being valid ---

    def _fill(self, values: Mapping[str, Any]) -> None:
        given = dict(values)
        if "reserved" in given:
            given["reserved"] = read_reserved(given["reserved"])
        if "ratios" in given:
            given["ratios"] = read_ratios(given["ratios"])
        self._originals = dict.fromkeys(self.fields, _UNSET)
        super()._fill(given)
        if "disk_limit_gb" not in given:
            self._store("disk_limit_gb", self._limit_by_report())
        self._originals = dict.fromkeys(self._changed_fields, _UNSET)

    def _validate(self) -> None:
        for name in (*self.reserved_amounts.names(), *self.pending.names()):
            counted_class(name, "ComputeNode")
        for kind in KINDS.values():
            total = self._value(kind.total, 0)
            if total:
                self._check_figures(kind, total, self._reserved_of(kind))

    def _check_figures(self, kind: Kind, total: int, reserved: int) -> None:
        if reserved > total:
            raise exceptions.InvalidInventory(
                kind.total, total, f"at least the {reserved} reserved"
            )
        used = self._value(kind.used, reserved)
        if used < reserved:
            raise exceptions.InvalidInventory(
                kind.used, used, f"at least the {reserved} reserved, which it includes"
            )
        self._ratio_of(kind)

    def update(self, **values: Any) -> bool:
        """Set several columns at once, checked together; return whether anything changed.

        :raises FrozenValue: for a field that follows the inventories; nothing changed
        """
        for name in values:
            self._refuse_following(name)
        if DISK_REPORT not in values:
            return super().update(**values)
        with self._all_or_nothing():
            changed = super().update(**values)
            self._set("disk_limit_gb", self._limit_by_report())
        return changed

    def __delattr__(self, name: str) -> None:
        self._refuse_following(name)
        super().__delattr__(name)
        self._originals = {kept: was for kept, was in self._originals.items() if kept != name}
        if name == DISK_REPORT:
            self._set("disk_limit_gb", None)

    def _refuse_following(self, name: str) -> None:
        if name in _FOLLOWING:
            raise exceptions.FrozenValue(
                f"ComputeNode.{name} follows the inventories: change them, or update_inventories()"
            )

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Check the whole afterwards; on any error everything is as it was."""
        before = dict(self.__dict__)
        self._changed_fields = set(self._changed_fields)
        try:
            yield
            self._validate()
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # --- what changed since it was read ---

    def _store(self, name: str, value: Any) -> None:
        before = self._value(name)
        original = self._originals.get(name, before)
        if original is not _UNSET and _same(original, value):
            object.__setattr__(self, f"_obj_{name}", original)
            self._changed_fields.discard(name)
            self._originals = {kept: was for kept, was in self._originals.items() if kept != name}
            return
        super()._store(name, value)
        if name not in self._originals:
            self._originals = {**self._originals, name: before}

    def _set(self, name: str, value: Any) -> None:
        """Set a field that follows the inventories."""
        self._store(name, self._coerce(name, value))

    def obj_what_changed(self) -> set[str]:
        """Return the names of the fields that changed; what they hold are values."""
        return {name for name in self._changed_fields if name in self.fields}

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Forget what changed: what is there now counts as read."""
        super().obj_reset_changes(fields, recursive)
        forgotten = set(self.fields if fields is None else fields)
        self._originals = {
            name: was for name, was in self._originals.items() if name not in forgotten
        }

    def _reset_to(self, changes: set[str]) -> None:
        super()._reset_to(changes)
        self._originals = dict.fromkeys(changes, _UNSET)

    def _value(self, name: str, default: Any = _UNSET) -> Any:
        return self.__dict__.get(f"_obj_{name}", default)

    def _has(self, name: str) -> bool:
        return self._value(name) is not _UNSET

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = super().__deepcopy__(memo)
        twin._originals = dict(self._originals)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the record; its inventories are made anew, its ledger belongs to a process."""
        return {**super().__getstate__(), "_live": None}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes

    # --- what is counted ---

    @property
    def reserved_amounts(self) -> Amounts:
        """What the host keeps for itself; nothing where that is not known."""
        known: Amounts = self._value("reserved", NOTHING)
        return known

    def _reserved_of(self, kind: Kind) -> int:
        return units(self.reserved_amounts, kind.resource_class)

    def _ratio_of(self, kind: Kind) -> Decimal:
        """Return the ratio that counts: given, stated by the record, or the initial one."""
        given: Decimal | None = self._value("ratios", {}).get(kind.resource_class)
        stated = given or stated_ratio(kind.ratio, self._value(kind.ratio, None))
        return stated or INITIAL_RATIOS[kind.resource_class]

    def _begin_with(self, initial: Mapping[str, Decimal]) -> None:
        """Use ratios where neither a parameter nor the record states one."""
        unstated = {
            name: ratio for name, ratio in initial.items() if not self._value(KINDS[name].ratio, 0)
        }
        self._set("ratios", {**unstated, **self.ratios})

    def _unit_rules(self, kind: Kind, total: int) -> dict[str, Any]:
        """Return min_unit, max_unit and step_size, which no column says, as Nova reports them."""
        return {"min_unit": 1, "max_unit": total, "step_size": 1}

    def _figures(self) -> Iterator[IntegerInventory]:
        """Yield what the columns say there is, as plain inventories."""
        for name, kind in KINDS.items():
            total, used = self._value(kind.total, 0), self._value(kind.used, None)
            if total and used is not None:
                reserved = self._reserved_of(kind)
                yield IntegerInventory(
                    total,
                    reserved,
                    allocation_ratio=self._ratio_of(kind),
                    used=used - reserved,
                    resource_class=name,
                    **self._unit_rules(kind, total),
                )

    def _derived(self, columns: Iterable[str]) -> dict[str, int]:
        """Return the derived columns whose sources are set."""
        kinds = {column: KINDS[DERIVED[column]] for column in columns}
        return {
            column: self._value(kind.total) - self._value(kind.used)
            for column, kind in kinds.items()
            if self._has(kind.total) and self._has(kind.used)
        }

    def _counted(self) -> tuple[Any, ...]:
        return tuple(self._value(name) for name in sorted(_FOLLOWING))

    # --- columns that follow ---

    def _follow(self, inventory: IntegerInventory) -> None:
        """Write the figures of an inventory, which knows what it is of, into the columns."""
        kind = KINDS[inventory.resource_class or ""]
        self._write_figures(kind, inventory)

    def _write_figures(self, kind: Kind, inventory: IntegerInventory) -> None:
        before = max(0, self._value(kind.used, 0) - self._reserved_of(kind))
        self._set(kind.total, inventory.total)
        self._set(kind.used, inventory.used + inventory.reserved)
        if inventory.reserved != self._reserved_of(kind):
            self._set_reserved(kind, inventory.reserved)
        if inventory.used != before:
            change = units(self.pending, kind.resource_class) + inventory.used - before
            self._set("pending", with_units(self.pending, kind.resource_class, change))
        if inventory.allocation_ratio != self._ratio_of(kind):
            self._state_ratio(kind, inventory.allocation_ratio)

    def _set_reserved(self, kind: Kind, reserved: int) -> None:
        self._set("reserved", with_units(self.reserved_amounts, kind.resource_class, reserved))

    def _state_ratio(self, kind: Kind, ratio: Decimal) -> None:
        """Let the record state a ratio, instead of whatever was given beside it."""
        given = self._value("ratios", {})
        if kind.resource_class in given:
            others = {name: kept for name, kept in given.items() if name != kind.resource_class}
            self._set("ratios", others)
        self._set(kind.ratio, float(ratio))

    def _refresh(self) -> None:
        """Let the live inventories, which somebody may hold, show the columns."""
        if self._live is None:
            return
        former: dict[str, Any] = dict(self._live.by_name())
        members: list[LiveInventory] = []
        for figures in self._figures():
            member = former.pop(figures.resource_class or "", None)
            if member is None:
                member = self._alive(figures)
            else:
                member.mirror(figures)
            members.append(member)
        for gone in former.values():
            gone.leave()
        self._live.set_members(members)

    def _alive(self, figures: IntegerInventory) -> LiveInventory:
        made = LiveInventory(**dict(figures._set_fields()))
        made.obj_reset_changes()
        made._owner = self
        return made

    # --- the report of disk ---

    def _limit_by_report(self) -> int | None:
        """Return how much disk may be used in all, by what is reported as free now."""
        least, used = self._value(DISK_REPORT, None), self._value("local_gb_used", None)
        if least is None or used is None:
            return None
        saved = used - self._reserved_of(KINDS["DISK_GB"]) - units(self.pending, "DISK_GB")
        return max(0, min(int(saved + least), fields.MAX_AMOUNT))

    def _limit_of(self, resource_class: str) -> IntegerAmount | None:
        """Return the bound on what may be used of a resource, None if there is none."""
        limit = self._value("disk_limit_gb", None) if resource_class == "DISK_GB" else None
        return None if limit is None else IntegerAmount(limit)

    def _claimed_with(self, resource_class: str) -> int:
        """Return the units that unit rules bind together with what is consumed now."""
        return 0


def _same(one: Any, other: Any) -> bool:
    """Return whether two values of a column are the same (True is not 1)."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def units(amounts: Amounts, resource_class: str) -> int:
    """Return how many units of a resource there are in amounts.

    >>> units(Amounts("VCPU=-2"), "VCPU"), units(Amounts("VCPU=-2"), "DISK_GB")
    (-2, 0)
    """
    for name, amount in amounts.by_name():
        if name == resource_class:
            return sum(record.amount for record in amount.to_records(name))
    return 0


def with_units(amounts: Amounts, resource_class: str, value: int) -> Amounts:
    """Return amounts with so many units of a resource.

    >>> print(with_units(Amounts("VCPU=2,DISK_GB=3"), "VCPU", 5))
    VCPU=5,DISK_GB=3
    """
    return Amounts({**dict(amounts.by_name()), resource_class: value})


def read_reserved(given: Any) -> Amounts:
    """Return what a host keeps for itself: amounts, or what they are made from.

    :raises InvalidInput: if they cannot be amounts
    :raises NegativeAmount: if one gives back
    :raises InvalidInventory: for a resource that a compute node does not count
    """
    reserved = Amounts.of(given)
    for name, amount in reserved.by_name():
        counted_class(name, "reserved")
        if amount.is_negative:
            raise exceptions.NegativeAmount(f"reserved {name}", amount, "0 or more")
    return reserved


__all__ = ["NOTHING", "Record", "read_reserved", "units", "with_units"]
