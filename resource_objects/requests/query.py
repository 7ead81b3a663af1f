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

import contextlib
import dataclasses
import functools
import re
import urllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
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
)
from resource_objects.resources import IntegerAmount, catalog
from resource_objects.resources.traits import known_traits

_invalid_request = functools.partial(InvalidInput, "request")
_invalid_amount = functools.partial(InvalidInput, "amount")
_invalid_repetition = functools.partial(InvalidInput, "repetition")

__all__ = [
    "MAX_LENGTH",
    "ParsedQuery",
    "format",
    "parse",
]


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedQuery:
    """What a query string asks: a request, and how many candidates (None: all)."""

    request: Request
    limit: int | None = None


def parse(given: str | Iterable[tuple[str, str]]) -> ParsedQuery:
    """Return what a query string asks for.

    Cost: some 150 microseconds for a request of one group, 50 for each more.

    :param given: the query string, without ``?``; or its keys and values, decoded
    :raises InvalidInput: for an invalid query; the error names the key, the value and the values
        that are allowed: for a repeated key or class, an amount or limit that is not a whole number
        from 1 to 2**63 - 1, and an unknown trait or class

    >>> asked = parse("resources=VCPU:1&required=in:CUSTOM_A,CUSTOM_B&resources_NIC=SRIOV_NET_VF:1"
    ...               "&required_NIC=!CUSTOM_SLOW&limit=10")
    >>> print(asked.request)
    VCPU=1 any_of=CUSTOM_A|CUSTOM_B; _NIC: SRIOV_NET_VF=1 forbidden=CUSTOM_SLOW; compatibility=...
    >>> asked.limit
    10
    >>> parse("resources=VCPU:0")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: resources: got '0', expected a whole number...
    """
    by_suffix, wide = sorted_out(pairs(given))
    check_groups(by_suffix, wide)
    amounts, conditions = read_group("", by_suffix.pop("", {}))
    groups = []
    total = Counter(amounts)
    for suffix, said in by_suffix.items():
        resources, on_whom = read_group(suffix, said)
        add_up(f"resources{suffix}", total, resources)
        groups.append(RequestGroup(resources, suffix=suffix, **on_whom))
    of_all = read_wide(wide)
    request = Request(amounts, groups=groups, compatibility="placement", **conditions, **of_all)
    limit = wide.get("limit")
    return ParsedQuery(request, None if limit is None else read_number("limit", limit[0]))


def format(request: Request, limit: int | None = None) -> str:
    """Return a request as a query string, keys in a fixed order; :func:`parse` gives it back.

    What comes back has Placement's semantics, whichever the request has. Cost: some 20
    microseconds for a request of one group.

    :param limit: how many candidates, from 1 on; None for all
    :raises InvalidInput: for what a query cannot say: where something goes (NUMA topologies,
        devices), a level that all has to be near at, traits of one class, aggregates whose names
        read as something else, a group that says nothing, several named groups without a policy;
        for a limit that is none

    >>> format(Request("VCPU=1", required=["CUSTOM_A"], member_of=["rack1"]), limit=10)
    'resources=VCPU:1&required=CUSTOM_A&member_of=rack1&limit=10'
    >>> format(Request("VCPU=1", traits_of={"VCPU": ["CUSTOM_A"]}))
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: traits_of: got 'VCPU', expected none: ...
    """
    if not isinstance(request, Request):
        raise _invalid_request("request", request, "a Request")
    pairs = [pair for group in request.groups for pair in _said(group)]
    pairs += _said_of_all(request)
    if limit is not None:
        if type(limit) is not int:
            raise _invalid_amount("limit", limit, "an integer from 1 on, or None")
        pairs.append(("limit", str(read_number("limit", str(limit)))))
    text = urllib.parse.urlencode(pairs, safe=":,!/")
    if len(text) > MAX_LENGTH:
        raise _invalid_request("request", text, f"one of at most {MAX_LENGTH} characters")
    return text


