"""Naive reference matchers: obviously right, for small inputs only.

They read columns row by row, try everything, and share no code with the search. The search is
tested against them, and so can another one be: :func:`hosts_that_fit` says which hosts can hold a
request, :func:`faults` what is wrong with one candidate. :func:`columns_of` makes the input from
trees.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects.providers import Provider
from resource_objects.providers.columns import (
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    TraitColumns,
)
from resource_objects.requests import Request
from resource_objects.resources.catalog import is_device
from resource_objects.search.candidates import Candidate


@dataclasses.dataclass(frozen=True)
class _Inventory:
    total: int
    capacity: int
    used: int
    min_unit: int
    max_unit: int | None
    step_size: int

    def gives(self, part: int) -> bool:
        return (
            part >= self.min_unit
            and (self.max_unit is None or part <= self.max_unit)
            and part % self.step_size == 0
            and self.used + part <= self.capacity
        )


@dataclasses.dataclass
class _Provider:
    name: str
    uuid: str
    parent: int | None
    traits: set[str] = dataclasses.field(default_factory=set)
    inventories: dict[str, _Inventory] = dataclasses.field(default_factory=dict)


class _Kept:
    """What columns say, by provider."""

    def __init__(self, columns: Columns) -> None:
        table = columns.providers
        rows = zip(table.provider_id, table.name, table.uuid, table.parent_id, strict=True)
        self.providers = {pid: _Provider(name, uuid, parent) for pid, name, uuid, parent in rows}
        for pid, trait in zip(*columns.traits, strict=True):
            self.providers[pid].traits.add(trait)
        for row in zip(*columns.inventories, strict=True):
            pid, name, total, _reserved, least, most, step, _ratio, capacity, used = row
            kept = _Inventory(total, capacity, used, least, most, step)
            self.providers[pid].inventories[name] = kept

    def path(self, pid: int) -> list[int]:
        """Return a provider and all above it."""
        above = self.providers[pid].parent
        return [pid] if above is None else [pid, *self.path(above)]

    def traits(self, pid: int) -> set[str]:
        return set().union(*(self.providers[above].traits for above in self.path(pid)))

    def host(self, pid: int) -> str:
        return self.providers[self.path(pid)[-1]].name

    def is_device(self, pid: int, name: str) -> bool:
        single = self.providers[pid].inventories[name].total == 1
        return self.providers[pid].parent is not None and (single or is_device(name))

    def may_give(self, pid: int, name: str, parts: Mapping[int, int]) -> bool:
        """Return whether ``parts`` may hold this one: it keeps the rules, alone or as a device."""
        inventory = self.providers[pid].inventories.get(name)
        if inventory is None or not inventory.gives(parts[pid]):
            return False
        return len(parts) == 1 or self.is_device(pid, name)


def hosts_that_fit(columns: Columns, request: Request) -> list[str]:
    """Return the names of the hosts that can hold a request, sorted. Cost: everything is tried."""
    kept = _Kept(columns)
    hosts = {kept.host(pid) for pid in kept.providers}
    return sorted(host for host in hosts if _fits(kept, host, request))


def _fits(kept: _Kept, host: str, request: Request) -> bool:
    (group,) = request.groups
    inside = [
        pid
        for pid in kept.providers
        if kept.host(pid) == host and not kept.traits(pid) & group.forbidden
    ]
    choices = [
        {frozenset(parts) for parts in _splits(kept, inside, name, int(amount))}
        for name, amount in _counts(request)
    ]
    return any(_answers(kept, group.required, chosen) for chosen in itertools.product(*choices))


def _splits(kept: _Kept, inside: list[int], name: str, amount: int) -> Iterator[dict[int, int]]:
    """Yield every way in which one provider, or several devices, give an amount of a class."""
    having = [pid for pid in inside if name in kept.providers[pid].inventories]
    devices = [pid for pid in having if kept.is_device(pid, name)]
    ways = [{pid: amount} for pid in having]
    for parts in itertools.product(range(amount + 1), repeat=len(devices)):
        ways.append({pid: part for pid, part in zip(devices, parts, strict=True) if part})
    for given in ways:
        if sum(given.values()) == amount and all(kept.may_give(p, name, given) for p in given):
            yield given


def _answers(kept: _Kept, required: Iterable[str], chosen: Iterable[Iterable[int]]) -> bool:
    """Return whether for each trait there is a class all of whose givers have it."""
    classes = [[kept.traits(pid) for pid in givers] for givers in chosen]
    return all(any(all(trait in has for has in each) for each in classes) for trait in required)


def _counts(request: Request) -> list[tuple[str, Any]]:
    return [(resource.name, amount) for resource, amount in request.resources.items()]


def faults(columns: Columns, request: Request, candidate: Candidate) -> list[str]:
    """Return what is wrong with a candidate, nothing if it may be claimed as it is."""
    kept = _Kept(columns)
    by_name = {provider.name: pid for pid, provider in kept.providers.items()}
    given: dict[str, dict[int, int]] = {}
    found: list[str] = []
    for taken in candidate.allocations:
        pid = by_name[taken.provider]
        given.setdefault(taken.resource_class, {})[pid] = int(taken.amount)  # type: ignore[call-overload]
        if kept.providers[pid].uuid != taken.provider_uuid:
            found.append(f"{taken}: wrong uuid")
        if kept.host(pid) != candidate.host:
            found.append(f"{taken}: not of {candidate.host}")
        if kept.traits(pid) & request.groups[0].forbidden:
            found.append(f"{taken}: has a forbidden trait")
    sums = {name: sum(parts.values()) for name, parts in given.items()}
    if sums != {name: int(amount) for name, amount in _counts(request)}:
        found.append(f"gives {sums}")
    for name, parts in given.items():
        found += [
            f"{kept.providers[pid].name} may not give {parts[pid]} of {name}"
            for pid in parts
            if not kept.may_give(pid, name, parts)
        ]
    if not _answers(kept, request.groups[0].required, given.values()):
        found.append("a required trait is not answered for")
    return found


# --- input ----------------------------------------------------------------------------------------


def columns_of(
    roots: Iterable[Provider], allocations: Iterable[tuple[str, str, str, int]] = ()
) -> Columns:
    """Return the columns that a backend would return for some trees.

    :param allocations: ``(consumer, provider name, resource class, amount)``; the ``used`` figures
        are theirs, and those of the trees where there are none

    >>> columns_of([Provider("host0", "VCPU=8")], [("job-1", "host0", "VCPU", 3)]).inventories.used
    [3]
    """
    held = list(allocations)
    rows: dict[str, list[Any]] = {name: [] for name in ("providers", "inventories", "traits")}
    ids: dict[str, int] = {}
    for root in roots:
        for provider, parent in root.parents():
            pid = ids[provider.name] = len(ids) + 1
            uuid = provider.uuid or str(uuids.uuid5(uuids.NAMESPACE_DNS, provider.name))
            above = None if parent is None else ids[parent.name]
            rows["providers"].append((pid, uuid, provider.name, above, ids[root.name], 0))
            rows["traits"] += [(pid, trait) for trait in sorted(provider.traits)]
            rows["inventories"] += [
                (pid, *_figures(provider.name, record, held))
                for inventory in provider.inventories.values()
                for record in inventory.to_records()
            ]
    return Columns(
        ProviderColumns(*_columns(rows["providers"], ProviderColumns)),
        InventoryColumns(*_columns(rows["inventories"], InventoryColumns)),
        TraitColumns(*_columns(rows["traits"], TraitColumns)),
        AllocationColumns(
            *_columns([(ids[p], c, who, n) for who, p, c, n in held], AllocationColumns)
        ),
    )


def _figures(provider: str, record: Any, held: list[tuple[str, str, str, int]]) -> tuple[Any, ...]:
    name = record.resource_class
    used = sum(amount for _, where, what, amount in held if (where, what) == (provider, name))
    return dataclasses.astuple(dataclasses.replace(record, used=used or record.used))


def _columns(rows: list[tuple[Any, ...]], table: Any) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in table._fields]
