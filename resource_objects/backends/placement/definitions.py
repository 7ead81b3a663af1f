"""Changes of providers as Placement's requests, in an order that can be repeated.

A provider takes a request for each of what it has: itself, inventories, traits, aggregates. So a
tree is not defined at once, and others see it half made. What can be looked at before is: that
every provider is at the generation that was compared with, that names are free, that what goes is
not used. Each request then demands the generation that the one before it left. What fails on the
way is told with what was written (:class:`Steps`); who compares again and writes the rest, as
``ledger.sync`` does, ends where it wanted to.

Traits and aggregates are put before inventories, so that nobody is given something of a provider
that does not say yet what it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects import exceptions
from resource_objects.backends.placement import absent, words
from resource_objects.backends.placement.allocations import Allocations, Settling
from resource_objects.backends.placement.client import REPARENTING, Answer, Client
from resource_objects.backends.placement.picture import Picture, Read, Told
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
)
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.name_rules import NAME_RULES
from resource_objects.providers.orders import NameAction, NameChange, NameKind
from resource_objects.resources.records import InventoryRecord

CLASS, TRAITS = NameKind.RESOURCE_CLASS, NameKind.TRAIT
PATHS = {CLASS: "/resource_classes", TRAITS: "/traits"}

#: Errors that tell that somebody was faster: who compares again does the rest.
_FASTER = ("StaleDefinition", "ProviderExists", "LostConnection")


class Steps:
    """The requests of a write that were carried out, so that none goes untold."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._done: list[tuple[str, str]] = []

    def done(self, what: str, of: str = "") -> None:
        """Note what was written, and of which provider."""
        self._done.append((what, of))

    def undone(self, of: str) -> None:
        """Note that nothing is left of what was written of a provider."""
        self._done = [one for one in self._done if one[1] != of]

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Tell with an error what was written before it.

        :raises LedgerError: for an error after some steps; one that the caller meets by comparing
            again stays what it is, and says them too
        """
        try:
            yield
        except exceptions.ResourceObjectsError as error:
            if not self._done:
                raise
            done = f"written before: {', '.join(what for what, _ in self._done)}"
            if isinstance(error, exceptions.LedgerError) and error.matches(*_FASTER):
                detail = f"{error.detail}; {done}" if error.detail else done
                raise error.detailed(detail) from error
            raise exceptions.LedgerError(
                "write", self._subject, f"{done}; then: {error}"
            ) from error


class Definitions:
    """The definitions of a Placement, written."""

    def __init__(
        self,
        client: Client,
        picture: Picture,
        allocations: Allocations,
        aggregates: words.Names,
    ) -> None:
        self._client = client
        self._aggregates = aggregates
        self._picture = picture
        self._allocations = allocations
        #: names that are there, as far as this process knows
        self._known: dict[NameKind, set[str]] = {CLASS: set(), TRAITS: set()}

    # --- names ---

    def names(self, kind: NameKind) -> list[str]:
        """Return the names of a kind, sorted. One request; for aggregates a look."""
        if kind is CLASS:
            return self._client.get(PATHS[kind], _classes_in)
        if kind is TRAITS:
            return self._client.get(PATHS[kind], _traits_in)
        self._picture.look()
        found, _ = self._picture.all()
        return sorted({self._aggregates.name(uuid) for one in found for uuid in one.aggregates})

    def change_name(self, change: NameChange, steps: Steps) -> None:
        """Carry out a change of a resource class or trait. One request.

        :raises NotFound: if it is not there
        :raises InUse: if it is used and shall go
        :raises AlreadyExists: if the new name of a class is there
        :raises NotSupported: if a standard name shall go, or get another name
        """
        rule, path = NAME_RULES[change.kind], f"{PATHS[change.kind]}/{change.name}"
        if change.action is NameAction.ENSURE:
            rule.check(change.name)
            self._ensure(change.kind, [change.name], steps)
            return
        rule.refuse_standard(change)
        self._known[change.kind].discard(change.name)
        if change.action is NameAction.DELETE:
            answer = self._client.write("DELETE", path)
            if answer.status == 409:
                raise exceptions.InUse(rule.subject, change.name)
        else:
            answer = self._rename_class(change, path)
        if answer.is_missing:
            raise exceptions.NotFound(rule.subject, change.name)
        self._client.required(answer)
        steps.done(f"{change.action} of {change.name}")
        if change.action is NameAction.RENAME:
            self._picture.forget()  # it raises no generation

    def _rename_class(self, change: NameChange, path: str) -> Answer:
        to = change.to or ""
        NAME_RULES[CLASS].check(to)
        if to == change.name:
            return self._client.read(path)
        # microversions 1.2 to 1.6: later ones cannot
        answer = self._client.write("PUT", path, {"name": to}, minor=6)
        if answer.status == 409:
            raise exceptions.AlreadyExists("name", to)
        return answer

    def _ensure(self, kind: NameKind, wanted: Iterable[str], steps: Steps) -> None:
        """Make names that are not there; standard ones are."""
        there = self._known[kind].union(NAME_RULES[kind].standard())
        for name in sorted(set(wanted) - there):
            answer = self._client.required(self._client.ensure(f"{PATHS[kind]}/{name}"))
            self._known[kind].add(name)
            if answer.status == 201:
                steps.done(f"{name} made")

    def _ensure_names(self, wanted: Iterable[ProviderDefinition], steps: Steps) -> None:
        some = list(wanted)
        self._ensure(CLASS, (r.resource_class for one in some for r in one.inventories), steps)
        self._ensure(TRAITS, (name for one in some for name in one.traits), steps)

    # --- providers ---

    def write(
        self,
        changes: DefinitionChanges,
        unchanged: Sequence[tuple[str, int]],
        settling: Settling | None,
        steps: Steps,
    ) -> None:
        """Write changes of providers, with what consumers then hold.

        :raises Stale: if a provider is not at its generation, or has another child
        :raises AlreadyExists: if a name or uuid is taken
        :raises InUse: if what goes is used
        """
        touched = {one.definition.uuid for one in changes.updates}
        touched |= {one.uuid for one in changes.creates}
        touched |= {one.uuid for one in changes.removals}
        at = self._look(changes, unchanged, settling)
        try:
            self._write(changes, at, settling, steps)
        finally:
            self._picture.doubt(touched)

    def _write(
        self,
        changes: DefinitionChanges,
        at: dict[str, int],
        settling: Settling | None,
        steps: Steps,
    ) -> None:
        wanted = [*changes.creates, *(one.definition for one in changes.updates)]
        self._ensure_names(wanted, steps)
        names = {one.name for one in wanted}
        for removal in changes.removals:
            if removal.name in names:
                self._give_up_name(removal, steps)
        for update in _in_turn(changes.updates):
            self._place(update, steps, is_named_only=True)
        for created in changes.creates:
            at[created.uuid] = self._create(created, steps)
        for update in changes.updates:
            self._place(update, steps)
        self._put_qualities(changes, at, steps)
        counted = [one for one in changes.creates if one.inventories]
        counted += [one.definition for one in changes.updates if one.changed or one.removed]
        if settling is not None and counted:
            with self._undoing(changes.creates, steps):
                self._reshape(counted, at, settling, steps)
        else:
            self._put_figures(counted, at, settling, steps)
        for removal in changes.removals:
            self._remove(removal, steps)

    def _put_qualities(self, changes: DefinitionChanges, at: dict[str, int], steps: Steps) -> None:
        """Give providers their traits and aggregates, where these are others."""
        for one in changes.creates:
            if one.traits:
                self._put(one, "traits", sorted(one.traits), at, steps)
            if one.aggregates:
                self._put_aggregates(one, at, steps)
        for one, update in ((update.definition, update) for update in changes.updates):
            if update.traits_added or update.traits_removed:
                self._put(one, "traits", sorted(one.traits | self._lasting(one)), at, steps)
            if update.aggregates_added or update.aggregates_removed:
                self._put_aggregates(one, at, steps)

    def _put_aggregates(self, one: ProviderDefinition, at: dict[str, int], steps: Steps) -> None:
        uuids = sorted(map(self._aggregates.uuid, one.aggregates or ()))
        self._put(one, "aggregates", uuids, at, steps)

    def _put_figures(
        self,
        counted: Sequence[ProviderDefinition],
        at: dict[str, int],
        settling: Settling | None,
        steps: Steps,
    ) -> None:
        """Give providers their inventories, and consumers what they then hold."""
        for one in counted:
            self._put(one, "inventories", _told_records(one.inventories, one.name), at, steps)
        if settling is not None:
            self._allocations.write(settling)
            steps.done("allocations")

    @contextlib.contextmanager
    def _undoing(self, created: Sequence[ProviderDefinition], steps: Steps) -> Iterator[None]:
        """Remove providers that were made for a reshape which was refused: they have nothing yet.

        So it is whole or not at all, and can be worked out again.
        """
        try:
            yield
        except exceptions.LostConnection:  # it may have been done
            raise
        except exceptions.ResourceObjectsError:
            for one in reversed(created):
                with contextlib.suppress(exceptions.LedgerError):  # what was refused is told
                    if self._client.write("DELETE", f"/resource_providers/{one.uuid}").is_done:
                        steps.undone(one.name)
            raise

    # --- before anything is written ---

    def _look(
        self,
        changes: DefinitionChanges,
        unchanged: Sequence[tuple[str, int]],
        settling: Settling | None,
    ) -> dict[str, int]:
        """Return the generations of providers, having looked whether all is as it was compared.

        Cost: a request for each tree, or one for all; and four for each provider of which something
        goes.
        """
        parents = [one.parent_uuid for one in changes.creates if one.parent_uuid is not None]
        expected: dict[str, tuple[str, int]] = {
            **{uuid: (uuid, generation) for uuid, generation in unchanged},
            **{
                one.definition.uuid: (one.definition.name, one.generation)
                for one in changes.updates
            },
            **{one.uuid: (one.name, one.generation) for one in changes.removals},
        }
        new = {one.uuid: one for one in changes.creates}
        keys = set(expected).union(parents).difference(new)
        told = {one.uuid: one for one in self._picture.told_of(keys)}
        for uuid, (name, generation) in expected.items():
            if uuid not in told:
                raise exceptions.Stale("provider", name, "it is gone")
            if told[uuid].generation != generation:
                said = f"read at generation {generation}, now {told[uuid].generation}"
                raise exceptions.Stale("provider", told[uuid].name, said)
        for one in changes.creates:
            if one.parent_uuid is not None and one.parent_uuid not in {*told, *new}:
                raise exceptions.Stale("provider", one.name, "its parent is gone")
        self._check_figures(changes)
        self._check_moves(changes, told)
        self._check_children(changes, told)
        self._check_names(changes, told)
        self._check_used(changes, told, settling)
        return {uuid: one.generation for uuid, one in told.items()}

    @staticmethod
    def _check_figures(changes: DefinitionChanges) -> None:
        for created in changes.creates:
            _told_records(created.inventories, created.name)
        for update in changes.updates:
            if update.changed or update.removed:
                _told_records(update.definition.inventories, update.definition.name)

    def _check_moves(self, changes: DefinitionChanges, told: Mapping[str, Told]) -> None:
        """Refuse what an older Placement cannot move: who has a parent keeps it."""
        for update in changes.updates:
            one, parent = update.definition, told[update.definition.uuid].parent_uuid
            is_moved = parent != one.parent_uuid and not update.children_changed
            if is_moved and parent is not None and self._client.minor < REPARENTING:
                raise absent.refusal(Capability.REPARENTING, one.name)

    @staticmethod
    def _check_children(changes: DefinitionChanges, told: Mapping[str, Told]) -> None:
        gone = {one.uuid for one in changes.removals}
        moved = {one.definition.uuid: one.definition.parent_uuid for one in changes.updates}
        for one in told.values():
            parent = moved.get(one.uuid, one.parent_uuid)
            if parent in gone and one.uuid not in gone:
                raise exceptions.Stale(
                    "provider", told[parent].name, "it has a child that was not known"
                )

    def _check_names(self, changes: DefinitionChanges, told: Mapping[str, Told]) -> None:
        """Refuse names that are another's; what is renamed or goes gives its name free."""
        leaving = {one.name for one in changes.removals}
        leaving |= {
            told[one.definition.uuid].name
            for one in changes.updates
            if told[one.definition.uuid].name != one.definition.name
        }
        wanted = [one.name for one in changes.creates]
        wanted += [
            one.definition.name
            for one in changes.updates
            if one.definition.name != told[one.definition.uuid].name
        ]
        for name in wanted:
            if wanted.count(name) > 1 or (name not in leaving and self._picture.named(name)):
                raise exceptions.AlreadyExists("provider", name)
        _in_turn(changes.updates, {uuid: one.name for uuid, one in told.items()})

    def _check_used(
        self, changes: DefinitionChanges, told: Mapping[str, Told], settling: Settling | None
    ) -> None:
        """Refuse to take away what is used, where nobody gives it back in the same write."""
        nets = {} if settling is None else settling.effects.nets
        going = [one.uuid for one in changes.removals]
        fewer = {
            one.definition.uuid: one for one in changes.updates if one.removed or one.expected_use
        }
        found = {
            one.told.uuid: one
            for one in self._picture.read_each([told[uuid] for uuid in (*going, *fewer)])
        }

        def used(one: Read, name: str) -> int:
            here = sum(held.get(name, 0) for held in one.held.values())
            return here + nets.get((one.told.uuid, name), 0)

        for removal in changes.removals:
            one = found.get(removal.uuid)
            if one is not None and any(used(one, r.resource_class) for r in one.records):
                raise exceptions.InUse("provider", removal.name)
        for uuid, update in fewer.items():
            if uuid not in found:
                continue
            for before in update.expected_use:
                is_now = sum(
                    held.get(before.resource_class, 0) for held in found[uuid].held.values()
                )
                update.check_expected_use(before.resource_class, is_now)
            for name in update.removed:
                if used(found[uuid], name):
                    raise exceptions.InUse("inventory", update.definition.name, name)

    # --- one request each ---

    def _create(self, one: ProviderDefinition, steps: Steps) -> int:
        said: dict[str, Any] = {"name": one.name, "uuid": one.uuid}
        if one.parent_uuid is not None:
            said["parent_provider_uuid"] = one.parent_uuid
        path = "/resource_providers"
        answer = self._client.write("POST", path, said)
        if answer.status == 409:
            raise exceptions.AlreadyExists("provider", one.name)
        if answer.status == 400 and "parent" in answer.detail:
            raise exceptions.Stale("provider", one.name, answer.detail)
        generation = self._client.parsed(path, answer, lambda body: int(body["generation"]))
        steps.done(f"{one.name} created", one.name)
        return generation

    def _place(self, update: ProviderUpdate, steps: Steps, *, is_named_only: bool = False) -> None:
        """Give a provider its name and its place, if it has others. One request, or two.

        :param is_named_only: its name alone, for it may go below one that is still to be made
        """
        one = update.definition
        if update.children_changed:
            return
        [now] = [told for told in self._picture.told(one.uuid) if told.uuid == one.uuid]
        is_moved = now.parent_uuid != one.parent_uuid and not is_named_only
        if now.name == one.name and not is_moved:
            return
        said: dict[str, Any] = {"name": one.name}
        if is_moved:
            said["parent_provider_uuid"] = one.parent_uuid
        answer = self._client.write("PUT", f"/resource_providers/{one.uuid}", said)
        if answer.status == 409:
            raise exceptions.AlreadyExists("provider", one.name)
        if answer.status in (400, 404):
            is_loop = "loop" in answer.detail
            detail = "it was moved below itself" if is_loop else answer.detail
            raise exceptions.Stale("provider", one.name, detail)
        self._client.required(answer)
        steps.done(f"{now.name} {'moved' if is_moved else 'renamed'}")

    def _put(
        self, one: ProviderDefinition, what: str, all_of: Any, at: dict[str, int], steps: Steps
    ) -> None:
        """Replace one of the sets that a provider has, at its generation."""
        said = {what: all_of, "resource_provider_generation": at[one.uuid]}
        path = f"/resource_providers/{one.uuid}/{what}"
        answer = self._client.write("PUT", path, said)
        if answer.status == 400 and "No such" in answer.detail:  # somebody removed a name since
            self._known = {CLASS: set(), TRAITS: set()}
            self._ensure_names([one], steps)
            answer = self._client.write("PUT", path, said)
        if answer.is_missing:
            raise exceptions.Stale("provider", one.name, "it is gone")
        if answer.status == 409:
            if answer.code == "placement.inventory.inuse":
                raise exceptions.InUse("inventory", one.name, answer.detail)
            raise exceptions.Stale("provider", one.name, answer.detail)
        at[one.uuid] = self._client.parsed(path, answer, _generation_in)
        steps.done(f"{what} of {one.name}", one.name)

    def _lasting(self, one: ProviderDefinition) -> frozenset[str]:
        """Return the trait of a provider that somebody took out of service: it stays so."""
        told = self._client.get(f"/resource_providers/{one.uuid}/traits", _traits_in)
        return frozenset([TRAIT]).intersection(told)

    def _reshape(
        self,
        counted: Sequence[ProviderDefinition],
        at: dict[str, int],
        settling: Settling,
        steps: Steps,
    ) -> None:
        """Write inventories and allocations at once: one request, one transaction."""
        body = {
            "inventories": {
                one.uuid: {
                    "resource_provider_generation": at[one.uuid],
                    "inventories": _told_records(one.inventories, one.name),
                }
                for one in counted
            },
            "allocations": settling.bodies,
        }
        try:
            self._allocations.send(settling, "POST", "/reshaper", body)
        except exceptions.DatabaseError as error:
            if not error.is_about("busy"):
                raise
            raise exceptions.Stale(
                "provider", counted[0].name, "it is written meanwhile"
            ) from error
        steps.done("inventories and allocations")

    def _give_up_name(self, removal: ProviderRemoval, steps: Steps) -> None:
        """Call what goes by its uuid until it does: what is below it, or held of it, goes first."""
        said = {"name": removal.uuid}
        answer = self._client.write("PUT", f"/resource_providers/{removal.uuid}", said)
        if answer.is_missing:
            raise exceptions.Stale("provider", removal.name, "it is gone")
        self._client.required(answer)
        steps.done(f"{removal.name} renamed")

    def _remove(self, removal: ProviderRemoval, steps: Steps) -> None:
        answer = self._client.write("DELETE", f"/resource_providers/{removal.uuid}")
        if answer.is_missing:
            raise exceptions.Stale("provider", removal.name, "it is gone")
        if answer.status == 409:
            if answer.code == "placement.resource_provider.cannot_delete_parent":
                raise exceptions.Stale(
                    "provider", removal.name, "it has a child that was not known"
                )
            raise exceptions.InUse("provider", removal.name)
        self._client.required(answer)
        steps.done(f"{removal.name} removed")


