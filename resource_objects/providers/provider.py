"""The provider: something with inventories, in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from resource_objects import base, exceptions, fields, names
from resource_objects.resources import Inventories
from resource_objects.resources.traits import known_traits

#: Levels of a tree below its root: far more than any machine has.
MAX_DEPTH = 100


@base.register
class Provider(base.ResourceObject):
    """Something with inventories and traits; with its children, a tree.

    A tree is built top down and handed to ``ledger.sync``. The ``used`` figures of its inventories
    are the ledger's: they are filled when a provider is read and ignored when it is synced.
    ``generation`` is the version of the definition: None for a tree that was built and not read,
    which then states what is there whatever was known before; a number makes ``sync`` refuse if
    somebody changed the provider since, or its children came or went. A child does not know its
    parent, so whether the whole is a tree is checked when it is synced (:meth:`check`).

    >>> host = Provider("host0", "VCPU=64,MEMORY_MB=515000")
    >>> gpu = host.add("host0/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    >>> [provider.name for provider in host.walk()]
    ['host0', 'host0/gpu0']
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "uuid": fields.UUIDField(nullable=True, default=None),
        "name": fields.NameField(),
        "generation": fields.IntegerField(0, nullable=True, default=None),
        "inventories": fields.ObjectField("Inventories"),
        "traits": fields.TraitsField(default=frozenset()),
        "children": fields.TupleOfObjectsField("Provider", default=()),
    }
    uuid: str | None
    name: str
    generation: int | None
    inventories: Inventories
    traits: frozenset[str]
    children: tuple[Provider, ...]

    def __init__(
        self,
        name: str,
        inventories: Any = None,
        *,
        traits: Iterable[str] = (),
        uuid: str | None = None,
        generation: int | None = None,
        children: Iterable[Provider] = (),
    ) -> None:
        super().__init__(
            name=name,
            inventories=Inventories({} if inventories is None else inventories),
            traits=known_traits(traits),
            uuid=uuid,
            generation=generation,
            children=_tuple(children),
        )

    def add(
        self,
        name: str,
        inventories: Any = None,
        *,
        traits: Iterable[str] = (),
        uuid: str | None = None,
    ) -> Provider:
        """Add a child and return it.

        :raises InvalidTree: if the name is in this subtree already
        """
        child = Provider(name, inventories, traits=traits, uuid=uuid)
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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Provider):
            return NotImplemented
        return dict(self._set_fields()) == dict(other._set_fields())

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.name}: {self.inventories}"


def _tuple(children: Iterable[Provider]) -> tuple[Provider, ...]:
    if not isinstance(children, Iterable):
        raise exceptions.InvalidTree("children", children, "providers")
    return tuple(children)
