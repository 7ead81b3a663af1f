"""The text form of amounts and inventories: ``VCPU=2,MEMORY_MB=4096``.

One syntax for the command, tests, logs and documentation: pairs of a resource class and a text that
its kind parses, separated by commas. Spaces around either are ignored. A class that is named twice
is rejected (Placement's query string silently uses the last).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from urllib import parse

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_AMOUNT

_invalid_text = functools.partial(InvalidInput, "text")
_invalid_repetition = functools.partial(InvalidInput, "repetition")

#: The maximum length of a text form.
MAX_LENGTH = 65536

_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


def pairs(text: object, label: str) -> dict[str, str]:
    """Return ``{resource class: text after =}`` in the order of the text.

    >>> pairs("VCPU=2, MEMORY_MB=4096", "amounts")
    {'VCPU': '2', 'MEMORY_MB': '4096'}
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise _invalid_text(label, text, "text such as VCPU=2,MEMORY_MB=4096")
    result: dict[str, str] = {}
    if not text.strip():
        return result
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise _invalid_text(label, item, "NAME=VALUE such as VCPU=2")
        name = names.resource_class_name(name)
        if name in result:
            raise _invalid_repetition(label, name, "each resource class once")
        result[name] = value
    return result


def integer(text: object, label: str) -> int:
    """Return the integer of decimal digits with an optional sign.

    >>> integer("-3", "amount")
    -3
    """
    if not isinstance(text, str) or not _INTEGER.match(text):
        raise _invalid_text(label, text, "a whole number in decimal digits")
    if len(text.lstrip("+-")) > len(str(MAX_AMOUNT)):
        raise _invalid_text(label, text, f"a whole number within ±{MAX_AMOUNT}")
    return int(text)


def total_and_options(
    text: object, label: str, option_names: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Return the parts of ``TOTAL[:option=value]...``.

    >>> total_and_options("8:reserved=1", "inventory", ["reserved"])
    ('8', {'reserved': '1'})
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise _invalid_text(label, text, "text such as 8:reserved=1")
    total, *items = (part.strip() for part in text.split(":"))
    options: dict[str, str] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in option_names:
            raise _invalid_text(label, item, f"option=value, options: {', '.join(option_names)}")
        if name in options:
            raise _invalid_repetition(label, name, "each option once")
        options[name] = value
    return total, options


def flag(text: str, label: str) -> bool:
    """Return True for ``yes``, False for ``no``.

    :raises InvalidInput: for any other text
    """
    if text not in ("yes", "no"):
        raise _invalid_text(label, text, "yes or no")
    return text == "yes"


#: The characters with a meaning in text forms; a kind may have more.
_MARKS = "%,;=+/>|"


def quoted(name: str, also: str = "") -> str:
    """Return a name with special characters percent-encoded; :func:`unquoted` is the inverse.

    Characters with a meaning in text forms, and unprintable ones, are encoded as in URLs.

    :param also: further characters to encode

    >>> quoted("net>1"), unquoted("net%3E1", "name")
    ('net%3E1', 'net>1')
    """
    return "".join(
        parse.quote(letter, safe="", errors="surrogatepass")
        if letter in _MARKS or letter in also or not letter.isprintable()
        else letter
        for letter in name
    )


def unquoted(text: str, label: str) -> str:
    """Return the name of a text made by :func:`quoted`.

    :raises InvalidInput: for an invalid percent-encoding
    """
    try:
        return parse.unquote(text, errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise _invalid_text(label, text, "percent-encoded UTF-8") from error
