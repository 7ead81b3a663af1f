"""Changes of providers as a sequence of requests that can be repeated.

A provider takes one request each for itself, its inventories, traits and aggregates. So a tree is
not defined at once, and others see it incomplete. Before the first request the changes are carried
out on rows of the present trees, by the rules of every backend: providers are at the generations
at which they were read, names are free, and removed inventories are unused. Each request then
expects the generation after the one before. An error names the completed requests
(:class:`Steps`). A caller that compares again and writes the difference, as ``ledger.sync`` does,
completes the change.

Traits and aggregates are written before inventories, so that nothing is allocated of a provider
with an incomplete definition.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects import clock, exceptions
from resource_objects.backends.placement import codec, unsupported
from resource_objects.backends.placement.allocations import Allocations, PendingWrite, add_provider
from resource_objects.backends.placement.cache import ListedEntry, ProviderCache, ProviderState
from resource_objects.backends.placement.client import REPARENTING, Answer, Client
from resource_objects.providers.backend import Capability
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
)
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.orders import NameAction, NameChange, NameKind, Write
from resource_objects.store.rows import NAME_RULES, InventoryRow, ProviderRow, Rows, Transaction
from resource_objects.store.write import begin, ensure_names

CLASS, TRAITS = NameKind.RESOURCE_CLASS, NameKind.TRAIT
PATHS = {CLASS: "/resource_classes", TRAITS: "/traits"}

#: Codes of the errors after which a caller that compares again completes the change.
_REPEATABLE = ("StaleDefinition", "ProviderExists", "LostConnection")


class Steps:
    """The completed requests of a write, which every later error names.

    :param subject: of the write
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._steps: list[tuple[str, str]] = []

    def add(self, step: str, provider: str = "") -> None:
        """Add a completed request, with the provider that it is about."""
        self._steps.append((step, provider))

    def rolled_back(self, provider: str) -> None:
        """Remove the requests about a provider, which was removed again."""
        self._steps = [step for step in self._steps if step[1] != provider]

    @contextlib.contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Add the completed requests to an error.

        :raises LedgerError: in place of an error after some requests, unless the caller completes
            the change by comparing again
        """
        try:
            yield
        except exceptions.ResourceObjectsError as error:
            if not self._steps:
                raise
            steps = f"written before: {', '.join(step for step, _ in self._steps)}"
            if isinstance(error, exceptions.LedgerError) and error.matches(*_REPEATABLE):
                detail = f"{error.detail}; {steps}" if error.detail else steps
                raise dataclasses.replace(error, detail=detail) from error
            detail = f"{steps}; then: {error}"
            raise exceptions.LedgerError("write", self._subject, detail) from error


@dataclasses.dataclass(slots=True)
class Definitions:
    """The resource classes, traits and providers of a Placement, written."""

    client: Client
    cache: ProviderCache
    allocations: Allocations
    aggregates: codec.UuidNames
    #: (kind, name) of names that exist as far as this process knows
    known_names: set[tuple[NameKind, str]] = dataclasses.field(default_factory=set)

    def names(self, kind: NameKind) -> list[str]:
        """Return the names of a kind, sorted. One request; for aggregates a refresh."""
        if kind is CLASS:
            return self.client.get(
                PATHS[kind], lambda body: sorted(item["name"] for item in body["resource_classes"])
            )
        if kind is TRAITS:
            return self.client.get(PATHS[kind], lambda body: sorted(body["traits"]))
        states, _ = self.cache.read(None)
        uuids = {uuid for state in states for uuid in state.aggregates}
        return sorted(map(self.aggregates.name, uuids))

    def change_name(self, change: NameChange, steps: Steps) -> None:
        """Carry out a change of a resource class or trait. One request.

        :raises NotFound: if the name does not exist
        :raises InUse: if a name to delete is used
        :raises AlreadyExists: if the new name of a class exists
        :raises NotSupported: if a standard name would be renamed or deleted
        """
        rule, path = NAME_RULES[change.kind], f"{PATHS[change.kind]}/{change.name}"
        if change.action is NameAction.ENSURE:
            rule.check(change.name)
            self.ensure(change.kind, [change.name], steps)
            return
        rule.refuse_standard(change)
        self.known_names.discard((change.kind, change.name))
        if change.action is NameAction.DELETE:
            answer = self.client.write("DELETE", path)
            if answer.status == 409:
                raise exceptions.InUse(rule.subject, change.name)
        else:
            answer = self._rename_class(change, path)
        if answer.is_missing:
            raise exceptions.NotFound(rule.subject, change.name)
        self.client.required(answer)
        steps.add(f"{change.action} of {change.name}")
        if change.action is NameAction.RENAME:
            self.cache.invalidate()  # a rename raises no generation

    def _rename_class(self, change: NameChange, path: str) -> Answer:
        name = change.to or ""
        NAME_RULES[CLASS].check(name)
        if name == change.name:
            return self.client.read(path)
        # only the microversions 1.2 to 1.6 can rename a class
        answer = self.client.write("PUT", path, {"name": name}, minor=6)
        if answer.status == 409:
            raise exceptions.AlreadyExists("name", name)
        return answer

    def ensure(self, kind: NameKind, names: Iterable[str], steps: Steps) -> None:
        """Create the names that do not exist; standard names do."""
        for name in sorted(set(names).difference(NAME_RULES[kind].standard())):
            if (kind, name) not in self.known_names:
                answer = self.client.required(self.client.ensure(f"{PATHS[kind]}/{name}"))
                self.known_names.add((kind, name))
                if answer.status == 201:
                    steps.add(f"{name} made")

    def write(
        self, write: Write, changes: DefinitionChanges, pending: PendingWrite | None, steps: Steps
    ) -> None:
        """Write the changes of providers of a write, and its orders.

        :raises Stale: if a provider is not at its generation, or has another child
        :raises AlreadyExists: if a name or uuid exists
        :raises InUse: if a removed provider or inventory is used
        """
        entries = self._check(write, changes, pending)
        order = _order_of_renames(changes.updates, entries)
        try:
            _ProviderRequests(self, changes, pending, entries, steps).send(order)
        finally:
            self.cache.invalidate(_stored(changes))
            self.cache.invalidate(definition.uuid for definition in changes.creates)

    def _check(
        self, write: Write, changes: DefinitionChanges, pending: PendingWrite | None
    ) -> dict[str, ListedEntry]:
        """Carry out changes on rows of the present trees; return their entries by uuid.

        Cost: a request for each tree, or one for all; one for each new name; and four for each
        provider of which something is removed.
        """
        for definition in changes.definitions:
            codec.inventories_to_placement(definition)
        parents = (definition.parent_uuid for definition in changes.definitions)
        uuids = {*_stored(changes), *dict(write.unchanged), *filter(None, parents)}
        uuids.difference_update(definition.uuid for definition in changes.creates)
        entries = {entry.uuid: entry for entry in self.cache.entries_of_trees(uuids)}
        read = {removal.uuid for removal in changes.removals}
        read |= {u.definition.uuid for u in changes.updates if u.removed or u.expected_use}
        states = self.cache.read_states(entries[uuid] for uuid in read if uuid in entries)
        rows = _rows_of(changes, entries, {state.entry.uuid: state for state in states})
        for definition in changes.definitions:
            name = definition.name
            owner = None if name in rows.provider_named.key else self.cache.uuid_of(name)
            if owner is not None and owner not in rows.providers:  # of another tree
                add_provider(rows, owner, name)
        transaction = Transaction(rows, clock.now(), 0)
        work = begin(transaction, dataclasses.replace(write, names=()))
        self._check_moves(changes, entries)
        for key, net in {} if pending is None else pending.effects.nets.items():
            row = rows.inventories.get(key)
            if row is not None and key[0] in read:
                record = row.record.using(row.record.used + net)
                rows.inventories.write(key, dataclasses.replace(row, record=record))
        if work is not None:
            work.remove()
        return entries

    def _check_moves(self, changes: DefinitionChanges, entries: Mapping[str, ListedEntry]) -> None:
        """Refuse to move a provider with a parent, which an older Placement cannot do."""
        for update in changes.updates:
            definition, parent = update.definition, entries[update.definition.uuid].parent_uuid
            is_moved = parent != definition.parent_uuid and not update.children_changed
            if is_moved and parent is not None and self.client.minor < REPARENTING:
                raise unsupported.refusal(Capability.REPARENTING, definition.name)


@dataclasses.dataclass(slots=True)
class _ProviderRequests:
    """The requests of one write about providers. Each expects the generation after the one before.

    :param entries: the providers before the write, by uuid
    """

    definitions: Definitions
    changes: DefinitionChanges
    pending: PendingWrite | None
    entries: dict[str, ListedEntry]
    steps: Steps
    client: Client = dataclasses.field(init=False)
    generations: dict[str, int] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.client = self.definitions.client
        self.generations = {uuid: entry.generation for uuid, entry in self.entries.items()}

    def send(self, renames: Iterable[ProviderUpdate]) -> None:
        """Send all requests.

        :param renames: the updates of names, in an order in which each name is free
        """
        changes = self.changes
        # of a created provider everything differs
        updates = [*(ProviderUpdate(new, 0) for new in changes.creates), *changes.updates]
        self._ensure_names(list(changes.definitions))
        names = {definition.name for definition in changes.definitions}
        for removal in changes.removals:
            if removal.name in names:
                self._free_name(removal)
        for update in renames:
            self._place(update, is_moving=False)  # its new parent may not exist yet
        for definition in changes.creates:
            self._create(definition)
        for update in changes.updates:
            self._place(update)
        for update in updates:
            self._replace_names(update)
        counted = [update.definition for update in updates if update.changed or update.removed]
        self._write_amounts(counted)
        for removal in changes.removals:
            self._remove(removal)

    def _ensure_names(self, definitions: Sequence[ProviderDefinition]) -> None:
        records = (record for definition in definitions for record in definition.inventories)
        classes = (record.resource_class for record in records)
        traits = (trait for definition in definitions for trait in definition.traits)
        self.definitions.ensure(CLASS, classes, self.steps)
        self.definitions.ensure(TRAITS, traits, self.steps)

    def _replace_names(self, update: ProviderUpdate) -> None:
        """Replace the traits and aggregates of a provider where they differ."""
        definition = update.definition
        if update.traits_added or update.traits_removed:
            traits = definition.traits
            if definition.uuid in self.entries:
                # a provider that is disabled by its trait stays disabled
                path = f"/resource_providers/{definition.uuid}/traits"
                stored = self.client.get(path, lambda body: body["traits"])
                traits |= {TRAIT}.intersection(stored)
            self._replace(definition, "traits", sorted(traits))
        if update.aggregates_added or update.aggregates_removed:
            names = definition.aggregates or ()
            uuids = sorted(map(self.definitions.aggregates.uuid, names))
            self._replace(definition, "aggregates", uuids)

    def _write_amounts(self, counted: Sequence[ProviderDefinition]) -> None:
        """Write the inventories of some providers, and the allocations; both by one request.

        If it is refused, created providers, which are still empty, are removed again. So it is
        written completely or not at all, and can be worked out again.
        """
        pending = self.pending
        if pending is None or not counted:
            for definition in counted:
                self._replace(definition, "inventories", codec.inventories_to_placement(definition))
            if pending is not None:
                self.definitions.allocations.write(pending)
                self.steps.add("allocations")
            return
        try:
            self._reshape(counted, pending)
        except exceptions.ResourceObjectsError as error:
            may_be_written = error.matches("LostConnection")
            for definition in () if may_be_written else reversed(self.changes.creates):
                path = f"/resource_providers/{definition.uuid}"
                with contextlib.suppress(exceptions.LedgerError):  # the refusal is raised
                    if self.client.write("DELETE", path).is_done:
                        self.steps.rolled_back(definition.name)
            raise

    # --- single requests ---

    def _write(
        self,
        method: str,
        provider: ProviderDefinition | ProviderRemoval,
        body: Any = None,
        part: str = "",
    ) -> Answer:
        """Return the answer to a request about a provider, or a part of it.

        :raises Stale: if the provider does not exist
        """
        path = f"/resource_providers/{provider.uuid}/{part}".rstrip("/")
        answer = self.client.write(method, path, body)
        if answer.is_missing:
            raise exceptions.Stale("provider", provider.name, "it was removed")
        return answer

    def _create(self, definition: ProviderDefinition) -> None:
        body: dict[str, Any] = {"name": definition.name, "uuid": definition.uuid}
        if definition.parent_uuid is not None:
            body["parent_provider_uuid"] = definition.parent_uuid
        path = "/resource_providers"
        answer = self.client.write("POST", path, body)
        if answer.status == 409:
            raise exceptions.AlreadyExists("provider", definition.name)
        if answer.status == 400 and "parent" in answer.detail:
            raise exceptions.Stale("provider", definition.name, answer.detail)
        generation = self.client.parsed(path, answer, lambda body: int(body["generation"]))
        self.generations[definition.uuid] = generation
        self.steps.add(f"{definition.name} created", definition.name)

    def _place(self, update: ProviderUpdate, *, is_moving: bool = True) -> None:
        """Change the name and, if ``is_moving``, the parent of a provider where they differ."""
        definition, entry = update.definition, self.entries[update.definition.uuid]
        if update.children_changed:
            return
        is_moved = is_moving and entry.parent_uuid != definition.parent_uuid
        if entry.name == definition.name and not is_moved:
            return
        body: dict[str, Any] = {"name": definition.name}
        if is_moved:
            body["parent_provider_uuid"] = definition.parent_uuid
        answer = self._write("PUT", definition, body)
        if answer.status == 409:
            raise exceptions.AlreadyExists("provider", definition.name)
        if answer.status == 400:
            is_loop = "loop" in answer.detail
            detail = "it was moved below itself" if is_loop else answer.detail
            raise exceptions.Stale("provider", definition.name, detail)
        self.client.required(answer)
        self.steps.add(f"{entry.name} {'moved' if is_moved else 'renamed'}")
        entry = entry._replace(name=definition.name)
        if is_moved:
            entry = entry._replace(parent_uuid=definition.parent_uuid)
        self.entries[definition.uuid] = entry

    def _replace(self, definition: ProviderDefinition, part: str, value: Any) -> None:
        """Replace one part of a provider at its generation."""
        generation = self.generations[definition.uuid]
        body = {part: value, "resource_provider_generation": generation}
        answer = self._write("PUT", definition, body, part)
        if answer.status == 400 and "No such" in answer.detail:  # others removed a name
            self.definitions.known_names.clear()
            self._ensure_names([definition])
            answer = self._write("PUT", definition, body, part)
        if answer.status == 409:
            if answer.code == "placement.inventory.inuse":
                raise exceptions.InUse("inventory", definition.name, answer.detail)
            raise exceptions.Stale("provider", definition.name, answer.detail)
        self.generations[definition.uuid] = self.client.parsed(
            f"/resource_providers/{definition.uuid}/{part}",
            answer,
            lambda body: int(body["resource_provider_generation"]),
        )
        self.steps.add(f"{part} of {definition.name}", definition.name)

    def _reshape(self, counted: Sequence[ProviderDefinition], pending: PendingWrite) -> None:
        """Write inventories and allocations together: one request, one transaction."""
        body = {
            "inventories": {
                definition.uuid: {
                    "resource_provider_generation": self.generations[definition.uuid],
                    "inventories": codec.inventories_to_placement(definition),
                }
                for definition in counted
            },
            "allocations": pending.bodies,
        }
        try:
            self.definitions.allocations.send(pending, "POST", "/reshaper", body)
        except exceptions.DatabaseError as error:
            if not error.is_about("busy"):
                raise
            detail = "it was written meanwhile"
            raise exceptions.Stale("provider", counted[0].name, detail) from error
        self.steps.add("inventories and allocations")

    def _free_name(self, removal: ProviderRemoval) -> None:
        """Rename a provider to its uuid; its children or allocations prevent its removal yet."""
        self.client.required(self._write("PUT", removal, {"name": removal.uuid}))
        self.steps.add(f"{removal.name} renamed")

    def _remove(self, removal: ProviderRemoval) -> None:
        answer = self._write("DELETE", removal)
        if answer.status == 409:
            if answer.code == "placement.resource_provider.cannot_delete_parent":
                detail = "it has a child that was not known"
                raise exceptions.Stale("provider", removal.name, detail)
            raise exceptions.InUse("provider", removal.name)
        self.client.required(answer)
        self.steps.add(f"{removal.name} removed")


def _stored(changes: DefinitionChanges) -> list[str]:
    """Return the uuids of the providers to update and to remove."""
    uuids = [update.definition.uuid for update in changes.updates]
    return uuids + [removal.uuid for removal in changes.removals]


def _rows_of(
    changes: DefinitionChanges,
    entries: Mapping[str, ListedEntry],
    states: Mapping[str, ProviderState],
) -> Rows:
    """Return rows of some trees, with the inventories that the checks of changes need.

    A provider at the generation of its update has the definition that the update is based on, which
    need not be read. Only removals depend on the present use.
    """
    rows = Rows()
    rows.has_groups = False
    before = {u.definition.uuid: u.before or u.definition for u in changes.updates}
    unread = ProviderDefinition("", "", None, (), frozenset(), frozenset())
    for entry in entries.values():
        definition, state = before.get(entry.uuid, unread), states.get(entry.uuid)
        records = definition.inventories if state is None else state.records
        for record in (*definition.inventories, *records):
            # names that the same write has changed are no obstacle
            ensure_names(rows, CLASS, [record.resource_class])
        for record in records:
            key = entry.uuid, record.resource_class
            rows.inventories.put_unjournaled(key, None, InventoryRow(record, record.used))
        row = ProviderRow(
            next(rows.provider_numbers),
            entry.uuid,
            entry.name,
            entry.parent_uuid,
            definition.traits,
            definition.aggregates or frozenset(),
            tuple(record.resource_class for record in records),
            generation=entry.generation,
        )
        rows.providers.put_unjournaled(entry.uuid, None, row)
    return rows


def _order_of_renames(
    updates: Iterable[ProviderUpdate], entries: Mapping[str, ListedEntry]
) -> list[ProviderUpdate]:
    """Return the updates of names in an order in which each new name is free.

    :raises AlreadyExists: if providers exchange their names, which no order of requests can do
    """
    names = {uuid: entry.name for uuid, entry in entries.items()}
    waiting = [u for u in updates if u.definition.name != names[u.definition.uuid]]
    ordered: list[ProviderUpdate] = []
    while waiting:
        used = {names[update.definition.uuid] for update in waiting}
        free = [update for update in waiting if update.definition.name not in used]
        if not free:
            detail = "they exchange their names"
            raise exceptions.AlreadyExists("provider", waiting[0].definition.name, detail)
        ordered += free
        waiting = [update for update in waiting if update not in free]
    return ordered
