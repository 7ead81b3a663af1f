"""What resource classes, traits and aggregates may be called, and what is refused about them. Pure.

One rule for every backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

import os_resource_classes

from resource_objects import exceptions, names
from resource_objects.providers.orders import NameChange, NameKind
from resource_objects.resources import resource
from resource_objects.resources.traits import known_traits, standard_traits


@dataclasses.dataclass(frozen=True, slots=True)
class NameRule:
    """One kind of name: those that are always there, what one may be, what is raised about it."""

    standard: Callable[[], Collection[str]]
    check: Callable[[str], object]
    subject: str  #: as errors name this kind

    def refuse_standard(self, change: NameChange) -> None:
        """Raise if a standard name would be renamed or deleted.

        :raises NotSupported: if it is one
        """
        if change.name in self.standard():
            raise exceptions.NotSupported("standard name", change.name)


NAME_RULES: Mapping[NameKind, NameRule] = {
    NameKind.RESOURCE_CLASS: NameRule(
        lambda: os_resource_classes.STANDARDS,
        resource,
        "resource class",
    ),
    NameKind.TRAIT: NameRule(
        standard_traits,
        lambda name: known_traits([name]),
        "trait",
    ),
    NameKind.AGGREGATE: NameRule(tuple, names.aggregate_name, "aggregate"),
}
