"""The search, held to the complete enumerator: nothing missing, nothing extra, nothing twice."""

from __future__ import annotations

from collections.abc import Callable

from resource_objects import search
from resource_objects.providers.arguments import Limited
from resource_objects.providers.columns import Columns
from resource_objects.requests import Request
from tests.support.enumerator import Form, Found, candidates, found_of
from tests.support.enumerator import forms as enumerator_forms

#: More than any generated host has.
ALL = 1_000_000


def listed(
    columns: Columns, request: Request, per_host: int | None = ALL, limits: Limited = None
) -> list[Found]:
    """Return all candidates of the search, as the enumerator writes them."""
    snapshot = search.Snapshot(columns)
    found = snapshot.candidates(request, limit=None, per_host=per_host, limits=limits)
    assert not found.cut_short, request
    return [found_of(columns, one) for one in found]


def right(columns: Columns, request: Request) -> list[Found]:
    """Return all candidates of the enumerator."""
    return candidates(columns, request)


def forms(columns: Columns, request: Request, found: list[Found]) -> set[Form]:
    """Return the forms of candidates, after seeing that no two have the same."""
    told = enumerator_forms(columns, request, found)
    assert len(set(told)) == len(told), f"listed twice: {request}"
    return set(told)


def check_complete(columns: Columns, request: Request) -> list[Found]:
    """Hold a complete listing to the enumerator; return what is right."""
    expected, found = right(columns, request), listed(columns, request)
    _check_each(request, expected, found)
    wanted = set(enumerator_forms(columns, request, expected))
    missing = wanted - forms(columns, request, found)
    assert not missing, f"missing: {sorted(map(str, missing))[:3]} of {request}"
    return expected


def check_under(
    columns: Columns,
    under: Callable[[Columns, Limited], Columns],
    limits: Limited,
    request: Request,
) -> list[Found]:
    """Hold a listing under limits to the enumerator on what they leave; return what is right."""
    then = under(columns, limits)
    expected, found = right(then, request), listed(columns, request, limits=limits)
    _check_each(request, expected, found)
    missing = set(enumerator_forms(then, request, expected)) - forms(then, request, found)
    assert not missing, f"missing: {sorted(map(str, missing))[:3]} of {request} within {limits}"
    return expected


def check_hosts(columns: Columns, request: Request) -> list[Found]:
    """Hold one candidate for each host to the enumerator; return what is right.

    Of a request by Placement's rules these are the hosts of some of its anchors.
    """
    expected, found = right(columns, request), listed(columns, request, per_host=1)
    _check_each(request, expected, found)
    hosts = [one.host for one in found]
    assert hosts == sorted({one.host for one in expected}), request
    return expected


def _check_each(request: Request, expected: list[Found], found: list[Found]) -> None:
    """See that every candidate is one of those that there are, for its host."""
    extra = [one for one in found if one not in expected]
    assert not extra, f"extra: {extra[:3]} of {request}"
