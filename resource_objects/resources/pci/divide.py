"""Who has what: demands met from groups of which some exclude each other.

A physical function and those split off it exclude each other. Where no request could have a
function whole while another could have parts of it, that does not matter, and this is a flow
(:mod:`.flow`): polynomial. Where both are asked for, it is hard in general (which functions stay
whole is a packing), and decided exactly within a budget:

1. every demand in turn takes its best; that mostly does;
2. else demands are met as if nothing excluded anything, which is necessary: if that is impossible,
   the answer is no;
3. a function that is taken whole and in parts is decided, parts first, so that few are given away
   whole. Functions that are alike stand for each other: of these the first ones are taken whole. So
   there are as many ways as counts by kind of function: polynomial for any fixed number of kinds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from resource_objects.resources.pci.flow import Flow
from resource_objects.resources.pci.question import Question, Steps

#: A way is looked at by a flow, which costs as many steps as it has so many edges.
_EDGES_OF_A_STEP = 256

#: What each demand has, by group.
Given = Sequence[dict[int, int]]


def divide(question: Question, steps: Steps | None = None) -> Given | None:
    """Return how many of which group each demand has, None if they cannot be met at once.

    :raises SearchLimitReached: if the budget ran out before it was known
    """
    found = _best_first(question)
    if found is not None:
        return found
    conflicts = list(_conflicts(question))
    if not conflicts:
        flow = relaxed(question)
        return flow.given if flow.is_complete else None
    return _exactly(question, conflicts, steps or Steps())


def relaxed(question: Question) -> Flow:
    """Return demands met as far as possible, as if no device excluded another."""
    capacity = {group: len(some) for group, some in question.free.items()}
    return Flow(question.counts, question.may, capacity)


def _best_first(question: Question) -> Given | None:
    """Let every demand in turn take its best; None if one is left short."""
    whole, parts = question.shelf.whole, question.shelf.parts
    taken: dict[int, int] = {}
    given: list[dict[int, int]] = []
    for demand, may in zip(question.demands, question.may, strict=True):
        missing = demand.needed
        has: dict[int, int] = {}
        for group in may:
            count = min(missing, len(question.free[group]) - taken.get(group, 0))
            if count <= 0 or taken.get(whole.get(group, -1)):
                continue
            if any(taken.get(part) for part in parts.get(group, ())):
                continue
            has[group] = count
            taken[group] = taken.get(group, 0) + count
            missing -= count
            if not missing:
                break
        if missing:
            return None
        given.append(has)
    return given


def _conflicts(question: Question) -> Iterator[int]:
    """Yield the functions that may be had whole by one demand and in parts by another."""
    wanted = {group for may in question.may for group in may}
    for group, parts in question.shelf.parts.items():
        if group in wanted and any(part in wanted for part in parts):
            yield group


def _exactly(question: Question, conflicts: Sequence[int], steps: Steps) -> Given | None:
    shelf = question.shelf
    alike: dict[Hashable, list[int]] = {}
    for group in conflicts:
        alike.setdefault(_kind(question, group), []).append(group)
    mates = {group: same for same in alike.values() for group in same}
    free = {group: len(some) for group, some in question.free.items()}
    waiting: list[tuple[frozenset[int], frozenset[int]]] = [(frozenset(), frozenset())]
    each = 1 + sum(map(len, question.may)) // _EDGES_OF_A_STEP
    while waiting:
        steps.spend(each)
        whole, split = waiting.pop()
        capacity = {**free, **dict.fromkeys(split, 0)}
        capacity.update((part, 0) for group in whole for part in shelf.parts[group])
        flow = Flow(question.counts, question.may, capacity)
        if not flow.is_complete:
            continue
        taken = {group for has in flow.given for group in has}
        both = [g for g in conflicts if g in taken and taken.intersection(shelf.parts[g])]
        if not both:
            return flow.given
        open_ = [g for g in mates[both[0]] if g not in whole and g not in split]
        waiting.append((whole | {open_[0]}, split))
        waiting.append((whole, split.union(open_)))
    return None


def _kind(question: Question, group: int) -> Hashable:
    """Return what functions have in common that can stand for each other."""
    shelf = question.shelf

    def seen(number: int) -> tuple[Hashable, ...]:
        asked = tuple(n for n, may in enumerate(question.may) if number in may)
        return (len(question.free.get(number, ())), asked)

    return (seen(group), tuple(sorted(map(seen, shelf.parts[group]))))
