"""Shares as rows: what a definition says of them, and what allocations then use elsewhere (D2).

``used`` of an inventory is the sum of the allocations there and of those at its sharers, times
their factors. Whoever allocates at a sharer locks what it shares too. So while a definition holds
the lock of an inventory, nothing changes at any of its sharers, and the sum can be made anew.

Whoever changes shares, or moves providers, has locked the roots of their trees and checks all
shares of these as they are then (``providers.sharing``): none is changed meanwhile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import rows, schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.figures import Figures, Key
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.sharing import check_shares

#: (from, of): who shares what.
Pair: TypeAlias = tuple[Key, Key]

_shares = schema.shares.c
_allocations = schema.allocations.c
_ALL = (
    _shares.provider_id,
    _shares.class_id,
    _shares.of_provider_id,
    _shares.of_class_id,
    _shares.factor,
)


def _in(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    return column.in_(sa.bindparam("providers", expanding=True))


_FROM = sa.select(*_ALL).where(_in(_shares.provider_id))
_OF = sa.select(*_ALL).where(_in(_shares.of_provider_id))
_ALLOCATED = (
    sa.select(_allocations.provider_id, _allocations.class_id, sa.func.sum(_allocations.used))
    .where(_in(_allocations.provider_id))
    .group_by(_allocations.provider_id, _allocations.class_id)
)


def _of_trees() -> sa.Select[*tuple[Any, ...]]:
    # SELECT shares.*, sharer.root_id, target.root_id, sharer.name FROM providers sharer
    #   JOIN shares JOIN providers target WHERE sharer.root_id IN (:roots)
    sharer = schema.resource_providers.alias()
    target = schema.resource_providers.alias()
    return (
        sa.select(*_ALL[:4], sharer.c.root_id, target.c.root_id, sharer.c.name)
        .join_from(sharer, schema.shares, sharer.c.id == _shares.provider_id)
        .join(target, target.c.id == _shares.of_provider_id)
        .where(sharer.c.root_id.in_(sa.bindparam("roots", expanding=True)))
    )


_OF_TREES = _of_trees()


def check_trees(connection: Connection, roots: Iterable[int]) -> None:
    """Check all shares of some trees, by the numbers of their roots, which are locked.

    Cost: a statement, that reads every share of these trees.

    :raises StaleDefinition: if one is not as ``check_shares`` demands
    """
    for part in chunks(sorted(set(roots))):
        shares: list[Pair] = []
        root_of: dict[int, int] = {}
        name_of: dict[int, str] = {}
        for row in connection.execute(_OF_TREES, {"roots": part}):
            sharer, class_, of, of_class, root, of_root, name = row
            shares.append(((sharer, class_), (of, of_class)))
            root_of[sharer], root_of[of], name_of[sharer] = root, of_root, name
        check_shares(shares, root_of, name_of)


class Shares:
    """What becomes of the shares of some providers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wanted: dict[Pair, int] = {}
        self._stale: dict[Pair, exceptions.LedgerError] = {}
        self._kept: dict[Pair, int] = {}
        self.recounted: set[int] = set()  #: providers of which more or less is used now

    def want(self, sharer: Key, of: Key, factor: int, stale: exceptions.LedgerError) -> None:
        """Say what is shared; ``stale`` is raised if one of the two is not there."""
        if (sharer, of) in self._wanted:
            raise stale
        self._wanted[sharer, of] = factor
        self._stale[sharer, of] = stale

    def find(self, providers: Iterable[int]) -> None:
        """Find what some providers share, of which nothing stays but what is wanted."""
        self._kept = self._find(_FROM, providers)

    def ends(self) -> set[Key]:
        """Return every inventory whose shares change, or what is used of it with them."""
        return {key for pair in {**self._added(), **self._removed()} for key in pair}

    def counts(self) -> dict[Key, int]:
        """Return how many shares each sharer has now, of those that change."""
        counted = Counter(sharer for sharer, _ in self._wanted)
        return {sharer: counted[sharer] for sharer, _ in {**self._wanted, **self._kept}}

    def check(self, figures: Figures) -> None:
        """Raise unless all that shares and is shared is there."""
        for pair in self._added():
            if not all(figures.is_there(key) for key in pair):
                raise self._stale[pair]

    def write(self, figures: Figures) -> None:
        """Write the shares, and what is used with them."""
        rows.delete(self._connection, schema.shares, _rows(self._removed()))
        added = self._added()
        found = [
            {**row, "factor": factor}
            for row, factor in zip(_rows(added), added.values(), strict=True)
        ]
        rows.insert(self._connection, schema.shares, found)
        changed = {**self._removed(), **added}
        targets = {target for sharer, target in changed if figures.is_used(sharer)}
        used = self._used(targets)
        figures.set_used(used)
        self.recounted = {target[0] for target in used}

    def _added(self) -> dict[Pair, int]:
        return {pair: k for pair, k in self._wanted.items() if self._kept.get(pair) != k}

    def _removed(self) -> dict[Pair, int]:
        return {pair: k for pair, k in self._kept.items() if self._wanted.get(pair) != k}

    def _used(self, targets: Collection[Key]) -> dict[Key, int]:
        """Return what is used of locked inventories, summed anew."""
        if not targets:
            return {}
        shared = self._find(_OF, {target[0] for target in targets})
        shared = {pair: factor for pair, factor in shared.items() if pair[1] in targets}
        allocated = self._allocated({key[0] for key in (*targets, *(s for s, _ in shared))})
        used: dict[Key, int] = defaultdict(int)
        for target in targets:
            used[target] += allocated.get(target, 0)
        for (sharer, target), factor in shared.items():
            used[target] += allocated.get(sharer, 0) * factor
        for amount in used.values():
            if amount > MAX_AMOUNT:
                raise exceptions.InvalidAmount("used", amount, f"at most {MAX_AMOUNT}")
        return used

    def _allocated(self, providers: Iterable[int]) -> dict[Key, int]:
        return {
            (provider, class_): int(amount)  # a Decimal on servers
            for part in chunks(sorted(providers))
            for provider, class_, amount in self._connection.execute(
                _ALLOCATED, {"providers": part}
            )
        }

    def _find(self, query: sa.Select[Any], providers: Iterable[int]) -> dict[Pair, int]:
        return {
            ((row[0], row[1]), (row[2], row[3])): row[4]
            for part in chunks(sorted(providers))
            for row in self._connection.execute(query, {"providers": part})
        }

    # --- what goes ---

    def remove(self, going: Mapping[Key, exceptions.LedgerError]) -> None:
        """Delete the shares of inventories that go, and those in them.

        A sharer that stays uses what goes: the error of that one is raised.
        """
        providers = {key[0] for key in going}
        found = self._find(_FROM, providers) | self._find(_OF, providers)
        gone = [pair for pair in found if pair[0] in going or pair[1] in going]
        for sharer, target in gone:
            if sharer not in going:
                raise going[target]
        rows.delete(self._connection, schema.shares, _rows(gone))


def _rows(pairs: Iterable[Pair]) -> list[dict[str, int]]:
    return [
        {
            "provider_id": sharer[0],
            "class_id": sharer[1],
            "of_provider_id": target[0],
            "of_class_id": target[1],
        }
        for sharer, target in pairs
    ]
