"""CPUs as sets of numbers, as lists in text (``0-3,8``), and as bit masks.

The text is what the kernel, ``taskset`` and ``numactl`` write, with Nova's exclusions (``^2``,
``^4-5``) when reading. The masks are what decisions are computed with: bit *n* is CPU *n*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from resource_objects.exceptions import InvalidInput

#: No machine has a CPU or cell of a higher number (Linux is built for 8192 at most).
MAX_ID = 2**16 - 1

_ITEM = re.compile(r"(\^?)([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", re.ASCII)


def parse_cpus(text: str, what: str = "CPU list") -> tuple[int, ...]:
    """Return the CPUs of a list, ascending; exclusions win wherever they stand.

    :raises InvalidInput: if it is no such list, or names no CPU at all

    >>> parse_cpus("0-3,^2,8")
    (0, 1, 3, 8)
    >>> parse_cpus("")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: CPU list: got '', expected a list of CPUs such as ...
    """
    chosen = excluded = 0  # masks: a range costs the same however often a list repeats it
    if not isinstance(text, str):
        raise _not_a_list(what, text)
    for item in text.split(","):
        if not item.strip():
            continue
        found = _ITEM.match(item.strip())
        if found is None:
            raise _not_a_list(what, text)
        sign, first, last = found.groups()
        low, high = int(first), int(last or first)
        if low > high or high > MAX_ID:
            raise _not_a_list(what, text)
        run = ((1 << (high - low + 1)) - 1) << low
        if sign:
            excluded |= run
        else:
            chosen |= run
    left = chosen & ~excluded
    if not left:
        raise _not_a_list(what, text)
    return tuple(cpu for cpu, bit in enumerate(reversed(f"{left:b}")) if bit == "1")


def _not_a_list(what: str, text: object) -> InvalidInput:
    return InvalidInput("text", what, text, "a list of CPUs such as 0-3,8 or 0-7,^2")


def format_cpus(cpus: Iterable[int], separator: str = ",") -> str:
    """Return CPUs as a list; :func:`parse_cpus` reads it back.

    >>> format_cpus({8, 0, 1, 2, 10, 11})
    '0-2,8,10-11'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return separator.join("-".join(map(str, run)) for run in runs)


def mask_of(cpus: Iterable[int]) -> int:
    """Return the mask of CPUs.

    >>> bin(mask_of([0, 2]))
    '0b101'
    """
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def cpus_of(mask: int) -> tuple[int, ...]:
    """Return the CPUs of a mask, ascending.

    >>> cpus_of(0b1101)
    (0, 2, 3)
    """
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)
