"""Known traits: the standard ones of os-traits, and any ``CUSTOM_`` name."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping

from resource_objects import names
from resource_objects.exceptions import InvalidInput


@functools.cache
def standard_traits() -> frozenset[str]:
    """Return the names of os-traits (imported on first use, about 30 ms)."""
    import os_traits

    return frozenset(os_traits.get_traits())  # type: ignore[no-untyped-call]


def checked_traits(traits: Iterable[str]) -> frozenset[str]:
    """Return traits as a set.

    :raises InvalidInput: for an invalid name; for a name that is neither standard nor custom

    >>> sorted(checked_traits(["CUSTOM_SSD", "HW_CPU_X86_AVX2"]))
    ['CUSTOM_SSD', 'HW_CPU_X86_AVX2']
    >>> checked_traits(["HW_CPU_X86_AVX9"])
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: trait: got 'HW_CPU_X86_AVX9', expected a ...
    """
    if isinstance(traits, str | bytes | Mapping) or not isinstance(traits, Iterable):
        raise InvalidInput("trait", "traits", traits, "a list of trait names")
    checked = frozenset(names.trait_name(trait) for trait in traits)
    for trait in checked:
        if not trait.startswith(names.CUSTOM_PREFIX) and trait not in standard_traits():
            close = difflib.get_close_matches(trait, sorted(standard_traits()), n=2, cutoff=0.6)
            close = close or [f"{names.CUSTOM_PREFIX}{trait}"]
            expected = names.such_as("a standard or CUSTOM_ trait", close)
            raise InvalidInput("unknown trait", "trait", trait, expected)
    return checked
