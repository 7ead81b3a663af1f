"""The contract of a backend: where a ledger is kept.

A backend keeps providers with their inventories and traits, and consumers with their claims and
allocations. It knows nothing of requests, candidates or hosts: a search reads :class:`Columns` and
decides, and the backend has the last word when the decision is written.

The laws a backend keeps, under any number of threads and processes and a kill at any instruction:

* every writing method happens whole or not at all;
* ``used`` of an inventory is the sum of the allocations there, and a change that increases it never
  takes it above the capacity (one that does not is never refused for that);
* a write whose operation was done before returns the recorded outcome and does nothing. An
  operation is one kind of write (``define``, ``claim``, ``adjust``, ``release``) for one subject
  (the root's name, the consumer); the amounts do not count, because a retry may have searched
  again. The same id for another kind or subject is refused (``OperationConflict``);
* definitions change only at the generation they were compared with; claims neither look at nor
  change it.

:mod:`resource_objects.testing.conformance` holds the tests every backend passes, also yours.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime
import uuid as uuids
from collections.abc import Collection
from typing import Self

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.allocation import HELD
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import DefinitionChanges


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One write, by an id that makes retries harmless. ``id`` is a uuid in text form."""

    id: str = dataclasses.field(default_factory=lambda: str(uuids.uuid4()))


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """A change of one resource class at one provider, in units.

    In an order to claim it is positive; in an adjustment negative ones give back.
    """

    provider_uuid: str
    resource_class: str
    amount: int


def _check_deltas(deltas: tuple[Delta, ...], least: int) -> None:
    if not deltas:
        raise exceptions.InvalidAmount("deltas", deltas, "at least one")
    seen: set[tuple[str, str]] = set()
    for delta in deltas:
        key = delta.provider_uuid, delta.resource_class
        if key in seen:
            raise exceptions.DuplicateKey("deltas", key, "each provider and class once")
        seen.add(key)
        amount = delta.amount
        if type(amount) is not int or amount == 0 or not least <= amount <= MAX_AMOUNT:
            raise exceptions.InvalidAmount(
                f"delta of {delta.resource_class}", amount, f"an integer from {least}, not 0"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimOrder:
    """Take ``deltas``, at least one, for a consumer that holds nothing yet.

    :raises DuplicateKey: for two deltas of one (provider, class)
    :raises InvalidAmount: for a delta that is not a positive integer
    """

    consumer: str
    deltas: tuple[Delta, ...]
    claim_id: str = dataclasses.field(default_factory=lambda: str(uuids.uuid4()))
    request: str | None = None  # the request it was made for, as JSON

    def __post_init__(self) -> None:
        _check_deltas(self.deltas, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Adjustment:
    """Change what a consumer holds by ``deltas``; it is made if need be, and goes when empty.

    An ``aggregate`` stands for many consumers, of whom nothing more is known: capacity binds it,
    the unit rules, which are about one consumer, do not.

    :raises DuplicateKey: for two deltas of one (provider, class)
    :raises InvalidAmount: for a delta of 0
    """

    consumer: str
    deltas: tuple[Delta, ...]
    claim_id: str = dataclasses.field(default_factory=lambda: str(uuids.uuid4()))
    aggregate: bool = False

    def __post_init__(self) -> None:
        _check_deltas(self.deltas, -MAX_AMOUNT)


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """One allocation as kept."""

    provider_uuid: str
    provider: str
    resource_class: str
    amount: int


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim as kept: the outcome of every write about consumers."""

    id: str
    consumer: str
    consumer_uuid: str
    created_at: datetime.datetime
    held: tuple[Held, ...]
    state: str = HELD
    request: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a recorded operation was: its kind, for whom, and the claim that came of it.

    ``claim`` is None for ``define``.
    """

    kind: str
    subject: str
    claim: ClaimRecord | None = None

    def require(self, operation: str, kind: str, subject: str) -> None:
        """Raise unless the operation of this id was of that kind, for that subject.

        :raises OperationConflict: if its id was used for something else
        """
        if (self.kind, self.subject) != (kind, subject):
            raise exceptions.OperationConflict(operation, f"{self.kind} of {self.subject}")


class Backend(abc.ABC):
    """Where a ledger is kept. Safe for use by several threads."""

    @classmethod
    @abc.abstractmethod
    def open(cls, url: str) -> Self:
        """Open (an embedded one: create and upgrade) what ``url`` names.

        :raises InvalidURL: if the URL is none of this backend's
        :raises DatabaseUnavailable: if it cannot be reached or is no ledger
        :raises SchemaTooNew: if a newer library made it
        :raises SchemaTooOld: if it is a server's and needs :meth:`upgrade_database`
        """

    @classmethod
    def upgrade_database(cls, url: str) -> list[str]:
        """Bring what ``url`` names to this library's schema; return the steps that were run.

        For a database that :meth:`open` refuses as too old: an empty one, or an older library's.
        Safe while others do the same, and again after it was cut short. Errors are those of
        :meth:`open`.
        """
        backend = cls.open(url)
        try:
            return backend.upgrade()
        finally:
            backend.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Give back every connection. Closing twice is allowed."""

    @abc.abstractmethod
    def read(self, tree: str | None = None) -> Columns:
        """Return everything kept, or one tree, at one moment. Never writes.

        :param tree: name or uuid of any provider of the tree; an unknown one gives empty columns
        """

    @abc.abstractmethod
    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names that are kept. Never writes."""

    @abc.abstractmethod
    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did, None if none of that id is recorded. Never writes."""

    @abc.abstractmethod
    def define(self, operation: Operation, changes: DefinitionChanges) -> None:
        """Apply changes of definitions, all or none, and bump the generation of each provider.

        :raises StaleDefinition: if one is not at its generation any more
        :raises ProviderExists: if a name or uuid to create is taken
        :raises ProviderInUse: if one to remove has allocations
        :raises InventoryInUse: if a class to remove has allocations
        """

    @abc.abstractmethod
    def claim(self, operation: Operation, order: ClaimOrder) -> ClaimRecord:
        """Take all deltas of an order for a new consumer, or none.

        :raises ConsumerExists: if the consumer holds something
        :raises ProviderNotFound: if a provider is gone
        :raises CapacityException: with a reason, and who holds what, for each delta that does not
            fit; unit rules are checked too
        """

    @abc.abstractmethod
    def adjust(self, operation: Operation, order: Adjustment) -> ClaimRecord:
        """Change what one consumer holds by all deltas of an order, or by none.

        Deltas that give back are not checked against unit rules, and never touch what another
        consumer holds.

        :raises ProviderNotFound: if a provider is gone
        :raises CapacityException: if a delta does not fit (:meth:`claim`), or gives back more than
            the consumer holds there (rule ``used_below_zero``, ``used`` what it holds)
        """

    @abc.abstractmethod
    def release(self, operation: Operation, consumer: str) -> ClaimRecord:
        """Give back all that a consumer holds and forget the consumer; return what it held.

        :raises ConsumerNotFound: if it holds nothing
        """

    @abc.abstractmethod
    def held(self, consumer: str) -> ClaimRecord | None:
        """Return what a consumer holds, None if nothing. Never writes."""

    def upgrade(self) -> list[str]:
        """Bring the schema up to this library's; return the names of the steps that were run."""
        return []
