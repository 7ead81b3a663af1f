"""What a flavor and its image say: text by key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from oslo_utils import strutils

from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa.cpuset import MAX_ID


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorWords:
    """A flavor's vCPUs, memory (MiB) and extra specs, and an image's properties.

    The same thing is ``hw:<name>`` in extra specs and ``hw_<name>`` in properties. Values are text,
    or numbers and truth values, which are read as the text they stand for. None says nothing, and
    neither does empty text, but for what is in a guest cell (:mod:`~resource_objects.interop.nova.
    cells`).

    >>> words = FlavorWords(4, 2048, {"hw:numa_nodes": 2}, {"hw_cpu_policy": "shared"})
    >>> words.flavor("numa_nodes"), words.image("cpu_policy"), words.flavor("cpu_policy")
    ('2', 'shared', '')
    """

    vcpus: int
    memory_mb: int
    extra_specs: Mapping[str, Any]
    properties: Mapping[str, Any]

    def __post_init__(self) -> None:
        for what, value, most in (
            ("vcpus", self.vcpus, MAX_ID + 1),
            ("memory_mb", self.memory_mb, MAX_FIGURE),
        ):
            if type(value) is not int or not 1 <= value <= most:
                raise InvalidNovaInput(
                    NovaRule.INVALID_FLAVOR_SIZE, what, value, f"an integer from 1 to {most}"
                )
        for what, given in (("extra specs", self.extra_specs), ("image", self.properties)):
            if not isinstance(given, Mapping):
                raise InvalidNovaInput(NovaRule.NOT_WORDS, what, given, "a mapping of keys to text")

    def flavor(self, name: str) -> str:
        """Return what the flavor says, ``""`` if nothing."""
        return text_of(f"hw:{name}", self.extra_specs.get(f"hw:{name}"))

    def image(self, name: str) -> str:
        """Return what the image says, ``""`` if nothing."""
        return text_of(f"hw_{name}", self.properties.get(f"hw_{name}"))


def text_of(key: str, value: object) -> str:
    """Return a value as text.

    :raises InvalidNovaInput: ``NOT_WORDS`` if it is none
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) <= MAX_AMOUNT:
        return str(int(value))
    if not isinstance(value, str):
        raise InvalidNovaInput(NovaRule.NOT_WORDS, key, value, "text")
    return str(value)


def flag_of(key: str, text: str) -> bool | None:
    """Return whether a key says yes or no, None if it says nothing.

    :raises InvalidNovaInput: ``INVALID_FLAG`` if it says something else

    >>> flag_of("hw:cpu_realtime", "yes"), flag_of("hw:cpu_realtime", "")
    (True, None)
    """
    if not text:
        return None
    try:
        return bool(strutils.bool_from_string(text, strict=True))
    except ValueError as error:
        raise InvalidNovaInput(NovaRule.INVALID_FLAG, key, text, "true or false") from error
