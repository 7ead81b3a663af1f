"""The extra specs that ask for resources and traits, by group: keys and values.

What they mean is told in :mod:`.extra_specs`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.interop.nova import request_errors
from resource_objects.interop.nova.flavor_words import text_of
from resource_objects.requests.request import POLICIES
from resource_objects.resources import IntegerAmount, catalog
from resource_objects.resources.traits import known_traits

POLICY: Final = "group_policy"
_KEY = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(.*)", re.DOTALL)
_OLD: Final = "resource:"
_OURS: Final = ("resource", "trait")
#: Without a colon these are no key of ours, nor anybody's.
_BARE: Final = ("resource", "resources", "trait")
_EXPECTED: Final = (
    "resources:CLASS or trait:NAME, of a group with its suffix, 1 to 64 of A-Z, a-z, 0-9, _ and -, "
    "before the colon"
)
_DIGITS = re.compile(r"[0-9]{1,19}\Z", re.ASCII)


@dataclasses.dataclass(slots=True)
class GroupWords:
    """What is said of one group. Classes whose amount is 0 are in ``said`` alone."""

    amounts: dict[str, int] = dataclasses.field(default_factory=dict)
    said: set[str] = dataclasses.field(default_factory=set)
    required: set[str] = dataclasses.field(default_factory=set)
    forbidden: set[str] = dataclasses.field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to ask for."""
        return not (self.amounts or self.required or self.forbidden)


def groups_of(extra_specs: Mapping[Any, Any]) -> dict[str, GroupWords]:
    """Return what extra specs say, by suffix, in their order. Keys of others are left alone.

    :raises InvalidWords: of the type of the first rule that is broken

    >>> groups_of({"resources_A:PGPU": "2", "trait_A:CUSTOM_H100": "required", "hw:x": "y"})["_A"]
    GroupWords(amounts={'PGPU': 2}, said={'PGPU'}, required={'CUSTOM_H100'}, forbidden=set())
    """
    found: dict[str, GroupWords] = {}
    for key, value in extra_specs.items():
        if not isinstance(key, str):
            continue
        if not key.startswith(_OURS) or (":" not in key and key not in _BARE):
            continue
        prefix, suffix, name = _parts(key)
        words = found.setdefault(suffix, GroupWords())
        if prefix == "trait":
            _add_trait(words, key, name, text_of(key, value))
        else:
            _add_amount(words, key, name, text_of(key, value))
    return found


def _parts(key: str) -> tuple[str, str, str]:
    """Return the prefix, the suffix of the group, and the class or trait that a key names."""
    if key.startswith(_OLD):
        return "resources", "", key.removeprefix(_OLD)
    found = _KEY.fullmatch(key)
    if found is None:
        raise request_errors.InvalidRequestKey("extra specs", key, _EXPECTED)
    return found[1], found[2], found[3]


def _add_amount(words: GroupWords, key: str, name: str, text: str) -> None:
    try:
        kind = catalog.resource(name)
    except exceptions.InvalidInput as error:
        raise request_errors.UnknownFlavorResource(key, name, error.expected) from error
    if kind.amount_kind is not IntegerAmount:
        raise request_errors.ResourceNotCounted(key, text, "a class that is counted")
    amount = int(text) if _DIGITS.match(text) else -1
    if not 0 <= amount <= MAX_AMOUNT:
        expected = f"a whole number from 0 to {MAX_AMOUNT}"
        raise request_errors.InvalidResourceAmount(key, text, expected)
    if kind.name in words.said:
        expected = f"resource:{name} or resources:{name}, not both"
        raise request_errors.ResourceSaidTwice(key, text, expected)
    words.said.add(kind.name)
    if amount:
        words.amounts[kind.name] = amount


def _add_trait(words: GroupWords, key: str, name: str, text: str) -> None:
    trait = _trait(key, name)
    if text not in ("required", "forbidden"):
        raise request_errors.InvalidTraitValue(key, text, "required or forbidden")
    (words.required if text == "required" else words.forbidden).add(trait)


def _trait(key: str, name: str) -> str:
    try:
        (trait,) = known_traits([name])
    except exceptions.InvalidInput as error:
        raise request_errors.UnknownFlavorTrait(key, name, error.expected) from error
    return trait


def add_image(words: GroupWords, image: Mapping[Any, Any]) -> None:
    """Add the traits that an image requires, ``trait:NAME=required``.

    :raises UnknownFlavorTrait: for a trait that does not exist
    :raises InvalidTraitValue: for anything but required
    :raises FlavorTraitConflict: for a trait that the flavor forbids
    """
    for key, value in image.items():
        if not isinstance(key, str) or not key.startswith("trait:"):
            continue
        where = f"{key} of the image"
        trait = _trait(where, key.removeprefix("trait:"))
        if text_of(where, value) != "required":
            raise request_errors.InvalidTraitValue(where, value, "required")
        if trait in words.forbidden:
            raise request_errors.FlavorTraitConflict(where, value, "none: the flavor forbids it")
        words.required.add(trait)


def policy_of(extra_specs: Mapping[Any, Any]) -> str | None:
    """Return the policy of named groups, None for none.

    :raises InvalidGroupPolicy: for a policy that there is not

    >>> policy_of({"group_policy": "isolate"})
    'isolate'
    """
    if POLICY not in extra_specs:
        return None
    text = text_of(POLICY, extra_specs[POLICY])
    if text not in POLICIES:
        raise request_errors.InvalidGroupPolicy(POLICY, text, " or ".join(POLICIES))
    return text
