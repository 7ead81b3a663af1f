"""The distribution of members over hosts, against an exhaustive search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.backtracking import Budget
from resource_objects.search.distribution import (
    Counts,
    Domain,
    LinearBound,
    distribute,
    most_of_kind,
)

UNLIMITED = 10**6


def hosts(domain: Domain) -> Iterator[Domain]:
    if not domain.parts:
        yield domain
    for part in domain.parts:
        yield from hosts(part)


def contains(every: tuple[Counts, ...], counts: Counts) -> bool:
    return not any(counts) or any(
        all(a >= b for a, b in zip(other, counts, strict=True)) for other in every
    )


def total(domain: Domain, assignment: Mapping[int, Counts], kinds: int) -> Counts:
    inside = [assignment[host.host] for host in hosts(domain) if host.host in assignment]
    return tuple(sum(counts[kind] for counts in inside) for kind in range(kinds))


def is_valid(domain: Domain, assignment: Mapping[int, Counts], kinds: int) -> bool:
    """Return True if every domain holds its members within its bounds."""
    counts = total(domain, assignment, kinds)
    if not all(bound.allows(counts) for bound in domain.bounds):
        return False
    if not domain.parts:
        return contains(domain.maximal, counts)
    return all(is_valid(part, assignment, kinds) for part in domain.parts)


def is_possible(root: Domain, need: Counts) -> bool:
    """Return True if some assignment is valid; all are tried."""
    numbers = [host.host for host in hosts(root)]
    each = list(itertools.product(*(range(count + 1) for count in need)))
    for choice in itertools.product(each, repeat=len(numbers)):
        is_all = tuple(map(sum, zip(*choice, strict=True))) == need
        if is_all and is_valid(root, dict(zip(numbers, choice, strict=True)), len(need)):
            return True
    return False


@st.composite
def trees(draw: st.DrawFn) -> tuple[Domain, Counts]:
    kinds = draw(st.integers(1, 3))

    def counts(most: int) -> st.SearchStrategy[Counts]:
        return st.tuples(*[st.integers(0, most)] * kinds)

    def bound_of_kind(case: tuple[int, int]) -> LinearBound:
        return LinearBound(tuple(int(kind == case[0]) for kind in range(kinds)), case[1])

    bounds = st.builds(LinearBound, counts(2), st.integers(1, 5))
    bounds |= st.tuples(st.integers(0, kinds - 1), st.integers(0, 3)).map(bound_of_kind)

    def domain(host: int, parts: tuple[Domain, ...]) -> Domain:
        maximal = () if parts else tuple(draw(st.lists(counts(2), max_size=3)))
        return Domain(host, maximal, parts, tuple(draw(st.lists(bounds, max_size=3))))

    racks = [
        domain(-1, tuple(domain(2 * a + b, ()) for b in range(draw(st.integers(1, 2)))))
        for a in range(draw(st.integers(1, 2)))
    ]
    return domain(-1, tuple(racks)), draw(counts(2).filter(any))


@given(trees())
def test_members_are_distributed_if_and_only_if_an_assignment_is_valid(
    case: tuple[Domain, Counts],
) -> None:
    root, need = case
    assignment = distribute(root, need, Budget(UNLIMITED))
    assert (assignment is not None) == is_possible(root, need)
    event(f"possible: {assignment is not None}")
    if assignment is not None:
        assert total(root, assignment, len(need)) == need
        assert is_valid(root, assignment, len(need))
        assert all(map(any, assignment.values()))


@given(trees(), st.integers(0, 2))
def test_the_most_of_one_kind_is_exact(case: tuple[Domain, Counts], kind: int) -> None:
    root, need = case
    kind %= len(need)

    def only(count: int) -> Counts:
        return tuple(count if k == kind else 0 for k in range(len(need)))

    most = most_of_kind(root, need, kind)
    assert most == 0 or is_possible(root, only(most))
    assert most == need[kind] or not is_possible(root, only(most + 1))


def test_the_first_hosts_get_as_many_as_they_can() -> None:
    every = tuple(Domain(n, ((4,),)) for n in range(3))
    assignment = distribute(Domain(parts=every), (6,), Budget(UNLIMITED))
    assert assignment == {0: (4,), 1: (2,)}


def test_a_spent_budget_is_not_a_refusal() -> None:
    """Each kind fits individually, and assigning kind by kind fails: only a search decides."""
    every = tuple(Domain(n, ((2, 0), (0, 2), (1, 1))) for n in range(40))
    with pytest.raises(SearchLimitReached):
        distribute(Domain(parts=every), (50, 31), Budget(100))
    assert distribute(Domain(parts=every), (50, 31), Budget(UNLIMITED)) is None