def _said(group: RequestGroup) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a group."""
    suffix = group.suffix
    if suffix and not group.resources and not group.has_conditions:
        expected = "an amount or a condition: a query names a group by what it says of it"
        raise _invalid_request(f"group {suffix}", "nothing", expected)
    for name, _, _ in group.traits_of:
        expected = "none: a query cannot say traits of one class"
        raise _invalid_request(f"traits_of{suffix}", name, expected)
    if group.resources:
        key = f"resources{suffix}"
        yield key, format_amounts(key, group)
    if group.required or group.forbidden:
        yield f"required{suffix}", format_traits(group.required, group.forbidden)
    for some in group.any_of:
        yield f"required{suffix}", f"in:{','.join(sorted(some))}"
    key = f"member_of{suffix}"
    for some in group.member_of:
        yield key, format_aggregates(key, some)
    if group.not_member_of:
        yield key, format_aggregates(key, group.not_member_of, forbidden=True)
    if group.in_tree is not None:
        yield f"in_tree{suffix}", group.in_tree


def _said_of_all(request: Request) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the request as a whole."""
    if request.near is not None:
        expected = "none: a query says what is near by groups and same_subtree"
        raise _invalid_request("near", request.near, expected)
    if request.group_policy is not None:
        yield "group_policy", request.group_policy
    elif len(request.named) > 1:
        expected = "none or isolate: a query says it where there are several named groups"
        raise _invalid_request("group_policy", None, expected)
    for some in request.same_subtree:
        yield "same_subtree", ",".join(sorted(some))
    if request.root_required or request.root_forbidden:
        yield "root_required", format_traits(request.root_required, request.root_forbidden)


# --- keys: which group each is about, and what a group says --------------------------------------


_OF_GROUP: Final = ("resources", "required", "member_of", "in_tree")
_OF_REQUEST: Final = ("group_policy", "same_subtree", "root_required", "limit")
#: Keys that may be said more than once.
_REPEATED: Final = ("required", "member_of", "same_subtree")
_KEY = re.compile(rf"({'|'.join(_OF_GROUP)})([A-Za-z0-9_-]{{1,64}})?")
_MALFORMED = re.compile(rf"({'|'.join(_OF_GROUP)})(.+)", re.DOTALL)

#: No message names more groups.
_NAMED = 5

#: ``{key without suffix: values}``
Words: TypeAlias = dict[str, list[str]]


def pairs(given: object) -> Iterator[tuple[str, str]]:
    """Yield keys and values, decoded."""
    if isinstance(given, str):
        given = _split(given)
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise _invalid_request("query", given, "a query string, or keys and values")
    for pair in given:
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
    for item in re.split("[&;]", text):
        if not item:
            continue
        try:
            key, _, value = item.partition("=")
            yield (
                urllib.parse.unquote_plus(key, errors="strict"),
                urllib.parse.unquote_plus(value, errors="strict"),
            )
        except UnicodeDecodeError as error:
            raise _invalid_request("query", item, "percent-encoded UTF-8") from error


def sorted_out(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, Words], Words]:
    """Return what is said of each group, by suffix, and of the request as a whole."""
    groups: dict[str, Words] = {}
    wide: Words = {}
    for key, value in pairs:
        result = _KEY.fullmatch(key)
        if result:
            name, suffix = result[1], result[2] or ""
            words = groups.setdefault(suffix, {})
        elif key in _OF_REQUEST:
            name, words = key, wide
        else:
            raise _unknown(key)
        if name in words and name not in _REPEATED:
            raise _invalid_repetition("query", key, "this key once")
        words.setdefault(name, []).append(value)
    return groups, wide


def _unknown(key: str) -> InvalidInput:
    found = _MALFORMED.fullmatch(key)
    if found:
        expected = f"{found[1]} and a suffix of 1 to 64 of A-Z, a-z, 0-9, _ and -"
    else:
        expected = f"one of {', '.join(_OF_REQUEST)}, or with a suffix {', '.join(_OF_GROUP)}"
    return _invalid_request("query", key, expected)


