"""Providers, consumers and names of the ledger in Placement's terms.

=========================  =======================================================================
Placement                  ledger
=========================  =======================================================================
generation of a provider   ``definition_writes + allocation_writes`` (:func:`generation`), which
                           count by Placement's rules. Writes compare the ledger's own generation
generation of a consumer   ``writes``: the number of its writes since it was created
consumer uuid              the consumer of that name
consumer type ``unknown``  no type
aggregate uuid             the aggregate of that name
max_unit 2147483647        no bound
name that is a uuid        ``=`` and the name, if it is not the provider's own uuid: the ledger
                           finds providers by name or uuid
=========================  =======================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

from resource_objects import names
from resource_objects.ledger import Ledger
from resource_objects.ledger.context import pages_of
from resource_objects.providers.columns import stored_definitions
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    ProviderUpdate,
    edited,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.listing import MOST_ROWS, ListedProvider, ProviderFilter
from resource_objects.providers.orders import ConsumerRecord, NameKind, Operation, Write
from resource_objects.resources import standard_resources
from resource_objects.resources.traits import standard_traits
from resource_objects.rest import errors

UNKNOWN_TYPE = "unknown"
#: The project and user of a consumer that was created without them (before microversion 1.8).
INCOMPLETE = "00000000-0000-0000-0000-000000000000"


def commit(ledger: Ledger, kind: str, subject: str, *changes: Any, **more: Any) -> None:
    """Write changes in a new operation of the ledger's actor; the arguments are those of Write."""
    operation = Operation(actor=ledger.actor)
    ledger.backend.commit(Write(operation, kind, subject, *changes, **more))


# --- providers ---


def stored_name(name: str, uuid: str) -> str:
    """Return the name under which the ledger stores a provider.

    >>> other = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    >>> stored_name("host0", other), stored_name(other, other), stored_name(other, "")
    ('host0', '1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33', '=1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33')
    """
    return f"={name}" if names.is_uuid(name) and names.uuid_text(name) != uuid else name


def client_name(provider: ListedProvider) -> str:
    """Return the name that clients use for a provider."""
    name = provider.name
    return name[1:] if name.startswith("=") and names.is_uuid(name[1:]) else name


def generation(provider: ListedProvider) -> int:
    """Return a provider's generation by Placement's rules."""
    return provider.definition_writes + provider.allocation_writes


def list_providers(ledger: Ledger, conditions: ProviderFilter) -> Iterator[ListedProvider]:
    """Yield the providers that meet conditions. Cost: a few statements for each 10,000."""
    read = partial(ledger.backend.list_providers, conditions)
    number = attrgetter("number")
    for page in pages_of(lambda limit, after: read(limit, after or 0), number, MOST_ROWS):
        yield from page


#: Placement's message for an unknown provider; some routes put a prefix before it.
NOT_FOUND = "No resource provider with uuid {uuid} found"
#: Placement's messages for a stale generation, by route.
GENERATION_CONFLICT = "resource provider generation conflict: actual: {actual}, given: {given}"
GENERATION_CHANGED = (
    "Resource provider's generation already changed. Please update the generation and try again."
)


def providers_by_uuid(ledger: Ledger, uuids: Collection[str]) -> dict[str, ListedProvider]:
    """Return the existing providers among some uuids, by uuid."""
    if not uuids:
        return {}
    conditions = ProviderFilter(uuids=frozenset(uuids))
    return {provider.uuid: provider for provider in list_providers(ledger, conditions)}


def get_provider(ledger: Ledger, uuid: str, message: str = NOT_FOUND) -> ListedProvider:
    """Return a provider.

    :param message: the text of the 404, with ``{uuid}`` in it
    :raises Refused: a 404 if the provider does not exist
    """
    key = names.uuid_text(uuid) if names.is_uuid(uuid) else None
    provider = None if key is None else providers_by_uuid(ledger, [key]).get(key)
    if provider is None:
        raise errors.not_found(message.format(uuid=uuid))
    return provider


def updated(provider: ListedProvider, **fields: Any) -> ProviderUpdate:
    """Return an update of fields of a provider's definition, at the generation that was read.

    Its shares are not changed.
    """
    before = provider.definition()
    return ProviderUpdate(dataclasses.replace(before, **fields), provider.generation, before)


