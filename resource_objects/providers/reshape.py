"""Reshapes: inventories that move to other providers or classes, with their allocations.

A host that was one provider becomes a tree, its CPUs move to another class, or its children become
one provider again. No allocation is lost or invented: each consumer has the same amount of each
class before and after, where a class that was renamed counts as the same.

====================  =============================================================================
:class:`Reshape`      providers to create, moves, and providers to remove
:class:`NewProvider`  a provider to create
:class:`Move`         a move of one inventory to one or more destinations
:class:`Part`         one destination of a move: its totals, allocations and units
====================  =============================================================================

These are frozen data classes with a JSON form (:meth:`Reshape.from_json`) that can be written by
hand. Providers are referred to by name or uuid.
:class:`~resource_objects.providers.reshape_plan.ReshapePlanner` makes a plan of a reshape. In the
example, two of the GPUs of a host become children:

    >>> reshape = Reshape.from_json('''{
    ...     "version": 1,
    ...     "create": [{"name": "host0/gpu0", "parent": "host0"},
    ...                {"name": "host0/gpu1", "parent": "host0"}],
    ...     "moves": [{"from": "host0", "resource_class": "PGPU",
    ...                "to": [{"provider": "host0/gpu0", "total": 1, "units": ["gpu0"]},
    ...                       {"provider": "host0/gpu1", "total": 1, "units": ["gpu1"]}]}]}''')
    >>> print(reshape)
    create host0/gpu0 below host0
    create host0/gpu1 below host0
    move PGPU of host0: 1 to host0/gpu0 (gpu0), 1 to host0/gpu1 (gpu1)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid as uuids
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE, FrozenDict
from resource_objects.providers import serialization
from resource_objects.providers.orders import check_unique
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Inventories, resource

#: Version of the JSON form.
VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class NewShare:
    """A :class:`Share` of a new provider: its allocations also use another inventory."""

    resource_class: str
    of: str  #: name of the provider, in the same tree
    of_class: str
    factor: int = 1


def _from_text(inventories: Any) -> Inventories:
    if isinstance(inventories, str) and inventories.startswith("{"):
        primitive = serialization.from_json(inventories, "inventories")
        return Inventories.obj_from_primitive(primitive)
    return Inventories.from_value(inventories)


@dataclasses.dataclass(frozen=True, slots=True)
class NewProvider:
    """A provider to create; ``parent`` None makes it a root.

    ``inventories`` are its inventories (text, or any value for :meth:`Inventories.from_value`), in
    addition to those that are moved to it. Resources without a text form, such as NUMA cells, are
    stored in their wire form. A class that is moved to it can be declared here too, with its unit
    rules: the total must be the total that is moved.

    :raises InvalidInput: as :class:`Provider`
    """

    name: str
    parent: str | None = None
    inventories: str = ""
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    shares: tuple[NewShare, ...] = ()
    uuid: str = dataclasses.field(default_factory=lambda: str(uuids.uuid4()))

    def __post_init__(self) -> None:
        inventories = _from_text(self.inventories)
        text = str(inventories)
        if any(kind.is_placed for kind in inventories):  # it has no text form
            text = json.dumps(inventories.obj_to_primitive(), sort_keys=True)
        _store(self, "inventories", text)
        _store(self, "shares", tuple(self.shares))
        provider = self.provider()
        _store(self, "traits", provider.traits)
        _store(self, "aggregates", provider.aggregates)
        _store(self, "uuid", provider.uuid)
        if self.parent is not None:
            _store(self, "parent", names.provider_key(self.parent))

    def provider(self) -> Provider:
        """Return a new provider object without children."""
        return Provider(
            self.name,
            _from_text(self.inventories),
            traits=self.traits,
            uuid=self.uuid,
            aggregates=self.aggregates,
            shares=[Share(**dataclasses.asdict(share)) for share in self.shares],
        )

    def __str__(self) -> str:
        below = "" if self.parent is None else f" below {self.parent}"
        parts = [str(_from_text(self.inventories)), *sorted(self.traits)]
        text = " ".join(filter(None, parts))
        return f"create {self.name}{below}{': ' if text else ''}{text}"


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A destination of a :class:`Move`.

    ``total``, ``reserved``
        the figures that move there. A total of None is the one that a new provider declares, or the
        whole total of the source if this is the only part of the move
    ``resource_class``
        the class at the destination; None: the class of the move
    ``units``
        units that are at the destination afterwards: each allocation follows its units
    ``consumers``
        the amount of each consumer that moves there, ``{consumer: amount}``
    ``owned``
        the units at the destination of consumers whose allocations had no units before,
        ``{consumer: units}``. Their amount need not be specified in ``consumers``
    """

    provider: str
    total: int | None = None
    reserved: int = 0
    resource_class: str | None = None
    units: tuple[str, ...] = ()
    consumers: Mapping[str, int] = dataclasses.field(default_factory=FrozenDict)
    owned: Mapping[str, tuple[str, ...]] = FrozenDict()

    def __post_init__(self) -> None:
        _store(self, "provider", names.provider_key(self.provider))
        _check_figure("part.total", self.total, 0, MAX_FIGURE, optional=True)
        _check_figure("part.reserved", self.reserved, 0, MAX_FIGURE)
        if self.resource_class is not None:
            _store(self, "resource_class", resource(self.resource_class).name)
        _store(self, "units", tuple(names.label(unit, "unit") for unit in self.units))
        check_unique("part.units", self.units)
        for name, amount in self.consumers.items():
            names.consumer_name(name)
            _check_figure(f"part.consumers[{name!r}]", amount, 1, MAX_AMOUNT)
        _store(self, "consumers", FrozenDict(self.consumers))
        owned = {
            names.consumer_name(name): tuple(names.label(unit, "unit") for unit in units)
            for name, units in self.owned.items()
        }
        _store(self, "owned", FrozenDict(owned))
        check_unique("part.owned", (unit for units in owned.values() for unit in units))

    def __str__(self) -> str:
        how_much = "" if self.total is None else f"{self.total} "
        kind = "" if self.resource_class is None else f"{self.resource_class} of "
        units = f" ({' '.join(self.units)})" if self.units else ""
        return f"{how_much}to {kind}{self.provider}{units}"


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A move of one inventory to one or more destinations.

    ``from_`` is the provider of the inventory (in JSON ``from``), ``to`` are the destinations. An
    inventory with nothing left is removed, and a single destination gets all of its allocations.
    An inventory with something left stays, and so do allocations without a destination.

    ``total``
        the amount by which the total of the inventory shrinks. None: the sum of the destinations,
        so that nothing is lost or invented. Another number declares a difference on purpose. 0
        leaves the inventory unchanged, for destinations that share it
    ``fill``
        assign allocations without an explicit destination where they fit: the largest first, then
        by consumer, each to the first destination with capacity (first-fit decreasing). If
        something is left of the inventory, allocations that fit at no destination stay
    ``split``
        allow ``fill`` to split the allocation of a consumer over several destinations
    """

    from_: str
    resource_class: str
    to: tuple[Part, ...]
    total: int | None = None
    fill: bool = False
    split: bool = False

    def __post_init__(self) -> None:
        _store(self, "from_", names.provider_key(self.from_))
        _store(self, "resource_class", resource(self.resource_class).name)
        _store(self, "to", tuple(self.to))
        _check_figure("move.total", self.total, 0, MAX_FIGURE, optional=True)
        for name in ("fill", "split"):
            value = getattr(self, name)
            if type(value) is not bool:
                raise exceptions.InvalidInput("field", f"move.{name}", value, "true or false")
        if not self.to or not all(isinstance(part, Part) for part in self.to):
            raise exceptions.InvalidInput("field", "move.to", self.to, "parts, at least one")
        check_unique(
            "move.to", ((p.provider, p.resource_class or self.resource_class) for p in self.to)
        )
        check_unique("move.to units", (unit for part in self.to for unit in part.units))

    def __str__(self) -> str:
        parts = ", ".join(str(part) for part in self.to)
        how = ", filled" if self.fill else ""
        return f"move {self.resource_class} of {self.from_}: {parts}{how}"


@dataclasses.dataclass(frozen=True, slots=True)
class Reshape:
    """Providers to create (parents first), moves, and providers to remove, in one write.

    Moves are about the inventories before the reshape: a move does not see the effects of another.
    ``remove`` are providers without allocations afterwards, children before their parents.

    :raises InvalidInput: if a provider is created twice, or an inventory is moved twice
    """

    moves: tuple[Move, ...] = ()
    create: tuple[NewProvider, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("moves", Move), ("create", NewProvider), ("remove", str)):
            value = tuple(getattr(self, name))
            if not all(isinstance(item, kind) for item in value):
                expected = f"each a {kind.__name__}"
                raise exceptions.InvalidInput("field", f"reshape.{name}", value, expected)
            _store(self, name, value)
        _store(self, "remove", tuple(map(names.provider_key, self.remove)))
        check_unique("reshape.create", (new.name for new in self.create))
        check_unique("reshape.create", (new.uuid for new in self.create))
        check_unique("reshape.remove", self.remove)
        check_unique("reshape.moves", ((move.from_, move.resource_class) for move in self.moves))

    def __str__(self) -> str:
        lines = [*map(str, self.create), *map(str, self.moves)]
        return "\n".join([*lines, *(f"remove {name}" for name in self.remove)])

    @property
    def providers(self) -> tuple[str, ...]:
        """All providers of the reshape, by name or uuid, with those to create."""
        keys = [key for new in self.create for key in (new.name, new.parent) if key is not None]
        for move in self.moves:
            keys += [move.from_, *(part.provider for part in move.to)]
        return tuple(dict.fromkeys((*keys, *self.remove)))

    @property
    def subject(self) -> str:
        """A digest of the reshape, by which a repeated operation is recognised.

        It does not depend on the uuids of new providers: a file without them gets other uuids when
        it is read again.
        """
        data = self.to_dict()
        for new in data.get("create", ()):
            del new["uuid"]
        text = json.dumps(data, sort_keys=True)
        return f"reshape {hashlib.sha256(text.encode()).hexdigest()[:32]}"

    # --- plain data ---

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"version": VERSION, **serialization.to_plain(self)}

    def to_json(self, indent: int | None = 2) -> str:
        """Return JSON text for :meth:`from_json`."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the reshape of plain data.

        :raises InvalidInput: if a value has the wrong type, a key is missing or a key is unknown
        :raises UnsupportedVersion: if the data has another version
        """
        fields = serialization.versioned(data, "reshape", VERSION)
        return serialization.from_plain(cls, fields, "reshape", _CHECKS)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the reshape of JSON text.

        :raises InvalidInput: if the text is not JSON, or as :meth:`from_dict`
        :raises UnsupportedVersion: if the data has another version
        """
        return cls.from_dict(serialization.from_json(text, "reshape"))


