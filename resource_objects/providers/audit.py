"""The audit: what in a ledger is not as it should be, as data. Pure, and apart from who writes.

It recomputes from rows what other code keeps up to date, so it does not believe what it checks.
Some findings are no faults but open ends that somebody should close: an expired claim, a pool whose
owner is silent, what is held of a pool through a link that is gone.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from resource_objects.providers.audit_parts import in_parts
from resource_objects.providers.audit_rows import Rows
from resource_objects.providers.columns import Columns
from resource_objects.providers.findings import Audit, Finding, FindingKind
from resource_objects.providers.given import ago
from resource_objects.providers.orders import ClaimRecord, Key

__all__ = ["Audit", "Finding", "FindingKind", "audit", "spread"]


def audit(
    columns: Columns,
    claims: Iterable[ClaimRecord] = (),
    *,
    now: datetime.datetime | None = None,
    stale_after: datetime.timedelta | None = None,
) -> Audit:
    """Return what is not as it should be. Cost: linear in the rows, and gathering what is in parts.

    >>> print(audit(Columns()))
    nothing found

    :param columns: everything that is kept, with allocations
    :param claims: those of :func:`spread` consumers and those to look at for expiry; of any
    :param now: the moment to judge by; None: this one
    :param stale_after: how long the owner of a pool may be silent; None: for ever
    """
    rows, moment = Rows(columns), now or datetime.datetime.now(datetime.UTC)
    kept = {claim.consumer: claim for claim in claims}
    searched = {name for name, claim in kept.items() if claim.request is not None}
    found = [
        *_orphaned(rows),
        *_use(rows),
        *_units(rows),
        *in_parts(rows),
        *_unshared(rows, searched),
        *_counted_twice(rows),
        *_expired(kept.values(), moment),
        *(() if stale_after is None else _stale(rows, ago("stale_after", stale_after, moment))),
    ]
    order = list(FindingKind)
    return Audit(tuple(sorted(found, key=lambda finding: order.index(finding.kind))))


def spread(columns: Columns) -> tuple[str, ...]:
    """Return who holds something in several trees: where a search found it, of a pool."""
    by_consumer = Rows(columns).by_consumer()
    return tuple(consumer for consumer, by_tree in by_consumer.items() if len(by_tree) > 1)


def _use(rows: Rows) -> Iterator[Finding]:
    expected: dict[Key, int] = defaultdict(int)
    for one in rows.allocations:
        expected[one.key] += one.amount
        for target, factor in rows.shares.get(one.key, ()):
            expected[target] += one.amount * factor
    for key, record in rows.inventories.items():
        where = rows.name(key[0])
        if record.used != expected[key]:
            yield Finding(
                FindingKind.WRONG_USED,
                where,
                key[1],
                found=record.used,
                expected=expected[key],
            )
        if record.used > record.capacity:
            yield Finding(
                FindingKind.OVER_CAPACITY,
                where,
                key[1],
                found=record.used,
                expected=record.capacity,
            )


def _units(rows: Rows) -> Iterator[Finding]:
    held = {(one.key, one.consumer) for one in rows.allocations}
    owner: dict[tuple[str, str], str] = {}
    for unit in rows.units:
        place = rows.name(unit.key[0])
        first = owner.setdefault((unit.key[0], unit.unit), unit.consumer)
        if first != unit.consumer:
            yield Finding(
                FindingKind.UNIT_TWICE,
                place,
                unit.key[1],
                unit.consumer,
                unit.unit,
                other=first,
            )
        if (unit.key, unit.consumer) not in held:
            yield Finding(FindingKind.UNIT_LOOSE, place, unit.key[1], unit.consumer, unit.unit)


def _unshared(rows: Rows, searched: Collection[str]) -> Iterator[Finding]:
    """Yield what is held of pools that give nothing to the consumer's host.

    The host of a consumer is the tree in which it holds most classes. What it holds elsewhere is
    of a pool, if that is one, or if a search found it: then it was one. Others may hold something
    of several hosts on purpose.
    """
    for consumer, by_tree in rows.by_consumer().items():
        hosts = [tree for tree, held in by_tree.items() if not rows.are_of_pools(held)]
        if len(by_tree) < 2 or not hosts:
            continue  # of pools alone: nobody says for which host
        host = min(hosts, key=lambda tree: (-len({one.key[1] for one in by_tree[tree]}), tree))
        linked = frozenset().union(*(rows.aggregates_of_tree[tree] for tree in hosts))
        for tree, held in by_tree.items():
            for one in held if tree != host else ():
                is_of_pool = one.key[0] in rows.pools or consumer in searched
                if is_of_pool and not rows.is_given(one.key, linked):
                    yield Finding(
                        FindingKind.UNSHARED,
                        rows.name(one.key[0]),
                        one.key[1],
                        consumer,
                        found=one.amount,
                        other=rows.name(host),
                    )


def _counted_twice(rows: Rows) -> Iterator[Finding]:
    """Yield what is counted at a pool and in a tree that has it from there, wherever in the tree.

    A search takes a class from a tree as a whole, or from a pool that the tree is linked to.
    """
    pools: dict[str, list[str]] = defaultdict(list)
    for pool in sorted(rows.pools, key=rows.name):
        for aggregate in rows.aggregates[pool]:
            pools[aggregate].append(pool)
    for host, name in rows.inventories:
        if host in rows.pools:
            continue
        givers = {pool for aggregate in rows.links(host) for pool in pools[aggregate]}
        for pool in sorted(givers, key=rows.name):
            if (pool, name) in rows.inventories:
                where = rows.name(host)
                yield Finding(FindingKind.COUNTED_TWICE, where, name, other=rows.name(pool))


def _expired(claims: Iterable[ClaimRecord], now: datetime.datetime) -> Iterator[Finding]:
    for claim in claims:
        if claim.expires_at is not None and claim.expires_at < now:
            yield Finding(FindingKind.EXPIRED, consumer=claim.consumer, at=claim.expires_at)


def _stale(rows: Rows, before: datetime.datetime) -> Iterator[Finding]:
    for pool in sorted(rows.pools, key=rows.name):
        reported = rows.reported_at[pool]
        if reported is None or reported < before:
            yield Finding(FindingKind.STALE_POOL, rows.name(pool), at=reported)


def _orphaned(rows: Rows) -> Iterator[Finding]:
    for orphan in rows.orphans:
        yield Finding(
            FindingKind.ORPHANED,
            orphan.provider,
            orphan.resource_class or None,
            orphan.consumer or None,
            other=orphan.table,
        )
