"""How every write of definitions is done: compare, write, and again if somebody was faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from resource_objects import exceptions, names
from resource_objects.ledger.reading import Kept, ReadMethods, by_key, located
from resource_objects.providers import DefinitionChanges, Provider
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import together
from resource_objects.providers.given import any_generation
from resource_objects.providers.listing import MOST_ROWS, ListedProvider, ProviderFilter
from resource_objects.providers.orders import Operation, Order, Write
from resource_objects.providers.parts import (
    check_parts,
    held_otherwise,
    holders_of,
    keeps_devices,
)
from resource_objects.providers.pools import SHARES, gains_of


@dataclasses.dataclass(frozen=True, slots=True)
class SyncResult:
    """What a write of definitions did, in providers; :attr:`changes` tells which. True if anything.

    A repeated operation did everything the first time; the repetition does nothing and says so.
    """

    created: int
    updated: int
    removed: int
    changes: tuple[DefinitionChanges, ...] = dataclasses.field(default=(), repr=False)

    @classmethod
    def of(cls, changes: Iterable[DefinitionChanges]) -> SyncResult:
        """Return the result of some changes, one per tree."""
        done = tuple(changes)
        return cls(
            created=sum(len(one.creates) for one in done),
            updated=sum(not update.only_children for one in done for update in one.updates),
            removed=sum(len(one.removals) for one in done),
            changes=done,
        )

    def __bool__(self) -> bool:
        return bool(self.created or self.updated or self.removed)

    def __str__(self) -> str:
        return "\n".join(str(change) for change in self.changes if change) or "nothing changed"


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """What a write of definitions would change, found by comparing with trees as they are kept.

    ``unchanged`` and ``reported`` are those of the write.
    """

    kept: Sequence[Provider]
    changes: tuple[DefinitionChanges, ...]
    unchanged: tuple[tuple[str, int], ...] = ()
    reported: tuple[str, ...] = ()


class DefineMethods(ReadMethods):
    """What the methods that declare have in common."""

    def _edit(
        self,
        kind: str,
        name: str,
        change: Callable[[Provider, Provider], DefinitionChanges],
        generation: int | None,
        operation: str | None,
    ) -> SyncResult:
        """Change one provider of a tree: ``change(root, provider)`` says how."""
        key, read_at = names.provider_key(name), any_generation(generation)
        doing, done = self._begin(operation, kind, key)
        if done is not None:
            return SyncResult(0, 0, 0)

        def compare() -> Comparison:
            kept = self._kept([key])
            root, provider = at_generation(kept, key, read_at)
            return Comparison((root,), (change(root, provider),))

        return self._define(doing, kind, key, compare)

    def _kept(self, keys: Iterable[str]) -> Kept:
        """Return the trees of some providers as they are, by name and uuid."""
        return by_key(trees(self.backend.read(*keys, allocations=False)))

    def _define(
        self, doing: Operation, kind: str, subject: str, compare: Callable[[], Comparison]
    ) -> SyncResult:
        """Compare and write, again if somebody changed the trees in between."""
        tries = self.retries.definitions
        while True:
            found = compare()
            changes = together(subject, found.changes)
            if not changes and not found.reported:
                return SyncResult.of(found.changes)
            guarded = (*found.unchanged, *self._allowed(found.kept, changes))
            write = Write(
                doing,
                kind,
                subject,
                changes if changes else None,
                unchanged=tuple(dict.fromkeys(guarded)),
                reported=found.reported,
            )
            try:
                self.backend.commit(write)
            except (exceptions.StaleDefinition, exceptions.ProviderExists):
                # somebody changed a tree, or made it at the same moment: look again
                if tries <= 0:
                    raise
                tries -= 1
            except exceptions.ProviderInUse as used:
                holders = self._device_holders(found.kept, used.subject)
                raise exceptions.ProviderInUse(used.subject, holders or used.detail) from used
            else:
                return SyncResult.of(found.changes)

    def _device_holders(self, kept: Iterable[Provider], name: str) -> str:
        """Return who holds the devices of a provider, as text; nothing if it keeps none.

        Cost: a read if it does.
        """
        for root in kept:
            for provider in root.walk():
                if provider.name == name and keeps_devices(provider):
                    return "; ".join(holders_of(self.backend.read(name), name))
        return ""

    def _allowed(
        self,
        kept: Sequence[Provider],
        changes: DefinitionChanges,
        orders: Sequence[Order] = (),
    ) -> tuple[tuple[str, int], ...]:
        """Return the providers, ``(uuid, generation)``, that changes rely on, or refuse them.

        What consumers hold is read only where a unit would be given out in another way. Who takes
        it by name at the same moment may be missed: an audit lists what comes of it.

        :raises InvalidTree: if the parts of an inventory would contradict each other
        :raises InventoryInUse: if a unit that is held by name would be given out in another way
        :raises CountedTwice: as :meth:`_counted_once`
        """
        for changed in check_parts(kept, changes):
            for held in held_otherwise(changed, self.backend.read(changed.root), orders):
                where, name, unit, consumer = held
                said = f"{consumer} holds {unit} of {name}, which would be given out in another way"
                raise exceptions.InventoryInUse(where, said)
        return self._counted_once(kept, changes)

    def _counted_once(
        self, kept: Iterable[Provider], changes: DefinitionChanges
    ) -> tuple[tuple[str, int], ...]:
        """Return the pools and hosts, ``(uuid, generation)``, that changes rely on.

        Nothing is asked where nobody counts more, or has more links, than before. Of two writes
        at the same moment, one of which makes a pool give more, or a tree count more, while the
        other links that tree to the pool, each may miss the other: an audit lists what comes of it.

        :raises CountedTwice: if a class would be counted at a pool and in a tree that has it there
        """
        gains = gains_of(kept, changes)
        of_hosts = gains.aggregates(of_pools=False)
        of_pools = gains.aggregates(of_pools=True)
        listed: list[ListedProvider] = []
        if of_hosts:
            pools = ProviderFilter(aggregates=(of_hosts,), required=frozenset({SHARES}))
            listed += self._listed(pools, MOST_ROWS)
        if of_pools:
            hosts = ProviderFilter(aggregates=(of_pools,), forbidden=frozenset({SHARES}))
            listed += self._whole_trees({one.root_uuid for one in self._listed(hosts, MOST_ROWS)})
        return gains.unchanged(listed)

    def _whole_trees(self, roots: Iterable[str]) -> Iterator[ListedProvider]:
        """Yield all providers of some trees. Cost: a few statements for each thousand trees."""
        left = sorted(roots)
        for start in range(0, len(left), 1000):
            some = frozenset(left[start : start + 1000])
            yield from self._listed(ProviderFilter(trees=some), MOST_ROWS)


def at_generation(kept: Kept, key: str, generation: int | None) -> tuple[Provider, Provider]:
    """Return (root, provider) of a name or uuid.

    :raises ProviderNotFound: if it is not there
    :raises StaleDefinition: if it is not at the generation it was read at
    """
    root, provider = located(kept, key)
    if generation is not None and generation != provider.generation:
        raise exceptions.StaleDefinition(
            provider.name, f"read at generation {generation}, now {provider.generation}"
        )
    return root, provider


def roots_of(kept: Kept) -> list[Provider]:
    """Return the roots of some trees, each once."""
    return list({id(root): root for root, _ in kept.values()}.values())
