"""A request as a query string of Placement: that of ``GET /allocation_candidates``.

The keys are those of microversion 1.39, the latest. ``S`` is the suffix that names a group, 1 to 64
of letters, digits, ``_`` and ``-``; without it a key belongs to the unnamed group:

=====================================  =============================================================
key                                    meaning
=====================================  =============================================================
``resources[S]=VCPU:1,MEMORY_MB:512``  amounts
``required[S]=T1,!T2``                 required and forbidden traits
``required[S]=in:T1,T2``               one of these traits
``member_of[S]=a``, ``in:a,b``         an aggregate, or one of several
``member_of[S]=!a``, ``!in:a,b``       not this aggregate, none of these
``in_tree[S]=p``                       a provider of the tree that provides everything
``group_policy=none`` or ``isolate``   whether named groups need different providers
``same_subtree=_A,_B``                 groups; the provider of one is an ancestor of the others
``root_required=T1,!T2``               traits of the host itself
``limit=10``                           the maximum number of candidates
=====================================  =============================================================

``required``, ``member_of`` and ``same_subtree`` can be repeated. The request has Placement's
semantics (``compatibility="placement"``, D15). These differ from Placement:

=======================================  ===========================================================
query                                    Placement; this library
=======================================  ===========================================================
``resources=VCPU:1,VCPU:2``              the last counts; refused (DuplicateKey)
``resources``, ``in_tree``, ``limit``    the last counts, or the first; refused (DuplicateKey)
or ``group_policy`` twice
``resources=VCPU:+1``, ``VCPU: 1``,      a number as Python reads it; refused (InvalidAmount)
``VCPU:1_0``, or in other digits
an amount of 2**63 or more               fails (500); refused (InvalidAmount)
amounts of 2**63 or more in all          fits nowhere; refused (InvalidAmount)
a limit of 2**63 or more                 accepted; refused (InvalidAmount)
``limit=&limit=1``                       fails (500); refused (InvalidRequest)
``required=!!T``                         forbidden, as ``!T``; refused (InvalidTrait)
``member_of=a&member_of=!a``             fits nowhere; refused (InvalidRequest)
``member_of=rack1``, ``in_tree=host0``   refused: only uuids; names as well
an unknown ``CUSTOM_`` class or trait    refused; no provider has it
``in_tree`` in capitals or without       an unknown tree; the provider's
hyphens
``limit=1%0A`` and keys that end so      the end of line is ignored; refused
more than 1000 groups, more than 1 MiB   accepted; refused (InvalidRequest)
=======================================  ===========================================================

In Placement a query with an unknown ``in_tree`` or unknown aggregates has no candidates, whatever
else is wrong with its classes and traits; here these errors are reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import urllib.parse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests.request import (
    MAX_GROUPS,
    MAX_LENGTH,
    POLICIES,
    Request,
    RequestGroup,
    signed,
    split_traits,
)
from resource_objects.resources import IntegerAmount, catalog
from resource_objects.resources.traits import checked_traits

_invalid_request = functools.partial(InvalidInput, "request")
_invalid_amount = functools.partial(InvalidInput, "amount")
_invalid_repetition = functools.partial(InvalidInput, "repetition")

__all__ = ["MAX_LENGTH", "ParsedQuery", "format", "parse"]

_OF_GROUP: Final = ("resources", "required", "member_of", "in_tree")
_OF_REQUEST: Final = ("group_policy", "same_subtree", "root_required", "limit")
#: Keys that can be repeated.
_REPEATED: Final = ("required", "member_of", "same_subtree")
_KEY = re.compile(rf"({'|'.join(_OF_GROUP)})([A-Za-z0-9_-]{{1,64}})?")
_MALFORMED = re.compile(rf"({'|'.join(_OF_GROUP)})(.+)", re.DOTALL)
_DIGITS = re.compile(r"[0-9]{1,19}\Z", re.ASCII)
#: The maximum number of groups in an error message.
_NAMED = 5

#: ``{key without suffix: values}``
Values: TypeAlias = dict[str, list[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A request, and the maximum number of candidates (None: all)."""

    request: Request
    limit: int | None = None