def _classes_in(body: Any) -> list[str]:
    return sorted(one["name"] for one in body["resource_classes"])


def _traits_in(body: Any) -> list[str]:
    return sorted(body["traits"])


def _generation_in(body: Any) -> int:
    return int(body["resource_provider_generation"])


def _told_records(records: Iterable[InventoryRecord], where: str) -> dict[str, dict[str, Any]]:
    return {one.resource_class: words.told_record(one, where) for one in records}


def _in_turn(
    updates: Iterable[ProviderUpdate], names: Mapping[str, str] | None = None
) -> list[ProviderUpdate]:
    """Return updates in an order in which each takes a name that is free by then.

    :param names: as they are now, by uuid; None: each has its own
    :raises AlreadyExists: if some exchange their names, which no order of requests can do
    """
    left = list(updates)
    now = dict(names or {})
    ordered: list[ProviderUpdate] = []
    while left:
        taken = {now.get(one.definition.uuid, one.definition.name) for one in left}
        free = [
            one
            for one in left
            if one.definition.name not in taken
            or now.get(one.definition.uuid, one.definition.name) == one.definition.name
        ]
        if not free:
            raise exceptions.AlreadyExists(
                "provider", left[0].definition.name, "they exchange their names"
            )
        ordered += free
        for one in free:
            left.remove(one)
            now[one.definition.uuid] = one.definition.name
    return ordered
