"""Dealing members of a gang out to hosts, against trying every way."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.budget import Budget
from resource_objects.search.dealing import Bound, Place, Portion, deal, most_of

PLENTY = 10**6


def contains(portions: tuple[Portion, ...], portion: Portion) -> bool:
    return not any(portion) or any(
        all(a >= b for a, b in zip(one, portion, strict=True)) for one in portions
    )


def got_at(place: Place, got: Mapping[str, Portion], kinds: int) -> Portion:
    some = [got[host.name] for host in place.hosts() if host.name in got]
    return tuple(sum(portion[kind] for portion in some) for kind in range(kinds))


def keeps(place: Place, got: Mapping[str, Portion], kinds: int) -> bool:
    """Return whether every place holds what it gets, within its bounds."""
    here = got_at(place, got, kinds)
    if place.most is not None and any(a > b for a, b in zip(here, place.most, strict=True)):
        return False
    if not all(bound.allows(here) for bound in place.bounds):
        return False
    if not place.below:
        return contains(place.portions, here)
    return all(keeps(one, got, kinds) for one in place.below)


def is_possible(place: Place, need: Portion) -> bool:
    """Return whether some way to deal keeps to everything; all are tried."""
    hosts = [host.name for host in place.hosts()]
    each = list(itertools.product(*(range(count + 1) for count in need)))
    for choice in itertools.product(each, repeat=len(hosts)):
        is_all = tuple(map(sum, zip(*choice, strict=True))) == need
        if is_all and keeps(place, dict(zip(hosts, choice, strict=True)), len(need)):
            return True
    return False


@st.composite
def trees(draw: st.DrawFn) -> tuple[Place, Portion]:
    kinds = draw(st.integers(1, 3))

    def portions(most: int) -> st.SearchStrategy[Portion]:
        return st.tuples(*[st.integers(0, most)] * kinds)

    bounds = st.builds(Bound, portions(2), st.integers(1, 5))

    def place(name: str, below: tuple[Place, ...]) -> Place:
        return Place(
            name,
            () if below else tuple(draw(st.lists(portions(2), max_size=3))),
            below,
            draw(st.none() | portions(3)),
            tuple(draw(st.lists(bounds, max_size=2))),
        )

    racks = [
        place(f"r{a}", tuple(place(f"h{a}{b}", ()) for b in range(draw(st.integers(1, 2)))))
        for a in range(draw(st.integers(1, 2)))
    ]
    return place("all", tuple(racks)), draw(portions(2).filter(any))


@given(trees())
def test_it_is_dealt_if_and_only_if_some_way_keeps_the_bounds(case: tuple[Place, Portion]) -> None:
    root, need = case
    got = deal(root, need, Budget(PLENTY))
    assert (got is not None) == is_possible(root, need)
    event(f"possible: {got is not None}")
    if got is not None:
        assert got_at(root, got, len(need)) == need
        assert keeps(root, got, len(need))
        assert all(map(any, got.values()))


@given(trees(), st.integers(0, 2))
def test_the_most_of_one_kind_is_exact(case: tuple[Place, Portion], kind: int) -> None:
    root, need = case
    kind %= len(need)

    def alone(count: int) -> Portion:
        return tuple(count if k == kind else 0 for k in range(len(need)))

    most = most_of(root, need, kind)
    assert most == 0 or is_possible(root, alone(most))
    assert most == need[kind] or not is_possible(root, alone(most + 1))


def test_whoever_comes_first_gets_as_much_as_it_can() -> None:
    hosts = tuple(Place(f"h{n}", ((4,),)) for n in range(3))
    assert deal(Place("all", below=hosts), (6,), Budget(PLENTY)) == {"h0": (4,), "h1": (2,)}


def test_a_budget_that_ends_is_no_answer() -> None:
    """Each kind fits alone, and handing out in turn fails: only a search can tell."""
    hosts = tuple(Place(f"h{n}", ((2, 0), (0, 2), (1, 1))) for n in range(40))
    with pytest.raises(SearchLimitReached):
        deal(Place("all", below=hosts), (50, 31), Budget(100))
    assert deal(Place("all", below=hosts), (50, 31), Budget(PLENTY)) is None
