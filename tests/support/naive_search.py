"""Naive matchers of requests: obviously right, for small inputs only.

They read columns row by row, try everything, and share no code with the search. The search is
tested against them, and so can another one be: :func:`hosts_that_fit` says which hosts can hold a
request, :func:`candidate_faults` what is wrong with one candidate. A topology is tried on all
cells, by :mod:`~tests.support.numa_reference`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from resource_objects.providers.columns import Columns
from resource_objects.requests import Request
from resource_objects.resources.catalog import is_device
from resource_objects.resources.numa import NUMA_TOPOLOGY, NUMATopologyAmount, NUMATopologyInventory
from resource_objects.resources.records import InventoryRecord, StoredPart
from resource_objects.search.candidate import Candidate
from tests.support.numa_reference import faults, has_placement

__all__ = [
    "candidate_faults",
    "hosts_that_fit",
]


_NAME = NUMA_TOPOLOGY.name

#: (provider's number, resource class)
_Place = tuple[int, str]


def topology_of(request: Request) -> NUMATopologyAmount | None:
    """Return the topology that a request asks for, None if it asks for none."""
    for name, amount in request.unnamed.resources.by_name():
        if name == _NAME:
            assert isinstance(amount, NUMATopologyAmount)
            return amount
    return None


def counts_of(request: Request) -> list[tuple[str, int]]:
    """Return the counts that a request asks for beside what its topology says where it is."""
    topology = topology_of(request)
    located = {} if topology is None else topology.placed_counts
    return [
        (name, int(amount))  # type: ignore[call-overload]
        for name, amount in request.unnamed.resources.by_name()
        if name != _NAME and name not in located
    ]


class Cells:
    """The cells of one tree."""

    def __init__(self, columns: Columns, providers: Collection[int]) -> None:
        """Read the cells that some providers keep; these are a tree with all its providers."""
        self._columns = columns
        rows = zip(*columns.kinds, strict=True)
        bodies = {pid: (body, c) for pid, name, c, body in rows if name == _NAME}
        #: by provider, the id of its cell
        self.ids = {pid: json.loads(bodies[pid][0])["id"] for pid in providers if pid in bodies}
        self._bodies = {pid: bodies[pid][0] for pid in self.ids}
        self.classes = {pid: set(bodies[pid][1]) for pid in self.ids}

    def __bool__(self) -> bool:
        return bool(self.ids)

    def inventory(self, used: Mapping[_Place, int]) -> NUMATopologyInventory:
        """Return the cells as an inventory, with so much more in use, shares included."""
        parts = [
            StoredPart(tuple(self._records(pid, used)), self._bodies[pid], self._units(pid))
            for pid in sorted(self.ids, key=self.ids.__getitem__)
        ]
        found = NUMA_TOPOLOGY.inventory_from_parts(parts, self._room(used))
        assert isinstance(found, NUMATopologyInventory)
        return found

    def _records(self, pid: int, used: Mapping[_Place, int]) -> Iterable[InventoryRecord]:
        for row in zip(*self._columns.inventories, strict=True):
            if row[0] == pid and row[1] in self.classes[pid]:
                figures: list[Any] = list(row[1:])
                figures[-1] += used.get((pid, row[1]), 0)
                yield InventoryRecord(*figures)

    def _units(self, pid: int) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for at, unit, name, _ in zip(*self._columns.units, strict=True):
            if at == pid:
                found[name] = (*found.get(name, ()), unit)
        return found

    def _room(self, used: Mapping[_Place, int]) -> dict[str, int]:
        """Return what what the cells are part of has left."""
        table = self._columns.inventories
        rows = zip(table.provider_id, table.resource_class, table.capacity, table.used, strict=True)
        left = {(pid, name): capacity - taken for pid, name, capacity, taken in rows}
        found: dict[str, int] = {}
        for pid, name, of, of_name, factor in zip(*self._columns.shares, strict=True):
            if pid in self.ids and name in self.classes[pid]:
                room = (left[of, of_name] - used.get((of, of_name), 0)) // factor
                found[name] = min(room, found.get(name, room))
        return found

    def can_hold(
        self, topology: NUMATopologyAmount, used: Mapping[_Place, int], within: Collection[int]
    ) -> bool:
        """Return whether a topology fits, on some providers, beside what is used."""
        ids = {self.ids[pid] for pid in within}
        return has_placement(self.inventory(used), topology, None, ids)

    def faults(
        self, assigned: NUMATopologyAmount, used: Mapping[_Place, int], within: Collection[int]
    ) -> list[str]:
        """Return what is wrong with where a topology is."""
        ids = {self.ids[pid] for pid in within}
        return faults(self.inventory(used), assigned, None, ids)

    def taken(self, assigned: NUMATopologyAmount) -> dict[_Place, tuple[int, set[str]]]:
        """Return what an assigned topology takes, with units: ``{place: (amount, units)}``."""
        provider = {cell: pid for pid, cell in self.ids.items()}
        found: dict[_Place, tuple[int, set[str]]] = {}
        pairs = zip(assigned.cells, assigned.placed, strict=True)
        for number, (guest, placed) in enumerate(pairs):
            pid = provider[placed.cell]
            cpus = {cpu for _, cpu in placed.pins} | set(placed.idle)
            if number == 0 and assigned.emulator_cpu is not None:
                cpus.add(assigned.emulator_cpu)
            units = {f"cpu{cpu}" for cpu in cpus}
            size, kib = placed.page_size_kib, guest.memory_mb * 1024
            memory = ("MEMORY_MB", guest.memory_mb)
            if size is not None:
                memory = (f"CUSTOM_HUGEPAGES_{size}KB", kib // size)
            for name, amount in (("VCPU", len(guest.shared)), ("PCPU", len(cpus)), memory):
                if amount:
                    found[pid, name] = (amount, units if name == "PCPU" else set())
        return found


# --- the matchers ---


#: (provider's number, resource class)
_InventoryKey = tuple[int, str]
#: How much of one class each provider gives.
_Parts = Mapping[int, int]


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
    generation: int
    traits: set[str] = dataclasses.field(default_factory=set)
    aggregates: set[str] = dataclasses.field(default_factory=set)
    inventories: dict[str, _Inventory] = dataclasses.field(default_factory=dict)

    @property
    def is_pool(self) -> bool:
        return "MISC_SHARES_VIA_AGGREGATE" in self.traits


class _Kept:
    """What columns say, by provider."""

    def __init__(self, columns: Columns) -> None:
        table = columns.providers
        rows = zip(
            table.provider_id,
            table.name,
            table.uuid,
            table.parent_id,
            table.generation,
            strict=True,
        )
        self.providers = {
            pid: _Provider(name, uuid, parent, generation)
            for pid, name, uuid, parent, generation in rows
        }
        for pid, trait in zip(*columns.traits, strict=True):
            self.providers[pid].traits.add(trait)
        for pid, aggregate in zip(*columns.aggregates, strict=True):
            self.providers[pid].aggregates.add(aggregate)
        for row in zip(*columns.inventories, strict=True):
            pid, name, total, _reserved, least, most, step, _ratio, capacity, used = row
            kept = _Inventory(total, capacity, used, least, most, step)
            self.providers[pid].inventories[name] = kept
        self.shares: dict[_InventoryKey, list[tuple[_InventoryKey, int]]] = {}
        for pid, name, of, of_name, factor in zip(*columns.shares, strict=True):
            self.shares.setdefault((pid, name), []).append(((of, of_name), factor))
        self.columns = columns
        self.cells = Cells(columns, list(self.providers))

    def above(self, pid: int) -> Iterator[int]:
        """Yield a provider and those above it."""
        at: int | None = pid
        while at is not None:
            yield at
            at = self.providers[at].parent

    def root(self, pid: int) -> int:
        return list(self.above(pid))[-1]

    def host(self, pid: int) -> str:
        return self.providers[self.root(pid)].name

    def traits(self, pid: int) -> set[str]:
        """Return the traits that hold for a provider: its own and those of all above it."""
        return {trait for at in self.above(pid) for trait in self.providers[at].traits}

    def is_of_cell(self, pid: int, name: str) -> bool:
        return name in self.cells.classes.get(pid, ())

    def is_of_host(self, pid: int, name: str) -> bool:
        """Return whether a class of a cell is its host's: that gives it, and not the cell."""
        shared = [place for place, _ in self.shares.get((pid, name), [])]
        return self.is_of_cell(pid, name) and any(of_name == name for _, of_name in shared)

    def is_device(self, pid: int, name: str) -> bool:
        single = self.providers[pid].inventories[name].total == 1 and not self.is_of_cell(pid, name)
        return self.providers[pid].parent is not None and (single or is_device(name))

    def may_give(self, pid: int, name: str, parts: _Parts) -> bool:
        """Return whether ``parts`` may hold this one: it keeps the rules, alone or as a device."""
        inventory = self.providers[pid].inventories.get(name)
        if inventory is None or not inventory.gives(parts[pid]):
            return False
        return len(parts) == 1 or self.is_device(pid, name)

    def uses(self, given: Mapping[str, _Parts]) -> dict[_InventoryKey, int]:
        """Return what all parts use, here and wherever they are used too."""
        used: dict[_InventoryKey, int] = {}
        for name, parts in given.items():
            for pid, part in parts.items():
                used[pid, name] = used.get((pid, name), 0) + part
                for place, factor in self.shares.get((pid, name), []):
                    used[place] = used.get(place, 0) + part * factor
        return used

    def has_room(self, given: Mapping[str, _Parts]) -> bool:
        """Return whether all parts fit together, here and wherever they are used too."""
        for (pid, name), amount in self.uses(given).items():
            inventory = self.providers[pid].inventories[name]
            if inventory.used + amount > inventory.capacity:
                return False
        return True


