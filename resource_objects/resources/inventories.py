"""Inventories of several resources at one provider, decided and consumed together.

Several resources go through :class:`Inventories` and not through a loop, because all or nothing is
one decision, and because NUMA cells and devices are chosen together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeAlias

from resource_objects import base, fields
from resource_objects.exceptions import CapacityException, InvalidInput, InvalidInventory
from resource_objects.reasons import Reason
from resource_objects.resources import catalog, text
from resource_objects.resources.abstract import Amount, Inventory, Resource
from resource_objects.resources.amounts import (
    Amounts,
    AmountsLike,
    Limits,
    PlacementSplit,
    no_inventory,
    split_placed,
)
from resource_objects.resources.catalog import ByResource, by_name, key_name, load_kinds
from resource_objects.resources.context import ANYWHERE, IN_PART, Context
from resource_objects.resources.integer import IntegerAmount, IntegerInventory
from resource_objects.resources.placed import PlacedInventory, fit_together

_NOTHING: Any = {}
_NO_LIMITS = Limits()


def _labelled(resource: Resource, inventory: Any) -> Inventory:
    """Return a copy of an inventory with its resource class; a plain value is a total."""
    if not isinstance(inventory, Inventory):
        inventory = resource.make_inventory(inventory)
    if inventory.resource_class not in (None, resource.name):
        raise InvalidInventory(
            f"inventory of {resource.name}", inventory, f"one of {resource.name}"
        )
    _check_kind(resource, inventory)
    copied: Inventory = inventory.obj_clone()
    if copied.resource_class is None:
        copied.resource_class = resource.name
    return copied


def _check_kind(resource: Resource, inventory: Inventory) -> None:
    if not isinstance(inventory, resource.inventory_kind):
        raise InvalidInventory(
            f"inventory of {resource.name}",
            inventory,
            f"of the kind {resource.inventory_kind.__name__}",
        )


def _read(value: Any) -> dict[str, Inventory]:
    """Return inventories by name, empty ones included."""
    if isinstance(value, str):
        pairs = text.pairs(value, "inventories")
        return by_name(pairs, lambda resource, part: resource.parse_inventory(part), "inventory")
    if isinstance(value, Mapping):
        return by_name(value, _labelled, "inventories")
    raise InvalidInventory("inventories", value, "a mapping of resources or text")


def _without_empty(by_class: Mapping[str, Inventory]) -> dict[str, Inventory]:
    return {name: inventory for name, inventory in by_class.items() if not inventory.is_empty}


@base.register
class Inventories(base.ResourceObject, ByResource[Inventory]):
    """The inventories of one provider, by resource. Keys may be resources or their names.

    It owns its inventories: what is set is copied, and ``inventories[resource]`` is the live one,
    so that ``inventories[resource].consume(amount)`` counts. An absent inventory is an empty one,
    which nothing fits; ``in``, ``len``, ``get`` and iteration show only those that are present. An
    inventory of total 0 is not stored.

    ======================  ========================================================================
    make                    from a mapping, keywords or text; a plain integer is a total
    decide                  :meth:`can_provide`, :meth:`fit`, :meth:`refusals`
    allocate and release    :meth:`consume`, all or nothing
    change                  ``inventories[resource] = inventory``, ``del``, :meth:`amended`
    ======================  ========================================================================

    >>> host = Inventories("VCPU=8:allocation_ratio=2,MEMORY_MB=16384")
    >>> host.can_provide("VCPU=16,MEMORY_MB=1024")
    True
    >>> print(host.consume("VCPU=10"), host["VCPU"].free)
    VCPU=10 6
    >>> host.consume("VCPU=7,MEMORY_MB=20000,FPGA=1")
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: VCPU requested 7, free 6 of 16; ...
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    by_class: Mapping[str, Inventory] = fields.map_of("Inventory")

    def __init__(self, value: InventoriesLike = _NOTHING, /, **named: Any) -> None:
        if value is not _NOTHING and named:
            raise InvalidInput("repetition", "inventories", value, "either a mapping or keywords")
        super().__init__(by_class=_without_empty(_read(named or value)))

    @classmethod
    def from_value(cls, value: InventoriesLike) -> Self:
        """Return ``value`` itself if it is of this class, else an object made from it."""
        return value if isinstance(value, cls) else cls(value)

    @classmethod
    def from_owned(cls, by_class: Mapping[str, Inventory]) -> Self:
        """Return inventories that are not copied; the caller must not use its own reference."""
        result = cls.__new__(cls)
        base.ResourceObject.__init__(result, by_class=by_class)
        return result

    @classmethod
    def parse(cls, text_form: str) -> Self:
        """Return the inventories of ``CLASS=TOTAL[:figure=value]...,...``; :func:`str` inverts it.

        >>> str(Inventories.parse("VCPU=8:reserved=1, CUSTOM_FPGA=2"))
        'VCPU=8:reserved=1,CUSTOM_FPGA=2'
        """
        if not isinstance(text_form, str):
            raise InvalidInput("text", "inventories", text_form, "text such as VCPU=8,DISK_GB=9")
        return cls(text_form)

    def amended(self, changes: InventoriesLike) -> Self:
        """Return a copy in which the inventories of ``changes`` replace these; total 0 removes one.

        >>> print(Inventories("VCPU=8,DISK_GB=9").amended("VCPU=4,DISK_GB=0"))
        VCPU=4
        """
        return type(self)({**dict(self.by_name()), **_read(changes)})

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        load_kinds(primitive)
        return super()._obj_from_primitive(context, objver, primitive)

    def update(self, **values: Any) -> bool:
        """Set ``by_class`` to copies of inventories; return True if anything changed."""
        if "by_class" in values:
            values["by_class"] = _without_empty(_read(values["by_class"]))
        return super().update(**values)

    def _validate(self) -> None:
        labelled: dict[str, Inventory] = {}
        for name, inventory in self.by_name():
            resource = catalog.resource(name)  # raises for an unknown class
            _check_kind(resource, inventory)
            if inventory.is_empty:
                raise InvalidInventory(f"inventory of {name}", 0, "a total of 1 or more")
            if inventory.resource_class != name:
                labelled[name] = _labelled(resource, inventory)
        if labelled:
            self._store("by_class", fields.FrozenDict({**self._obj_by_class, **labelled}))
        self._after_copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._after_copy()

    def _after_copy(self) -> None:
        """Link the placed inventories to the counts next to them."""
        for inventory in self._obj_by_class.values():
            if isinstance(inventory, PlacedInventory):
                inventory.link_counts(self._obj_by_class)

    # --- the mapping ---

    def __getitem__(self, key: Resource | str) -> Any:
        """Return the inventory of a resource, an empty one if it is absent.

        Its class is that of the resource: an :class:`IntegerInventory` of ``VCPU``.

        :raises InvalidInput: for a key that is no class name
        """
        name = key_name(key)
        if name is None:
            raise InvalidInput("resource class", "key", key, "a resource or its name")
        result = self._obj_by_class.get(name)
        return catalog.resource(key).make_inventory() if result is None else result

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the inventory of a resource, ``default`` if it is absent."""
        return self._obj_by_class.get(key_name(key), default)  # type: ignore[arg-type]  # None too

    def __setitem__(self, key: Resource | str, inventory: Any) -> None:
        resource = catalog.resource(key)
        labelled = {resource.name: _labelled(resource, inventory)}
        self._set_all(_without_empty({**self._obj_by_class, **labelled}))

    def __delitem__(self, key: Resource | str) -> None:
        by_class = dict(self._obj_by_class)
        del by_class[catalog.resource(key).name]
        self._set_all(by_class)

    def _set_all(self, by_class: dict[str, Inventory]) -> None:
        before = self._obj_by_class
        self._store("by_class", self.fields["by_class"].coerce(self, "by_class", by_class))
        for name, inventory in before.items():
            if isinstance(inventory, PlacedInventory) and by_class.get(name) is not inventory:
                inventory.link_counts({})
        self._after_copy()

    def replace_contents(self, other: Inventories) -> None:
        """Take over the figures of other inventories; the inventory objects stay the same.

        A reference that a caller has to one of these inventories sees the new figures.
        """
        by_class: dict[str, Inventory] = {}
        for name, inventory in other.by_name():
            current = self._obj_by_class.get(name)
            if current is None or type(current) is not type(inventory):
                current = inventory.obj_clone()
            elif current is not inventory:
                for field, value in inventory._set_fields().items():
                    object.__setattr__(current, f"_obj_{field}", value)
                current._after_copy()
            by_class[name] = current
        self._set_all(by_class)

    # --- the decision ---

    def refusals(
        self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None
    ) -> tuple[Reason, ...]:
        """Return every reason why ``amounts`` do not fit, () if they do. Nothing changes."""
        return self._decide(amounts, limits)[1]

    def can_provide(self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None) -> bool:
        """Return True if all of ``amounts`` fit together. Nothing changes.

        :param amounts: :class:`Amounts` or what they are made from
        :param limits: :class:`Limits` or what they are made from
        :raises InvalidInput: for a negative amount, or one of another kind than its inventory
        """
        requested = Amounts.from_value(amounts)
        for name, amount in requested.by_name():
            if amount.is_negative:
                raise InvalidInput("negative amount", name, amount, "0 or more; release by consume")
        return not self.refusals(requested, limits)

    def fit(self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None) -> Amounts:
        """Return the assigned amounts: the placements of all of ``amounts``. Nothing changes.

        :raises CapacityException: with the reasons of each resource
        """
        assigned, reasons = self._decide(amounts, limits)
        if reasons:
            raise CapacityException(reasons)
        return Amounts(assigned)

    def consume(self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None) -> Amounts:
        """Allocate (negative: release) all of ``amounts`` or nothing; return the assigned ones.

        :raises CapacityException: as :meth:`fit`; nothing changed
        """
        assigned = self.fit(amounts, limits)
        applied: list[tuple[Inventory, Amount]] = []
        try:
            for name, amount in assigned.by_name():
                self._obj_by_class[name].apply(amount)
                applied.append((self._obj_by_class[name], amount))
        except BaseException:  # a plug-in's kind may fail, or an interrupt may arrive
            for inventory, amount in reversed(applied):
                inventory._revert(amount)
            raise
        return assigned

    def _decide(self, amounts: Any, limits: Any) -> tuple[dict[str, Amount], tuple[Reason, ...]]:
        bounds = _NO_LIMITS if limits is None else Limits.from_value(limits)
        requested = Amounts.from_value(amounts)
        split = split_placed(requested)
        decision = _Decision(self._obj_by_class, bounds)
        if split is None:
            decision.add_counts(requested.by_name())
        else:
            decision.add_placed(split)
        return decision.assigned, tuple(decision.reasons)

    __contains__ = ByResource.__contains__  # the base tests for fields

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inventories):
            return NotImplemented
        return dict(self._obj_by_class) == dict(other._obj_by_class)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return ",".join(
            f"{resource.name}={resource.format_inventory(inventory)}"
            for resource, inventory in self.items()
        )

    def __repr__(self) -> str:
        return f"Inventories({str(self)!r})"


#: The argument of :class:`Inventories`: text, or a mapping of resources or their names to
#: inventories or to values that a resource makes an inventory of.
InventoriesLike: TypeAlias = Inventories | str | Mapping[Any, Any]


class _Decision:
    """The decision about several amounts: assigned amounts and reasons so far."""

    def __init__(self, inventories: Mapping[str, Inventory], limits: Limits) -> None:
        self._inventories = inventories
        self._limits: Mapping[str, Amount] = limits._obj_by_class
        self.assigned: dict[str, Amount] = {}
        self.reasons: list[Reason] = []

    def add_counts(
        self, amounts: Iterable[tuple[str, Amount]], context: Context = ANYWHERE
    ) -> None:
        """Decide amounts individually."""
        for name, amount in amounts:
            inventory = self._inventories.get(name)
            if inventory is None:
                self.reasons.append(no_inventory(name, amount))
                continue
            try:
                self.assigned[name] = inventory.fit(amount, self._limits.get(name), context)
            except CapacityException as refusal:
                self.reasons += refusal.reasons

    def add_placed(self, split: PlacementSplit) -> None:
        """Decide all placed amounts at once, then the counts that they use, then the others.

        The host's counts provide for placed amounts. An absent inventory of such a count is a
        reason only if the count is stated.
        """
        counted = split.with_implied_counts()
        placed = {name: counted[name] for name in split.placed}
        limits = {name: self._limits[name] for name in placed if name in self._limits}
        room: dict[str, int] = {}
        for amount in placed.values():
            for name in amount.placed_counts:
                inventory, limit = self._inventories.get(name), self._limits.get(name)
                if isinstance(inventory, IntegerInventory):
                    capacity = inventory.capacity
                    if isinstance(limit, IntegerAmount):
                        capacity = min(capacity, int(limit))
                    excess = split.unplaced.get(name)
                    used = inventory.used + (
                        int(excess) if isinstance(excess, IntegerAmount) else 0
                    )
                    room[name] = capacity - used
        try:
            result = fit_together(placed, self._inventories, limits, room)
        except CapacityException as refusal:
            self.reasons += refusal.reasons
            self.add_counts(split.unplaced.items())
            return
        for assigned in result.values():
            self._add_host_usage(assigned, split, counted)
        self.add_counts(
            (name, amount) for name, amount in split.unplaced.items() if name not in self.assigned
        )
        self.assigned.update(result)

    def _add_host_usage(
        self, assigned: Amount, split: PlacementSplit, counted: Mapping[str, Amount]
    ) -> None:
        """Decide the counts of an assigned amount: those requested, and its own usage of the host.

        The result has the requested counts; the amount itself stands for its own usage.
        """
        usage = assigned.net_host_usage
        for name in dict.fromkeys((*assigned.requested_host_usage, *usage)):
            if name in self._inventories or name in split.stated_classes:
                amount = counted.get(name)
                requested = int(amount) if isinstance(amount, IntegerAmount) else 0
                total = IntegerAmount(requested + usage.get(name, 0))
                self.add_counts([(name, total)], IN_PART)
                self.assigned.pop(name, None)
                if requested:
                    self.assigned[name] = IntegerAmount(requested)
