"""Lists of what is kept: filters, and what a page of a list is made of.

A backend answers filters itself, a page at a time, with a number of statements that does not grow
with what is kept. Every condition of a filter that is given must hold; an empty one asks nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Collection
from typing import Any, Literal, TypeAlias

from resource_objects import exceptions, names
from resource_objects.providers.definition import ProviderDefinition, inventories_of
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.resources import Inventories
from resource_objects.resources.records import InventoryRecord, KindRecord

#: Most rows that one page may have.
MOST_ROWS = 10_000


def check_limit(limit: object) -> int:
    """Return how many rows a page may have, or raise.

    >>> check_limit(100)
    100
    """
    if type(limit) is not int or not 1 <= limit <= MOST_ROWS:
        raise exceptions.InvalidInput("field", "limit", limit, f"an integer from 1 to {MOST_ROWS}")
    return limit


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderFilter:
    """Which providers to list. A provider's traits and aggregates are its own, not its tree's.

    ``names``, ``uuids``
        one of these; None asks nothing, an empty set matches nobody
    ``trees``
        in the tree of one of these (name or uuid of any provider of the tree)
    ``aggregates``
        sets: a member of at least one of each set
    ``forbidden_aggregates``
        a member of none
    ``required``, ``forbidden``, ``any_of``
        traits: has all; has none; has at least one of each set. Who is out of service itself has
        ``COMPUTE_STATUS_DISABLED``
    ``room``
        ``(resource class, amount)``: has each with that much free, unit rules kept, by itself,
        and where it shares, there too
    ``over_capacity``
        uses more of something than its capacity
    ``roots_only``
        is the root of a tree
    ``reported_before``
        its owner reported last before this moment; one that never reported does not match
    """

    names: frozenset[str] | None = None
    uuids: frozenset[str] | None = None
    trees: frozenset[str] | None = None
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    any_of: tuple[frozenset[str], ...] = ()
    room: tuple[tuple[str, int], ...] = ()
    over_capacity: bool = False
    roots_only: bool = False
    reported_before: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ListedProvider:
    """One provider of a list, without what is below it. ``number`` is where the list goes on."""

    number: int
    uuid: str
    name: str
    generation: int
    parent: str | None  #: name
    parent_uuid: str | None
    root: str  #: name
    root_uuid: str
    records: tuple[InventoryRecord, ...]
    traits: frozenset[str]
    aggregates: frozenset[str]
    kinds: tuple[KindRecord, ...] = ()
    reported_at: datetime.datetime | None = None
    adopted_at: datetime.datetime | None = None
    #: writes that gave somebody some of it so far, or said so again, each counted once (D7)
    allocation_writes: int = 0
    #: writes of its definition that Placement counts too; the sum of both is its generation there
    definition_writes: int = 0
    disabled: Disabled | None = None  #: why it is out of service itself

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: of each inventory what is used, and of how much."""
        return {
            "name": self.name,
            "uuid": self.uuid,
            "root": self.root,
            "parent": self.parent,
            "generation": self.generation,
            "inventories": {
                record.resource_class: {"used": record.used, "capacity": record.capacity}
                for record in self.records
            },
            "traits": sorted(self.traits),
            "aggregates": sorted(self.aggregates),
            "disabled": None if self.disabled is None else self.disabled.to_dict(),
        }

    @property
    def told_traits(self) -> frozenset[str]:
        """Its traits, with the one by which others know that it is out of service."""
        return self.traits if self.disabled is None else self.traits | {TRAIT}

    def definition(self) -> ProviderDefinition:
        """Return its definition, without shares, which lists do not tell."""
        inventories = tuple(record.definition() for record in self.records)
        return ProviderDefinition(
            self.uuid,
            self.name,
            self.parent_uuid,
            inventories,
            self.traits,
            aggregates=self.aggregates,
            kinds=self.kinds,
        )

    @property
    def inventories(self) -> Inventories:
        """What it has, as objects, made anew each time."""
        return inventories_of(self.records, self.kinds)


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """Which consumers to list.

    ``names``, ``projects``, ``users``, ``types``, ``states``, ``groups``
        one of these; None asks nothing, an empty set matches nobody. None as a member stands for
        not given
    ``tree``
        holds something in the tree of this provider (name or uuid)
    ``provider``
        holds something at this provider (name or uuid)
    ``created_before``, ``created_after``, ``expires_before``
        of its claim; one that never expires does not match
    """

    names: frozenset[str] | None = None
    projects: frozenset[str | None] | None = None
    users: frozenset[str | None] | None = None
    types: frozenset[str | None] | None = None
    states: frozenset[str] | None = None
    tree: str | None = None
    provider: str | None = None
    created_before: datetime.datetime | None = None
    created_after: datetime.datetime | None = None
    expires_before: datetime.datetime | None = None
    groups: frozenset[str | None] | None = None


class By(enum.StrEnum):
    """What totals are summed by."""

    RESOURCE_CLASS = "resource_class"  #: only the class
    PROVIDER = "provider"
    PROJECT = "project"
    USER = "user"
    CONSUMER_TYPE = "consumer_type"
    GROUP = "group"  #: the server group


#: What describes a consumer, whatever it holds.
Description: TypeAlias = Literal[By.PROJECT, By.USER, By.CONSUMER_TYPE, By.GROUP]


@dataclasses.dataclass(frozen=True, slots=True)
class Total:
    """What is used of one resource class by one group of consumers.

    ``group`` is a provider's name, a project, user, consumer type or server group (None: not
    given), or None where only the class is summed by. ``consumers`` counts who uses it.
    """

    group: str | None
    resource_class: str
    used: int
    consumers: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class ListedName:
    """A resource class, trait or aggregate as kept; ``level`` is an aggregate's."""

    number: int
    name: str
    level: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows a purge of history removed."""

    operations: int
    changes: int


def sorted_totals(totals: Collection[Total]) -> tuple[Total, ...]:
    """Return totals by group (not given last) and class, in the usual order of classes."""

    def order(total: Total) -> tuple[Any, ...]:
        known = names.resource_class_order(total.resource_class)
        return total.group is None, total.group or "", known

    return tuple(sorted(totals, key=order))
