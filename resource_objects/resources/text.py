"""The text form of amounts and inventories: ``VCPU=2,MEMORY_MB=4096``.

One syntax for the command, tests, logs and documentation: pairs of a resource class and what its
kind reads, separated by commas; spaces around either do not count. A class named twice is refused
(Placement's query string silently takes the last).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from resource_objects import exceptions, names

#: No text form is longer; what is longer is not one.
MAX_LENGTH = 65536

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)


def pairs(text: object, what: str) -> dict[str, str]:
    """Return ``{resource class: text after =}`` in the order given.

    >>> pairs("VCPU=2, MEMORY_MB=4096", "amounts")
    {'VCPU': '2', 'MEMORY_MB': '4096'}
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise exceptions.InvalidText(what, text, "text such as VCPU=2,MEMORY_MB=4096")
    found: dict[str, str] = {}
    if not text.strip():
        return found
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise exceptions.InvalidText(what, item, "NAME=VALUE such as VCPU=2")
        name = names.resource_class_name(name)
        if name in found:
            raise exceptions.DuplicateKey(what, name, "each resource class once")
        found[name] = value
    return found


def integer(text: object, what: str) -> int:
    """Return the integer of decimal digits with an optional sign.

    >>> integer("-3", "amount")
    -3
    """
    if not isinstance(text, str) or not _INTEGER.match(text):
        raise exceptions.InvalidText(what, text, "a whole number in decimal digits")
    return int(text)


def total_and_options(
    text: object, what: str, known: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Return the parts of ``TOTAL[:option=value]...``.

    >>> total_and_options("8:reserved=1", "inventory", ["reserved"])
    ('8', {'reserved': '1'})
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise exceptions.InvalidText(what, text, "text such as 8:reserved=1")
    total, *rest = (part.strip() for part in text.split(":"))
    options: dict[str, str] = {}
    for item in rest:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in known:
            raise exceptions.InvalidText(what, item, f"option=value, options: {', '.join(known)}")
        if name in options:
            raise exceptions.DuplicateKey(what, name, "each option once")
        options[name] = value
    return total, options