def parse(query: str | Iterable[tuple[str, str]]) -> ParsedQuery:
    """Return the request of a query string.

    Cost: some 150 microseconds for a request of one group, 50 for each more.

    :param query: the query string, without ``?``; or its keys and values, decoded
    :raises InvalidInput: for an invalid query; the error names the key, the value and the values
        that are allowed: for a repeated key or class, an amount or limit that is not a whole number
        from 1 to 2**63 - 1, and an unknown trait or class

    >>> parsed = parse("resources=VCPU:1&required=in:CUSTOM_A,CUSTOM_B&resources_NIC=SRIOV_NET_VF:1"
    ...                "&required_NIC=!CUSTOM_SLOW&limit=10")
    >>> print(parsed.request)
    VCPU=1 any_of=CUSTOM_A|CUSTOM_B; _NIC: SRIOV_NET_VF=1 forbidden=CUSTOM_SLOW; compatibility=...
    >>> parsed.limit
    10
    >>> parse("resources=VCPU:0")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: resources: got '0', expected a whole number...
    """
    by_suffix, wide = _by_suffix(_pairs(query))
    _check_groups(by_suffix, wide)
    total = Counter[str]()
    amounts, conditions = _read_group("", by_suffix.pop("", {}), total)
    groups = []
    for suffix, values in by_suffix.items():
        of_group, arguments = _read_group(suffix, values, total)
        groups.append(RequestGroup(of_group, suffix=suffix, **arguments))
    conditions |= _read_request(wide)
    request = Request(amounts, groups=groups, compatibility="placement", **conditions)
    limit = [_read_number("limit", text) for text in wide.get("limit", ())]
    return ParsedQuery(request, *limit)


def format(request: Request, limit: int | None = None) -> str:
    """Return a request as a query string, with the keys in a fixed order.

    :func:`parse` returns an equal request, with Placement's semantics. Cost: some 20 microseconds
    for a request of one group.

    :param limit: the maximum number of candidates, from 1 on; None for all
    :raises InvalidInput: for conditions without a key: placed amounts (NUMA topologies, devices), a
        level of nearness, traits of one class; for aggregates whose names read as something else,
        an empty group, several named groups without a policy; for an invalid limit

    >>> format(Request("VCPU=1", required=["CUSTOM_A"], member_of=["rack1"]), limit=10)
    'resources=VCPU:1&required=CUSTOM_A&member_of=rack1&limit=10'
    >>> format(Request("VCPU=1", traits_of={"VCPU": ["CUSTOM_A"]}))
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: traits_of: got 'VCPU', expected none: ...
    """
    if not isinstance(request, Request):
        raise _invalid_request("request", request, "a Request")
    pairs = [pair for group in request.groups for pair in _group_pairs(group)]
    pairs += _request_pairs(request)
    if limit is not None:
        if type(limit) is not int:
            raise _invalid_amount("limit", limit, "an integer from 1 on, or None")
        pairs.append(("limit", str(_read_number("limit", str(limit)))))
    text = urllib.parse.urlencode(pairs, safe=":,!/")
    if len(text) > MAX_LENGTH:
        raise _invalid_request("request", text, f"one of at most {MAX_LENGTH} characters")
    return text


