"""The names that resource classes, traits and aggregates may have, by one rule for all backends."""

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
    """The rule for one kind of name."""

    standard: Callable[[], Collection[str]]  #: returns the names that always exist
    check: Callable[[str], object]  #: raises for a name that is not allowed
    subject: str  #: the kind, as errors name it

    def refuse_standard(self, change: NameChange) -> None:
        """Raise ``NotSupported`` if a standard name would be renamed or deleted."""
        if change.name in self.standard():
            raise exceptions.NotSupported("standard name", change.name)


NAME_RULES: Mapping[NameKind, NameRule] = {
    NameKind.RESOURCE_CLASS: NameRule(
        lambda: os_resource_classes.STANDARDS, resource, "resource class"
    ),
    NameKind.TRAIT: NameRule(standard_traits, lambda name: known_traits([name]), "trait"),
    NameKind.AGGREGATE: NameRule(tuple, names.aggregate_name, "aggregate"),
}
