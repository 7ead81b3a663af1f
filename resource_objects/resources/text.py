"""The text form of amounts and inventories: ``VCPU=2,MEMORY_MB=4096``.

One syntax for the command, tests, logs and documentation: pairs of a resource class and what its
kind reads, separated by commas; spaces around either do not count. A class named twice is refused
(Placement's query string silently takes the last).
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

#: No text form is longer; what is longer is not one.
MAX_LENGTH = 65536

_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


def pairs(text: object, what: str) -> dict[str, str]:
    """Return ``{resource class: text after =}`` in the order given.

    >>> pairs("VCPU=2, MEMORY_MB=4096", "amounts")
    {'VCPU': '2', 'MEMORY_MB': '4096'}
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise _invalid_text(what, text, "text such as VCPU=2,MEMORY_MB=4096")
    found: dict[str, str] = {}
    if not text.strip():
        return found
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise _invalid_text(what, item, "NAME=VALUE such as VCPU=2")
        name = names.resource_class_name(name)
        if name in found:
            raise _invalid_repetition(what, name, "each resource class once")
        found[name] = value
    return found


def integer(text: object, what: str) -> int:
    """Return the integer of decimal digits with an optional sign.

    >>> integer("-3", "amount")
    -3
    """
    if not isinstance(text, str) or not _INTEGER.match(text):
        raise _invalid_text(what, text, "a whole number in decimal digits")
    if len(text.lstrip("+-")) > len(str(MAX_AMOUNT)):
        raise _invalid_text(what, text, f"a whole number within ±{MAX_AMOUNT}")
    return int(text)


def total_and_options(
    text: object, what: str, known: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Return the parts of ``TOTAL[:option=value]...``.

    >>> total_and_options("8:reserved=1", "inventory", ["reserved"])
    ('8', {'reserved': '1'})
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise _invalid_text(what, text, "text such as 8:reserved=1")
    total, *rest = (part.strip() for part in text.split(":"))
    options: dict[str, str] = {}
    for item in rest:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in known:
            raise _invalid_text(what, item, f"option=value, options: {', '.join(known)}")
        if name in options:
            raise _invalid_repetition(what, name, "each option once")
        options[name] = value
    return total, options


def flag(text: str, what: str) -> bool:
    """Return whether a word says yes.

    :raises InvalidInput: if it is neither ``yes`` nor ``no``
    """
    if text not in ("yes", "no"):
        raise _invalid_text(what, text, "yes or no")
    return text == "yes"


#: What text forms give a meaning to; a kind may give one to more.
_MARKS = "%,;=+/>|"


def quoted(name: str, also: str = "") -> str:
    """Return a name without what means something to a text form; :func:`unquoted` reads it back.

    Marks and what is invisible are said as in URLs.

    :param also: further characters that mean something

    >>> quoted("net>1"), unquoted("net%3E1", "name")
    ('net%3E1', 'net>1')
    """
    return "".join(
        parse.quote(letter, safe="", errors="surrogatepass")
        if letter in _MARKS or letter in also or not letter.isprintable()
        else letter
        for letter in name
    )


def unquoted(text: str, what: str) -> str:
    """Return the name that :func:`quoted` made.

    :raises InvalidInput: for codes of no letter
    """
    try:
        return parse.unquote(text, errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise _invalid_text(what, text, "codes of letters in UTF-8") from error