def _group_pairs(group: RequestGroup) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a group."""
    suffix = group.suffix
    _check_expressible(group)
    if group.resources:
        amounts = (f"{kind}:{amount}" for kind, amount in group.resources.items())
        yield f"resources{suffix}", ",".join(amounts)
    if group.required or group.forbidden:
        yield f"required{suffix}", ",".join(signed(group.required, group.forbidden))
    for traits in group.any_of:
        yield f"required{suffix}", f"in:{','.join(sorted(traits))}"
    key = f"member_of{suffix}"
    for aggregates in group.member_of:
        yield key, _format_aggregates(key, aggregates)
    if group.not_member_of:
        yield key, f"!{_format_aggregates(key, group.not_member_of)}"
    if group.in_tree is not None:
        yield f"in_tree{suffix}", group.in_tree


def _check_expressible(group: RequestGroup) -> None:
    suffix = group.suffix
    if suffix and not group.resources and not group.has_conditions:
        expected = "an amount or a condition: a query names a group by its keys"
        raise _invalid_request(f"group {suffix}", "nothing", expected)
    for name, _, _ in group.traits_of:
        expected = "none: a query has no key for traits of one class"
        raise _invalid_request(f"traits_of{suffix}", name, expected)
    for kind, amount in group.resources.items():
        if type(amount) is not IntegerAmount:
            expected = "counts: a query has no placed amounts"
            raise _invalid_request(f"resources{suffix}", f"{kind}={amount}", expected)


def _request_pairs(request: Request) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the request as a whole."""
    if request.near is not None:
        expected = "none: a query expresses nearness by groups and same_subtree"
        raise _invalid_request("near", request.near, expected)
    if request.group_policy is not None:
        yield "group_policy", request.group_policy
    elif len(request.named) > 1:
        expected = "none or isolate: a query with several named groups needs a policy"
        raise _invalid_request("group_policy", None, expected)
    for suffixes in request.same_subtree:
        yield "same_subtree", ",".join(sorted(suffixes))
    if request.root_required or request.root_forbidden:
        yield "root_required", ",".join(signed(request.root_required, request.root_forbidden))


def _format_aggregates(key: str, aggregates: Collection[str]) -> str:
    for name in aggregates:
        if not _is_plain(name):
            expected = "an aggregate without a comma in its name, which begins neither ! nor in:"
            raise _invalid_request(key, name, expected)
    return f"{'in:' if len(aggregates) > 1 else ''}{','.join(sorted(aggregates))}"


# --- keys -----------------------------------------------------------------------------------------


def _pairs(query: object) -> Iterator[tuple[str, str]]:
    """Yield keys and values, decoded."""
    if isinstance(query, str):
        query = _split(query)
    if isinstance(query, bytes | Mapping) or not isinstance(query, Iterable):
        raise _invalid_request("query", query, "a query string, or keys and values")
    for pair in query:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(isinstance(word, str) for word in pair):
            raise _invalid_request("query", pair, "a key and its value, both text")
        key, value = pair
        if not value.strip():
            raise _invalid_request(key, value, "a value")
        yield key, value


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a query string; ``;`` separates as ``&`` does."""
    if len(text) > MAX_LENGTH:
        raise _invalid_request("query", text, f"at most {MAX_LENGTH} characters")
    decode = functools.partial(urllib.parse.unquote_plus, errors="strict")
    for item in filter(None, re.split("[&;]", text)):
        key, _, value = item.partition("=")
        try:
            yield decode(key), decode(value)
        except UnicodeDecodeError as error:
            raise _invalid_request("query", item, "percent-encoded UTF-8") from error


def _by_suffix(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, Values], Values]:
    """Return the values of each group by suffix, and those of the request as a whole."""
    groups: dict[str, Values] = {}
    wide: Values = {}
    for key, value in pairs:
        if match := _KEY.fullmatch(key):
            name, values = match[1], groups.setdefault(match[2] or "", {})
        elif key in _OF_REQUEST:
            name, values = key, wide
        elif match := _MALFORMED.fullmatch(key):
            expected = f"{match[1]} and a suffix of 1 to 64 of A-Z, a-z, 0-9, _ and -"
            raise _invalid_request("query", key, expected)
        else:
            expected = f"one of {', '.join(_OF_REQUEST)}, or with a suffix {', '.join(_OF_GROUP)}"
            raise _invalid_request("query", key, expected)
        if name in values and name not in _REPEATED:
            raise _invalid_repetition("query", key, "this key once")
        values.setdefault(name, []).append(value)
    return groups, wide


def _check_groups(groups: Mapping[str, Values], wide: Values) -> None:
    """Raise for missing keys."""
    if not any("resources" in values for values in groups.values()):
        raise _invalid_request("resources", "nothing", AMOUNTS)
    if len(groups) > MAX_GROUPS:
        raise _invalid_request("query", f"{len(groups)} groups", f"at most {MAX_GROUPS}")
    named = [suffix for suffix in groups if suffix]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    listed = f"{', '.join(named[:_NAMED]) or 'there are none'}{more}"
    linked = frozenset[str]()
    for text in wide.get("same_subtree", ()):
        suffixes = read_suffixes("same_subtree", text)
        if not suffixes <= groups.keys():
            expected = f"suffixes of groups of the query: {listed}"
            raise _invalid_request("same_subtree", text, expected)
        linked |= suffixes
    for suffix, values in groups.items():
        if "resources" not in values and suffix not in linked:
            name, (first, *_) = next(iter(values.items()))
            or_linked = f", or same_subtree={suffix},..." if suffix else ""
            expected = f"resources{suffix}=... beside it{or_linked}"
            raise _invalid_request(name + suffix, first, expected)
    if len(named) > 1 and "group_policy" not in wide:
        expected = f"none or isolate, for the groups {listed}"
        raise _invalid_request("group_policy", "nothing", expected)


def _read_group(
    suffix: str, values: Values, total: Counter[str]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the amounts of a group, and its conditions as arguments.

    :param total: the amounts of all groups, to which these are added
    """
    amounts: dict[str, int] = {}
    for text in values.get("resources", ()):
        amounts = _read_amounts(f"resources{suffix}", text)
    conditions: dict[str, Any] = {
        **_read_required(f"required{suffix}", values.get("required", ())),
        **_read_member_of(f"member_of{suffix}", values.get("member_of", ())),
    }
    for text in values.get("in_tree", ()):
        conditions["in_tree"] = read_tree(f"in_tree{suffix}", text)
    total.update(amounts)
    for name, amount in amounts.items():
        if total[name] > MAX_AMOUNT:
            expected = f"at most {MAX_AMOUNT} of {name} over all groups"
            raise _invalid_amount(f"resources{suffix}", amount, expected)
    return amounts, conditions