def check_groups(groups: Mapping[str, Words], wide: Words) -> None:
    """Raise for groups that say too little."""
    if not any("resources" in words for words in groups.values()):
        raise _invalid_request("resources", "nothing", AMOUNTS)
    if len(groups) > MAX_GROUPS:
        raise _invalid_request("query", f"{len(groups)} groups", f"at most {MAX_GROUPS}")
    named = _some(suffix for suffix in groups if suffix)
    linked = [(text, read_suffixes("same_subtree", text)) for text in wide.get("same_subtree", ())]
    for text, some in linked:
        if not some <= groups.keys():
            expected = f"suffixes of groups of the query: {named}"
            raise _invalid_request("same_subtree", text, expected)
    in_some = frozenset[str]().union(*(some for _, some in linked))
    for suffix, words in groups.items():
        if "resources" not in words and suffix not in in_some:
            name, said = next(iter(words.items()))
            or_linked = f", or same_subtree={suffix},..." if suffix else ""
            expected = f"resources{suffix}=... beside it{or_linked}"
            raise _invalid_request(name + suffix, said[0], expected)
    if len(groups.keys() - {""}) > 1 and "group_policy" not in wide:
        expected = f"none or isolate, for the groups {named}"
        raise _invalid_request("group_policy", "nothing", expected)


def _some(suffixes: Iterable[str]) -> str:
    """Return suffixes as text, of many the first few."""
    listed = list(suffixes)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{', '.join(listed[:_NAMED]) or 'there are none'}{more}"


