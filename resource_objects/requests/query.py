"""A request in Placement's words: the query string of ``GET /allocation_candidates``.

The words are those of microversion 1.39, the newest there is. ``S`` is the suffix that names a
group, 1 to 64 of letters, digits, ``_`` and ``-``; without it they are about the group without a
name:

=====================================  =============================================================
key                                    what it says
=====================================  =============================================================
``resources[S]=VCPU:1,MEMORY_MB:512``  amounts
``required[S]=T1,!T2``                 traits: required, and forbidden
``required[S]=in:T1,T2``               one of these traits
``member_of[S]=a``, ``in:a,b``         an aggregate, or one of several
``member_of[S]=!a``, ``!in:a,b``       not this aggregate, none of these
``in_tree[S]=p``                       a provider of the tree from which all comes
``group_policy=none`` or ``isolate``   whether named groups need different providers
``same_subtree=_A,_B``                 groups of which one's provider is above the others'
``root_required=T1,!T2``               traits of the host itself
``limit=10``                           how many candidates
=====================================  =============================================================

``required``, ``member_of`` and ``same_subtree`` may be said more than once and all count. A request
that is read here has Placement's semantics (``compatibility="placement"``, D14). Read otherwise
than there:

=======================================  ===========================================================
words                                    Placement, and here
=======================================  ===========================================================
``resources=VCPU:1,VCPU:2``              the last counts; refused (DuplicateKey)
``resources``, ``in_tree``, ``limit``    the last counts, or the first; refused (DuplicateKey)
or ``group_policy`` twice
``resources=VCPU:+1``, ``VCPU: 1``,      a number as Python reads it; refused (InvalidAmount)
``VCPU:1_0``, or in other digits
an amount of 2**63 and more              fails (500); refused (InvalidAmount)
amounts of 2**63 and more in all         fits nowhere; refused (InvalidAmount)
a limit of 2**63 and more                taken; refused (InvalidAmount)
``limit=&limit=1``                       fails (500); refused (InvalidRequest)
``required=!!T``                         forbidden, as ``!T``; refused (InvalidTrait)
``member_of=a&member_of=!a``             fits nowhere; refused (InvalidRequest)
``member_of=rack1``, ``in_tree=host0``   refused: uuids alone; names as well
a ``CUSTOM_`` class or trait that        refused; nobody has it
nobody has made
``in_tree`` in capitals or without       nobody's tree; the provider's
hyphens
``limit=1%0A`` and keys that end so      the end of line is not seen; refused
more than 1000 groups, more than 1 MiB   taken; refused (InvalidRequest)
=======================================  ===========================================================

A string whose ``in_tree`` or aggregates nobody knows asks for nothing there, whatever else is wrong
with its classes and traits; here what is wrong is said.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator

from resource_objects import exceptions
from resource_objects.requests import query_values as values
from resource_objects.requests import query_words as words
from resource_objects.requests.group import RequestGroup
from resource_objects.requests.query_words import MAX_LENGTH
from resource_objects.requests.request import Request

__all__ = ["MAX_LENGTH", "ParsedQuery", "format", "parse"]


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedQuery:
    """What a query string asks: a request, and how many candidates (None: all)."""

    request: Request
    limit: int | None = None


def parse(given: str | Iterable[tuple[str, str]]) -> ParsedQuery:
    """Return what a query string asks for.

    Cost: some 150 microseconds for a request of one group, 50 for each more.

    :param given: the query string, without ``?``; or its keys and values, decoded
    :raises InvalidRequest: for what cannot be; each naming the key, the value and what is expected
    :raises DuplicateKey: for a key or class that is said twice where one is meant
    :raises InvalidAmount: for an amount or limit that is no whole number from 1 to 2**63 - 1
    :raises UnknownTrait: for a trait that does not exist (InvalidTrait: that cannot); so classes

    >>> asked = parse("resources=VCPU:1&required=in:CUSTOM_A,CUSTOM_B&resources_NIC=SRIOV_NET_VF:1"
    ...               "&required_NIC=!CUSTOM_SLOW&limit=10")
    >>> print(asked.request)
    VCPU=1 any_of=CUSTOM_A|CUSTOM_B; _NIC: SRIOV_NET_VF=1 forbidden=CUSTOM_SLOW; compatibility=...
    >>> asked.limit
    10
    >>> parse("resources=VCPU:0")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidAmount: resources: got '0', expected a whole number...
    """
    by_suffix, wide = words.sorted_out(words.pairs(given))
    words.check_groups(by_suffix, wide)
    amounts, conditions = words.read_group("", by_suffix.pop("", {}))
    groups = []
    total = Counter(amounts)
    for suffix, said in by_suffix.items():
        asked, on_whom = words.read_group(suffix, said)
        values.add_up(f"resources{suffix}", total, asked)
        groups.append(RequestGroup(asked, suffix=suffix, **on_whom))
    of_all = words.read_wide(wide)
    request = Request(amounts, groups=groups, compatibility="placement", **conditions, **of_all)
    limit = wide.get("limit")
    return ParsedQuery(request, None if limit is None else values.number("limit", limit[0]))


def format(request: Request, limit: int | None = None) -> str:
    """Return a request as a query string, keys in a fixed order; :func:`parse` gives it back.

    What comes back has Placement's semantics, whichever the request has. Cost: some 20
    microseconds for a request of one group.

    :param limit: how many candidates, from 1 on; None for all
    :raises InvalidRequest: for what a query cannot say: where something goes (NUMA topologies,
        devices), traits of one class, aggregates whose names read as something else, a group that
        says nothing, several named groups without a policy
    :raises InvalidAmount: for a limit that is none

    >>> format(Request("VCPU=1", required=["CUSTOM_A"], member_of=["rack1"]), limit=10)
    'resources=VCPU:1&required=CUSTOM_A&member_of=rack1&limit=10'
    >>> format(Request("VCPU=1", traits_of={"VCPU": ["CUSTOM_A"]}))
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidRequest: traits_of: got 'VCPU', expected none: ...
    """
    if not isinstance(request, Request):
        raise exceptions.InvalidRequest("request", request, "a Request")
    pairs = [pair for group in request.groups for pair in _said(group)]
    pairs += _said_of_all(request)
    if limit is not None:
        if type(limit) is not int:
            raise exceptions.InvalidAmount("limit", limit, "an integer from 1 on, or None")
        pairs.append(("limit", str(values.number("limit", str(limit)))))
    text = urllib.parse.urlencode(pairs, safe=":,!/")
    if len(text) > MAX_LENGTH:
        raise exceptions.InvalidRequest("request", text, f"one of at most {MAX_LENGTH} characters")
    return text


def _said(group: RequestGroup) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a group."""
    suffix = group.suffix
    if suffix and not group.resources and not group.has_conditions:
        expected = "an amount or a condition: a query names a group by what it says of it"
        raise exceptions.InvalidRequest(f"group {suffix}", "nothing", expected)
    for name, _, _ in group.traits_of:
        expected = "none: a query cannot say traits of one class"
        raise exceptions.InvalidRequest(f"traits_of{suffix}", name, expected)
    if group.resources:
        key = f"resources{suffix}"
        yield key, values.format_amounts(key, group)
    if group.required or group.forbidden:
        yield f"required{suffix}", values.format_traits(group.required, group.forbidden)
    for some in group.any_of:
        yield f"required{suffix}", f"in:{','.join(sorted(some))}"
    key = f"member_of{suffix}"
    for some in group.member_of:
        yield key, values.format_aggregates(key, some)
    if group.not_member_of:
        yield key, values.format_aggregates(key, group.not_member_of, forbidden=True)
    if group.in_tree is not None:
        yield f"in_tree{suffix}", group.in_tree


def _said_of_all(request: Request) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the request as a whole."""
    if request.group_policy is not None:
        yield "group_policy", request.group_policy
    elif len(request.named) > 1:
        expected = "none or isolate: a query says it where there are several named groups"
        raise exceptions.InvalidRequest("group_policy", None, expected)
    for some in request.same_subtree:
        yield "same_subtree", ",".join(sorted(some))
    if request.root_required or request.root_forbidden:
        yield "root_required", values.format_traits(request.root_required, request.root_forbidden)