def _read_required(key: str, texts: Iterable[str]) -> dict[str, Any]:
    required, forbidden = frozenset[str](), frozenset[str]()
    any_of: list[frozenset[str]] = []
    for text in texts:
        if text.startswith("in:"):
            any_of.append(read_any_trait(key, text))
        else:
            included, excluded = read_traits(key, text)
            required, forbidden = required | included, forbidden | excluded
    _check_conflict(key, required, forbidden)
    for traits in any_of:
        if traits <= forbidden:
            expected = "at least one trait that is not forbidden too"
            raise _invalid_request(key, f"in:{','.join(sorted(traits))}", expected)
    return {"required": required, "forbidden": forbidden, "any_of": any_of}


def _read_member_of(key: str, texts: Iterable[str]) -> dict[str, Any]:
    member_of: list[frozenset[str]] = []
    not_member_of = frozenset[str]()
    for text in texts:
        aggregates, is_forbidden = read_aggregates(key, text)
        if is_forbidden:
            not_member_of |= aggregates
        else:
            member_of.append(aggregates)
    for aggregates in member_of:
        if aggregates <= not_member_of:
            expected = "at least one aggregate that is not forbidden too"
            raise _invalid_request(key, _format_aggregates(key, aggregates), expected)
    return {"member_of": member_of, "not_member_of": not_member_of}


def _read_request(wide: Values) -> dict[str, Any]:
    """Return the conditions of the request as a whole, as arguments."""
    conditions: dict[str, Any] = {}
    for text in wide.get("group_policy", ()):
        if text not in POLICIES:
            raise _invalid_request("group_policy", text, " or ".join(POLICIES))
        conditions["group_policy"] = text
    subtrees = wide.get("same_subtree", ())
    conditions["same_subtree"] = [read_suffixes("same_subtree", text) for text in subtrees]
    for text in wide.get("root_required", ()):
        required, forbidden = read_traits("root_required", text)
        _check_conflict("root_required", required, forbidden)
        conditions |= {"root_required": required, "root_forbidden": forbidden}
    return conditions


