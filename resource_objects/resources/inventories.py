"""Inventories of several resources in one place, asked and consumed together.

Several resources go through here, not through a loop over inventories, because all or nothing is
one decision, and because NUMA cells and devices are chosen together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
from resource_objects.resources.context import ANYWHERE, IN_PART
from resource_objects.resources.integer import IntegerAmount, IntegerInventory
from resource_objects.resources.placed import PlacedInventory, fit_together

_NOTHING: Any = {}
_NO_LIMITS = Limits()


def _labelled(resource: Resource, inventory: Any) -> Inventory:
    """Return a copy of the inventory, labelled with its resource (a plain value is a total)."""
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


def _read(given: Any) -> dict[str, Inventory]:
    """Return inventories by name, also those of total 0."""
    if isinstance(given, str):
        pairs = text.pairs(given, "inventories")
        return by_name(pairs, lambda resource, part: resource.parse_inventory(part), "inventory")
    if isinstance(given, Mapping):
        return by_name(given, _labelled, "inventories")
    raise InvalidInventory("inventories", given, "a mapping of resources or text")


def _present(by_class: dict[str, Inventory]) -> dict[str, Inventory]:
    return {name: inventory for name, inventory in by_class.items() if not inventory.is_empty}


@base.register
class Inventories(base.ResourceObject, ByResource[Inventory]):
    """What there is in one place, by resource. Keys may be resources or their names.

    It owns its inventories: what is put in is copied, what is taken out is the live one, so that
    ``inventories[resource].consume(amount)`` counts. What is not there is an empty inventory, as an
    absent amount is zero: it says no; ``in``, ``len``, ``get`` and iteration show only what is
    there. An inventory of total 0 is left out. Making: from a mapping, keywords or text, where a
    plain integer is a total. Asking: :meth:`can_provide`, :meth:`fit`. Taking and giving back, all
    or nothing: :meth:`consume`. Changing: ``inventories[resource] = inventory``,
    ``del inventories[resource]``, :meth:`amended`.

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

    def __init__(self, given: InventoriesLike = _NOTHING, /, **named: Any) -> None:
        if given is not _NOTHING and named:
            raise InvalidInput("repetition", "inventories", given, "either a mapping or keywords")
        super().__init__(by_class=_present(_read(named or given)))

    @classmethod
    def from_value(cls, given: InventoriesLike) -> Self:
        """Return ``given`` itself if it is one already, else one made from it."""
        return given if isinstance(given, cls) else cls(given)

    @classmethod
    def from_owned(cls, made: Mapping[str, Inventory]) -> Self:
        """Return inventories of ones that nobody else has, by name: they are not copied."""
        result = cls.__new__(cls)
        base.ResourceObject.__init__(result, by_class=made)
        return result

    @classmethod
    def parse(cls, text_form: str) -> Self:
        """Return what ``CLASS=TOTAL[:figure=value]...,...`` says; :func:`str` gives it back.

        >>> str(Inventories.parse("VCPU=8:reserved=1, CUSTOM_FPGA=2"))
        'VCPU=8:reserved=1,CUSTOM_FPGA=2'
        """
        if not isinstance(text_form, str):
            raise InvalidInput("text", "inventories", text_form, "text such as VCPU=8,DISK_GB=9")
        return cls(text_form)

    def amended(self, given: InventoriesLike) -> Self:
        """Return a copy in which the inventories of ``given`` replace these; total 0 removes one.

        >>> print(Inventories("VCPU=8,DISK_GB=9").amended("VCPU=4,DISK_GB=0"))
        VCPU=4
        """
        return type(self)({**dict(self.by_name()), **_read(given)})

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        load_kinds(primitive)
        return super()._obj_from_primitive(context, objver, primitive)

    def update(self, **values: Any) -> bool:
        """Set ``by_class`` to a copy of what is given; return whether anything changed."""
        if "by_class" in values:
            values["by_class"] = _present(_read(values["by_class"]))
        return super().update(**values)

    def _validate(self) -> None:
        labelled: dict[str, Inventory] = {}
        for name, kept in self.by_name():
            resource = catalog.resource(name)  # a class that is not known fails here
            _check_kind(resource, kept)
            if kept.is_empty:
                raise InvalidInventory(f"inventory of {name}", 0, "a total of 1 or more")
            if kept.resource_class != name:
                labelled[name] = _labelled(resource, kept)
        if labelled:
            self._store("by_class", fields.FrozenDict({**self._obj_by_class, **labelled}))
        self._after_copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._after_copy()

    def _after_copy(self) -> None:
        """Let what locates draw on the counts that are here."""
        for inventory in self._obj_by_class.values():
            if isinstance(inventory, PlacedInventory):
                inventory.link_counts(self._obj_by_class)

    def __getitem__(self, key: Resource | str) -> Any:
        """Return the inventory of a resource, an empty one if there is none here.

        Its class depends on the resource: an :class:`IntegerInventory` of ``VCPU``.

        :raises InvalidInput: for a word that is no class name
        """
        name = key_name(key)
        if name is None:
            raise InvalidInput("resource class", "key", key, "a resource or its name")
        result = self._obj_by_class.get(name)
        return catalog.resource(key).make_inventory() if result is None else result

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the inventory of a resource, ``default`` if there is none here."""
        return self._obj_by_class.get(key_name(key), default)  # type: ignore[arg-type]  # None too

    def __setitem__(self, key: Resource | str, inventory: Any) -> None:
        resource = catalog.resource(key)
        kept = {**self._obj_by_class, resource.name: _labelled(resource, inventory)}
        if kept[resource.name].is_empty:
            del kept[resource.name]
        self._put(kept)

    def __delitem__(self, key: Resource | str) -> None:
        name = catalog.resource(key).name
        if name not in self._obj_by_class:
            raise KeyError(name)
        self._put({kept: value for kept, value in self.by_name() if kept != name})

    def _put(self, by_class: dict[str, Inventory]) -> None:
        before = self._obj_by_class
        self._store("by_class", self.fields["by_class"].coerce(self, "by_class", by_class))
        for name, inventory in before.items():
            if isinstance(inventory, PlacedInventory) and by_class.get(name) is not inventory:
                inventory.link_counts({})
        self._after_copy()

    def replace_contents(self, other: Inventories) -> None:
        """Have what another one has; an inventory that somebody has in hand stays the one here."""
        kept: dict[str, Inventory] = {}
        for name, inventory in other.by_name():
            own = self._obj_by_class.get(name)
            if own is None or type(own) is not type(inventory):
                own = inventory.obj_clone()
            elif own is not inventory:
                for field, value in inventory._set_fields().items():
                    object.__setattr__(own, f"_obj_{field}", value)
                own._after_copy()
            kept[name] = own
        self._put(kept)

    # --- the decision over several ---

    def refusals(
        self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None
    ) -> tuple[Reason, ...]:
        """Return every reason why ``amounts`` does not fit, none if it does. Nothing changes."""
        return self._decide(amounts, limits)[1]

    def can_provide(self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None) -> bool:
        """Return whether all of ``amounts`` fit together. Nothing changes.

        :param amounts: :class:`Amounts`, or what one is made from
        :param limits: :class:`Limits`, or what they are made from
        :raises InvalidInput: for an amount that gives back; for an amount of another kind than its
            inventory
        """
        wanted = Amounts.from_value(amounts)
        for name, amount in wanted.by_name():
            if amount.is_negative:
                raise InvalidInput(
                    "negative amount", name, amount, "0 or more; give back by consume"
                )
        return not self.refusals(wanted, limits)

    def fit(self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None) -> Amounts:
        """Return the assigned amounts: where all of ``amounts`` would go. Nothing changes.

        :raises CapacityException: with a reason for each resource that refuses
        """
        assigned, reasons = self._decide(amounts, limits)
        if reasons:
            raise CapacityException(reasons)
        return Amounts(assigned)

    def consume(self, amounts: AmountsLike, limits: Limits | AmountsLike | None = None) -> Amounts:
        """Take (negative: give back) all of ``amounts`` or nothing; return the assigned ones.

        :raises CapacityException: as :meth:`fit`; nothing changed
        """
        assigned = self.fit(amounts, limits)
        taken: list[tuple[Inventory, Amount]] = []
        try:
            for name, amount in assigned.by_name():
                self._obj_by_class[name].apply(amount)
                taken.append((self._obj_by_class[name], amount))
        except BaseException:  # a plug-in's kind may fail here, or an interrupt arrive
            for inventory, amount in reversed(taken):
                inventory._revert(amount)
            raise
        return assigned

    def _decide(self, amounts: Any, limits: Any) -> tuple[dict[str, Amount], tuple[Reason, ...]]:
        bounds = _NO_LIMITS if limits is None else Limits.from_value(limits)
        wanted = Amounts.from_value(amounts)
        joint = split_placed(wanted)
        decision = _Decision(self._obj_by_class, bounds)
        if joint is None:
            decision.of_each(wanted.by_name())
        else:
            decision.of_joint(joint)
        return decision.assigned, tuple(decision.reasons)

    __contains__ = ByResource.__contains__  # not whether it has a field of that name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inventories):
            return NotImplemented
        return dict(self._obj_by_class) == dict(other._obj_by_class)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return ",".join(
            f"{resource.name}={resource.format_inventory(kept)}" for resource, kept in self.items()
        )

    def __repr__(self) -> str:
        return f"Inventories({str(self)!r})"


#: What the constructor of :class:`Inventories` takes: text, or a mapping of resources or their
#: names to inventories or what a resource makes an inventory of.
InventoriesLike: TypeAlias = Inventories | str | Mapping[Any, Any]


class _Decision:
    """What several amounts come to, while it is made: assigned ones, and reasons against."""

    def __init__(self, inventories: Mapping[str, Inventory], limits: Limits) -> None:
        self._inventories = inventories
        self._limits = limits
        self.assigned: dict[str, Amount] = {}
        self.reasons: list[Reason] = []

    def of_each(self, amounts: Iterable[tuple[str, Amount]], *, are_located: bool = False) -> None:
        """Decide amounts that have nothing to do with each other.

        :param are_located: whether something else says where they are
        """
        for name, amount in amounts:
            inventory = self._inventories.get(name)
            if inventory is None:
                self.reasons.append(no_inventory(name, amount))
                continue
            try:
                self.assigned[name] = inventory.fit(
                    amount, self._limit(name), IN_PART if are_located else ANYWHERE
                )
            except CapacityException as refusal:
                self.reasons += refusal.reasons

    def of_joint(self, joint: PlacementSplit) -> None:
        """Decide amounts of which some say where others are: what locates comes first (D1), all of
        it at once (D13).

        What it takes of the host as a whole is taken of the counts that are here; a count that is
        not here is missed only if it was stated.
        """
        counted = joint.with_implied_counts()
        located = {name: counted[name] for name in joint.placed}
        limits = {n: limit for n in located if (limit := self._limit(n)) is not None}
        room = {n: left for one in located.values() for n, left in self._room(one, joint)}
        try:
            result = fit_together(located, self._inventories, limits, room)
        except CapacityException as refusal:
            self.reasons += refusal.reasons
            self.of_each(joint.others.items())
            return
        for amount in result.values():
            self._count(amount, joint, counted)
        self.of_each((n, one) for n, one in joint.others.items() if n not in self.assigned)
        self.assigned.update(result)

    def _count(
        self, assigned: Amount, joint: PlacementSplit, counted: Mapping[str, Amount]
    ) -> None:
        """Decide the counts beside an assigned amount with what it draws on them itself."""
        draws = assigned.net_host_usage
        for name in dict.fromkeys((*assigned.requested_host_usage, *draws)):
            if name in self._inventories or name in joint.stated_classes:
                stated = counted.get(name)
                said = int(stated) if isinstance(stated, IntegerAmount) else 0
                self.of_each([(name, IntegerAmount(said + draws.get(name, 0)))], are_located=True)
                self.assigned.pop(name, None)
                if said:
                    self.assigned[name] = IntegerAmount(said)

    def _room(self, amount: Amount, joint: PlacementSplit) -> Iterator[tuple[str, int]]:
        for name in amount.placed_counts:
            inventory, limit = self._inventories.get(name), self._limit(name)
            if isinstance(inventory, IntegerInventory):
                bound = inventory.capacity if limit is None else min(inventory.capacity, int(limit))
                beyond = joint.others.get(name)
                more = int(beyond) if isinstance(beyond, IntegerAmount) else 0
                yield name, bound - inventory.used - more

    def _limit(self, name: str) -> Any:
        return self._limits.get(name)  # type: ignore[call-overload]
