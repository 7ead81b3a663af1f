"""The inventories of a compute node: genuine ones, whose changes the node's columns follow.

``node.inventories["VCPU"].consume(amount)`` has to count for the node, without a second step that
could be forgotten. So these are :class:`IntegerInventory` and :class:`Inventories` that tell their
node after each change. On a wire, in a pickle, or copied, they are plain ones: what is copied
belongs to nobody.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.host._compute_located import said_by
from resource_objects.resources import (
    Amount,
    IntegerAmount,
    IntegerInventory,
    Inventories,
    Inventory,
)
from resource_objects.resources.numa import NUMATopologyAmount

_NOTHING_LEFT = IntegerAmount(0)


class Owner(Protocol):
    """Whose inventories they are."""

    def _follow(self, inventory: IntegerInventory) -> None:
        """Write the figures of an inventory into the columns."""

    def _limit_of(self, resource_class: str) -> IntegerAmount | None:
        """Return the bound on what may be used of a resource, None if there is none."""

    def _claimed_with(self, resource_class: str) -> int:
        """Return the units that unit rules bind together with what is consumed now."""


class LiveInventory(IntegerInventory):
    """What a compute node has of one resource: the node's columns follow it.

    ``max_unit`` follows ``total`` where it was the total. A limit of the node (its report of disk)
    binds besides the limit that is passed. Where the node belongs to a ledger, ``max_unit`` binds
    all that its consumer holds and what is pending.
    """

    _owner: Owner | None = None

    @classmethod
    def obj_name(cls) -> str:
        """Return the wire name of a plain inventory."""
        return IntegerInventory.obj_name()

    def can_provide(self, amount: Amount, limit: Amount | None = None) -> bool:
        """Return whether ``amount`` fits, also under the limit of the node."""
        fits = super().can_provide(amount, self._tighter(limit))
        return fits and self._too_much_together(amount) is None

    def fit(self, amount: Amount, limit: Amount | None = None) -> Amount:
        """Return ``amount`` itself, if it fits, also under the limit of the node."""
        assigned = super().fit(amount, self._tighter(limit))
        reason = self._too_much_together(amount)
        if reason is not None:
            raise exceptions.CapacityException.of([reason])
        return assigned

    def update(self, **values: Any) -> bool:
        """Set several figures at once, checked together; return whether anything changed."""
        total = values.get("total")
        if type(total) is int and "max_unit" not in values:
            values["max_unit"] = follow_total(self.max_unit, self.total, total)
        changed = super().update(**values)
        if self._owner is not None:
            self._owner._follow(self)
        return changed

    def mirror(self, figures: IntegerInventory) -> None:
        """Take over the figures of the node, which knows them already."""
        super().update(**dict(figures._set_fields()))
        self.obj_reset_changes()

    def mirror_used(self, used: int) -> None:
        """Take over what the node knows is used."""
        if used != self.used:
            super().update(used=used)
            self.obj_reset_changes(["used"])

    def leave(self) -> None:
        """Belong to nobody: the node does not have the resource any more, nothing fits."""
        self._owner = None

    def _take(self, assigned: Amount) -> None:
        super()._take(assigned)
        if self._owner is not None:
            self._owner._follow(self)

    def _tighter(self, limit: Amount | None) -> Amount | None:
        own = _NOTHING_LEFT if self._owner is None else self._owner._limit_of(self.name)
        if own is None:
            return limit
        # what is no limit at all goes on, to be refused by its name
        ours = limit is None or (isinstance(limit, IntegerAmount) and own < limit)
        return own if ours else limit

    def _too_much_together(self, amount: Amount) -> Reason | None:
        """Return why one consumer cannot have ``amount`` too, None if it can."""
        claimed = 0 if self._owner is None else self._owner._claimed_with(self.name)
        if self.max_unit is None or claimed <= 0 or amount.is_zero or amount.is_negative:
            return None
        together = claimed + sum(record.amount for record in amount.to_records(self.name))
        if together <= self.max_unit:
            return None
        return Reason(Rule.MAX_UNIT, together, self.max_unit, self.used, self.name)

    @property
    def name(self) -> str:
        """Of what it is."""
        return self.resource_class or ""

    def _validate(self) -> None:
        super()._validate()
        if self.used + self.reserved > MAX_AMOUNT:  # one column says both
            raise exceptions.InvalidInventory(
                f"{self.name} used", self.used, f"with the reserved at most {MAX_AMOUNT}"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntegerInventory):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> IntegerInventory:  # type: ignore[override]
        twin = IntegerInventory(**dict(self._set_fields()))
        twin._reset_to(set(self._changed_fields))
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _itself, (copy.deepcopy(self),)

    def __repr__(self) -> str:
        return repr(copy.deepcopy(self))


class LiveInventories(Inventories):
    """What a compute node has, by resource. Which resources it has, ``update_inventories`` says."""

    def __init__(self, members: Iterable[Inventory]) -> None:
        self._prepare(None)
        self.set_members(members)

    def set_members(self, members: Iterable[Inventory]) -> None:
        """Have exactly these."""
        kept = FrozenDict({member.resource_class: member for member in members})
        object.__setattr__(self, "_obj_by_class", kept)

    def _decide(self, amounts: Any, limits: Any) -> tuple[dict[str, Amount], tuple[Reason, ...]]:
        """Decide, and leave to what locates the counts that it takes beyond what was said."""
        assigned, reasons = super()._decide(amounts, limits)
        return _as_said(assigned), reasons

    @classmethod
    def obj_name(cls) -> str:
        """Return the wire name of plain inventories."""
        return Inventories.obj_name()

    def _store(self, name: str, value: Any) -> None:
        raise exceptions.FrozenValue(
            "which resources a compute node has is changed by its update_inventories()"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Inventories:  # type: ignore[override]
        return Inventories(dict(self.by_name()))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _itself, (copy.deepcopy(self),)


def _itself(plain: Any) -> Any:
    """Return what a live object is pickled as: a plain one."""
    return plain


def _as_said(assigned: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return assigned amounts with the counts that were said; the live topology takes the rest.

    So what is taken together comes to the same as what is taken one by one, and may be given back
    either way. Counts come first: a topology that finds none takes them itself.
    """
    found = dict(assigned)
    for amount in assigned.values():
        if isinstance(amount, NUMATopologyAmount):
            sign = -1 if amount.is_negative else 1
            said = said_by(amount)
            stated = [name for name in amount.located if name in found]
            found.update((name, IntegerAmount(sign * said.get(name, 0))) for name in stated)
    return dict(sorted(found.items(), key=lambda one: isinstance(one[1], NUMATopologyAmount)))


def follow_total(max_unit: int | None, total: int, new_total: int) -> int | None:
    """Return the largest claim after a change of total: it follows where it was the total.

    >>> follow_total(8, 8, 16), follow_total(2, 8, 16), follow_total(6, 8, 4)
    (16, 2, 4)
    """
    if max_unit is None or (max_unit != total and max_unit <= new_total):
        return max_unit
    return new_total


__all__ = ["LiveInventories", "LiveInventory", "Owner", "follow_total"]
