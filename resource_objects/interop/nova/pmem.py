"""Persistent memory: ``hw:pmem = 6GB,16GB``, labels of namespaces of that name.

The class of a label says the label, but for the case of its letters. Nova turns whatever is no
ASCII letter or digit into an underscore, and several of them into one, so that all of ``é`` and
``-`` is one class, and ``6GB-FAST`` is that of ``6GB_FAST``: such labels are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import os_resource_classes

from resource_objects import exceptions, names
from resource_objects.fields import FrozenDict
from resource_objects.interop.nova import errors
from resource_objects.interop.nova.flavor_words import FlavorWords


def pmem_classes(words: FlavorWords) -> Mapping[str, int]:
    """Return how many namespaces are asked for, ``{resource class: count}``; images have no say.

    :raises InvalidPmemLabel: for a label that makes no resource class, or that of other labels too

    >>> dict(pmem_classes(FlavorWords(4, 512, {"hw:pmem": "6GB, 16GB,6GB"}, {})))
    {'CUSTOM_PMEM_NAMESPACE_6GB': 2, 'CUSTOM_PMEM_NAMESPACE_16GB': 1}
    """
    labels = [label.strip() for label in words.flavor("pmem").split(",")]
    return FrozenDict(Counter(_class_of(label) for label in labels if label))


def _class_of(label: str) -> str:
    name = f"CUSTOM_PMEM_NAMESPACE_{label.upper()}"
    normalized = os_resource_classes.normalize_name(  # type: ignore[no-untyped-call]
        f"PMEM_NAMESPACE_{label}"
    )
    if name != normalized:
        raise errors.InvalidPmemLabel(
            "hw:pmem", label, "ASCII letters and digits, with single underscores between them"
        )
    try:
        return names.resource_class_name(name)
    except exceptions.InvalidResourceClass as error:
        raise errors.InvalidPmemLabel("hw:pmem", label, error.expected) from error
