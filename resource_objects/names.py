"""Checks of names: resource classes, traits, providers, consumers, uuids. Pure.

Only the form of a name is checked. The catalog (:mod:`resource_objects.resources.catalog`) and the
ledger decide whether a class or trait is *known*.

Source of the rules: Placement's API (``CUSTOM_[A-Z0-9_]+`` up to 255 characters, provider names
up to 200), os-resource-classes and os-traits.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence

import os_resource_classes

from resource_objects import exceptions

_STANDARD_ORDER = {name: index for index, name in enumerate(os_resource_classes.STANDARDS)}
#: Placed resources come after all counts, host cells before the devices that are near them: a loop
#: over a request allocates them in this order.
_LOCATED_ORDER = {"NUMA_TOPOLOGY": len(_STANDARD_ORDER) + 1, "DEVICES": len(_STANDARD_ORDER) + 2}
_ORDER = {**_STANDARD_ORDER, **_LOCATED_ORDER}
_SYMBOL = re.compile(r"[A-Z0-9_]{1,255}\Z")
_UUID = re.compile(
    r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\Z", re.IGNORECASE
)
_NUMBERS = re.compile(r"([0-9]{1,18})")
CUSTOM_PREFIX = "CUSTOM_"
MAX_PROVIDER_NAME = 200
MAX_CONSUMER_NAME = 255


def resource_class_name(value: object) -> str:
    """Return an interned resource class name, or raise ``InvalidInput``.

    >>> resource_class_name("CUSTOM_FPGA")
    'CUSTOM_FPGA'
    >>> resource_class_name("vcpu")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: resource class: got 'vcpu', expected ...
    """
    if not isinstance(value, str) or not _SYMBOL.match(value) or value == CUSTOM_PREFIX:
        raise exceptions.InvalidInput(
            "resource class",
            "resource class",
            value,
            "1 to 255 of A-Z, 0-9 and _, such as VCPU or CUSTOM_FPGA",
        )
    return sys.intern(str(value))


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which numbers within names are in the order of their values.

    >>> sorted(["lab-10", "lab-2", "lab-02"], key=natural_order)
    ['lab-02', 'lab-2', 'lab-10']
    """
    parts = _NUMBERS.split(name)
    return *((int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts)), (-2, name)


def in_natural_order(names: Sequence[str]) -> Iterator[int]:
    """Yield the positions of sorted, distinct names in natural order.

    Cost: for the first few of many names a few hundred sort keys, not one for each name. Names that
    share a prefix stand together; a range of names is divided only when its prefix comes next.

    >>> names = sorted(f"lab-{number}" for number in range(1000))
    >>> [names[at] for at in itertools.islice(in_natural_order(names), 3)]
    ['lab-0', 'lab-1', 'lab-2']
    """
    ranges = [(natural_order(""), 0, len(names))] if names else []
    while ranges:
        _, start, end = heapq.heappop(ranges)
        if end - start == 1:
            yield start
            continue
        first, last = names[start], names[end - 1]
        length = next(size for size in itertools.count(1) if first[:size] != last[:size])
        while start < end:
            prefix = names[start][:length]
            after = bisect.bisect_right(names, prefix, start, end, key=lambda name: name[:length])
            is_one = after - start == 1
            # a prefix without the name at the end of its key comes before all names that begin so
            key = natural_order(names[start]) if is_one else natural_order(prefix)[:-1]
            heapq.heappush(ranges, (key, start, after))
            start = after


def resource_class_order(name: str) -> tuple[int, str]:
    """Return a sort key: standard classes in the order of os-resource-classes, then others by name.

    Placed resources come last: host cells, then devices.

    >>> sorted(["CUSTOM_A", "MEMORY_MB", "VCPU"], key=resource_class_order)
    ['VCPU', 'MEMORY_MB', 'CUSTOM_A']
    """
    return _ORDER.get(name, len(_STANDARD_ORDER)), name


def trait_name(value: object) -> str:
    """Return an interned trait name, or raise ``InvalidInput``.

    >>> trait_name("CUSTOM_H100")
    'CUSTOM_H100'
    """
    if not isinstance(value, str) or not _SYMBOL.match(value) or value == CUSTOM_PREFIX:
        raise exceptions.InvalidInput(
            "trait",
            "trait",
            value,
            "1 to 255 of A-Z, 0-9 and _, such as HW_CPU_X86_AVX2 or CUSTOM_SSD",
        )
    return sys.intern(str(value))


def provider_name(value: object) -> str:
    """Return a provider's name, or raise ``InvalidInput``.

    >>> provider_name("host0/gpu1")
    'host0/gpu1'
    """
    return _printable("provider name", value, MAX_PROVIDER_NAME)


def provider_key(value: object) -> str:
    """Return the key of a stored provider: its name, or its uuid as the ledger writes it.

    >>> provider_key("host0"), provider_key("6B7C0A9E0D0F4F839C0B0A4E8B7C1D2E")
    ('host0', '6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e')
    """
    return uuid_text(value) if is_uuid(value) else provider_name(value)


def such_as(expected: str, close: Iterable[str]) -> str:
    """Return the expected value, followed by similar names if there are any.

    >>> such_as("a standard trait", ["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2"])
    'a standard trait, such as HW_CPU_X86_AVX or HW_CPU_X86_AVX2'
    >>> such_as("a standard trait", [])
    'a standard trait'
    """
    offered = " or ".join(close)
    return f"{expected}, such as {offered}" if offered else expected


def is_uuid(value: object) -> bool:
    """Return whether a value is a uuid, or the text of one.

    >>> is_uuid("host0")
    False
    """
    return isinstance(value, uuid.UUID) or _uuid_match(value) is not None


def consumer_name(value: object) -> str:
    """Return a consumer's name, or raise ``InvalidInput``.

    >>> consumer_name("job-17")
    'job-17'
    """
    return _printable("consumer name", value, MAX_CONSUMER_NAME)


def label(value: object, noun: str = "name") -> str:
    """Return the name of a project, user, consumer type, aggregate or unit, or raise.

    >>> label("rack-7", "aggregate")
    'rack-7'
    """
    return _printable(noun, value, MAX_CONSUMER_NAME)


def aggregate_name(value: object) -> str:
    """Return the name of an aggregate, or raise ``InvalidInput``.

    >>> aggregate_name("rack-7")
    'rack-7'
    """
    return label(value, "aggregate")


def uuid_text(value: object) -> str:
    """Return a uuid as its 36 lower-case characters, or raise ``InvalidInput``.

    >>> uuid_text("6B7C0A9E-0D0F-4F83-9C0B-0A4E8B7C1D2E")
    '6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e'
    """
    if isinstance(value, uuid.UUID):
        return str(value)
    match = _uuid_match(value)
    if match is None:
        raise exceptions.InvalidInput("name", "uuid", value, "a uuid of 32 hexadecimal digits")
    text = match.string.lower()
    return text if len(text) == 36 else "-".join(match.groups()).lower()


def _uuid_match(value: object) -> re.Match[str] | None:
    # uuid.UUID() also reads blanks, underscores, braces and hyphens anywhere
    return _UUID.match(value) if isinstance(value, str) and len(value) in (32, 36) else None


def _printable(noun: str, value: object, max_length: int) -> str:
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= max_length
        or not value.isprintable()
        or value != value.strip()
    ):
        raise exceptions.InvalidInput(
            "name",
            noun,
            value,
            f"1 to {max_length} printable characters without spaces at either end",
        )
    return str(value)
