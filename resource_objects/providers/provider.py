"""The provider: something with inventories, in a tree."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from resource_objects import base, exceptions, fields, names
from resource_objects.resources import Inventories
from resource_objects.resources.traits import known_traits

_T = TypeVar("_T")

#: Levels of a tree below its root: far more than any machine has.
MAX_DEPTH = 100


@base.register_record
class Share(base.Value):
    """What an allocation at one provider also uses at another of its tree (D2).

    Of a provider with ``Share(resource_class="VCPU", of="host0", of_class="VCPU")``, each VCPU
    taken there is a VCPU of host0 too; a ``factor`` of k says k of them. Shares do not chain: of
    what uses something that itself uses a third, both are stated (:meth:`Provider.check`).

    >>> print(Share(resource_class="VCPU", of="host0", of_class="VCPU"))
    VCPU uses 1 VCPU of host0
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "resource_class": fields.ResourceClassField(),
        "of": fields.NameField(),
        "of_class": fields.ResourceClassField(),
        "factor": fields.IntegerField(1, fields.MAX_FIGURE, default=1),
    }
    resource_class: str
    of: str
    of_class: str
    factor: int = 1

    def __str__(self) -> str:
        return f"{self.resource_class} uses {self.factor} {self.of_class} of {self.of}"


@base.register
class Provider(base.ResourceObject):
    """Something with inventories and traits; with its children, a tree.

    A tree is built top down and handed to ``ledger.sync``. The ``used`` figures of its inventories
    are the ledger's: they are filled when a provider is read and ignored when it is synced.
    ``generation`` is the version of the definition: None for a tree that was built and not read,
    which then states what is there whatever was known before; a number makes ``sync`` refuse if
    somebody changed the provider since, or its children came or went. A child does not know its
    parent, so whether the whole is a tree is checked when it is synced (:meth:`check`).

    ``aggregates`` are the names of those it is a member of; None in a tree that was built says
    nothing about them, and a sync leaves them as they are. ``shares`` say what is used elsewhere
    in the tree by what is taken here. ``reported_at`` is when its owner said last how it is (of a
    pool); it is filled when a provider is read.

    >>> host = Provider("host0", "VCPU=64,MEMORY_MB=515000")
    >>> gpu = host.add("host0/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    >>> [provider.name for provider in host.walk()]
    ['host0', 'host0/gpu0']
    """

    # Version 1.0: Initial version
    # Version 1.1: aggregates, shares and reported_at
    VERSION = "1.1"

    CHILD_VERSIONS = {
        "resource_objects.Provider": [("1.0", "1.0"), ("1.1", "1.1")],
        "resource_objects.Share": [("1.1", "1.0")],
    }

    fields = {
        "uuid": fields.UUIDField(nullable=True, default=None),
        "name": fields.NameField(),
        "generation": fields.IntegerField(0, nullable=True, default=None),
        "inventories": fields.ObjectField("Inventories"),
        "traits": fields.TraitsField(default=frozenset()),
        "children": fields.TupleOfObjectsField("Provider", default=()),
        "aggregates": fields.AggregatesField(nullable=True, default=None),
        "shares": fields.TupleOfObjectsField("Share", default=()),
        "reported_at": fields.TimestampField(nullable=True, default=None),
    }
    uuid: str | None
    name: str
    generation: int | None
    inventories: Inventories
    traits: frozenset[str]
    children: tuple[Provider, ...]
    aggregates: frozenset[str] | None
    shares: tuple[Share, ...]
    reported_at: datetime.datetime | None

    def __init__(
        self,
        name: str,
        inventories: Any = None,
        *,
        traits: Iterable[str] = (),
        uuid: str | None = None,
        generation: int | None = None,
        children: Iterable[Provider] = (),
        aggregates: Iterable[str] | None = None,
        shares: Iterable[Share] = (),
        reported_at: datetime.datetime | None = None,
    ) -> None:
        super().__init__(
            name=name,
            inventories=Inventories({} if inventories is None else inventories),
            traits=known_traits(traits),
            uuid=uuid,
            generation=generation,
            children=_tuple(children),
            aggregates=aggregates,
            shares=_tuple(shares),
            reported_at=reported_at,
        )

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Leave out what the version does not know; refuse to lose what it cannot say."""
        if target_version == "1.0":
            for name in ("aggregates", "shares", "reported_at"):
                if primitive.pop(name, None):
                    raise exceptions.CannotDowngrade(
                        self.obj_name(), target_version, f"it cannot say {name}"
                    )
        super().obj_make_compatible(primitive, target_version)

    def add(
        self,
        name: str,
        inventories: Any = None,
        *,
        traits: Iterable[str] = (),
        uuid: str | None = None,
        aggregates: Iterable[str] | None = None,
        shares: Iterable[Share] = (),
    ) -> Provider:
        """Add a child and return it.

        :raises InvalidTree: if the name is in this subtree already
        """
        child = Provider(
            name, inventories, traits=traits, uuid=uuid, aggregates=aggregates, shares=shares
        )
        self.update(children=(*self.children, child))
        return child

    def walk(self) -> Iterator[Provider]:
        """Yield this provider and all below it, parents before children."""
        for provider, _depth in self._with_depth():
            yield provider

    def _with_depth(self) -> Iterator[tuple[Provider, int]]:
        waiting: list[tuple[Provider, int]] = [(self, 0)]
        while waiting:
            provider, depth = waiting.pop()
            yield provider, depth
            waiting.extend((child, depth + 1) for child in reversed(provider.children))

    def find(self, name: str) -> Provider:
        """Return the provider of that name in this subtree.

        :raises ProviderNotFound: if there is none
        """
        for provider in self.walk():
            if provider.name == name:
                return provider
        raise exceptions.ProviderNotFound(name, f"not in the tree of {self.name}")

    def parents(self) -> Iterator[tuple[Provider, Provider | None]]:
        """Yield ``(provider, parent)`` top down; the parent of this one is None."""
        yield self, None
        for provider in self.walk():
            for child in provider.children:
                yield child, provider

    def _validate(self) -> None:
        known_traits(self.traits)
        if names.is_uuid(self.name) and names.uuid_text(self.name) != self.uuid:
            raise exceptions.InvalidName(
                "provider name", self.name, "no uuid but its own: look-ups take names and uuids"
            )
        self.check()

    def check(self) -> None:
        """Raise if this subtree is none. A child does not know what is above it, so sync asks.

        :raises InvalidTree: if a name or uuid is in it twice, or it is deeper than 100 levels
        """
        self._check_names()

    def _check_names(self) -> None:
        seen: set[str] = set()
        for provider, depth in self._with_depth():
            if depth > MAX_DEPTH:
                raise exceptions.InvalidTree(
                    f"tree of {self.name}", provider.name, f"at most {MAX_DEPTH} levels"
                )
            for name in {provider.name, provider.uuid or provider.name}:
                if name in seen:
                    raise exceptions.InvalidTree(
                        f"tree of {self.name}", name, "each name and uuid once"
                    )
                seen.add(name)

    def check_shares(self) -> None:
        """Raise unless every share of this tree, as its root, refers to what is in it.

        :raises InvalidTree: for a share of or in an inventory that is not there, of itself, said
            twice, or in what itself uses something that the sharer does not state too
        """
        kept = {(p.name, name) for p in self.walk() for name in kept_classes(p.inventories)}
        stated: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for provider in self.walk():
            for share in provider.shares:
                source, target = (provider.name, share.resource_class), (share.of, share.of_class)
                known = stated.setdefault(source, set())
                if source not in kept or target not in kept or source == target or target in known:
                    raise exceptions.InvalidTree(
                        f"shares of {provider.name}", str(share), "inventories of the tree, once"
                    )
                known.add(target)
        for (name, _), targets in stated.items():
            for target in targets:
                if not stated.get(target, set()) <= targets:
                    missing = sorted(stated[target] - targets)
                    raise exceptions.InvalidTree(
                        f"shares of {name}", missing, "what a share uses in turn, stated too"
                    )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Provider):
            return NotImplemented
        return dict(self._set_fields()) == dict(other._set_fields())

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.name}: {self.inventories}"


def kept_classes(inventories: Inventories) -> Iterator[str]:
    """Yield the classes that inventories are counted in."""
    for _, inventory in inventories.by_name():
        for record in inventory.to_records():
            yield record.resource_class


def _tuple(given: Iterable[_T]) -> tuple[_T, ...]:
    if not isinstance(given, Iterable):
        raise exceptions.InvalidTree("children or shares", given, "a list")
    return tuple(given)
