"""What a compute node counts: from its columns to inventories, and back.

What is *pending* is every difference in use since the record was read or saved, whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from resource_objects import exceptions
from resource_objects.host._compute_columns import DERIVED, KINDS, Kind
from resource_objects.host._compute_live import LiveInventories, LiveInventory
from resource_objects.host._compute_record import FOLLOWING, Record, units, with_units
from resource_objects.host.ratios import INITIAL_RATIOS, stated_ratio
from resource_objects.resources import IntegerAmount, IntegerInventory, Inventory


class Counting(Record):
    """A record that is asked for inventories, and follows them."""

    _live: LiveInventories | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the record; its inventories are made anew, its ledger belongs to a process."""
        return {**super().__getstate__(), "_live": None}

    # --- being valid ---

    def _validate(self) -> None:
        for name in self.reserved_amounts.names():
            self._check_counted(name)
        for name in self.pending.names():
            self._check_counted(name)
        for kind in KINDS.values():
            total = self._value(kind.total, 0)
            if total:
                self._check_figures(kind, total, self._reserved_of(kind))

    def _check_counted(self, name: str) -> None:
        """Refuse a resource that a compute node does not count."""
        raise NotImplementedError

    def _check_figures(self, kind: Kind, total: int, reserved: int) -> None:
        if reserved > total:
            raise exceptions.InvalidInventory(
                kind.total, total, f"at least the {reserved} reserved"
            )
        least = reserved + self._beside(kind.resource_class)
        used = self._value(kind.used, least)
        if used < least:
            raise exceptions.InvalidInventory(
                kind.used, used, f"at least the {least} reserved, which it includes"
            )
        self._ratio_of(kind)

    # --- figures ---

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

    def _beside(self, resource_class: str) -> int:
        """Return what a used column counts that its inventory, with the reserved, does not."""
        return 0

    def _used_of(self, kind: Kind) -> int:
        """Return what the columns say is used of a resource, 0 where they do not say."""
        aside = self._reserved_of(kind) + self._beside(kind.resource_class)
        return max(0, int(self._value(kind.used, 0)) - aside)

    def _is_counted(self, kind: Kind) -> bool:
        """Return whether the columns say that there is some of a resource, and what is used."""
        return bool(self._value(kind.total, 0)) and self._has(kind.used)

    def _figures_of(self, kind: Kind) -> IntegerInventory | None:
        """Return what the columns say there is of a resource, None if there is none."""
        if not self._is_counted(kind):
            return None
        total = self._value(kind.total)
        return IntegerInventory(
            total,
            self._reserved_of(kind),
            allocation_ratio=self._ratio_of(kind),
            used=self._used_of(kind),
            resource_class=kind.resource_class,
            **self._unit_rules(kind, total),
        )

    def _figures(self) -> Iterator[IntegerInventory]:
        """Yield what the columns say there is, as plain inventories."""
        for kind in KINDS.values():
            figures = self._figures_of(kind)
            if figures is not None:
                yield figures

    def _derived(self, columns: Iterable[str]) -> dict[str, int]:
        """Return the derived columns whose sources are set."""
        kinds = {column: KINDS[DERIVED[column]] for column in columns}
        return {
            column: self._value(kind.total) - self._value(kind.used)
            for column, kind in kinds.items()
            if self._has(kind.total) and self._has(kind.used)
        }

    def _counted(self) -> tuple[Any, ...]:
        return tuple(self._value(name) for name in sorted(FOLLOWING))

    # --- columns that follow ---

    def _follow(self, inventory: IntegerInventory) -> None:
        """Write the figures of an inventory, which knows what it is of, into the columns."""
        self._write_figures(KINDS[inventory.resource_class or ""], inventory)

    def _write_figures(self, kind: Kind, inventory: IntegerInventory) -> None:
        before = self._used_of(kind)
        self._set(kind.total, inventory.total)
        if inventory.reserved != self._reserved_of(kind):
            self._set_reserved(kind, inventory.reserved)
        self._set_used(kind, inventory.used)
        self._add_pending(kind.resource_class, inventory.used - before)
        if inventory.allocation_ratio != self._ratio_of(kind):
            self._state_ratio(kind, inventory.allocation_ratio)

    def _set_used(self, kind: Kind, used: int) -> None:
        """Write what is used into its column, which counts the reserved too."""
        aside = self._reserved_of(kind) + self._beside(kind.resource_class)
        self._set(kind.used, used + aside)

    def _add_pending(self, resource_class: str, change: int) -> None:
        if change:
            pending = units(self.pending, resource_class) + change
            self._set("pending", with_units(self.pending, resource_class, pending))

    def _set_reserved(self, kind: Kind, reserved: int) -> None:
        self._set("reserved", with_units(self.reserved_amounts, kind.resource_class, reserved))

    def _state_ratio(self, kind: Kind, ratio: Decimal) -> None:
        """Let the record state a ratio, instead of whatever was given beside it."""
        given = self._value("ratios", {})
        if kind.resource_class in given:
            others = {name: kept for name, kept in given.items() if name != kind.resource_class}
            self._set("ratios", others)
        self._set(kind.ratio, float(ratio))

    # --- live inventories ---

    def _members(self, former: dict[str, Any]) -> Iterator[Inventory]:
        """Yield the live inventories; what is taken from ``former`` shows the columns again."""
        for figures in self._figures():
            yield self._shown(LiveInventory, figures, former)

    def _shown(
        self, kind: type[LiveInventory], figures: IntegerInventory, former: dict[str, Any]
    ) -> LiveInventory:
        member = former.pop(figures.resource_class or "", None)
        if not isinstance(member, kind):
            member = kind(**dict(figures._set_fields()))
            member.obj_reset_changes()
            member._owner = self
        else:
            member.mirror(figures)
        return member

    def _refresh(self) -> None:
        """Let the live inventories, which somebody may hold, show the columns."""
        if self._live is None:
            return
        former: dict[str, Any] = dict(self._live.by_name())
        members = list(self._members(former))
        for gone in former.values():
            gone.leave()
        self._live.set_members(members)

    # --- limits ---

    def _limit_of(self, resource_class: str) -> IntegerAmount | None:
        """Return the bound on what may be used of a resource, None if there is none."""
        limit = self._value("disk_limit_gb", None) if resource_class == "DISK_GB" else None
        return None if limit is None else IntegerAmount(limit)

    def _claimed_with(self, resource_class: str) -> int:
        """Return the units that unit rules bind together with what is consumed now."""
        return 0


__all__ = ["Counting"]
