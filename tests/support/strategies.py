"""Hypothesis strategies: valid amounts, inventories, ratios and names, small ones first.

Names: :func:`resource_class_names`, :func:`trait_names`,
:func:`provider_names`, :func:`consumer_names`, :func:`labels`, :func:`uuids`. Figures:
:func:`ratios`, :func:`integer_amounts`, :func:`integer_inventories`. Several at once:
:func:`amounts`, :func:`limits`, :func:`inventories`.

    >>> from hypothesis import find
    >>> find(integer_inventories(), lambda inventory: inventory.free < 0)
    IntegerInventory(total=1, reserved=0, ..., used=2, ...)

Requests: :func:`requests` makes any, of groups of counted amounts with all their conditions,
:func:`queries` those that Placement's query string can say. What they are about is a
:class:`Vocabulary`: names of the test's own make them ask for what its providers have.
"""

from __future__ import annotations

import dataclasses
import string
from decimal import Decimal
from typing import Any

import os_resource_classes
from hypothesis import strategies as st

from resource_objects import names
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE
from resource_objects.ratio import MAX_RATIO, MILLION, from_millionths
from resource_objects.requests import Request, RequestGroup
from resource_objects.requests.request import MAX_GROUPS, NEAR_POLICIES
from resource_objects.resources import Amounts, IntegerAmount, IntegerInventory, Inventories, Limits
from resource_objects.testing.conformance.names import custom_names, printable_names


def resource_class_names() -> st.SearchStrategy[str]:
    """Return names of resource classes, standard and custom."""
    return st.sampled_from(os_resource_classes.STANDARDS) | custom_names()


def trait_names() -> st.SearchStrategy[str]:
    """Return names of site-made traits, ``CUSTOM_...``."""
    return custom_names()


def provider_names() -> st.SearchStrategy[str]:
    """Return names of providers."""
    return printable_names(names.MAX_PROVIDER_NAME)


def consumer_names() -> st.SearchStrategy[str]:
    """Return names of consumers."""
    return printable_names(names.MAX_CONSUMER_NAME)


def labels() -> st.SearchStrategy[str]:
    """Return names that people give: of aggregates, projects, users, consumer types and units."""
    return printable_names(names.MAX_CONSUMER_NAME)


def uuids() -> st.SearchStrategy[str]:
    """Return uuids as text, as the library writes them."""
    return st.uuids().map(str)


def ratios() -> st.SearchStrategy[Decimal]:
    """Return allocation ratios: exact decimals above 0, of at most six places."""
    everyday = st.sampled_from(["1", "1.5", "2", "4", "16", "0.9", "1.15"]).map(Decimal)
    return everyday | st.integers(1, MAX_RATIO * MILLION).map(from_millionths)


def integer_amounts(
    min_value: int = -MAX_AMOUNT, max_value: int = MAX_AMOUNT
) -> st.SearchStrategy[IntegerAmount]:
    """Return amounts of counted resources, negative ones too."""
    return st.integers(min_value, max_value).map(IntegerAmount)


@st.composite
def integer_inventories(
    draw: st.DrawFn, max_total: int = MAX_FIGURE, resource_class: str | None = None
) -> IntegerInventory:
    """Return inventories of counted resources, over-full ones too."""
    total = draw(st.integers(1, max_total))
    min_unit = draw(st.just(1) | st.integers(1, total))
    made = IntegerInventory(
        total=total,
        reserved=draw(st.just(0) | st.integers(0, total)),
        min_unit=min_unit,
        max_unit=draw(st.none() | st.integers(min_unit, total)),
        step_size=draw(st.just(1) | st.integers(1, min(total, 8))),
        allocation_ratio=draw(st.just(Decimal(1)) | ratios()),
        resource_class=resource_class,
    )
    made.used = draw(st.integers(0, made.capacity) | st.integers(0, 2 * made.capacity + 2))
    made.obj_reset_changes()
    return made


def amounts(
    min_value: int = -MAX_AMOUNT, max_value: int = MAX_AMOUNT, *, max_size: int = 4
) -> st.SearchStrategy[Amounts]:
    """Return amounts of up to ``max_size`` resources."""
    values = integer_amounts(min_value, max_value)
    return st.dictionaries(resource_class_names(), values, max_size=max_size).map(Amounts)


def limits(*, max_size: int = 4) -> st.SearchStrategy[Limits]:
    """Return limits for up to ``max_size`` resources."""
    values = integer_amounts(0)
    return st.dictionaries(resource_class_names(), values, max_size=max_size).map(Limits)


def inventories(
    max_total: int = MAX_FIGURE, *, max_size: int = 4
) -> st.SearchStrategy[Inventories]:
    """Return inventories of up to ``max_size`` resources in one place."""
    values = integer_inventories(max_total)
    return st.dictionaries(resource_class_names(), values, max_size=max_size).map(Inventories)


# --- requests ---


_LETTERS = string.digits + string.ascii_letters + "_-"


