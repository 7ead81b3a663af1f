"""The reshape: what shall be counted elsewhere from now on, and which allocations go along.

A host that was counted as one becomes a tree: its GPUs become children, its CPUs are counted in
another class, children become one again. Nothing of what consumers hold is lost or invented: each
holds as much of each class afterwards as before, a class that is renamed counted as what it was.

====================  =============================================================================
:class:`Reshape`      the whole: providers to create, moves, providers to remove
:class:`NewProvider`  a provider to create
:class:`Move`         one class of one provider goes elsewhere
:class:`Part`         where some goes: how much of the inventory, whose allocations, which units
====================  =============================================================================

It is plain, frozen data, made to be written by hand as JSON (:meth:`Reshape.from_json`); providers
are meant by name or uuid. :class:`~resource_objects.providers.reshape_plan.ReshapePlanner` makes
a plan of it. The host of the example has four GPUs in one inventory, of which each becomes a child:

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE, FrozenDict
from resource_objects.providers import serialization
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Inventories, resource

#: Version of the JSON form.
VERSION = 1


def _new_uuid() -> str:
    return str(uuids.uuid4())


@dataclasses.dataclass(frozen=True, slots=True)
class NewShare:
    """What is taken of a new provider and also uses something elsewhere (:class:`Share`)."""

    resource_class: str
    of: str  #: name of the provider, in the same tree
    of_class: str
    factor: int = 1


def _written(inventories: Inventories) -> str:
    """Return inventories as text; as JSON of their wire form if a kind has no text form."""
    if any(kind.is_located for kind in inventories):
        return json.dumps(inventories.obj_to_primitive(), sort_keys=True)
    return str(inventories)


def _inventories(given: Any) -> Inventories:
    if isinstance(given, str) and given.startswith("{"):
        made: Inventories = Inventories.obj_from_primitive(
            serialization.from_json(given, "inventories")
        )
        return made
    return Inventories.of(given)


@dataclasses.dataclass(frozen=True, slots=True)
class NewProvider:
    """A provider to create; ``parent`` None makes it a root.

    ``inventories`` (text, or what inventories are made from) is what it has beside what is moved
    to it; kinds without a text form, such as NUMA cells, are kept in their wire form. A class that
    is moved to it and also stated here is as it is stated: its total must then be what is moved.

    :raises InvalidInput: what the :class:`Provider` refuses
    """

    name: str
    parent: str | None = None
    inventories: str = ""
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    shares: tuple[NewShare, ...] = ()
    uuid: str = dataclasses.field(default_factory=_new_uuid)

    def __post_init__(self) -> None:
        _store(self, "inventories", _written(_inventories(self.inventories)))
        _store(self, "shares", tuple(self.shares))
        made = self.provider()
        _store(self, "traits", made.traits)
        _store(self, "aggregates", made.aggregates)
        _store(self, "uuid", made.uuid)
        if self.parent is not None:
            _store(self, "parent", names.provider_key(self.parent))

    def provider(self) -> Provider:
        """Return it as a provider without children, made anew each time."""
        return Provider(
            self.name,
            _inventories(self.inventories),
            traits=self.traits,
            uuid=self.uuid,
            aggregates=self.aggregates,
            shares=[Share(**dataclasses.asdict(share)) for share in self.shares],
        )

    def __str__(self) -> str:
        below = "" if self.parent is None else f" below {self.parent}"
        said = " ".join(filter(None, [str(_inventories(self.inventories)), *sorted(self.traits)]))
        return f"create {self.name}{below}{': ' if said else ''}{said}"


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Where some of what a :class:`Move` takes goes.

    ``total``, ``reserved``
        how much of the inventory's figures. A total that is not given is the one stated for a new
        provider, or everything, if this is the only part of the move
    ``resource_class``
        what it is counted in there; None: in the same class
    ``units``
        units that are there from now on: each allocation follows the units it has
    ``consumers``
        ``{consumer: amount}``: whose allocations go there, and how much of each
    ``owned``
        ``{consumer: units}``: which units of that place each consumer has from now on, of those
        that were held as a number until now. How much it is need not be said: as much as the units
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
        _once("part.units", self.units)
        for name, amount in self.consumers.items():
            names.consumer_name(name)
            _check_figure(f"part.consumers[{name!r}]", amount, 1, MAX_AMOUNT)
        _store(self, "consumers", FrozenDict(self.consumers))
        owned = {
            names.consumer_name(name): tuple(names.label(unit, "unit") for unit in units)
            for name, units in self.owned.items()
        }
        _store(self, "owned", FrozenDict(owned))
        _once("part.owned", (unit for units in owned.values() for unit in units))

    def __str__(self) -> str:
        how_much = "" if self.total is None else f"{self.total} "
        kind = "" if self.resource_class is None else f"{self.resource_class} of "
        units = f" ({' '.join(self.units)})" if self.units else ""
        return f"{how_much}to {kind}{self.provider}{units}"


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One class of one provider (``from_``, in JSON ``from``) goes to one or more places.

    An inventory of which nothing is left goes, and all of it to a single part takes all allocations
    along. What is left of one stays as it was, and so do allocations that are not told to go, as
    long as there is something for them to be at.

    ``total``
        how much the inventory loses. Not given: as much as the parts get, so that nothing is lost
        or invented. Another number says that it differs on purpose; 0: the inventory stays as it
        is, as one does that the parts share
    ``fill``
        allocations that nothing is said about go where there is room: the largest first (then by
        consumer), each to the first part that has room for it (first-fit decreasing). Where
        something is left of the inventory, those that fit nowhere stay
    ``split``
        a consumer may be filled in to several parts, as much as fits into each
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
            if type(getattr(self, name)) is not bool:
                raise exceptions.InvalidInput(
                    "field", f"move.{name}", getattr(self, name), "true or false"
                )
        if not self.to or not all(isinstance(part, Part) for part in self.to):
            raise exceptions.InvalidInput("field", "move.to", self.to, "parts, at least one")
        _once("move.to", ((p.provider, p.resource_class or self.resource_class) for p in self.to))
        _once("move.to units", (unit for part in self.to for unit in part.units))

    def __str__(self) -> str:
        parts = ", ".join(str(part) for part in self.to)
        how = ", filled" if self.fill else ""
        return f"move {self.resource_class} of {self.from_}: {parts}{how}"


@dataclasses.dataclass(frozen=True, slots=True)
class Reshape:
    """Providers to create (parents first), moves, and providers to remove, all at once.

    What is moved is what was there before: two moves do not see each other. ``remove`` takes
    providers of which nothing is used when all is moved, those below them before them.

    :raises InvalidInput: if a provider is created twice, or a class moved away twice
    """

    moves: tuple[Move, ...] = ()
    create: tuple[NewProvider, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("moves", Move), ("create", NewProvider), ("remove", str)):
            value = tuple(getattr(self, name))
            if not all(isinstance(one, kind) for one in value):
                raise exceptions.InvalidInput(
                    "field", f"reshape.{name}", value, f"each a {kind.__name__}"
                )
            _store(self, name, value)
        _store(self, "remove", tuple(names.provider_key(one) for one in self.remove))
        _once("reshape.create", (new.name for new in self.create))
        _once("reshape.create", (new.uuid for new in self.create))
        _once("reshape.remove", self.remove)
        _once("reshape.moves", ((move.from_, move.resource_class) for move in self.moves))

    def __str__(self) -> str:
        lines = [*map(str, self.create), *map(str, self.moves)]
        return "\n".join([*lines, *(f"remove {name}" for name in self.remove)])

    @property
    def providers(self) -> tuple[str, ...]:
        """Every provider it names, by name or uuid, those to create included."""
        return tuple(dict.fromkeys(self._named()))

    def _named(self) -> Iterator[str]:
        for new in self.create:
            yield from filter(None, (new.name, new.parent))
        for move in self.moves:
            yield move.from_
            yield from (part.provider for part in move.to)
        yield from self.remove

    @property
    def subject(self) -> str:
        """What it is about: a digest, so that a repetition is recognised.

        Uuids of new providers do not count: a file that gives none gets others when it is read
        again.
        """
        said = self.to_dict()
        for new in said.get("create", ()):
            del new["uuid"]
        text = json.dumps(said, sort_keys=True)
        return f"reshape {hashlib.sha256(text.encode()).hexdigest()[:32]}"

    # --- plain data ---

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"version": VERSION, **serialization.to_plain(self)}

    def to_json(self, indent: int | None = 2) -> str:
        """Return JSON text, which :meth:`from_json` reads back."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the reshape that plain data says.

        :raises InvalidInput: if something is of the wrong type or missing
        :raises InvalidInput: if there is a key that is not known
        :raises UnsupportedVersion: if it is of another version
        """
        given = serialization.versioned(data, "reshape", VERSION)
        return serialization.from_plain(cls, given, "reshape", _CHECKS)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the reshape that JSON text says. Errors are those of :meth:`from_dict`.

        :raises InvalidInput: if it is no JSON
        """
        return cls.from_dict(serialization.from_json(text, "reshape"))


