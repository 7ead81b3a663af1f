"""What Nova's words about devices have in common: text that may be missing, yes and no, names.

Nova has words that no value here has, and several words for the same. What is written again as it
was read needs them, so the ``facts`` of a value keep them by name: text as it was, and in JSON what
would not be told apart from that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

import os_resource_classes
from oslo_utils import strutils

from resource_objects import fields, names
from resource_objects.exceptions import InvalidName, InvalidPrimitive
from resource_objects.interop.nova import _primitive
from resource_objects.resources.traits import standard_traits

#: Text by name, None for null.
Texts = Mapping[str, str | None]

#: As what ``facts`` keep that a name was not said, or was said to be null.
_ABSENT, _NULL = "", "null"
#: The words that Nova writes for yes and no.
YES, NO = "true", "false"
#: What the ``facts`` of a pool and of a device call their provider in Placement.
PROVIDER: Final = "rp_uuid"


# --- text -----------------------------------------------------------------------------------------


def texts(given: object, what: str) -> dict[str, str | None]:
    """Return an object of JSON whose values are text or null; numbers become text, as in Nova."""
    found: dict[str, str | None] = {}
    for name, value in _primitive.mapping(given, what).items():
        if not isinstance(name, str):
            raise InvalidPrimitive(what, name, "names that are text")
        found[name] = text(value, f"{what}.{name}")
    return found


def text(value: object, what: str) -> str | None:
    """Return text or null; a number is text, as Nova's fields make it."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str | float) or (
        isinstance(value, int) and abs(value) <= fields.MAX_AMOUNT
    ):
        return str(value)
    raise InvalidPrimitive(what, value, "text or null")


def label(value: object, what: str) -> str | None:
    """Return a name that people give, or null.

    :raises InvalidPrimitive: if it is none
    """
    found = text(value, what)
    if found is None:
        return None
    try:
        return names.label(found)
    except InvalidName as error:
        raise InvalidPrimitive(what, value, error.expected) from None


def lower(said: str | None) -> str | None:
    """Return text in lower case."""
    return None if said is None else said.lower()


# --- yes and no -----------------------------------------------------------------------------------


def flag(said: str | None) -> bool | None:
    """Return what ``true`` and ``false`` say, whatever their case; None for anything else.

    >>> flag("True"), flag("false"), flag("yes")
    (True, False, None)
    """
    return {YES: True, NO: False}.get(lower(said) or "")


def loose_flag(said: str | None) -> bool:
    """Return whether a word says yes, as Nova reads ``remote_managed``: unknown words say no.

    >>> loose_flag("yes"), loose_flag("maybe"), loose_flag(None)
    (True, False, False)
    """
    return said is not None and bool(strutils.bool_from_string(said))


def flag_text(value: bool) -> str:
    """Return the word that Nova writes for yes and no."""
    return YES if value else NO


# --- names in Placement ---------------------------------------------------------------------------


def resource_class(said: str) -> str:
    """Return the resource class that Nova makes of a word: upper case, ``CUSTOM_``.

    :raises InvalidResourceClass: if it makes none

    >>> resource_class("pgpu"), resource_class("gpu-vf"), resource_class("custom_fpga")
    ('PGPU', 'CUSTOM_GPU_VF', 'CUSTOM_FPGA')
    """
    name = said.upper()
    if name not in os_resource_classes.STANDARDS and not name.startswith(names.CUSTOM_PREFIX):
        name = str(os_resource_classes.normalize_name(name))  # type: ignore[no-untyped-call]
    return names.resource_class_name(name)


def traits(said: str) -> frozenset[str]:
    """Return the traits that Nova makes of a list in text: as it has them in Placement.

    A space beside a comma is part of the name, and so becomes ``_``.

    :raises InvalidTrait: if one of them makes none

    >>> sorted(traits("blue,HW_NIC_SRIOV,custom_big, red"))
    ['CUSTOM_BIG', 'CUSTOM_BLUE', 'CUSTOM__RED', 'HW_NIC_SRIOV']
    """
    return frozenset(_trait(word) for word in said.split(",")) if said else frozenset()


def _trait(word: str) -> str:
    if word in standard_traits():
        return word
    name = word.upper()
    if not name.startswith(names.CUSTOM_PREFIX):
        import os_traits  # standard_traits() has loaded it

        name = str(os_traits.normalize_name(name))  # type: ignore[no-untyped-call]
    return names.trait_name(name)


# --- words that facts keep ------------------------------------------------------------------------


def remembered(said: Texts, written: Texts, known: Iterable[str]) -> dict[str, str]:
    """Return what facts keep of known names, so that what would be written is what was said."""
    found: dict[str, str] = {}
    for name in known:
        if name not in said:
            if name in written:
                found[name] = _ABSENT
        elif name not in written or written[name] != said[name]:
            found[name] = _kept(said[name])
    return found


def _kept(said: str | None) -> str:
    if said is None:
        return _NULL
    return json.dumps(said) if said in (_ABSENT, _NULL) or said.startswith('"') else said


def recalled(
    written: Texts, facts: Mapping[str, str], known: Iterable[str]
) -> dict[str, str | None]:
    """Return what would be written as facts say that it was: :func:`remembered` undone."""
    found = dict(written)
    for name in known:
        kept = facts.get(name)
        if kept == _ABSENT:
            found.pop(name, None)
        elif kept is not None:
            found[name] = _said(kept)
    return found


def _said(kept: str) -> str | None:
    if kept == _NULL:
        return None
    if not kept.startswith('"'):
        return kept
    try:
        return str(json.loads(kept))
    except (ValueError, RecursionError):
        return kept  # not by us


def nulls(facts: Mapping[str, str]) -> set[str]:
    """Return the names that were said to be null."""
    return {name for name, kept in facts.items() if kept == _NULL}


def unknown(facts: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Return the facts that are no words of Nova's."""
    return sorted(facts.keys() - set(known) - nulls(facts))
