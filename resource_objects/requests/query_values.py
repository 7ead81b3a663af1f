"""The values in Placement's query string: amounts, traits, aggregates, trees. Read and said.

Each function takes the key too, which its errors name. What a value means is told in
:mod:`.query`.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests.group import RequestGroup
from resource_objects.resources import IntegerAmount, catalog
from resource_objects.resources.traits import known_traits

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
    except exceptions.InvalidInput as error:
        raise type(error)(key, error.value, error.expected) from error


def number(key: str, text: str, expected: str = f"a whole number from 1 to {MAX_AMOUNT}") -> int:
    """Return a number from 1 on, in ASCII digits.

    :raises InvalidAmount: for anything else

    >>> number("limit", "10")
    10
    """
    found = int(text) if _DIGITS.match(text) else 0
    if not 1 <= found <= MAX_AMOUNT:
        raise exceptions.InvalidAmount(key, text, expected)
    return found


def amounts(key: str, text: str) -> dict[str, int]:
    """Return ``{class: amount}``.

    :raises InvalidRequest: for what is no list of classes and amounts, or cannot be counted
    :raises InvalidAmount: for an amount that is no whole number from 1 to 2**63 - 1
    :raises DuplicateKey: for a class that is said twice

    >>> amounts("resources", "VCPU:1,MEMORY_MB:512")
    {'VCPU': 1, 'MEMORY_MB': 512}
    """
    found: dict[str, int] = {}
    for item in text.split(","):
        name, colon, digits = item.partition(":")
        if not colon or ":" in digits:
            raise exceptions.InvalidRequest(key, item, AMOUNTS)
        with named_by(key):
            kind = catalog.resource(name)
        if kind.amount_kind is not IntegerAmount:
            raise exceptions.InvalidRequest(key, item, "a class that is counted")
        if name in found:
            raise exceptions.DuplicateKey(key, name, "each class once")
        expected = f"a whole number of {name} from 1 to {MAX_AMOUNT}"
        found[kind.name] = number(key, digits, expected)
    return found


def add_up(key: str, total: Counter[str], some: Mapping[str, int]) -> None:
    """Add the amounts of a group to those of the others.

    :raises InvalidAmount: if it is more of a class than there can be

    >>> total = Counter(VCPU=1)
    >>> add_up("resources1", total, {"VCPU": 2})
    >>> total
    Counter({'VCPU': 3})
    """
    total.update(some)
    for name in some:
        if total[name] > MAX_AMOUNT:
            expected = f"at most {MAX_AMOUNT} of {name} over all groups"
            raise exceptions.InvalidAmount(key, some[name], expected)


def format_amounts(key: str, group: RequestGroup) -> str:
    """Return the amounts of a group, in the order in which they are kept.

    :raises InvalidRequest: for an amount that is no count

    >>> format_amounts("resources", RequestGroup("MEMORY_MB=512,VCPU=1"))
    'VCPU:1,MEMORY_MB:512'
    """
    for kind, amount in group.resources.items():
        if type(amount) is not IntegerAmount:
            raise exceptions.InvalidRequest(
                key, f"{kind}={amount}", "counts: a query cannot say where something goes"
            )
    return ",".join(f"{kind}:{amount}" for kind, amount in group.resources.items())


def traits(key: str, text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what is required and what is forbidden by ``T1,!T2``.

    :raises InvalidRequest: for a list with nothing between two commas
    :raises InvalidTrait: for a name that no trait can have; so for unknown ones

    >>> required, forbidden = traits("required", "CUSTOM_A,!CUSTOM_B")
    >>> sorted(required), sorted(forbidden)
    (['CUSTOM_A'], ['CUSTOM_B'])
    """
    told = [item.strip() for item in text.split(",")]
    if "" in told or "!" in told:
        raise exceptions.InvalidRequest(key, text, TRAITS)
    with named_by(key):
        required = known_traits(item for item in told if not item.startswith("!"))
        return required, known_traits(item[1:] for item in told if item.startswith("!"))


def any_trait(key: str, text: str) -> frozenset[str]:
    """Return the traits of ``in:T1,T2``, of which one is enough.

    :raises InvalidRequest: for an empty item, or one with ``!``
    :raises InvalidTrait: for a name that no trait can have; so for unknown ones

    >>> sorted(any_trait("required", "in:CUSTOM_A,CUSTOM_B"))
    ['CUSTOM_A', 'CUSTOM_B']
    """
    told = [item.strip() for item in text.removeprefix("in:").split(",")]
    if any(not item or item.startswith("!") for item in told):
        raise exceptions.InvalidRequest(key, text, ANY_TRAIT)
    with named_by(key):
        return known_traits(told)


def format_traits(required: Collection[str], forbidden: Collection[str]) -> str:
    """Return ``T1,!T2``.

    >>> format_traits(["CUSTOM_A"], ["CUSTOM_B"])
    'CUSTOM_A,!CUSTOM_B'
    """
    return ",".join([*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))])


def aggregates(key: str, text: str) -> tuple[frozenset[str], bool]:
    """Return aggregates and whether they are forbidden.

    :raises InvalidRequest: for several without ``in:``, or ``!`` before one of a list
    :raises InvalidName: for what no aggregate is called

    >>> aggregates("member_of", "!rack1")
    (frozenset({'rack1'}), True)
    """
    forbidden = text.startswith("!")
    listed = text.removeprefix("!")
    told = listed.removeprefix("in:").split(",") if listed.startswith("in:") else [listed]
    if any(not _is_plain(name) for name in told):
        raise exceptions.InvalidRequest(key, text, AGGREGATES)
    with named_by(key):
        return frozenset(map(names.aggregate_name, told)), forbidden


def format_aggregates(key: str, some: Collection[str], *, forbidden: bool = False) -> str:
    """Return ``a``, ``in:a,b``, ``!a`` or ``!in:a,b``.

    :raises InvalidRequest: for a name that would read as something else

    >>> format_aggregates("member_of", ["rack2", "rack1"], forbidden=True)
    '!in:rack1,rack2'
    """
    for name in some:
        if not _is_plain(name):
            expected = (
                "an aggregate without a comma in its name, that starts neither with ! nor in:"
            )
            raise exceptions.InvalidRequest(key, name, expected)
    one = "in:" if len(some) > 1 else ""
    return f"{'!' if forbidden else ''}{one}{','.join(sorted(some))}"


def _is_plain(name: str) -> bool:
    """Return whether the name of an aggregate reads as nothing but that."""
    return bool(name) and "," not in name and not name.startswith(("!", "in:"))


def tree(key: str, text: str) -> str:
    """Return the name or uuid of a provider.

    :raises InvalidName: for what no provider is called

    >>> tree("in_tree", "host0")
    'host0'
    """
    with named_by(key):
        return names.provider_key(text.strip())


def suffixes(key: str, text: str) -> frozenset[str]:
    """Return the suffixes of groups.

    :raises InvalidRequest: for an empty one, which is no named group

    >>> sorted(suffixes("same_subtree", "_A,_B"))
    ['_A', '_B']
    """
    told = frozenset(item.strip() for item in text.split(","))
    if "" in told:
        expected = "suffixes of named groups with commas between, such as _A,_B"
        raise exceptions.InvalidRequest(key, text, expected)
    return told