def change_provider(
    ledger: Ledger,
    uuid: str,
    edit: Callable[[ListedProvider], ProviderUpdate | None],
    disabling: Callable[[ListedProvider], tuple[DisableOrder, ...]] = lambda provider: (),
) -> ProviderChange:
    """Read a provider and write an update of it, again after a concurrent write.

    :param edit: returns the update, None for no write; it compares the client's generation
    :param disabling: returns orders of the same write that disable or enable the provider
    """

    def attempt() -> ProviderChange:
        provider = get_provider(ledger, uuid)
        update = edit(provider)
        if update is not None:
            write_definitions(ledger, provider.name, disabling(provider), updates=(update,))
        return ProviderChange(provider, update)

    return ledger.retries.retry(attempt, "StaleDefinition")


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderChange:
    """A provider before a write, and the update that was written (None: no write)."""

    before: ListedProvider
    update: ProviderUpdate | None

    def generation(self, ledger: Ledger) -> int:
        """Return Placement's generation after the write. Cost: a statement if there was a write.

        Concurrent claims are counted: they change nothing that the client knows by the generation.
        After a concurrent definition the result is a generation that the provider does not have
        any more.
        """
        if self.update is None:
            return generation(self.before)
        counted = self.before.definition_writes + self.update.writes
        current = providers_by_uuid(ledger, [self.before.uuid]).get(self.before.uuid)
        is_last = current is not None and current.definition_writes == counted
        return counted + (current if current and is_last else self.before).allocation_writes


def move_provider(ledger: Ledger, uuid: str, parent: str | None, name: str) -> None:
    """Change a provider's parent (None: a root) and its name, in one write.

    The generation that clients see does not change.

    :raises InvalidTree: if the parent is a descendant of the provider
    :raises Refused: a 404 or 400 if the provider or the parent does not exist
    """

    def attempt() -> None:
        keys = [uuid] if parent is None else [uuid, parent]
        stored = stored_definitions(ledger.backend.read(*keys, allocations=False))
        if uuid not in stored:
            raise errors.not_found(NOT_FOUND.format(uuid=uuid))
        if parent is not None and parent not in stored:
            raise errors.bad(  # "create" as in Placement
                f"Unable to save resource provider {uuid}: Object action create failed because: "
                "parent provider UUID does not exist."
            )
        changes, unchanged = edited(stored, {uuid: {"name": name, "parent_uuid": parent}})
        updates = tuple(dataclasses.replace(update, counts=0) for update in changes.updates)
        changes = dataclasses.replace(changes, updates=updates)
        commit(ledger, "reparent", uuid, changes, unchanged=unchanged)

    ledger.retries.retry(attempt, "StaleDefinition")


def write_definitions(
    ledger: Ledger, subject: str, disabling: tuple[DisableOrder, ...] = (), **changes: Any
) -> None:
    """Write definitions of providers."""
    definitions = DefinitionChanges(subject, **changes)
    commit(ledger, "define", subject, definitions, disabling=disabling)


def remove_provider(ledger: Ledger, provider: ListedProvider) -> None:
    """Remove a provider without allocations and children."""
    removal = ProviderRemoval(provider.uuid, provider.name, provider.generation)
    write_definitions(ledger, provider.name, removals=(removal,))


def check_generation(
    provider: ListedProvider, requested: int, message: str = GENERATION_CONFLICT
) -> None:
    """Raise a 409 if a provider is not at the generation that the client read.

    :param message: the text of the 409, with ``{uuid}``, ``{actual}`` and ``{given}`` in it
    """
    actual = generation(provider)
    if requested != actual:
        raise errors.conflict(
            message.format(uuid=provider.uuid, actual=actual, given=requested),
            errors.CONCURRENT_UPDATE,
        )


# --- consumers ---


def consumer_generation(consumer: ConsumerRecord | None) -> int | None:
    """Return a consumer's generation by Placement's rules; None if it has no allocations."""
    return None if consumer is None else consumer.writes


# --- names ---


def all_names(ledger: Ledger, kind: NameKind) -> list[str]:
    """Return the names of a kind: standard ones, then custom ones, each sorted."""
    read = partial(ledger.backend.list_names, kind)
    pages = pages_of(read, attrgetter("name"), MOST_ROWS)
    return sorted((entry.name for page in pages for entry in page), key=name_sort_key)


def name_sort_key(name: str) -> tuple[bool, str]:
    """Return a sort key: standard names come first."""
    return name.startswith("CUSTOM_"), name


def unknown_classes(ledger: Ledger, classes: Iterable[str]) -> list[str]:
    """Return the unknown resource classes among some names, in their order.

    Cost: nothing if all are standard, otherwise a statement.
    """
    standard = {resource.name for resource in standard_resources()}
    return _unknown(ledger, NameKind.RESOURCE_CLASS, classes, standard)


def unknown_traits(ledger: Ledger, traits: Iterable[str]) -> list[str]:
    """Return the unknown traits among some names, sorted; the cost is that of classes."""
    return _unknown(ledger, NameKind.TRAIT, sorted(traits), standard_traits())


def _unknown(
    ledger: Ledger, kind: NameKind, candidates: Iterable[str], standard: Collection[str]
) -> list[str]:
    custom = dict.fromkeys(name for name in candidates if name not in standard)
    existing = frozenset(all_names(ledger, kind)) if custom else ()
    return [name for name in custom if name not in existing]
