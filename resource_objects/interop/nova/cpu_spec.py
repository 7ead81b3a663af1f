"""Lists of CPUs as Nova reads and writes them: ``0-3,^2,8``.

Items stand in any order and exclusions always win; an item may be empty, and so may be what is
left. Source: ``parse_cpu_spec`` and ``format_cpu_spec`` of Nova 34. Python's own ways of writing
numbers (``+1``, ``1_0``), which Nova reads by accident, are refused.
"""

from __future__ import annotations

import re

from resource_objects import exceptions
from resource_objects.interop.nova import errors
from resource_objects.resources.numa.cpus import format_cpus, parse_cpus

__all__ = ["format_cpu_spec", "parse_cpu_spec"]

#: Writes CPUs as a list, :func:`parse_cpu_spec` reads it back.
format_cpu_spec = format_cpus

_AROUND = re.compile(r"\s*([-^])\s*")


def parse_cpu_spec(text: str, what: str = "CPU list") -> tuple[int, ...]:
    """Return the CPUs of a list, ascending; none, if the exclusions leave none.

    :param what: what the list is for, to name it in an error
    :raises InvalidCPUList: if it is no such list

    >>> parse_cpu_spec("1-4,^3,6")
    (1, 2, 4, 6)
    >>> parse_cpu_spec("^1,,0-1,^0")
    ()
    >>> parse_cpu_spec("4-1")
    Traceback (most recent call last):
    resource_objects.interop.nova.errors.InvalidCPUList: CPU list: got '4-1', expected a list ...
    """
    if not isinstance(text, str):
        raise errors.InvalidCPUList(what, text, "a list of CPUs such as 0-3,8 or 0-7,^2")
    items = [_AROUND.sub(r"\1", item.strip()) for item in text.split(",")]
    wanted = [item for item in items if item and not item.startswith("^")]
    excluded = [item[1:] for item in items if item.startswith("^")]
    try:
        left = set(_each(wanted)).difference(_each(excluded))
    except exceptions.InvalidText as error:
        raise errors.InvalidCPUList(what, text, error.expected) from error
    return tuple(sorted(left))


def _each(items: list[str]) -> tuple[int, ...]:
    """Return the CPUs of items without exclusions."""
    if any(item in ("", "^") or item.startswith("^") for item in items):
        raise exceptions.InvalidText("CPU list", items, "a list of CPUs such as 0-3,8 or 0-7,^2")
    return parse_cpus(",".join(items)) if items else ()
