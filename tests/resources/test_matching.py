"""Matching groups to separate providers, against trying every choice."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from resource_objects.resources.matching import Matching, can_match, matching_size

#: By kind, how many groups there are of it, and who may give one of them, as bits.
questions = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 31)), max_size=3)


def most(groups: list[tuple[int, int]]) -> int:
    """Return the maximum number of groups with separate providers, by trying everything."""
    masks = [mask for count, mask in groups for _ in range(count)]
    choices = [[None, *(bit for bit in range(5) if mask >> bit & 1)] for mask in masks]
    result = (
        [item for item in chosen if item is not None] for chosen in itertools.product(*choices)
    )
    return max(len(several) for several in result if len(set(several)) == len(several))


@given(questions)
def test_as_many_are_matched_as_trying_everything_matches(groups):
    best = most(groups)
    assert matching_size(groups) == best
    assert can_match(groups) is (best == sum(count for count, _ in groups))


@given(st.lists(questions, max_size=8))
def test_what_is_stored_from_one_question_does_not_change_the_answer_to_the_next(request):
    available = Matching()
    for groups in request:
        assert available.can_match(groups) is can_match(groups)


def test_a_long_chain_is_moved_along():
    """Group n may have provider n or n + 1; one more group needs the first, which moves all."""
    chain = [(1, 0b11 << number) for number in range(2000)]
    available = Matching()
    assert available.can_match(chain)
    assert available.can_match([*chain, (1, 0b1)])
    assert not available.can_match([*chain, (2, 0b1)])
    assert matching_size([*chain, (2, 0b1)]) == 2001
