"""The provider: something with inventories, in a tree."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

from resource_objects import base, exceptions, fields, names
from resource_objects.providers.disabled import Disabled, refuse_trait
from resource_objects.resources import (
    Inventories,
    InventoriesLike,
    Inventory,
    Resource,
    resource,
)
from resource_objects.resources.located import parts_of
from resource_objects.resources.records import InventoryPart
from resource_objects.resources.traits import known_traits

_T = TypeVar("_T")

#: Levels of a tree below its root: far more than any machine has.
MAX_DEPTH = 100


@base.register
class Share(base.ResourceObject, frozen=True):
    """What an allocation at one provider also uses at another of its tree (D2).

    Of a provider with ``Share(resource_class="VCPU", of="host0", of_class="VCPU")``, each VCPU
    taken there is a VCPU of host0 too; a ``factor`` of k says k of them. Shares do not chain: of
    what uses something that itself uses a third, both are stated (:meth:`Provider.check`).

    >>> print(Share(resource_class="VCPU", of="host0", of_class="VCPU"))
    VCPU uses 1 VCPU of host0
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    resource_class: str = fields.resource_class()
    of: str = fields.provider_name()
    of_class: str = fields.resource_class()
    factor: int = fields.integer(1, fields.MAX_FIGURE, default=1)

    def __str__(self) -> str:
        return f"{self.resource_class} uses {self.factor} {self.of_class} of {self.of}"