def merge_moves(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return moves with the moves of one inventory as a single move, parts in their order.

    So each move may describe one destination: inventory of class A on provider B has moved to
    provider C.

    :raises InvalidInput: if a value is not a move, or moves of one inventory differ in ``fill``,
        ``split`` or ``total``; if an inventory is moved twice to one destination

    >>> moves = [Move("box", "VGPU", (Part(f"box/gpu{n}", consumers={f"vm-{n}": 1}),))
    ...          for n in range(2)]
    >>> print(*merge_moves(moves))
    move VGPU of box: to box/gpu0, to box/gpu1
    """
    merged: dict[tuple[str, str], Move] = {}
    if not isinstance(moves, Iterable):
        raise exceptions.InvalidInput("field", "moves", moves, "a list of moves")
    for move in moves:
        if not isinstance(move, Move):
            raise exceptions.InvalidInput("field", "moves", move, "each a Move")
        key = move.from_, move.resource_class
        first = merged.get(key)
        if first is None:
            merged[key] = move
        elif (first.fill, first.split, first.total) != (move.fill, move.split, move.total):
            expected = f"fill, split and total as in: {first}"
            raise exceptions.InvalidInput("field", "moves", str(move), expected)
        else:
            merged[key] = dataclasses.replace(first, to=(*first.to, *move.to))
    return tuple(merged.values())


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "name": names.provider_name,
    "uuid": names.uuid_text,
    "parent": names.provider_key,
    "provider": names.provider_key,
    "from": names.provider_key,
    "of": names.provider_name,
    "remove": names.provider_key,
    "resource_class": names.resource_class_name,
    "of_class": names.resource_class_name,
    "units": names.label,
    "owned": names.label,
    "traits": names.trait_name,
    "aggregates": names.aggregate_name,
}


def _store(item: Any, name: str, value: Any) -> None:
    object.__setattr__(item, name, value)


def _check_figure(
    label: str, value: Any, minimum: int, maximum: int, *, optional: bool = False
) -> None:
    if value is None and optional:
        return
    if type(value) is not int or not minimum <= value <= maximum:
        expected = f"an integer from {minimum} to {maximum}"
        raise exceptions.InvalidInput("field", label, value, expected)
