"""Checks of device rules: the part that is wrong is named, with what was expected of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import os_resource_classes

from resource_objects import names
from resource_objects.exceptions import InvalidInput, InvalidRule
from resource_objects.fields import FrozenDict
from resource_objects.host.pci_facts import DeviceKind
from resource_objects.resources import resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.traits import known_traits

#: Words of a rule that are facts and no tags.
FLAGS = ("one_time_use", "remote_managed", "live_migratable")
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def require_form(form: re.Pattern[str], what: str, value: object, expected: str) -> None:
    """Refuse what is not of the form of a part."""
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidRule(f"{what} of a device rule", value, expected)


def require_resource_class(name: object) -> None:
    """Refuse what is no class that devices can be counted as."""
    what = "resource class of a device rule"
    if not isinstance(name, str):
        raise InvalidRule(what, name, "the name of a resource class such as PGPU")
    try:
        kind = resource(name)
    except InvalidInput as error:
        raise InvalidRule(what, name, error.expected) from error
    if kind.is_located:
        raise InvalidRule(what, name, "one that is counted, such as PGPU")
    if name in os_resource_classes.STANDARDS and not is_device(name):
        # who asks the host for CPUs or a disk's space would be given the device
        raise InvalidRule(what, name, "one of devices, such as PGPU, or a CUSTOM_ class")


def require_traits(traits: object) -> None:
    """Refuse what is no tuple of traits, each once."""
    what = "trait of a device rule"
    if not isinstance(traits, tuple):
        raise InvalidRule(what, traits, "a tuple of trait names")
    try:
        known_traits(traits)
    except InvalidInput as error:
        raise InvalidRule(what, error.value, error.expected) from error
    require_once(what, traits)


def require_types(types: object) -> None:
    """Refuse what is no tuple of kinds of devices, each once."""
    what = "type of a device rule"
    if not isinstance(types, tuple) or not all(isinstance(kind, DeviceKind) for kind in types):
        raise InvalidRule(what, types, "a tuple of DeviceKind")
    require_once(what, types)


def require_once(what: str, given: tuple[Any, ...]) -> None:
    """Refuse what is said twice."""
    for index, each in enumerate(given):
        if each in given[:index]:
            raise InvalidRule(what, each, "each once")


def require_flag(name: str, value: object, *, optional: bool) -> None:
    """Refuse what is neither yes nor no."""
    if not isinstance(value, bool) and not (optional and value is None):
        expected = "True or False, or None" if optional else "True or False"
        raise InvalidRule(f"{name} of a device rule", value, expected)


def checked_tags(tags: object) -> FrozenDict:
    """Return tags by name, in the order of their names."""
    if not isinstance(tags, Mapping):
        raise InvalidRule("tags of a device rule", tags, "a mapping of names to values")
    for name, value in tags.items():
        require_form(_TAG, "tag", name, "a name such as physnet")
        if name in FLAGS:
            raise InvalidRule("tag of a device rule", name, "no name of a fact")
        require_value(f"tag {name} of a device rule", value)
    return FrozenDict(sorted(tags.items()))


def require_value(what: str, value: object) -> None:
    """Refuse what is no value of a tag."""
    try:
        text = names.label(value)
    except InvalidInput as error:
        raise InvalidRule(what, value, error.expected) from error
    if ";" in text:
        raise InvalidRule(what, value, "a value without ;")