class _Names:
    """The names and uuids of a subtree, and maybe more: of all that carry this object.

    What is not in it is not in their subtrees, until :attr:`is_old`: something else than an
    addition happened to one of them.
    """

    __slots__ = ("is_old", "seen")

    def __init__(self, seen: set[str]) -> None:
        self.seen = seen
        self.is_old = False


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
    in the tree by what is taken here. ``reported_at`` is when its owner, or its agent, said last
    how it is (of a pool or a host), ``adopted_at`` since when the ledger knows what was in use of
    it before (of a host, see ``ComputeNode.bind``), ``disabled`` why it is out of service itself
    (``ledger.disable``); all three are filled when a provider is read.

    >>> host = Provider("host0", "VCPU=64,MEMORY_MB=515000")
    >>> gpu = host.add("host0/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    >>> [provider.name for provider in host.walk()]
    ['host0', 'host0/gpu0']
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    uuid: str | None = fields.uuid(default=None)
    name: str = fields.provider_name()
    generation: int | None = fields.integer(0, default=None)
    inventories: Inventories = fields.nested("Inventories")
    traits: fields.Names = fields.traits(default=frozenset())
    children: fields.TupleFrom[Provider] = fields.tuple_of("Provider", default=())
    aggregates: fields.Coerced[frozenset[str] | None, Iterable[str] | None] = fields.aggregates(
        default=None
    )
    shares: fields.TupleFrom[Share] = fields.tuple_of("Share", default=())
    reported_at: datetime.datetime | None = fields.timestamp(default=None)
    adopted_at: datetime.datetime | None = fields.timestamp(default=None)
    disabled: Disabled | None = fields.nested("Disabled", default=None)

    _names: _Names | None = None  # shared by those that were added to one tree

    def __init__(
        self,
        name: str,
        inventories: InventoriesLike | None = None,
        *,
        traits: Iterable[str] = (),
        uuid: str | None = None,
        generation: int | None = None,
        children: Iterable[Provider] = (),
        aggregates: Iterable[str] | None = None,
        shares: Iterable[Share] = (),
        reported_at: datetime.datetime | None = None,
        adopted_at: datetime.datetime | None = None,
        disabled: Disabled | None = None,
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
            adopted_at=adopted_at,
            disabled=disabled,
        )

    @classmethod
    def owning(cls, name: str, inventories: Inventories, **values: Any) -> Self:
        """Return a provider of inventories that nobody else has: they are not copied."""
        made = cls.__new__(cls)
        base.ResourceObject.__init__(made, name=name, inventories=inventories, **values)
        return made

    def add(
        self,
        name: str,
        inventories: InventoriesLike | None = None,
        *,
        traits: Iterable[str] = (),
        uuid: str | None = None,
        aggregates: Iterable[str] | None = None,
        shares: Iterable[Share] = (),
    ) -> Provider:
        """Add a child and return it.

        Cost: some 50 microseconds, whatever is there already. The first one after something else
        changed in this subtree looks at all of it.

        :raises InvalidTree: if the name or uuid is in this subtree already
        """
        child = Provider(
            name, inventories, traits=traits, uuid=uuid, aggregates=aggregates, shares=shares
        )
        self._append((child,))
        return child

    def add_parts(self, key: Resource | str, inventory: Inventory) -> tuple[Provider, ...]:
        """Add a child for each part of an inventory that lies over this host; return them.

        So a host gets its NUMA cells and its devices. What parts use of the host they share with
        it, where the host has an inventory of it; what they use of themselves, such as a physical
        function the functions split off it, they share too.

        :param key: the resource that the inventory is of
        :raises InvalidTree: if the name of one is in this subtree already

        >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
        >>> host = Provider("host0", "PCPU=8,MEMORY_MB=2048")
        >>> cells = [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=1024) for n in (0, 1)]
        >>> for cell in host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells)):
        ...     print(cell.name, *cell.shares)
        host0/numa0 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
        host0/numa1 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
        """
        kind = resource(key)
        made = tuple([_of_part(self, kind, part) for part in parts_of(inventory)])
        self._append(made)
        return made

    def _append(self, made: tuple[Provider, ...]) -> None:
        """Take in new children that have none themselves.

        Not by ``update``, which checks all children anew: a tree of n would be checked n times.
        Names are looked up in a set that is kept until something in the subtree is changed
        otherwise (:meth:`_validate`): a child does not know who has it.
        """
        new: set[str] = set()
        for child in made:
            own = {child.name, child.uuid or child.name}
            self._refuse_twice(own & new)
            new |= own
        known = self._names
        if known is None or known.is_old or not known.seen.isdisjoint(new):
            there = list(self.walk())
            seen = {name for one in there for name in (one.name, one.uuid) if name is not None}
            self._refuse_twice(seen & new)
            if known is None or known.is_old:
                known = _Names(seen)
                for one in there:
                    one._carry(known)
        known.seen |= new
        for child in made:
            child._carry(known)
        self._store("children", (*self.children, *made))

    def _carry(self, known: _Names) -> None:
        """Carry names; those carried before are of a tree that will not hear of additions here."""
        if self._names is not None:
            self._names.is_old = True
        self._names = known

    def _refuse_twice(self, twice: Iterable[str | None]) -> None:
        for name in twice:
            raise exceptions.InvalidTree(f"tree of {self.name}", name, "each name and uuid once")

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
        if self._names is not None:
            self._names.is_old = True
        known_traits(self.traits)
        refuse_trait(self.traits, f"traits of {self.name}")
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
            own = {provider.name, provider.uuid or provider.name}
            self._refuse_twice(own & seen)
            seen |= own

    def check_shares(self) -> None:
        """Raise unless every share of this tree, as its root, refers to what is in it.

        :raises InvalidTree: for a share of or in an inventory that is not there, of itself, said
            twice, or in what itself uses something that the sharer does not state too
        """
        if not any(provider.shares for provider in self.walk()):
            return
        kept = {(p.name, name) for p in self.walk() for name in kept_classes(p.inventories)}
        stated: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for provider in self.walk():
            for share in provider.shares:
                source, target = (provider.name, share.resource_class), (share.of, share.of_class)
                known = stated.setdefault(source, set())
                if target not in kept:
                    self._refuse_without(share.of, kept)
                if source not in kept or target not in kept or source == target or target in known:
                    raise exceptions.InvalidTree(
                        f"shares of {provider.name}", str(share), "inventories of the tree, once"
                    )
                known.add(target)
        for (name, _), targets in stated.items():
            for target in targets:
                further = stated.get(target, set())
                if not further <= targets:
                    raise exceptions.InvalidTree(
                        f"shares of {name}",
                        sorted(further - targets),
                        "what a share uses in turn, stated too",
                    )

    def _refuse_without(self, name: str, kept: Collection[tuple[str, str]]) -> None:
        """Raise for classes that a provider of this tree lacks, and that shares use of it."""
        lacking = next((one for one in self.walk() if one.name == name), None)
        users = {
            share.of_class: one.name
            for one in self.walk()
            for share in one.shares
            if share.of == name and (name, share.of_class) not in kept
        }
        if lacking is not None:
            missing, user = ", ".join(users), next(iter(users.values()))
            expected = f"{missing} as well, since parts such as {user} are counted in it"
            raise exceptions.InvalidTree(
                f"inventories of {name}", str(lacking.inventories), expected
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Provider):
            return NotImplemented
        return self._set_fields() == other._set_fields()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.name}: {self.inventories}"


