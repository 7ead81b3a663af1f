"""Lists of providers and consumers: filters, and the rows of pages.

A backend evaluates filters itself, one page at a time. The number of statements does not depend on
the size of the ledger. A row matches a filter if it meets each condition that is specified.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from resource_objects import exceptions, names
from resource_objects._dataclass import fast_init
from resource_objects.providers.definition import ProviderDefinition, inventories_of
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.resources import Inventories
from resource_objects.resources.records import InventoryRecord, KindRecord

#: The maximum number of rows of a page.
MOST_ROWS = 10_000


def check_limit(limit: object) -> int:
    """Return the maximum number of rows of a page, or raise ``InvalidInput``.

    >>> check_limit(100)
    100
    """
    if type(limit) is not int or not 1 <= limit <= MOST_ROWS:
        raise exceptions.InvalidInput("field", "limit", limit, f"an integer from 1 to {MOST_ROWS}")
    return limit


class Operator(enum.Enum):
    """A comparison of a value of a row with the value of a filter."""

    IN = enum.auto()  #: is in a set; None in the set matches a missing value
    BEFORE = enum.auto()  #: an earlier moment; a missing one does not match
    AFTER = enum.auto()
    MISSING = enum.auto()  #: is None
    ALL_OF = enum.auto()  #: a set of names includes all of a set
    NONE_OF = enum.auto()
    ANY_OF_EACH = enum.auto()  #: includes at least one of each of several sets
    OVER_CAPACITY = enum.auto()  #: the use of an inventory exceeds its capacity


class Condition(NamedTuple):
    """A condition on an attribute of a listed row, which is a column or a table of a database."""

    operator: Operator
    attribute: str
    column: str


def _condition(operator: Operator, attribute: str, column: str = "", default: Any = None) -> Any:
    """Return a field of a filter: a condition on one row, which its default does not state."""
    condition = Condition(operator, attribute, column or attribute)
    return dataclasses.field(default=default, metadata={"condition": condition})


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderFilter:
    """Conditions on providers. Traits and aggregates are those of the provider, not of its tree.

    ``names``, ``uuids``
        one of these; None: any, an empty set matches no provider
    ``trees``
        in the tree of one of these (name or uuid of any provider of the tree)
    ``aggregates``
        sets: a member of at least one of each set
    ``forbidden_aggregates``
        a member of none
    ``required``, ``forbidden``, ``any_of``
        traits: has all; has none; has at least one of each set. A disabled provider has
        ``COMPUTE_STATUS_DISABLED``
    ``room``
        ``(resource class, amount)``: has capacity for each amount individually by its unit rules,
        also in the inventories that it shares
    ``over_capacity``
        has an inventory whose use exceeds its capacity
    ``roots_only``
        is the root of a tree
    ``reported_before``
        the last report of its owner was before this moment; without a report it does not match
    """

    names: frozenset[str] | None = _condition(Operator.IN, "name")
    uuids: frozenset[str] | None = _condition(Operator.IN, "uuid")
    trees: frozenset[str] | None = None
    aggregates: tuple[frozenset[str], ...] = _condition(
        Operator.ANY_OF_EACH, "aggregates", default=()
    )
    forbidden_aggregates: frozenset[str] = _condition(
        Operator.NONE_OF, "aggregates", default=frozenset()
    )
    required: frozenset[str] = _condition(
        Operator.ALL_OF, "all_traits", "traits", default=frozenset()
    )
    forbidden: frozenset[str] = _condition(
        Operator.NONE_OF, "all_traits", "traits", default=frozenset()
    )
    any_of: tuple[frozenset[str], ...] = _condition(
        Operator.ANY_OF_EACH, "all_traits", "traits", default=()
    )
    room: tuple[tuple[str, int], ...] = ()
    over_capacity: bool = _condition(
        Operator.OVER_CAPACITY, "records", "inventories", default=False
    )
    roots_only: bool = _condition(Operator.MISSING, "parent_uuid", "parent_id", default=False)
    reported_before: datetime.datetime | None = _condition(Operator.BEFORE, "reported_at")


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class ListedProvider:
    """A provider of a list, without its children. The next page starts after ``number``."""

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
    #: the number of writes that allocated some of it, also unchanged amounts
    allocation_writes: int = 0
    #: writes of its definition in Placement's count; the sum of both is its generation there
    definition_writes: int = 0
    disabled: Disabled | None = None  #: why it is disabled itself

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with the use and the capacity of each inventory."""
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
    def all_traits(self) -> frozenset[str]:
        """Its traits, with ``COMPUTE_STATUS_DISABLED`` if it is disabled."""
        return self.traits if self.disabled is None else self.traits | {TRAIT}

    def definition(self) -> ProviderDefinition:
        """Return its definition without shares, which lists do not contain."""
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
        """Its inventories as objects, built at each access."""
        return inventories_of(self.records, self.kinds)


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """Conditions on consumers.

    ``names``, ``projects``, ``users``, ``types``, ``states``, ``groups``
        one of these; None: any, an empty set matches no consumer. None as a member matches an
        unspecified value
    ``tree``
        has an allocation in the tree of this provider (name or uuid)
    ``provider``
        has an allocation at this provider (name or uuid)
    ``created_before``, ``created_after``, ``expires_before``
        of its claim; one that never expires does not match
    """

    names: frozenset[str] | None = _condition(Operator.IN, "consumer", "name")
    projects: frozenset[str | None] | None = _condition(Operator.IN, "project", "project_id")
    users: frozenset[str | None] | None = _condition(Operator.IN, "user", "user_id")
    types: frozenset[str | None] | None = _condition(Operator.IN, "consumer_type")
    states: frozenset[str] | None = _condition(Operator.IN, "state")
    tree: str | None = None
    provider: str | None = None
    created_before: datetime.datetime | None = _condition(Operator.BEFORE, "created_at")
    created_after: datetime.datetime | None = _condition(Operator.AFTER, "created_at")
    expires_before: datetime.datetime | None = _condition(Operator.BEFORE, "expires_at")
    groups: frozenset[str | None] | None = _condition(Operator.IN, "group", "server_group")


