"""The provider: something with inventories, in a tree."""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Self, TypeAlias, TypeVar

from resource_objects import base, exceptions, fields, names
from resource_objects.providers.disabled import Disabled, refuse_trait
from resource_objects.resources import Inventories, InventoriesLike, Inventory, Resource, resource
from resource_objects.resources.placed import parts_of
from resource_objects.resources.traits import checked_traits

_T = TypeVar("_T")

#: An inventory: (provider's uuid, or its name in a tree without uuids; resource class).
Key: TypeAlias = tuple[str, str]
#: Levels of a tree below its root: far more than any machine has.
MAX_DEPTH = 100


@base.register
class Share(base.ResourceObject, frozen=True):
    """The use of one inventory that allocations from another inventory of the same tree imply.

    With ``Share(resource_class="VCPU", of="host0", of_class="VCPU")``, each VCPU allocated from the
    provider is also allocated from host0; with a ``factor`` of k, k of them. Shares do not chain: a
    provider that shares an inventory which itself shares a third one states both shares
    (:func:`broken_share`).

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


class _NameSet:
    """The names and uuids in a tree, shared by the providers that were added to it with ``add``.

    A name that is not in the set is not in the subtree of any of these providers, until
    ``is_stale``: one of them was changed in another way.
    """

    __slots__ = ("is_stale", "names")

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.is_stale = False


@base.register
class Provider(base.ResourceObject):
    """A provider: something with inventories and traits. With its children it is a tree.

    A tree is built top down and passed to ``ledger.sync``.

    ``generation`` is the version of the definition. It is None for a tree that was built, which
    replaces any stored definition. With a number, ``sync`` refuses if the provider was changed
    since, or if children were added or removed. ``aggregates`` are the names of the aggregates that
    the provider is a member of; a sync with None does not change the memberships. ``shares`` list
    the inventories of the tree that allocations from this provider also use.

    Reading a ledger fills the following fields, and the ``used`` figures of the inventories; a sync
    ignores them. ``reported_at`` is the time of the last report of a host's agent or a pool's
    owner, ``adopted_at`` the time since which the ledger records the previous use of the host
    (``ComputeNode.bind``), ``disabled`` the reason why the provider itself is disabled.

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

    _name_set: _NameSet | None = None

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
            traits=checked_traits(traits),
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
        """Return a provider that takes over inventories without a copy."""
        provider = cls.__new__(cls)
        base.ResourceObject.__init__(provider, name=name, inventories=inventories, **values)
        return provider

    # --- building a tree ---

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

        Cost: some 50 microseconds; the first call after another change in this subtree reads it.

        :raises InvalidTree: if the name or uuid is already in this subtree
        """
        child = Provider(
            name, inventories, traits=traits, uuid=uuid, aggregates=aggregates, shares=shares
        )
        self._append((child,))
        return child

    def add_parts(self, key: Resource | str, inventory: Inventory) -> tuple[Provider, ...]:
        """Add a child for each part (NUMA cell or device) of an inventory; return the children.

        A part shares each class that it uses of the host, if the host has an inventory of it, and
        each class that it uses of itself, such as the physical function of a virtual one.

        :param key: the resource of the inventory
        :raises InvalidTree: if the name of a part is already in this subtree

        >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
        >>> host = Provider("host0", "PCPU=8,MEMORY_MB=2048")
        >>> cells = [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=1024) for n in (0, 1)]
        >>> for cell in host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells)):
        ...     print(cell.name, *cell.shares)
        host0/numa0 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
        host0/numa1 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
        """
        kind = resource(key)
        children: list[Provider] = []
        for part in parts_of(inventory):
            name = f"{self.name}/{part.name}"
            shares = [
                Share(resource_class=count, of=self.name, of_class=count)
                for count in part.host_classes
                if count in self.inventories
            ]
            shares += [
                Share(resource_class=count, of=name, of_class=other, factor=factor)
                for count, factor, other in part.uses
            ]
            children.append(
                Provider(name, {kind: part.inventory}, traits=part.traits, shares=shares)
            )
        self._append(tuple(children))
        return tuple(children)

    def _append(self, children: tuple[Provider, ...]) -> None:
        # ``update`` would check all children again: a tree of n providers n times
        added: set[str] = set()
        for child in children:
            keys = {child.name, child.uuid or child.name}
            self._refuse_duplicates(keys & added)
            added |= keys
        name_set = self._name_set
        if name_set is None or name_set.is_stale or not name_set.names.isdisjoint(added):
            subtree = list(self.walk())
            present = {key for provider in subtree for key in (provider.name, provider.uuid) if key}
            self._refuse_duplicates(present & added)
            if name_set is None or name_set.is_stale:
                name_set = _NameSet(present)
                for provider in subtree:
                    provider._use_name_set(name_set)
        name_set.names |= added
        for child in children:
            child._use_name_set(name_set)
        self._store("children", (*self.children, *children))

    def _use_name_set(self, name_set: _NameSet) -> None:
        # the tree of the old set does not record further additions
        if self._name_set is not None:
            self._name_set.is_stale = True
        self._name_set = name_set

    def _refuse_duplicates(self, duplicates: Iterable[str]) -> None:
        for name in duplicates:
            raise exceptions.InvalidTree(f"tree of {self.name}", name, "each name and uuid once")

    # --- reading a tree ---

    def walk(self) -> Iterator[Provider]:
        """Yield this provider and all below it, parents before children."""
        for provider, _depth in self._with_depth():
            yield provider

    def _with_depth(self) -> Iterator[tuple[Provider, int]]:
        stack: list[tuple[Provider, int]] = [(self, 0)]
        while stack:
            provider, depth = stack.pop()
            yield provider, depth
            stack.extend((child, depth + 1) for child in reversed(provider.children))

    def find(self, name: str) -> Provider:
        """Return the provider of a name in this subtree.

        :raises NotFound: if there is none
        """
        for provider in self.walk():
            if provider.name == name:
                return provider
        raise exceptions.NotFound("provider", name, f"not in the tree of {self.name}")

    def parents(self) -> Iterator[tuple[Provider, Provider | None]]:
        """Yield ``(provider, parent)``, parents before children; the parent of this one is None."""
        yield self, None
        for provider in self.walk():
            for child in provider.children:
                yield child, provider

    # --- checks ---

    def _validate(self) -> None:
        if self._name_set is not None:
            self._name_set.is_stale = True
        checked_traits(self.traits)
        refuse_trait(self.traits, f"traits of {self.name}")
        if names.is_uuid(self.name) and names.uuid_text(self.name) != self.uuid:
            raise exceptions.InvalidInput(
                "name",
                "provider name",
                self.name,
                "a name that is not the uuid of another provider: both identify providers",
            )
        self.check()

    def check(self) -> None:
        """Raise unless this subtree is a tree. A sync checks the whole tree.

        :raises InvalidTree: if a name or uuid occurs twice, or the tree is deeper than 100 levels
        """
        seen: set[str] = set()
        for provider, depth in self._with_depth():
            if depth > MAX_DEPTH:
                raise exceptions.InvalidTree(
                    f"tree of {self.name}", provider.name, f"at most {MAX_DEPTH} levels"
                )
            keys = {provider.name, provider.uuid or provider.name}
            self._refuse_duplicates(keys & seen)
            seen |= keys

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Provider):
            return NotImplemented
        return self._set_fields() == other._set_fields()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.name}: {self.inventories}"


def _tuple(values: Iterable[_T]) -> tuple[_T, ...]:
    if not isinstance(values, Iterable):
        raise exceptions.InvalidTree("children or shares", values, "a list")
    return tuple(values)


def stored_classes(inventories: Inventories) -> Iterator[str]:
    """Yield the resource classes that inventories are stored in; empty ones are not stored."""
    for _, inventory in inventories.by_name():
        if not inventory.is_empty:
            yield from (record.resource_class for record in inventory.to_records())


# --- the rules of shares --------------------------------------------------------------------------
# A sync checks the whole tree. Two writers may change different parts of a tree at once, and a plan
# states parts only, so a backend checks all shares of a tree again as a write leaves them.


def broken_share(
    shares: Iterable[tuple[Key, Key]],
    root_of: Mapping[str, object],
    counted: Container[Key] | None = None,
) -> tuple[Key, Key, str] | None:
    """Return the first share that breaks a rule, and the rule; None if all shares keep the rules.

    A share leads from an inventory to another one of the same tree, is stated once, and does not
    chain: the sharer states the shares of its target too. So no inventory uses itself. Cost: linear
    in the shares.

    :param shares: ``(sharer, target)``, providers by name or uuid: all shares of some trees
    :param root_of: the root of each provider of these trees
    :param counted: the inventories of these trees; None if they are known to exist

    >>> shares = [(("cell0", "VCPU"), ("host0", "VCPU")), (("part", "VCPU"), ("cell0", "VCPU"))]
    >>> broken_share(shares, {"host0": 1, "cell0": 1, "part": 1})[2]
    'include the shares of each inventory that it shares'
    """
    targets_of: dict[Key, dict[Key, None]] = {}
    for sharer, target in shares:
        for end in (sharer, target):
            if counted is not None and end not in counted:
                rule = f"connect inventories of the same tree: {end[1]} is not counted there"
                return sharer, target, rule
        if root_of.get(sharer[0]) != root_of.get(target[0]):
            return sharer, target, "connect inventories of the same tree"
        targets = targets_of.setdefault(sharer, {})
        if sharer == target or target in targets:
            return sharer, target, "lead to other inventories, each once"
        targets[target] = None
    for sharer, targets in targets_of.items():
        for further in (further for target in targets for further in targets_of.get(target, ())):
            if further not in targets:
                return sharer, further, "include the shares of each inventory that it shares"
    return None
