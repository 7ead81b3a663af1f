"""What is kept, as Placement shows it: generations, consumers, and names.

=========================  =======================================================================
Placement's word           what the ledger keeps
=========================  =======================================================================
generation of a provider   ``definition_writes + allocation_writes`` (:func:`generation`), which
                           counts what Placement counts; the ledger's own one is what is compared
                           in the write
generation of a consumer   ``writes``: how often it was written since it came
consumer uuid              the consumer of that name
consumer type ``unknown``  no type
aggregate uuid             an aggregate of that name
max_unit 2147483647        no bound
name that is a uuid        ``=`` and the name, if it is not the provider's own uuid: the ledger
                           looks providers up by name or uuid
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
#: Who has a consumer that was made before clients had to say so (microversion 1.8).
INCOMPLETE = "00000000-0000-0000-0000-000000000000"


def operation(ledger: Ledger) -> Operation:
    """Return a new operation of who asks."""
    return Operation(actor=ledger.actor)


# --- providers ---


def kept_name(name: str, uuid: str) -> str:
    """Return a provider's name as it is kept.

    >>> other = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    >>> kept_name("host0", other), kept_name(other, other), kept_name(other, "")
    ('host0', '1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33', '=1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33')
    """
    return f"={name}" if names.is_uuid(name) and names.uuid_text(name) != uuid else name


def told_name(one: ListedProvider) -> str:
    """Return a provider's name as clients gave it."""
    name = one.name
    return name[1:] if name.startswith("=") and names.is_uuid(name[1:]) else name


def generation(one: ListedProvider) -> int:
    """Return a provider's generation as Placement counts it."""
    return one.definition_writes + one.allocation_writes


def listed(ledger: Ledger, wanted: ProviderFilter) -> Iterator[ListedProvider]:
    """Yield the providers of a filter. Cost: a few statements for each 10,000."""
    read = partial(ledger.backend.list_providers, wanted)
    for page in pages_of(lambda most, after: read(most, after or 0), _number, MOST_ROWS):
        yield from page


_number = attrgetter("number")

#: The text of Placement's error for a provider that does not exist; some routes put more before it.
NOT_FOUND = "No resource provider with uuid {uuid} found"
#: The texts of Placement's errors for a stale generation, by route.
GENERATION_CONFLICT = "resource provider generation conflict: actual: {actual}, given: {given}"
GENERATION_CHANGED = (
    "Resource provider's generation already changed. Please update the generation and try again."
)


def by_uuid(ledger: Ledger, uuids: Collection[str]) -> dict[str, ListedProvider]:
    """Return providers by uuid; those that are not there are left out."""
    if not uuids:
        return {}
    wanted = ProviderFilter(uuids=frozenset(uuids))
    return {one.uuid: one for one in listed(ledger, wanted)}


def provider(ledger: Ledger, uuid: str, said: str = NOT_FOUND) -> ListedProvider:
    """Return a provider, or refuse the request.

    :param said: the text of the refusal, with ``{uuid}`` in it
    """
    key = names.uuid_text(uuid) if names.is_uuid(uuid) else None
    found = None if key is None else by_uuid(ledger, [key]).get(key)
    if found is None:
        raise errors.not_found(said.format(uuid=uuid))
    return found


def updated(one: ListedProvider, **changed: Any) -> ProviderUpdate:
    """Return the update that gives a provider other fields, at the generation it was read at.

    Shares, if any, stay as they are.
    """
    before = one.definition()
    return ProviderUpdate(dataclasses.replace(before, **changed), one.generation, before)


def change(
    ledger: Ledger,
    uuid: str,
    edit: Callable[[ListedProvider], ProviderUpdate | None],
    said: str = NOT_FOUND,
    disabling: Callable[[ListedProvider], tuple[DisableOrder, ...]] = lambda one: (),
) -> Changed:
    """Read a provider, write what becomes of it (None: nothing), again if somebody was faster.

    Who demands a generation looks at it in ``edit``.
    """

    def attempt() -> Changed:
        one = provider(ledger, uuid, said)
        update = edit(one)
        if update is not None:
            write(ledger, one.name, disabling(one), updates=(update,))
        return Changed(one, update)

    return ledger.retries.retry(attempt, "StaleDefinition")


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """A provider as it was read, and what was written of it (None: nothing)."""

    before: ListedProvider
    update: ProviderUpdate | None

    def generation(self, ledger: Ledger) -> int:
        """Return the generation that the write made. Cost: a statement if something was written.

        Claims that came meanwhile count: they change nothing of what a client knows by it. Once
        somebody else has written the definition again it is one that nobody is at any more.
        """
        if self.update is None:
            return generation(self.before)
        counted = self.before.definition_writes + self.update.writes
        now = by_uuid(ledger, [self.before.uuid]).get(self.before.uuid)
        is_last = now is not None and now.definition_writes == counted
        return counted + (now if now and is_last else self.before).allocation_writes


