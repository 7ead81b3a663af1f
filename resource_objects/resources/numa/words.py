"""The words of a NUMA request: policies and page sizes."""

from __future__ import annotations

import re

from resource_objects import exceptions
from resource_objects.fields import MAX_FIGURE

#: How vCPUs use CPUs. ``mixed`` is some of each.
SHARED, DEDICATED, MIXED = "shared", "dedicated", "mixed"
#: How dedicated vCPUs use the threads of a core.
PREFER, REQUIRE, ISOLATE = "prefer", "require", "isolate"
THREAD_POLICIES = (PREFER, REQUIRE, ISOLATE)
#: Whether whatever serves the vCPUs (a hypervisor's emulator threads) has a CPU of its own.
SHARE = "share"
EMULATOR_POLICIES = (SHARE, ISOLATE)
#: Page sizes by kind: the smallest (ordinary memory, never given out twice), any larger, any.
SMALL, LARGE, ANY = "small", "large", "any"
PAGE_SIZES = (SMALL, LARGE, ANY)

#: KiB in one of a unit. In the field ``2MB`` means 2 MiB: pages have no other sizes.
_UNITS = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_SIZE = re.compile(r"([0-9]{1,12})\s*(?:([kmgt])(?:i?b)?)?\Z", re.ASCII | re.IGNORECASE)


def page_size(value: object) -> str:
    """Return a page size as it is kept: a word, or KiB in digits.

    :param value: ``small``, ``large``, ``any``, KiB as an integer or in digits, or with a unit
    :raises InvalidText: if it is none

    >>> page_size("2MB"), page_size("1 GiB"), page_size(2048), page_size("large")
    ('2048', '1048576', '2048', 'large')
    >>> page_size("2 pages")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidText: page size: got '2 pages', expected small, large, ...
    """
    if isinstance(value, str) and value.lower() in PAGE_SIZES:
        return value.lower()
    text = str(value) if type(value) is int else value
    found = _SIZE.match(text.strip()) if isinstance(text, str) else None
    kib = int(found[1]) * _UNITS[(found[2] or "k").lower()] if found else 0
    if not 0 < kib <= MAX_FIGURE or kib & (kib - 1):
        raise exceptions.InvalidText(
            "page size", value, "small, large, any, or a power of two such as 2048 (KiB) or 1GB"
        )
    return str(kib)


def show_kib(kib: int) -> str:
    """Return a size in the largest unit that divides it.

    >>> show_kib(4), show_kib(2048), show_kib(1048576)
    ('4 KiB', '2 MiB', '1 GiB')
    """
    for unit, factor in (("TiB", 1024**3), ("GiB", 1024**2), ("MiB", 1024)):
        if kib % factor == 0:
            return f"{kib // factor} {unit}"
    return f"{kib} KiB"