def merge_moves(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return moves with those of one class from one provider as one, its parts in their order.

    So each may say one place: inventory of class A on provider B has moved to provider C.

    :raises InvalidInput: if one is no move, or those of one source differ in how they fill
    :raises InvalidInput: if a class is moved to one place twice

    >>> moves = [Move("box", "VGPU", (Part(f"box/gpu{n}", consumers={f"vm-{n}": 1}),))
    ...          for n in range(2)]
    >>> print(*merge_moves(moves))
    move VGPU of box: to box/gpu0, to box/gpu1
    """
    found: dict[tuple[str, str], Move] = {}
    if not isinstance(moves, Iterable):
        raise exceptions.InvalidInput("field", "moves", moves, "a list of moves")
    for move in moves:
        if not isinstance(move, Move):
            raise exceptions.InvalidInput("field", "moves", move, "each a Move")
        key = move.from_, move.resource_class
        known = found.get(key)
        if known is None:
            found[key] = move
        elif (known.fill, known.split, known.total) != (move.fill, move.split, move.total):
            raise exceptions.InvalidInput("field", "moves", str(move), f"as told with: {known}")
        else:
            found[key] = dataclasses.replace(known, to=(*known.to, *move.to))
    return tuple(found.values())


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


def _store(value: Any, name: str, checked: Any) -> None:
    object.__setattr__(value, name, checked)


def _once(what: str, keys: Iterable[Any]) -> None:
    seen: set[Any] = set()
    for key in keys:
        if key in seen:
            raise exceptions.InvalidInput("repetition", what, key, "each once")
        seen.add(key)


def _check_figure(what: str, value: Any, least: int, most: int, *, optional: bool = False) -> None:
    if value is None and optional:
        return
    if type(value) is not int or not least <= value <= most:
        raise exceptions.InvalidInput("field", what, value, f"an integer from {least} to {most}")