class _Host:
    """A tree as one that may hold requests: its own providers, and pools it is linked to."""

    def __init__(self, kept: _Kept, name: str) -> None:
        self.kept = kept
        self.own = [pid for pid in kept.providers if kept.host(pid) == name]
        linked = {a for pid in self.own for a in kept.providers[pid].aggregates}
        self.pools = [
            pid
            for pid, provider in kept.providers.items()
            if provider.is_pool and provider.aggregates & linked and pid not in self.own
        ]
        if kept.providers[kept.root(self.own[0])].is_pool:  # it gives all of it itself
            self.pools = []
        self.cells = Cells(kept.columns, self.own)

    def has(self, name: str) -> bool:
        return any(name in self.kept.providers[pid].inventories for pid in self.own)

    def may_hold(self, names: Iterable[str], has_topology: bool) -> bool:
        """Return whether it gives something itself; as a pool, whether it gives everything."""
        having = [self.has(name) for name in names] + [bool(self.cells)] * has_topology
        is_pool = self.kept.providers[self.kept.root(self.own[0])].is_pool
        return all(having) if is_pool else any(having)

    def givers(self, name: str) -> list[int]:
        return [pid for pid in (*self.own, *self.pools) if not self.kept.is_of_host(pid, name)]

    def gives(self, given: Mapping[str, _Parts]) -> bool:
        """Return whether it gives some of this itself."""
        return any(pid in self.own for parts in given.values() for pid in parts)

    def traits(self, pid: int) -> set[str]:
        """Return the traits that count: of a pool only its own."""
        return self.kept.traits(pid) if pid in self.own else self.kept.providers[pid].traits