def conditions_of(criteria: ProviderFilter | ConsumerFilter) -> Iterator[tuple[Condition, Any]]:
    """Yield the conditions of a filter on one row each, with their values."""
    for field in dataclasses.fields(criteria):
        value = getattr(criteria, field.name)
        if value != field.default and "condition" in field.metadata:
            yield field.metadata["condition"], value


class By(enum.StrEnum):
    """A grouping of totals."""

    RESOURCE_CLASS = "resource_class"  #: only the class
    PROVIDER = "provider"
    PROJECT = "project"
    USER = "user"
    CONSUMER_TYPE = "consumer_type"
    GROUP = "group"  #: the server group


#: The values of a consumer that totals and counts can be grouped by.
DESCRIPTIONS: Mapping[By, Condition] = {
    By(field.metadata["condition"].attribute): field.metadata["condition"]
    for field in dataclasses.fields(ConsumerFilter)
    if field.name in ("projects", "users", "types", "groups")
}
#: A grouping by a field of the consumer.
Description: TypeAlias = Literal[By.PROJECT, By.USER, By.CONSUMER_TYPE, By.GROUP]


@dataclasses.dataclass(frozen=True, slots=True)
class Total:
    """The use of one resource class by one group of consumers.

    ``group`` is a provider's name, a project, user, consumer type or server group (None:
    unspecified), or None if totals are grouped by class only. ``consumers`` is their number.
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
    """A stored resource class, trait or aggregate; only aggregates have a ``level``."""

    number: int
    name: str
    level: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """The numbers of rows that a purge of the history removed."""

    operations: int
    changes: int


def sorted_totals(totals: Collection[Total]) -> tuple[Total, ...]:
    """Return totals by group (unspecified last) and class, in the usual order of classes."""

    def order(total: Total) -> tuple[Any, ...]:
        class_order = names.resource_class_order(total.resource_class)
        return total.group is None, total.group or "", class_order

    return tuple(sorted(totals, key=order))
