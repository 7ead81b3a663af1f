"""What lists and totals should be: naive loops over everything that is kept, written once more.

Nothing here is shared with a backend: it reads :class:`Columns`, and says each condition of a
filter in its own words.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from resource_objects.providers import Backend
from resource_objects.providers.columns import Columns
from resource_objects.providers.listing import By, ConsumerFilter, ProviderFilter, Total
from resource_objects.providers.orders import ClaimRecord


@dataclasses.dataclass
class Row:
    """One provider, by its names only."""

    name: str
    uuid: str
    parent: str | None
    root: str
    reported_at: datetime.datetime | None
    inventories: dict[str, dict[str, Any]]
    traits: set[str]
    aggregates: set[str]
    shares: list[tuple[str, str, str, int]]  #: class, of provider, of class, factor


_FIGURES = (
    "total",
    "reserved",
    "min_unit",
    "max_unit",
    "step_size",
    "ratio_millionths",
    "capacity",
    "used",
)


def rows_of(columns: Columns) -> dict[str, Row]:
    """Return the providers of columns, by name."""
    table = columns.providers
    name = dict(zip(table.provider_id, table.name, strict=True))
    parent = {
        own: None if above is None else name[above]
        for own, above in zip(table.name, table.parent_id, strict=True)
    }
    found = {}
    for number, own, uuid in zip(table.provider_id, table.name, table.uuid, strict=True):
        top = own
        while (above := parent[top]) is not None:
            top = above
        found[own] = Row(
            own,
            uuid,
            parent[own],
            top,
            table.reported_at[list(table.name).index(own)],
            {
                values[0]: dict(zip(_FIGURES, values[1:], strict=True))
                for of, *values in zip(*columns.inventories, strict=True)
                if of == number
            },
            {trait for of, trait in zip(*columns.traits, strict=True) if of == number},
            {one for of, one in zip(*columns.aggregates, strict=True) if of == number},
            [
                (kind, name[target], target_kind, factor)
                for of, kind, target, target_kind, factor in zip(*columns.shares, strict=True)
                if of == number
            ],
        )
    return found


def wanted_providers(rows: dict[str, Row], wanted: ProviderFilter) -> set[str]:
    """Return the names of the providers that a filter wants."""
    return {name for name, row in rows.items() if all(_conditions(rows, row, wanted))}


def _conditions(rows: dict[str, Row], row: Row, wanted: ProviderFilter) -> Iterator[bool]:
    if wanted.names is not None:
        yield row.name in wanted.names
    if wanted.uuids is not None:
        yield row.uuid in wanted.uuids
    if wanted.trees is not None:
        tree = [other for other in rows.values() if other.root == row.root]
        yield any(other.name in wanted.trees or other.uuid in wanted.trees for other in tree)
    yield all(aggregate not in row.aggregates for aggregate in wanted.forbidden_aggregates)
    yield all(any(one in row.aggregates for one in some) for some in wanted.aggregates)
    yield all(trait in row.traits for trait in wanted.required)
    yield all(trait not in row.traits for trait in wanted.forbidden)
    yield all(any(trait in row.traits for trait in some) for some in wanted.any_of)
    for kind, amount in wanted.room:
        yield _has_room(rows, row, kind, amount)
    if wanted.over_capacity:
        yield any(figures["used"] > _capacity(figures) for figures in row.inventories.values())
    if wanted.roots_only:
        yield row.parent is None
    if wanted.reported_before is not None:
        yield row.reported_at is not None and row.reported_at < wanted.reported_before


def _capacity(figures: dict[str, Any]) -> int:
    ratio = Fraction(figures["ratio_millionths"], 1_000_000)
    left: int = figures["total"] - figures["reserved"]
    return math.floor(left * ratio)


def _has_room(rows: dict[str, Row], row: Row, kind: str, amount: int) -> bool:
    if kind not in row.inventories:
        return False
    figures = row.inventories[kind]
    most = figures["total"] if figures["max_unit"] is None else figures["max_unit"]
    if amount < figures["min_unit"] or amount % figures["step_size"]:
        return False
    if figures["max_unit"] is not None and amount > most:
        return False
    if figures["used"] + amount > _capacity(figures):
        return False
    for own, target, target_kind, factor in row.shares:
        there = rows[target].inventories[target_kind]
        if own == kind and there["used"] + amount * factor > _capacity(there):
            return False
    return True


def everybody(backend: Backend) -> list[ClaimRecord]:
    """Return all who hold something, as one by one they are read."""
    names = sorted(set(backend.read().allocations.consumer))
    found = (backend.held(name) for name in names)
    return [record for record in found if record is not None]


def wanted_consumers(
    rows: dict[str, Row], records: list[ClaimRecord], wanted: ConsumerFilter
) -> list[str]:
    """Return the names of the consumers that a filter wants, in their order."""
    return sorted(one.consumer for one in records if all(_asked(rows, one, wanted)))


def _asked(rows: dict[str, Row], record: ClaimRecord, wanted: ConsumerFilter) -> Iterator[bool]:
    for allowed, value in (
        (wanted.names, record.consumer),
        (wanted.projects, record.project),
        (wanted.users, record.user),
        (wanted.types, record.consumer_type),
        (wanted.states, record.state),
    ):
        if allowed is not None:
            yield value in allowed
    if wanted.provider is not None:
        yield any(wanted.provider in _handles(rows, held.provider) for held in record.held)
    if wanted.tree is not None:
        yield any(_in_tree(rows, held.provider, wanted.tree) for held in record.held)
    if wanted.created_before is not None:
        yield record.created_at < wanted.created_before
    if wanted.created_after is not None:
        yield record.created_at > wanted.created_after
    if wanted.expires_before is not None:
        yield record.expires_at is not None and record.expires_at < wanted.expires_before


def _handles(rows: dict[str, Row], name: str) -> tuple[str, str]:
    return name, rows[name].uuid


def _in_tree(rows: dict[str, Row], name: str, tree: str) -> bool:
    return any(
        tree in (other.name, other.uuid) for other in rows.values() if other.root == rows[name].root
    )


def wanted_totals(
    rows: dict[str, Row], records: list[ClaimRecord], wanted: ConsumerFilter, by: By
) -> set[Total]:
    """Return what the consumers of a filter use, by group and class."""
    asked = set(wanted_consumers(rows, records, wanted))
    uses: dict[tuple[str | None, str], list[tuple[str, int]]] = {}
    for record in records:
        for held in record.held:
            if record.consumer not in asked:
                continue
            if wanted.provider not in (None, *_handles(rows, held.provider)):
                continue
            if wanted.tree is not None and not _in_tree(rows, held.provider, wanted.tree):
                continue
            group = {
                By.RESOURCE_CLASS: None,
                By.PROVIDER: held.provider,
                By.PROJECT: record.project,
                By.USER: record.user,
                By.CONSUMER_TYPE: record.consumer_type,
            }[by]
            use = record.consumer, held.amount
            uses.setdefault((group, held.resource_class), []).append(use)
    return {
        Total(group, kind, sum(amount for _, amount in found), len({name for name, _ in found}))
        for (group, kind), found in uses.items()
    }
