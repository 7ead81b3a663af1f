"""The pieces that text forms of the NUMA kind are made of: lists of CPUs, pairs, flags, names.

In lists ``+`` stands where a comma would, which separates resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from resource_objects import exceptions
from resource_objects.resources import text
from resource_objects.resources.numa.cpus import format_cpus, parse_cpus

WHAT = "NUMA topology"


def pair(said: str) -> tuple[int, int]:
    """Return the two numbers of ``4>12``.

    :raises InvalidText: if it is no such pair

    >>> pair("4>12")
    (4, 12)
    """
    one, _, other = said.partition(">")
    return text.integer(one, f"{WHAT}, number"), text.integer(other, f"{WHAT}, number")


def pairs(said: str) -> list[tuple[int, int]]:
    """Return the pairs of ``0>4+1>5``."""
    return [pair(item) for item in said.split("+") if item]


def said_cpus(cpus: Iterable[int]) -> str:
    """Return CPUs as a list that :func:`cpus` reads back."""
    return format_cpus(cpus, "+")


def cpus(said: str) -> tuple[int, ...]:
    """Return the CPUs of ``0-3+8``; none of nothing."""
    return parse_cpus(said.replace("+", ","), f"{WHAT}, CPUs") if said else ()


def integer(options: Mapping[str, str], name: str) -> int:
    """Return a number among options, 0 if it is not there."""
    return text.integer(options[name], f"{WHAT}, {name}") if name in options else 0


def flag(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option says yes; no if it is not there."""
    said = options.get(name, "no")
    if said not in ("yes", "no"):
        raise exceptions.InvalidText(f"{WHAT}, {name}", said, "yes or no")
    return said == "yes"


#: What text forms give a meaning to, and how it is said in a name.
_ESCAPED = {mark: f"%{ord(mark):02X}" for mark in "%,:;=+/>|"}


def quoted(name: str) -> str:
    """Return a name in which nothing means anything to a text form."""
    return "".join(_ESCAPED.get(letter, letter) for letter in name)


def names(said: str) -> list[str]:
    """Return the names of a list of quoted ones."""
    found = [part for part in said.split("+") if part]
    for mark, code in reversed(_ESCAPED.items()):
        found = [part.replace(code, mark) for part in found]
    return found