def read_group(suffix: str, words: Words) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the amounts of a group and its conditions, as its constructor takes them."""
    amounts: dict[str, int] = {}
    for text in words.get("resources", ()):
        amounts = read_amounts(f"resources{suffix}", text)
    conditions: dict[str, Any] = {
        **_read_traits(f"required{suffix}", words.get("required", ())),
        **_read_aggregates(f"member_of{suffix}", words.get("member_of", ())),
    }
    for text in words.get("in_tree", ()):
        conditions["in_tree"] = read_tree(f"in_tree{suffix}", text)
    return amounts, conditions


def _read_traits(key: str, said: Iterable[str]) -> dict[str, Any]:
    required: set[str] = set()
    forbidden: set[str] = set()
    any_of: list[frozenset[str]] = []
    for text in said:
        if text.startswith("in:"):
            any_of.append(read_any_trait(key, text))
        else:
            wanted, unwanted = read_traits(key, text)
            required |= wanted
            forbidden |= unwanted
    _check_conflict(key, required, forbidden)
    for some in any_of:
        if some <= forbidden:
            expected = "at least one trait that is not forbidden too"
            raise _invalid_request(key, f"in:{','.join(sorted(some))}", expected)
    return {"required": required, "forbidden": forbidden, "any_of": any_of}


def _read_aggregates(key: str, said: Iterable[str]) -> dict[str, Any]:
    member_of: list[frozenset[str]] = []
    not_member_of: set[str] = set()
    for text in said:
        some, is_forbidden = read_aggregates(key, text)
        if is_forbidden:
            not_member_of |= some
        else:
            member_of.append(some)
    for some in member_of:
        if some <= not_member_of:
            expected = "at least one aggregate that is not forbidden too"
            raise _invalid_request(key, format_aggregates(key, some), expected)
    return {"member_of": member_of, "not_member_of": not_member_of}


def read_wide(wide: Words) -> dict[str, Any]:
    """Return what is said of the request as a whole, as its constructor takes it."""
    result: dict[str, Any] = {}
    for text in wide.get("group_policy", ()):
        if text not in POLICIES:
            raise _invalid_request("group_policy", text, " or ".join(POLICIES))
        result["group_policy"] = text
    result["same_subtree"] = [
        read_suffixes("same_subtree", text) for text in wide.get("same_subtree", ())
    ]
    for text in wide.get("root_required", ()):
        required, forbidden = read_traits("root_required", text)
        _check_conflict("root_required", required, forbidden)
        result.update(root_required=required, root_forbidden=forbidden)
    return result


def _check_conflict(key: str, required: Set[str], forbidden: Set[str]) -> None:
    both = sorted(required & forbidden)
    if both:
        raise _invalid_request(key, both, "traits that are not forbidden too")


# --- values: amounts, traits, aggregates, trees ---------------------------------------------------
# Each function takes the key too, which its errors name.


_DIGITS = re.compile(r"[0-9]{1,19}\Z", re.ASCII)

AMOUNTS = "CLASS:AMOUNT with commas between, such as VCPU:1,MEMORY_MB:512"
TRAITS = "traits with commas between, such as CUSTOM_A,!CUSTOM_B"
ANY_TRAIT = "in: and traits with commas between, none with !, such as in:CUSTOM_A,CUSTOM_B"
AGGREGATES = "an aggregate, or in: and several with commas between, or either with ! before it"


@contextlib.contextmanager
def named_by(key: str) -> Iterator[None]:
    """Let errors of bad input name the key in whose value they were found."""
    try:
        yield
    except InvalidInput as error:
        raise error.renamed(key, error.value) from error


def read_number(
    key: str, text: str, expected: str = f"a whole number from 1 to {MAX_AMOUNT}"
) -> int:
    """Return a number from 1 on, in ASCII digits.

    :raises InvalidInput: for anything else

    >>> read_number("limit", "10")
    10
    """
    result = int(text) if _DIGITS.match(text) else 0
    if not 1 <= result <= MAX_AMOUNT:
        raise _invalid_amount(key, text, expected)
    return result


def read_amounts(key: str, text: str) -> dict[str, int]:
    """Return ``{class: amount}``.

    :raises InvalidInput: for what is no list of classes and amounts, or cannot be counted; for an
        amount that is no whole number from 1 to 2**63 - 1; for a class that is said twice

    >>> read_amounts("resources", "VCPU:1,MEMORY_MB:512")
    {'VCPU': 1, 'MEMORY_MB': 512}
    """
    result: dict[str, int] = {}
    for item in text.split(","):
        name, colon, digits = item.partition(":")
        if not colon or ":" in digits:
            raise _invalid_request(key, item, AMOUNTS)
        with named_by(key):
            kind = catalog.resource(name)
        if kind.amount_kind is not IntegerAmount:
            raise _invalid_request(key, item, "a class that is counted")
        if name in result:
            raise _invalid_repetition(key, name, "each class once")
        expected = f"a whole number of {name} from 1 to {MAX_AMOUNT}"
        result[kind.name] = read_number(key, digits, expected)
    return result


def add_up(key: str, total: Counter[str], some: Mapping[str, int]) -> None:
    """Add the amounts of a group to those of the others.

    :raises InvalidInput: if it is more of a class than there can be

    >>> total = Counter(VCPU=1)
    >>> add_up("resources1", total, {"VCPU": 2})
    >>> total
    Counter({'VCPU': 3})
    """
    total.update(some)
    for name in some:
        if total[name] > MAX_AMOUNT:
            expected = f"at most {MAX_AMOUNT} of {name} over all groups"
            raise _invalid_amount(key, some[name], expected)


def format_amounts(key: str, group: RequestGroup) -> str:
    """Return the amounts of a group, in the order in which they are kept.

    :raises InvalidInput: for an amount that is no count

    >>> format_amounts("resources", RequestGroup("MEMORY_MB=512,VCPU=1"))
    'VCPU:1,MEMORY_MB:512'
    """
    for kind, amount in group.resources.items():
        if type(amount) is not IntegerAmount:
            raise _invalid_request(
                key, f"{kind}={amount}", "counts: a query cannot say where something goes"
            )
    return ",".join(f"{kind}:{amount}" for kind, amount in group.resources.items())


def read_traits(key: str, text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what is required and what is forbidden by ``T1,!T2``.

    :raises InvalidInput: for a list with nothing between two commas; for a name that no trait can
        have; so for unknown ones

    >>> required, forbidden = read_traits("required", "CUSTOM_A,!CUSTOM_B")
    >>> sorted(required), sorted(forbidden)
    (['CUSTOM_A'], ['CUSTOM_B'])
    """
    told = [item.strip() for item in text.split(",")]
    if "" in told or "!" in told:
        raise _invalid_request(key, text, TRAITS)
    with named_by(key):
        required = known_traits(item for item in told if not item.startswith("!"))
        return required, known_traits(item[1:] for item in told if item.startswith("!"))