def hosts_that_fit(columns: Columns, request: Request) -> list[str]:
    """Return the names of the hosts that can hold a request, sorted. Cost: everything is tried."""
    kept = _Kept(columns)
    hosts = {kept.host(pid) for pid in kept.providers}
    return sorted(host for host in hosts if _fits(_Host(kept, host), request))


def _fits(host: _Host, request: Request) -> bool:
    group = request.unnamed
    asked, topology = dict(counts_of(request)), topology_of(request)
    if not host.may_hold(asked, topology is not None) or (topology and not host.cells):
        return False
    allowed = [pid for pid in host.cells.ids if not host.traits(pid) & group.forbidden]
    choices = [list(_splits(host, group.forbidden, name, asked[name])) for name in asked]
    for chosen in itertools.product(*choices):
        given = dict(zip(asked, chosen, strict=True))
        if not host.kept.has_room(given) or not (topology or host.gives(given)):
            continue
        open_traits = _unanswered(host, group.required, given.values())
        if topology is None:
            if not open_traits:
                return True
            continue
        within = [pid for pid in allowed if open_traits <= host.traits(pid)]
        if host.cells.can_hold(topology, host.kept.uses(given), within):
            return True
    return False


def _splits(
    host: _Host, forbidden: frozenset[str], name: str, amount: int
) -> Iterator[dict[int, int]]:
    """Yield every way in which one provider, or several devices, give an amount of a class."""
    kept = host.kept
    having = [
        pid
        for pid in host.givers(name)
        if name in kept.providers[pid].inventories and not host.traits(pid) & forbidden
    ]
    devices = [pid for pid in having if pid in host.own and kept.is_device(pid, name)]
    ways = [{pid: amount} for pid in having]
    for parts in itertools.product(range(amount + 1), repeat=len(devices)):
        given = {pid: part for pid, part in zip(devices, parts, strict=True) if part}
        if len(given) > 1:
            ways.append(given)
    for given in ways:
        if sum(given.values()) == amount and all(kept.may_give(p, name, given) for p in given):
            yield given