def _of_part(host: Provider, kind: Resource, part: InventoryPart) -> Provider:
    """Return the provider of a part."""
    name = f"{host.name}/{part.name}"
    of_host = [
        Share(resource_class=count, of=host.name, of_class=count)
        for count in part.of_host
        if count in host.inventories
    ]
    within = [
        Share(resource_class=count, of=name, of_class=other, factor=factor)
        for count, factor, other in part.within
    ]
    return Provider(name, {kind: part.inventory}, traits=part.traits, shares=[*of_host, *within])


def kept_classes(inventories: Inventories) -> Iterator[str]:
    """Yield the classes that inventories are counted in."""
    for _, inventory in inventories.by_name():
        if not inventory.is_empty:
            yield from (record.resource_class for record in inventory.to_records())


def _tuple(given: Iterable[_T]) -> tuple[_T, ...]:
    if not isinstance(given, Iterable):
        raise exceptions.InvalidTree("children or shares", given, "a list")
    return tuple(given)


# --- shares of a tree as a write leaves them ------------------------------------------------------
#
# What holds of all shares of a tree at once, whoever stated them and when.
#
# A tree is checked whole when somebody syncs it (:meth:`Provider.check_shares`), but two writers
# may change different parts of it at the same moment, and a plan says parts only. So a backend
# checks again, on all shares as a write leaves them.


_Provider = TypeVar("_Provider", bound=Hashable)
_Class = TypeVar("_Class", bound=Hashable)


def check_shares(
    shares: Iterable[tuple[tuple[_Provider, _Class], tuple[_Provider, _Class]]],
    root_of: Mapping[_Provider, object],
    name_of: Mapping[_Provider, str],
) -> None:
    """Raise unless shares are within their trees, of something else, once, and flat.

    Flat: what the target of a share uses in turn, the sharer states too; so nothing uses itself.
    Providers and classes are known by whatever names them: numbers, uuids. Cost: linear.

    :param shares: ``(sharer, target)``, each ``(provider, class)``: all shares of some trees
    :param root_of: the root of each provider of these trees
    :param name_of: the name of each sharer
    :raises StaleDefinition: naming a sharer of which it is not so

    >>> check_shares([(("cell0", "VCPU"), ("host0", "VCPU"))], {"cell0": 1, "host0": 1}, {})
    """
    stated: dict[tuple[_Provider, _Class], set[tuple[_Provider, _Class]]] = {}
    for sharer, target in shares:
        known = stated.setdefault(sharer, set())
        name = name_of.get(sharer[0], "")
        if root_of.get(sharer[0]) != root_of.get(target[0]):
            raise exceptions.StaleDefinition(name, "it shares what is in another tree")
        if sharer == target or target in known:
            raise exceptions.StaleDefinition(name, "it shares itself, or something twice")
        known.add(target)
    for sharer, targets in stated.items():
        for target in targets:
            if not stated.get(target, set()) <= targets:
                raise exceptions.StaleDefinition(
                    name_of.get(sharer[0], ""), "what it shares uses more than it states itself"
                )
