"""Small worlds of every sort, made from a seed, of which an explanation tells.

Each is columns and a request, with what else binds the search: counts with traits, aggregates,
pools, shares and groups; with things out of service; under limits; near a level; host cells and
devices, at the beginning and when nothing fits any more; members of a server group.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.columns import AllocationColumns, Columns, UnitColumns
from resource_objects.providers.disabled import Disabled
from resource_objects.reasons import sentences
from resource_objects.requests import Request
from resource_objects.scheduler.filters import NamedFilter
from resource_objects.scheduler.filters.hosts import Affinity
from resource_objects.scheduler.pipeline import Pipeline, PipelineRun
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import Reports
from resource_objects.search import Snapshot
from tests.search import device_fleets, generated, numa_fleets
from tests.search.test_near import machines
from tests.support import fleets
from tests.support.columns import columns_of

BROKEN = Disabled(reason="fan", since=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
#: So many are placed before something is asked again.
_MOST = 30


@dataclasses.dataclass(frozen=True)
class World:
    """A fleet, what is asked of it, and what else binds the search."""

    columns: Columns
    request: Request
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    limited: Columns | None = None  #: what there is under limits
    #: who is in the server group of the request, and whether these are to be apart
    group: tuple[frozenset[str], bool] | None = None

    @property
    def snapshot(self) -> Snapshot:
        """A picture of it."""
        return Snapshot(self.columns)

    @property
    def judged(self) -> Columns:
        """The rows by which sentences are judged."""
        return self.columns if self.limited is None else self.limited

    def found(self) -> Any:
        """Return the candidates of all hosts."""
        return self.snapshot.candidates(self.request, limit=None, **self.options)

    def explained(self) -> Any:
        """Return why hosts cannot hold what is asked."""
        return self.found().explain()


def unheld(columns: Columns) -> Columns:
    """Return what would be kept if nobody held anything."""
    free = columns.inventories._replace(used=[0] * len(columns.inventories.used))
    return dataclasses.replace(
        columns, inventories=free, allocations=AllocationColumns(), units=UnitColumns()
    )


def could(world: World) -> set[str]:
    """Return the hosts that could hold what is asked if nobody held anything."""
    if world.group is not None:  # of a group of which nobody is anywhere, nothing is asked
        world = dataclasses.replace(world, options={})
    then = dataclasses.replace(world, columns=unheld(world.columns))
    return {one.host for one in then.found()}


def lines_of(explained: Any) -> Iterator[tuple[str, str]]:
    """Yield each host that is refused, with the line that tells why."""
    for host, reasons in explained.by_host():
        parts = [
            dataclasses.replace(one, where=None if one.where == host else one.where)
            for one in reasons
        ]
        yield host, f"{host}: {'; '.join(sentences(parts))}"


# --- counts ---


def case(seed: int) -> tuple[list[ro.Provider], Request]:
    """Return trees and a request: of any sort, with groups, with devices that are alike."""
    chance = random.Random(seed)
    by = chance.choice([None, "placement"])
    match seed % 4:
        case 0:
            return generated.mixed(seed)
        case 1:
            roots = fleets.fleet(chance)
            return roots, fleets.request(chance, roots, compatibility=by)
        case 2:
            roots = fleets.fleet(chance, shares=chance.random() < 0.2)
            return roots, fleets.request(chance, roots, compatibility=by, groups_of=(1, 2, 3))
    alike = fleets.alike(chance, compatibility=by)
    return alike.roots, alike.request


def held_by(chance: random.Random, roots: list[ro.Provider]) -> list[tuple[str, str, str, int]]:
    """Return what some consumers hold of trees, whether there is room or not."""
    places = [(one.name, str(name)) for root in roots for one in root.walk()
              for name in one.inventories]  # fmt: skip
    return [
        (f"job-{number}", *chance.choice(places), chance.choice([1, 1, 2, 3]))
        for number in range(chance.choice([0, 2, 5]) if places else 0)
    ]


def counts(seed: int) -> World:
    """Return trees of which consumers hold something, and a request in either reading."""
    roots, request = case(seed)
    return World(_held(random.Random(seed), roots), request)


def _held(chance: random.Random, roots: list[ro.Provider]) -> Columns:
    held = {row[:3]: row for row in held_by(chance, roots)}
    return columns_of(roots, held.values())


def shared(seed: int) -> World:
    """Return devices whose classes draw on the same few slices."""
    roots, request = generated.crowded(seed)
    return World(_held(random.Random(seed), roots), request)


def out_of_service(seed: int) -> World:
    """Return the same, of which a quarter is out of service."""
    world = counts(seed)
    return dataclasses.replace(world, columns=_disabled(random.Random(seed), world.columns))


def _disabled(chance: random.Random, columns: Columns) -> Columns:
    out = [BROKEN if chance.random() < 0.25 else None for _ in columns.providers.name]
    return dataclasses.replace(columns, providers=columns.providers._replace(disabled=out))


def limited(seed: int) -> World:
    """Return the same under limits on three in ten inventories: so much is what there is."""
    return _limited(counts(seed), random.Random(seed))


def _limited(world: World, chance: random.Random) -> World:
    name = dict(zip(*world.columns.providers[:3:2], strict=True))
    limits: dict[str, dict[str, int]] = {}
    capacity = list(world.columns.inventories.capacity)
    for row, (number, kind) in enumerate(zip(*world.columns.inventories[:2], strict=True)):
        if chance.random() < 0.3:
            most = chance.choice([0, 1, 2])
            limits.setdefault(name[number], {})[kind] = most
            capacity[row] = min(capacity[row], most)
    under = dataclasses.replace(
        world.columns, inventories=world.columns.inventories._replace(capacity=capacity)
    )
    return dataclasses.replace(world, options={"limits": limits}, limited=under)


def near(seed: int) -> World:
    """Return machines, or trees, of which one place of a level is to give all."""
    chance = random.Random(seed)
    case, level = machines(chance), "CUSTOM_LEVEL"
    if seed % 2:
        roots = fleets.fleet(chance)
        case, level = fleets.Case(roots, fleets.request(chance, roots)), fleets.TRAITS[0]
    request = case.request.replace(near=level, near_policy="required")
    return World(_held(chance, case.roots), request)


# --- cells and devices ---


def cells(seed: int) -> World:
    """Return hosts with cells, of which something is used."""
    return _kept(*numa_fleets.fleet(seed))


def devices(seed: int) -> World:
    """Return hosts with cells and devices, of which something is used."""
    return _kept(*device_fleets.fleet(seed))


def full_cells(seed: int) -> World:
    """Return hosts with cells of which as much is held as goes, and what did not go any more."""
    return _crowded(numa_fleets.fleet, seed)


def full_devices(seed: int) -> World:
    """Return hosts with devices of which as much is held as goes."""
    return _crowded(device_fleets.fleet, seed)


def broken(seed: int) -> World:
    """Return hosts with cells or devices of which some are disabled."""
    ledger, request = _either(seed)
    chance = random.Random(seed)
    with ledger:
        columns = _disabled(chance, ledger.backend.read())
    return World(columns, request)


def limited_parts(seed: int) -> World:
    """Return hosts with cells or devices under limits on some of their inventories."""
    ledger, request = _either(seed)
    return _limited(_kept(ledger, request), random.Random(seed))


def _either(seed: int) -> tuple[ro.Ledger, Request]:
    made = device_fleets.fleet if seed % 2 else numa_fleets.fleet
    ledger, request = made(seed)
    if seed % 5 == 0:
        _crowd(ledger, made, seed)
    return ledger, request


def _kept(ledger: ro.Ledger, request: Request) -> World:
    with ledger:
        return World(ledger.backend.read(), request)


def _crowded(made: Callable[[int], tuple[ro.Ledger, Request]], seed: int) -> World:
    """Return a world in which something fitted until nothing did any more, if it ever did."""
    ledger, request = made(seed)
    _crowd(ledger, made, seed)
    return _kept(ledger, request)


def _crowd(ledger: ro.Ledger, made: Callable[[int], tuple[ro.Ledger, Request]], seed: int) -> None:
    """Let consumers take what this world and others ask for, as long as some of it fits."""
    chance = random.Random(seed)
    for number in range(_MOST):
        other, asked = made(seed + (1000 * number if chance.random() < 0.5 else 0))
        other.close()
        if found := _tried(ledger, asked):
            ledger.claim(f"more-{number}", chance.choice(found))


def _tried(ledger: ro.Ledger, request: Request) -> list[Any]:
    try:
        return list(ledger.snapshot().candidates(request, limit=4))
    except (exceptions.InvalidInput, exceptions.SearchLimitReached):
        return []  # of what cannot be asked of these hosts, nobody takes any


# --- server groups ---


def grouped(seed: int) -> World:
    """Return hosts on some of which members of a server group are, and one more member."""
    chance = random.Random(seed)
    policy = chance.choice(["affinity", "anti-affinity"])
    with ro.connect("memory://") as ledger:
        for number in range(chance.choice([1, 2, 3])):
            ledger.sync(ro.Provider(f"host{number}", f"VCPU={chance.choice([2, 4])}"))
        most = {"max_per_host": chance.choice([1, 2])} if policy == "anti-affinity" else {}
        ledger.groups.ensure("db", policy, **most)
        for number in range(chance.choice([1, 2, 4])):
            member_of = "db" if chance.random() < 0.7 else None
            try:
                ledger.claim(
                    f"job-{number}", {f"host{chance.randrange(3)}": "VCPU=1"}, group=member_of
                )
            except exceptions.ResourceObjectsError:
                continue  # there is no such host, no room, or the group does not let it in
        request = Request(f"VCPU={chance.choice([1, 2, 3])}")
        group = ledger.groups.get("db")
        spec = RequestSpec(request, group=group)
        asked = PipelineRun(Pipeline((NamedFilter("affinity", Affinity()),)), spec, Reports(ledger))
        columns = ledger.backend.read()
    options = {"filters": asked.filters()}
    return World(columns, request, options, group=(group.members, group.is_apart))


#: Every sort of worlds, by name.
SORTS: Mapping[str, Callable[[int], World]] = {
    "counts": counts,
    "shares": shared,
    "out of service": out_of_service,
    "limits": limited,
    "near": near,
    "cells": cells,
    "full cells": full_cells,
    "devices": devices,
    "full devices": full_devices,
    "broken cells and devices": broken,
    "limited cells and devices": limited_parts,
    "server groups": grouped,
}