def _traits() -> st.SearchStrategy[str]:
    standard = st.sampled_from(["HW_CPU_X86_AVX2", "STORAGE_DISK_SSD", "COMPUTE_VOLUME_ATTACH"])
    return standard | trait_names()


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What requests are about: strategies of names and of counts."""

    classes: st.SearchStrategy[str] = dataclasses.field(default_factory=resource_class_names)
    traits: st.SearchStrategy[str] = dataclasses.field(default_factory=_traits)
    aggregates: st.SearchStrategy[str] = dataclasses.field(default_factory=labels)
    trees: st.SearchStrategy[str] = dataclasses.field(
        default_factory=lambda: provider_names() | uuids()
    )
    counts: st.SearchStrategy[int] = dataclasses.field(
        default_factory=lambda: st.integers(1, 8) | st.integers(1, MAX_AMOUNT // MAX_GROUPS)
    )


ANYTHING = Vocabulary()


def suffixes() -> st.SearchStrategy[str]:
    """Return names of groups."""
    return st.text(_LETTERS, min_size=1, max_size=4) | st.text(_LETTERS, min_size=1, max_size=64)


@st.composite
def groups(
    draw: st.DrawFn,
    suffix: str = "",
    words: Vocabulary = ANYTHING,
    *,
    asks: bool = True,
    conditions: bool = True,
    traits_of: bool = True,
) -> RequestGroup:
    """Return groups.

    :param asks: whether they ask for some amount
    :param conditions: whether they may have other conditions than required and forbidden traits
    :param traits_of: whether they may have traits of one class
    """
    amounts = draw(st.dictionaries(words.classes, words.counts, min_size=1, max_size=3))
    required, forbidden = draw(_sides(words.traits))
    said: dict[str, Any] = {"required": required, "forbidden": forbidden}
    if conditions:
        said |= draw(_more_conditions(words, forbidden))
    if asks and conditions and traits_of:
        some = draw(st.lists(st.sampled_from(sorted(amounts)), max_size=1))
        said["traits_of"] = {name: draw(st.lists(words.traits, min_size=1)) for name in some}
        clash = required | forbidden
        said["traits_of"] = {
            name: kept
            for name, traits in said["traits_of"].items()
            if (kept := [trait for trait in traits if trait not in clash])
        }
    return RequestGroup(amounts if asks else "", suffix=suffix, **said)


@st.composite
def _sides(draw: st.DrawFn, names: st.SearchStrategy[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return what is required and what is forbidden."""
    wanted = draw(st.frozensets(names, max_size=2))
    return wanted, draw(st.frozensets(names, max_size=2)) - wanted


@st.composite
def _more_conditions(
    draw: st.DrawFn, words: Vocabulary, forbidden: frozenset[str]
) -> dict[str, Any]:
    any_of = draw(st.lists(st.frozensets(words.traits, min_size=1, max_size=3), max_size=2))
    sets = st.frozensets(words.aggregates, min_size=1, max_size=3)
    member_of = draw(st.lists(sets, max_size=2))
    unwanted = draw(st.frozensets(words.aggregates, max_size=2))
    return {
        "any_of": [some for some in any_of if some - forbidden],
        "member_of": [some for some in member_of if some - unwanted],
        "not_member_of": unwanted,
        "in_tree": draw(st.none() | words.trees),
    }


@st.composite
def requests(
    draw: st.DrawFn,
    words: Vocabulary = ANYTHING,
    *,
    most_named: int = 3,
    conditions: bool = True,
    traits_of: bool = True,
    compatibility: str | None = None,
) -> Request:
    """Return requests for counted amounts.

    :param most_named: how many named groups at most
    :param conditions: whether they may say more than traits and a policy
    :param traits_of: whether they may have traits of one class
    """
    told: dict[str, Any] = {"conditions": conditions, "traits_of": traits_of}
    names = draw(st.lists(suffixes(), unique=True, max_size=most_named))
    linked: list[list[str]] = []
    if names and conditions:
        some = st.lists(st.sampled_from(names), min_size=1, unique=True)
        linked = draw(st.lists(some, max_size=2))
    may_be_empty = {suffix for some in linked for suffix in some}
    named = [
        draw(groups(suffix, words, asks=suffix not in may_be_empty or draw(st.booleans()), **told))
        for suffix in names
    ]
    unnamed = draw(groups("", words, **told))
    if any(group.resources for group in named) and draw(st.booleans()):
        unnamed = RequestGroup()
    root, root_not = draw(_sides(words.traits)) if conditions else ((), ())
    levels = (
        [None, None, "numa", "CUSTOM_SOCKET"] if compatibility is None and traits_of else [None]
    )
    near = draw(st.sampled_from(levels))
    return Request(
        unnamed.resources,
        groups=named,
        group_policy=draw(st.sampled_from([None, "none", "isolate"])),
        same_subtree=linked,
        root_required=root,
        root_forbidden=root_not,
        compatibility=compatibility,
        near=near,
        near_policy=None if near is None else draw(st.sampled_from([None, *NEAR_POLICIES])),
        **unnamed.arguments(),
    )


def queries(
    words: Vocabulary | None = None, *, most_named: int = 3, compatibility: str | None = "placement"
) -> st.SearchStrategy[Request]:
    """Return requests that Placement's query string can say (:mod:`~.requests.query`)."""
    words = words or dataclasses.replace(ANYTHING, aggregates=_plain(labels()))
    made = requests(words, most_named=most_named, traits_of=False, compatibility=compatibility)
    return made.filter(_says_each_group).map(_with_a_policy)


def _plain(names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return names that read as nothing else in a list of them."""
    return names.filter(lambda name: "," not in name and not name.startswith(("!", "in:")))


def _says_each_group(request: Request) -> bool:
    return all(group.resources or group.has_conditions for group in request.named)


def _with_a_policy(request: Request) -> Request:
    if len(request.named) > 1 and request.group_policy is None:
        return request.replace(group_policy="none")
    return request
