"""What a placement uses of the host as a whole, where that has less left than its cells.

It depends on the placement only where cores are left empty or any page size will do. The least of
one total is a cheapest matching; two totals at once are tried out, within a budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from resource_objects.resources.numa import matching
from resource_objects.resources.numa.cpus import cpus_of
from resource_objects.resources.numa.pair import Need
from resource_objects.resources.numa.question import Question, Steps


def has_room(question: Question, hosts: Sequence[int]) -> bool:
    return not any(used > left for used, left in totals(question, hosts).values())


def totals(question: Question, hosts: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Return what a placement uses of the host as a whole, and what that has left, by class."""
    if question.room is None:
        return {}
    used = {"VCPU": 0, "PCPU": 0, "MEMORY_MB": 0}
    for need, host in zip(question.needs, hosts, strict=True):
        for name, cost in question.costs(need, host).items():
            used[name] += cost
    return {
        name: (used[name], question.room[name])
        for name in used
        if name in question.room and used[name]
    }


def within_room(
    question: Question, may: Sequence[int], required: Sequence[int], steps: Steps
) -> list[int] | None:
    """Return the placement that uses least of the host as a whole, if it has that much.

    Only CPUs left empty and ordinary memory depend on the placement. If one alone is short, the
    least of it decides; where it takes both together, placements are tried, within the budget.
    """
    for weights, name in (((1, 0), "PCPU"), ((0, 1), "MEMORY_MB"), ((1, 1), None)):
        hosts = least(question, may, weights, required)
        if hosts is None:
            return None
        used = totals(question, hosts)
        if all(taken <= left for taken, left in used.values()):
            return hosts
        taken, left = used.get(name or "", (0, 0))
        if taken > left:
            return None
    return _tried(question, may, required, steps)


def _tried(
    question: Question, may: Sequence[int], required: Sequence[int], steps: Steps
) -> list[int] | None:
    """Return the first placement for which there is room and that uses the required cells.

    Equal guest cells are considered once: each goes to a later cell than the one before.
    """
    guests = sorted(
        range(len(may)), key=lambda guest: (may[guest].bit_count(), question.needs[guest][:4])
    )
    costs = [
        {place: _of_room(question, question.needs[guest], place) for place in cpus_of(may[guest])}
        for guest in guests
    ]
    least = [[min(cost[kind] for cost in row.values()) for row in costs] for kind in (0, 1)]
    rest = [(sum(least[0][at + 1 :]), sum(least[1][at + 1 :])) for at in range(len(guests))]
    waiting: list[tuple[tuple[int, ...], int, int]] = [((), 0, 0)]
    while waiting:
        steps.spend()
        hosts, cpus, memory = waiting.pop()
        at = len(hosts)
        if at == len(guests):
            if set(required) <= set(hosts):
                return [place for _, place in sorted(zip(guests, hosts, strict=True))]
            continue
        is_same = at > 0 and question.needs[guests[at]] == question.needs[guests[at - 1]]
        after = hosts[-1] if is_same else -1
        for place, (some, mb) in reversed(costs[at].items()):
            used = cpus + some, memory + mb
            in_all = used[0] + rest[at][0], used[1] + rest[at][1]
            if place > after and place not in hosts and _is_within(question, in_all):
                waiting.append(((*hosts, place), *used))
    return None


def _of_room(question: Question, need: Need, place: int) -> tuple[int, int]:
    costs = question.costs(need, place)
    return costs["PCPU"], costs["MEMORY_MB"]


def _is_within(question: Question, used: tuple[int, int]) -> bool:
    """Return whether the host as a whole has so many dedicated CPUs and MiB left."""
    room = question.room or {}
    return not any(
        count > room.get(name, count)
        for name, count in zip(("PCPU", "MEMORY_MB"), used, strict=True)
        if count
    )


def least(
    question: Question,
    may: Sequence[int],
    weights: tuple[int, int],
    required: Sequence[int],
) -> list[int] | None:
    """Return the placement of least weighted cost that uses the required cells."""
    every = sum(question.amount.located.values()) * 1024 + 1
    table: list[list[int | None]] = []
    for guest, need in enumerate(question.needs):
        row: list[int | None] = []
        for place in range(len(question.cells)):
            if not may[guest] >> place & 1:
                row.append(None)
                continue
            costs = question.costs(need, place)
            cost = weights[0] * costs["PCPU"] + weights[1] * costs["MEMORY_MB"]
            row.append(cost + (0 if place in required or not required else every))
        table.append(row)
    hosts = matching.cheapest(table)
    return hosts if hosts is not None and set(required) <= set(hosts) else None
