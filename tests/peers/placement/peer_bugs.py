"""What Placement 16 does wrong about candidates: when, and what it makes of the right answer.

=========  ========================================================================================
loses      Candidates are compared without their anchor: of an unnamed group that pools give alone
           one anchor is kept, whichever comes first in a set. All others lose their candidates
leaks      Without ``group_policy=none`` the amounts of a class that the unnamed and a named group
           ask for are added up in what other candidates use too
fails      A pool below the root of a tree that cannot give the other classes is not read:
           ``KeyError``, which is a 500
empties    A group that asks for nothing and says only what its provider must not be matches nobody
forgets    ``in_tree`` of a group that asks for nothing is not looked at
=========  ========================================================================================

And it lists every permutation of what is interchangeable.
"""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator
from unittest import mock

from resource_objects.providers.columns import Columns
from resource_objects.requests import Request
from tests.peers.placement.peer_fleets import Answer
from tests.support.columns import Kept
from tests.support.enumerator import Found, candidates

#: What the unnamed group takes, and of whom.
_Part = frozenset[tuple[str, str, int]]


def empties(request: Request) -> bool:
    """Return whether some group matches nobody for that it asks for nothing and is negative."""
    return any(
        not (group.resources or group.required or group.any_of or group.member_of)
        for group in request.named
    )


def forgets_tree(request: Request) -> bool:
    """Return whether an ``in_tree`` is not looked at."""
    return any(group.in_tree and not group.resources for group in request.named)


def without_forgotten_trees(request: Request) -> Request:
    """Return the request that is answered in place of one with a forgotten ``in_tree``."""
    groups = [
        group if group.resources else group.replace(in_tree=None) for group in request.groups[1:]
    ]
    return request.replace(groups=(request.unnamed, *groups))


def leaks(request: Request) -> bool:
    """Return whether amounts may be added up where they do not belong."""
    asked = {name for name, _ in request.unnamed.resources.by_name()}
    named = {name for group in request.named for name, _ in group.resources.by_name()}
    return request.isolates and bool(asked & named)


@contextlib.contextmanager
def mended(*, leaks: bool) -> Iterator[None]:
    """Let Placement copy what it adds up, as it does by ``group_policy=none``."""
    from placement.objects.research_context import RequestWideSearchContext

    name = "copy_arr_if_needed"
    with contextlib.ExitStack() as stack:
        if leaks:
            stack.enter_context(
                mock.patch.object(RequestWideSearchContext, name, lambda _, one: copy.copy(one))
            )
        yield


def may_fail(columns: Columns, request: Request) -> bool:
    """Return whether a pool below a root may give to the unnamed group in another tree."""
    kept = Kept(columns)
    pools = [row for row in kept.rows.values() if row.is_sharing and row.parent is not None]
    asked = {name for name, _ in request.unnamed.resources.by_name()}
    return any(asked & set(row.stocks) and row.aggregates for row in pools)


def is_lost_anchor(
    columns: Columns, request: Request, found: set[Answer], right: list[Found]
) -> bool:
    """Return whether an answer is the right one less all anchors but one of each pools' part.

    For each part of the unnamed group, what is found with it is what is right with it: at every
    anchor, or where pools alone give the part at just one of those that it is possible at, whatever
    the named groups say to that.
    """
    sharing = {row.uuid for row in Kept(columns).rows.values() if row.is_sharing}
    alone = request.replace(groups=(request.unnamed,), same_subtree=())
    anchors: dict[_Part, set[str]] = defaultdict(set)
    for one in candidates(columns, alone):
        anchors[one.allocations].add(one.host)
    at: dict[_Part, dict[str, set[Answer]]] = defaultdict(lambda: defaultdict(set))
    for one in right:
        at[_unnamed(request, one[1:])][one.host].add((one.allocations, one.mappings))
    got: dict[_Part, set[Answer]] = defaultdict(set)
    for answer in found:
        got[_unnamed(request, answer)].add(answer)
    return set(got) <= set(at) and all(
        got[part] in _possible(part, at[part], anchors[part], sharing) for part in at
    )


def _possible(
    part: _Part, at: dict[str, set[Answer]], anchors: Iterable[str], sharing: set[str]
) -> list[set[Answer]]:
    if {uuid for uuid, _, _ in part} <= sharing:
        return [at.get(anchor, set()) for anchor in anchors]
    return [{one for some in at.values() for one in some}]


def _unnamed(request: Request, answer: Answer) -> _Part:
    """Return what is left of an answer without what its named groups take."""
    allocations, mappings = answer
    left = {(uuid, name): amount for uuid, name, amount in allocations}
    group_of = {group.suffix: group for group in request.named}
    for suffix, uuids in mappings:
        if suffix:
            for name, amount in group_of[suffix].resources.by_name():
                left[next(iter(uuids)), name] -= int(amount)
    return frozenset((*place, amount) for place, amount in left.items() if amount)