def read_any_trait(key: str, text: str) -> frozenset[str]:
    """Return the traits of ``in:T1,T2``, of which one is enough.

    :raises InvalidInput: for an empty item, or one with ``!``; for a name that no trait can have;
        so for unknown ones

    >>> sorted(read_any_trait("required", "in:CUSTOM_A,CUSTOM_B"))
    ['CUSTOM_A', 'CUSTOM_B']
    """
    told = [item.strip() for item in text.removeprefix("in:").split(",")]
    if any(not item or item.startswith("!") for item in told):
        raise _invalid_request(key, text, ANY_TRAIT)
    with named_by(key):
        return known_traits(told)


def format_traits(required: Collection[str], forbidden: Collection[str]) -> str:
    """Return ``T1,!T2``.

    >>> format_traits(["CUSTOM_A"], ["CUSTOM_B"])
    'CUSTOM_A,!CUSTOM_B'
    """
    return ",".join([*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))])


def read_aggregates(key: str, text: str) -> tuple[frozenset[str], bool]:
    """Return aggregates and whether they are forbidden.

    :raises InvalidInput: for several without ``in:``, or ``!`` before one of a list; for what no
        aggregate is called

    >>> read_aggregates("member_of", "!rack1")
    (frozenset({'rack1'}), True)
    """
    forbidden = text.startswith("!")
    listed = text.removeprefix("!")
    told = listed.removeprefix("in:").split(",") if listed.startswith("in:") else [listed]
    if any(not _is_plain(name) for name in told):
        raise _invalid_request(key, text, AGGREGATES)
    with named_by(key):
        return frozenset(map(names.aggregate_name, told)), forbidden


def format_aggregates(key: str, some: Collection[str], *, forbidden: bool = False) -> str:
    """Return ``a``, ``in:a,b``, ``!a`` or ``!in:a,b``.

    :raises InvalidInput: for a name that would read as something else

    >>> format_aggregates("member_of", ["rack2", "rack1"], forbidden=True)
    '!in:rack1,rack2'
    """
    for name in some:
        if not _is_plain(name):
            expected = (
                "an aggregate without a comma in its name, that starts neither with ! nor in:"
            )
            raise _invalid_request(key, name, expected)
    one = "in:" if len(some) > 1 else ""
    return f"{'!' if forbidden else ''}{one}{','.join(sorted(some))}"


def _is_plain(name: str) -> bool:
    """Return whether the name of an aggregate reads as nothing but that."""
    return bool(name) and "," not in name and not name.startswith(("!", "in:"))


def read_tree(key: str, text: str) -> str:
    """Return the name or uuid of a provider.

    :raises InvalidInput: for what no provider is called

    >>> read_tree("in_tree", "host0")
    'host0'
    """
    with named_by(key):
        return names.provider_key(text.strip())


def read_suffixes(key: str, text: str) -> frozenset[str]:
    """Return the suffixes of groups.

    :raises InvalidInput: for an empty one, which is no named group

    >>> sorted(read_suffixes("same_subtree", "_A,_B"))
    ['_A', '_B']
    """
    told = frozenset(item.strip() for item in text.split(","))
    if "" in told:
        expected = "suffixes of named groups with commas between, such as _A,_B"
        raise _invalid_request(key, text, expected)
    return told