def move(ledger: Ledger, uuid: str, parent: str | None, name: str) -> None:
    """Make a provider a child of another one, or a root, and give it a name, in one write.

    Clients see no other generation.

    :raises InvalidTree: if the parent is below it
    """

    def attempt() -> None:
        keys = [uuid] if parent is None else [uuid, parent]
        stored = stored_definitions(ledger.backend.read(*keys, allocations=False))
        if uuid not in stored:
            raise errors.not_found(f"No resource provider with uuid {uuid} found")
        if parent is not None and parent not in stored:
            raise errors.bad(
                f"Unable to save resource provider {uuid}: Object action create failed because: "
                "parent provider UUID does not exist."
            )
        changes, unchanged = edited(stored, {uuid: {"name": name, "parent_uuid": parent}})
        updates = tuple(dataclasses.replace(update, counts=0) for update in changes.updates)
        changes = dataclasses.replace(changes, updates=updates)
        doing = Write(operation(ledger), "reparent", uuid, changes, unchanged=unchanged)
        ledger.backend.commit(doing)

    ledger.retries.retry(attempt, "StaleDefinition")


def write(
    ledger: Ledger, subject: str, disabling: tuple[DisableOrder, ...] = (), **changes: Any
) -> None:
    """Write definitions."""
    made = DefinitionChanges(subject, **changes)
    ledger.backend.commit(Write(operation(ledger), "define", subject, made, disabling=disabling))


def remove(ledger: Ledger, one: ListedProvider) -> None:
    """Remove a provider that nobody uses and that has nobody below it."""
    gone = ProviderRemoval(one.uuid, one.name, one.generation)
    write(ledger, one.name, removals=(gone,))


def check_generation(one: ListedProvider, given: int, said: str = GENERATION_CONFLICT) -> None:
    """Refuse a request that was made of a provider as it was at another generation.

    :param said: the text of the refusal, with ``{uuid}``, ``{actual}`` and ``{given}`` in it
    """
    now = generation(one)
    if given != now:
        raise errors.conflict(
            said.format(uuid=one.uuid, actual=now, given=given),
            errors.CONCURRENT_UPDATE,
        )


# --- consumers ---


def consumer_generation(kept: ConsumerRecord | None) -> int | None:
    """Return a consumer's generation as Placement counts it; None if it holds nothing."""
    return None if kept is None else kept.writes


# --- names ---


def all_names(ledger: Ledger, kind: NameKind) -> list[str]:
    """Return the names of a kind: standard ones, then custom ones, each in order."""
    read = partial(ledger.backend.list_names, kind)
    pages = pages_of(read, lambda one: one.name, MOST_ROWS)
    return sorted((one.name for page in pages for one in page), key=name_order)


def name_order(name: str) -> tuple[bool, str]:
    """Return a sort key: standard names come first."""
    return name.startswith("CUSTOM_"), name


def unknown_classes(ledger: Ledger, given: Iterable[str]) -> list[str]:
    """Return those of some names that no resource class has, in their order.

    Cost: nothing where all are standard, else a statement.
    """
    standard = {one.name for one in standard_resources()}
    return _unknown(ledger, NameKind.RESOURCE_CLASS, given, standard)


def unknown_traits(ledger: Ledger, given: Iterable[str]) -> list[str]:
    """Return those of some names that no trait has; cost as of classes."""
    return _unknown(ledger, NameKind.TRAIT, sorted(given), standard_traits())


def _unknown(
    ledger: Ledger, kind: NameKind, given: Iterable[str], standard: Collection[str]
) -> list[str]:
    custom = dict.fromkeys(name for name in given if name not in standard)
    known = frozenset(all_names(ledger, kind)) if custom else ()
    return [name for name in custom if name not in known]