def _check_conflict(key: str, required: frozenset[str], forbidden: frozenset[str]) -> None:
    if both := sorted(required & forbidden):
        raise _invalid_request(key, both, "traits that are not forbidden too")


# --- values: each function raises InvalidInput with the name of the key ---------------------------

AMOUNTS = "CLASS:AMOUNT with commas between, such as VCPU:1,MEMORY_MB:512"
TRAITS = "traits with commas between, such as CUSTOM_A,!CUSTOM_B"
ANY_TRAIT = "in: and traits with commas between, none with !, such as in:CUSTOM_A,CUSTOM_B"
AGGREGATES = "an aggregate, or in: and several with commas between, or either with ! before it"


@contextlib.contextmanager
def named_by(key: str) -> Iterator[None]:
    """Replace the name in errors about a value by its key."""
    try:
        yield
    except InvalidInput as error:
        raise error.renamed(key, error.value) from error


def _read_number(
    key: str, text: str, expected: str = f"a whole number from 1 to {MAX_AMOUNT}"
) -> int:
    number = int(text) if _DIGITS.match(text) else 0
    if not 1 <= number <= MAX_AMOUNT:
        raise _invalid_amount(key, text, expected)
    return number


def _read_amounts(key: str, text: str) -> dict[str, int]:
    """Return the amounts of ``CLASS:1,CLASS:2`` by class."""
    amounts: dict[str, int] = {}
    for item in text.split(","):
        name, colon, digits = item.partition(":")
        if not colon or ":" in digits:
            raise _invalid_request(key, item, AMOUNTS)
        with named_by(key):
            kind = catalog.resource(name)
        if kind.amount_kind is not IntegerAmount:
            raise _invalid_request(key, item, "a class that is counted")
        if name in amounts:
            raise _invalid_repetition(key, name, "each class once")
        expected = f"a whole number of {name} from 1 to {MAX_AMOUNT}"
        amounts[kind.name] = _read_number(key, digits, expected)
    return amounts


def read_traits(key: str, text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the required and the forbidden traits of ``T1,!T2``."""
    items = [item.strip() for item in text.split(",")]
    if "" in items or "!" in items:
        raise _invalid_request(key, text, TRAITS)
    with named_by(key):
        return split_traits(items)


def read_any_trait(key: str, text: str) -> frozenset[str]:
    """Return the traits of ``in:T1,T2``."""
    items = [item.strip() for item in text.removeprefix("in:").split(",")]
    if any(not item or item.startswith("!") for item in items):
        raise _invalid_request(key, text, ANY_TRAIT)
    with named_by(key):
        return checked_traits(items)


def read_aggregates(key: str, text: str) -> tuple[frozenset[str], bool]:
    """Return the aggregates of ``a``, ``in:a,b``, ``!a`` or ``!in:a,b``; True if forbidden."""
    listed = text.removeprefix("!")
    items = listed.removeprefix("in:").split(",") if listed.startswith("in:") else [listed]
    if not all(map(_is_plain, items)):
        raise _invalid_request(key, text, AGGREGATES)
    with named_by(key):
        return frozenset(map(names.aggregate_name, items)), text.startswith("!")


def _is_plain(name: str) -> bool:
    """Return True if the name of an aggregate reads as nothing else."""
    return bool(name) and "," not in name and not name.startswith(("!", "in:"))


def read_tree(key: str, text: str) -> str:
    """Return the name or uuid of a provider."""
    with named_by(key):
        return names.provider_key(text.strip())


def read_suffixes(key: str, text: str) -> frozenset[str]:
    """Return the suffixes of ``_A,_B``."""
    suffixes = frozenset(item.strip() for item in text.split(","))
    if "" in suffixes:
        expected = "suffixes of named groups with commas between, such as _A,_B"
        raise _invalid_request(key, text, expected)
    return suffixes
