"""Hypothesis strategies: valid amounts, inventories, ratios and names, small ones first.

Names: :func:`resource_class_names`, :func:`custom_resource_classes`, :func:`trait_names`,
:func:`provider_names`, :func:`consumer_names`, :func:`labels`, :func:`uuids`. Figures:
:func:`ratios`, :func:`integer_amounts`, :func:`integer_inventories`. Several at once:
:func:`amounts`, :func:`limits`, :func:`inventories`.

    >>> from hypothesis import find
    >>> find(integer_inventories(), lambda inventory: inventory.free < 0)
    IntegerInventory(total=1, reserved=0, ..., used=2, ...)
"""

from __future__ import annotations

import string
from decimal import Decimal

import os_resource_classes
from hypothesis import strategies as st

from resource_objects import names
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE
from resource_objects.ratio import MAX_RATIO, MILLION, from_millionths
from resource_objects.resources import (
    Amounts,
    IntegerAmount,
    IntegerInventory,
    Inventories,
    Limits,
)

_SYMBOL = string.ascii_uppercase + string.digits + "_"
_LONGEST_SYMBOL = 255 - len(names.CUSTOM_PREFIX)


def custom_resource_classes() -> st.SearchStrategy[str]:
    """Return names of site-made resource classes, ``CUSTOM_...``."""
    tails = st.text(_SYMBOL, min_size=1, max_size=_LONGEST_SYMBOL)
    return st.builds(names.CUSTOM_PREFIX.__add__, tails)


def resource_class_names() -> st.SearchStrategy[str]:
    """Return names of resource classes, standard and custom."""
    return st.sampled_from(os_resource_classes.STANDARDS) | custom_resource_classes()


def trait_names() -> st.SearchStrategy[str]:
    """Return names of site-made traits, ``CUSTOM_...``."""
    return custom_resource_classes()


def provider_names() -> st.SearchStrategy[str]:
    """Return names of providers."""
    return _printable(names.MAX_PROVIDER_NAME)


def consumer_names() -> st.SearchStrategy[str]:
    """Return names of consumers."""
    return _printable(names.MAX_CONSUMER_NAME)


def labels() -> st.SearchStrategy[str]:
    """Return names that people give: of aggregates, projects, users, consumer types and units."""
    return _printable(names.MAX_CONSUMER_NAME)


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


def _printable(longest: int) -> st.SearchStrategy[str]:
    everyday = st.from_regex(r"[a-z][a-z0-9]{0,8}(/[a-z0-9]{1,8})?", fullmatch=True)
    letters = st.characters(exclude_categories=["C", "Z"])
    inner = st.text(letters | st.just(" "), min_size=1, max_size=longest)
    return everyday | inner.filter(lambda name: name == name.strip())