def _unanswered(host: _Host, required: Iterable[str], chosen: Iterable[Iterable[int]]) -> set[str]:
    """Return the traits for which there is no class all of whose givers have it."""
    classes = [[host.traits(pid) for pid in givers] for givers in chosen]
    return {t for t in required if not any(all(t in has for has in each) for each in classes)}


def candidate_faults(columns: Columns, request: Request, candidate: Candidate) -> list[str]:
    """Return what is wrong with a candidate, nothing if it may be claimed as it is."""
    kept = _Kept(columns)
    host = _Host(kept, candidate.host)
    given, found = _taken(host, request, candidate)
    topology = topology_of(request)
    placed = _located(host, candidate)
    for place, (amount, _) in placed.items():
        rest = given.get(place[1], {}).pop(place[0], 0) - amount
        if rest:
            given[place[1]][place[0]] = rest
    given = {name: parts for name, parts in given.items() if parts}
    sums = {name: sum(parts.values()) for name, parts in given.items()}
    if sums != dict(counts_of(request)):
        found.append(f"gives {sums}")
    for name, parts in given.items():
        found += [
            f"{kept.providers[pid].name} may not give {parts[pid]} of {name}"
            for pid in parts
            if pid not in host.givers(name) or not kept.may_give(pid, name, parts)
        ]
    if not host.may_hold(given, topology is not None) or not (topology or host.gives(given)):
        found.append(f"{candidate.host} gives nothing itself")
    if not kept.has_room(given):
        found.append("no room for all of it together")
    cells = {pid for pid, _ in placed}
    if topology is not None:
        found += _misplaced(host, request, candidate, kept.uses(given))
    classes = [*given.values(), *([cells] if cells else [])]
    if _unanswered(host, request.unnamed.required, classes):
        found.append("a required trait is not answered for")
    givers = {pid for parts in given.values() for pid in parts} | cells
    return found + _wrong_generations(kept, givers, candidate)


def _taken(
    host: _Host, request: Request, candidate: Candidate
) -> tuple[dict[str, dict[int, int]], list[str]]:
    """Return what a candidate takes of whom, by class, and what is wrong with single parts."""
    kept = host.kept
    by_name = {provider.name: pid for pid, provider in kept.providers.items()}
    given: dict[str, dict[int, int]] = {}
    found: list[str] = []
    placed = _located(host, candidate)
    for taken in candidate.allocations:
        pid = by_name[taken.provider]
        given.setdefault(taken.resource_class, {})[pid] = int(taken.amount)  # type: ignore[call-overload]
        if kept.providers[pid].uuid != taken.provider_uuid:
            found.append(f"{taken}: wrong uuid")
        if pid not in host.own and pid not in host.givers(taken.resource_class):
            found.append(f"{taken}: not of {candidate.host}")
        if host.traits(pid) & request.unnamed.forbidden:
            found.append(f"{taken}: has a forbidden trait")
        if set(taken.units) != placed.get((pid, taken.resource_class), (0, set()))[1]:
            found.append(f"{taken}: takes units {taken.units}")
    return given, found


def _located(host: _Host, candidate: Candidate) -> dict[_InventoryKey, tuple[int, set[str]]]:
    """Return what the located amount of a candidate takes, with units."""
    for _, assigned in candidate.located.by_name():
        return host.cells.taken(assigned)  # type: ignore[arg-type]
    return {}


def _misplaced(
    host: _Host, request: Request, candidate: Candidate, used: Mapping[_InventoryKey, int]
) -> list[str]:
    """Return what is wrong with where the topology of a candidate is, beside what is used."""
    asked = topology_of(request)
    found = dict(candidate.located.by_name()).get("NUMA_TOPOLOGY")
    if asked is None or found is None:
        return ["no assigned topology"]
    wrong = [] if found.unassigned() == asked.unassigned() else [f"another topology: {found}"]
    return wrong + host.cells.faults(found, used, list(host.cells.ids))  # type: ignore[arg-type]


def _wrong_generations(kept: _Kept, givers: Iterable[int], candidate: Candidate) -> list[str]:
    decided_on = {at for pid in givers for at in kept.above(pid)}
    wanted = {kept.providers[pid].uuid: kept.providers[pid].generation for pid in decided_on}
    return [] if dict(candidate.generations) == wanted else [f"generations: {wanted}"]
