"""Fleets in Placement, and its answers, below its HTTP interface: thousands in a minute.

The rows of :class:`~resource_objects.providers.columns.Columns` go into its tables as they are, in
one transaction for a fleet, so that both sides see the same. What is used becomes an allocation of
a consumer of its own. A request goes to ``AllocationCandidates.get_by_requests``, which is what
its HTTP handler calls after parsing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from benchmarks.peer import Placement
from resource_objects.providers.columns import Columns
from resource_objects.ratio import from_millionths
from resource_objects.requests import Request, RequestGroup
from tests.support.fleets import TRAITS

#: (allocations: (provider uuid, class, amount)), (mappings: (suffix, provider uuids))
Answer = tuple[frozenset[tuple[str, str, int]], frozenset[tuple[str, frozenset[str]]]]

_MAX_UNIT = 2**31 - 1
_TABLES = (
    "allocations",
    "inventories",
    "resource_provider_traits",
    "resource_provider_aggregates",
    "placement_aggregates",
    "resource_providers",
)


@dataclasses.dataclass(frozen=True)
class Kept:
    """A fleet in Placement, with a request context that remembers the numbers of its names."""

    context: Any

    def answers(self, request: Request) -> list[Answer]:
        """Return its candidates in its order."""
        from placement.objects.allocation_candidate import AllocationCandidates

        found = AllocationCandidates.get_by_requests(
            self.context, groups(request), wide(request), nested_aware=True
        )
        return [_answer(one) for one in found.allocation_requests]


def keep(placement: Placement, columns: Columns) -> Kept:
    """Put a fleet in the place of all that is in Placement."""
    from placement import db_api

    with db_api.get_placement_engine().begin() as connection:
        _fill(connection.exec_driver_sql, columns)
    return Kept(placement.context())


def empty(placement: Placement) -> None:
    """Remove every provider and what is used of it; names of classes and traits stay."""
    with placement.engine.begin() as connection:
        if placement.engine.name != "sqlite":
            for table in _TABLES:
                connection.exec_driver_sql(f"DELETE FROM {table}")
        else:
            _clear(connection.exec_driver_sql)


def _clear(run: Any) -> None:
    run("PRAGMA defer_foreign_keys = ON")
    for table in _TABLES:
        run(f"DELETE FROM {table}")


def _fill(run: Any, columns: Columns) -> None:
    _clear(run)
    classes = _numbers(run, "resource_classes", set(columns.inventories.resource_class))
    traits = _numbers(run, "traits", {*columns.traits.trait, *TRAITS})
    _insert(run, "resource_providers", _PROVIDER, _providers(columns))
    _insert(run, "inventories", _INVENTORY, _inventories(columns, classes))
    _insert(run, "allocations", _ALLOCATION, _allocations(columns, classes))
    own = [(traits[name], pid) for pid, name in zip(*columns.traits, strict=True)]
    _insert(run, "resource_provider_traits", "trait_id, resource_provider_id", own)
    names = {name: at for at, name in enumerate(sorted(set(columns.aggregates.aggregate)), 1)}
    _insert(run, "placement_aggregates", "uuid, id", names.items())
    member = [(pid, names[name]) for pid, name in zip(*columns.aggregates, strict=True)]
    _insert(run, "resource_provider_aggregates", "resource_provider_id, aggregate_id", member)


_PROVIDER = "id, uuid, name, generation, root_provider_id, parent_provider_id"
_INVENTORY = (
    "resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, "
    "allocation_ratio"
)
_ALLOCATION = "resource_provider_id, resource_class_id, consumer_id, used"


def _numbers(run: Any, table: str, names: set[str]) -> dict[str, int]:
    """Return the numbers of names, after giving one to those that have none."""
    known = {name: number for number, name in run(f"SELECT id, name FROM {table}")}
    last = max([10_000, *known.values()])
    new = {name: last + at for at, name in enumerate(sorted(names - set(known)), 1)}
    # with a time: Placement does not compare names that have one with names that have none
    rows = [(number, name, "2026-01-01 00:00:00") for name, number in new.items()]
    _insert(run, table, "id, name, created_at", rows)
    return {**known, **new}


def _insert(run: Any, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    rows = list(rows)
    marks = ", ".join("?" for _ in columns.split(","))
    if rows:
        run(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)


def _providers(columns: Columns) -> Iterable[tuple[Any, ...]]:
    table = columns.providers
    for row in zip(
        table.provider_id, table.uuid, table.name, table.parent_id, table.root_id, strict=True
    ):
        pid, uuid, name, parent, root = row
        yield pid, uuid, name, 0, root, parent


def _inventories(columns: Columns, classes: dict[str, int]) -> Iterable[tuple[Any, ...]]:
    for row in zip(*columns.inventories, strict=True):
        pid, name, total, reserved, least, most, step, ratio, _capacity, _used = row
        most = _MAX_UNIT if most is None else most
        yield (
            pid, classes[name], total, reserved, least, most, step, float(from_millionths(ratio)),
        )  # fmt: skip


def _allocations(columns: Columns, classes: dict[str, int]) -> Iterable[tuple[Any, ...]]:
    table = columns.inventories
    rows = zip(table.provider_id, table.resource_class, table.used, strict=True)
    for number, (pid, name, used) in enumerate(rows):
        if used:
            yield pid, classes[name], f"consumer-{number}", used


# --- requests in its words ---


def groups(request: Request) -> dict[str, Any]:
    """Return the groups of a request as Placement's, those without anything left out."""
    made = {}
    for group in request.groups:
        if group.suffix or group.resources:
            made[group.suffix] = _group(group)
    return made


def _group(group: RequestGroup) -> Any:
    from placement import lib

    return lib.RequestGroup(
        use_same_provider=bool(group.suffix),
        resources={name: int(amount) for name, amount in group.resources.by_name()},
        required_traits=[{name} for name in sorted(group.required)] + list(map(set, group.any_of)),
        forbidden_traits=set(group.forbidden),
        member_of=[sorted(some) for some in group.member_of],
        forbidden_aggs=set(group.not_member_of),
        in_tree=group.in_tree,
    )


def wide(request: Request) -> Any:
    """Return the parameters of Placement for the unnamed group.

    The policy is always said: without one Placement adds the amounts of several groups up in the
    wrong places (``test_amounts_of_groups_leak_without_a_policy``).
    """
    from placement import lib

    return lib.RequestWideParams(
        group_policy=request.group_policy or "none",
        anchor_required_traits=set(request.root_required) or None,
        anchor_forbidden_traits=set(request.root_forbidden) or None,
        same_subtrees=[set(some) for some in request.same_subtree],
    )


def _answer(found: Any) -> Answer:
    allocations = frozenset(
        (one.resource_provider.uuid, one.resource_class, one.amount)
        for one in found.resource_requests
    )
    mappings = frozenset((suffix, frozenset(uuids)) for suffix, uuids in found.mappings.items())
    return allocations, mappings
