"""A site and a ledger: export, apply, and the plan of the changes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resource_objects import collector, names
from resource_objects.exceptions import AlreadyExists, InvalidInput, NotFound, Stale
from resource_objects.fields import FrozenDict
from resource_objects.ledger.definitions import Difference, SyncResult, subject_of_roots
from resource_objects.providers.columns import Columns, stored_definitions, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    StoredDefinition,
    StoredDefinitions,
    merge_changes,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.plan import Plan
from resource_objects.site.parts import Outage
from resource_objects.site.patterns import Pattern
from resource_objects.site.site import Site, SiteMachine
from resource_objects.site.writing import Writer
from resource_objects.yaml_nodes import fault_at

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: The number of machines that are written in one transaction.
BATCH = 500

#: ``progress(done, total)``, in machines.
Progress = Callable[[int, int], object]


@dataclasses.dataclass(frozen=True, slots=True)
class SiteResult:
    """The number of changed providers, and of the machines and pools of the file."""

    created: int = 0
    updated: int = 0
    removed: int = 0
    machines: int = 0
    disabled: int = 0
    enabled: int = 0

    def after(self, batch: SyncResult, machines: int) -> SiteResult:
        """Return the result when a batch of machines is written too."""
        return SiteResult(
            self.created + batch.created,
            self.updated + batch.updated,
            self.removed + batch.removed,
            self.machines + machines,
            self.disabled + batch.disabled,
            self.enabled + batch.enabled,
        )

    def __bool__(self) -> bool:
        return any(count for count, _ in self._counts())

    def _counts(self) -> Iterator[tuple[int, str]]:
        for word in ("created", "updated", "removed", "disabled", "enabled"):
            yield getattr(self, word), word

    def __str__(self) -> str:
        if not self:
            return "nothing changed"
        return ", ".join(f"{count} {word}" for count, word in self._counts() if count)


@collector.fewer_collections()
def export_site(
    ledger: Ledger, hosts: Iterable[str] = (), *, progress: Progress | None = None
) -> Site:
    """Return the site of a ledger at one moment, without allocations.

    Cost: one read of all definitions, and some 50 microseconds for each provider.

    :param hosts: only the trees of these providers (names or uuids)
    :param progress: ``progress(done, total)``, in machines
    :raises NotFound: if one of the hosts does not exist

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(ro.Provider("lab-0", "VCPU=8"), ro.Provider("lab-1", "VCPU=8"))
    ...     print(export_site(ledger))
    version: 1
    machines:
      lab-[0-1]:
        inventories: VCPU=8
    """
    keys = [names.provider_key(host) for host in hosts]
    columns = ledger.backend.read(*keys, allocations=False)
    stored = {*columns.providers.name, *columns.providers.uuid}
    for key in keys:
        if key not in stored:
            raise NotFound("provider", key)
    uuids = columns.index.uuids
    disabled = {uuids[number]: state for number, state in columns.disabled.items()}
    definitions = (entry.definition for entry in stored_definitions(columns).values())
    return Site.of_definitions(Writer(definitions, disabled), progress)


@collector.fewer_collections()
def apply_site(
    ledger: Ledger,
    site: Site,
    *,
    prune: bool = False,
    prune_others: bool = True,
    batch: int | None = BATCH,
    generations: Mapping[str, int] = FrozenDict(),
    progress: Progress | None = None,
) -> SiteResult:
    """Create and change providers as a site describes them; allocations are unchanged.

    A batch of machines is written in one transaction, whole or not at all. After an error the
    batches that ``progress`` reported are written; applying again writes the rest. Cost: a read and
    a write for each batch; only the read where nothing differs.

    :param prune: also remove machines and children that the file does not name, and values of
        missing keys. See :func:`count_pruned`
    :param prune_others: whether ``prune`` also removes other machines than those of the file
    :param batch: the number of machines in one transaction; None: all of them
    :param generations: the generations at which providers were read, by name: if one has changed,
        nothing is written. This needs one transaction
    :param progress: ``progress(done, total)``, in machines
    :raises InvalidInput: naming the line, if the result of a machine with the values that stay is
        not valid, or its name is the uuid of a provider with another name; if the file names no
        machine and ``prune`` would remove a provider
    :raises Stale: if a provider is not at the passed generation
    :raises AlreadyExists, InUse, Conflict: as ``Ledger.sync``

    >>> import resource_objects as ro
    >>> site = Site.parse("machines: {'lab-[0-5]': {inventories: VCPU=64}}")
    >>> with ro.connect("memory://") as ledger:
    ...     print(apply_site(ledger, site))
    ...     print(apply_site(ledger, site))
    6 created
    nothing changed
    """
    comparer = _Comparer(ledger, site, prune, prune_others, generations)
    machines = comparer.machines
    if batch is not None and (type(batch) is not int or batch < 1):
        raise InvalidInput("field", "batch", batch, "a number of machines, or None")
    size = len(machines) if batch is None or generations else batch
    result = SiteResult()
    for start in range(0, len(machines), size or 1):
        part = machines[start : start + size]
        result = result.after(comparer.write(part), len(part))
        if progress is not None:
            progress(result.machines, len(machines))
    removals = comparer.removals()
    if removals:
        ledger.apply(Plan(DefinitionChanges("site", removals=removals)))
    return dataclasses.replace(result, removed=result.removed + len(removals))


def plan_site(
    ledger: Ledger,
    site: Site,
    *,
    prune: bool = False,
    prune_others: bool = True,
    generations: Mapping[str, int] = FrozenDict(),
) -> Plan:
    """Return the changes of :func:`apply_site` as one plan; nothing is written.

    Parameters and errors as :func:`apply_site`, except errors that only a write can find.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     print(plan_site(ledger, Site.parse("machines: {lab-0: {inventories: VCPU=64}}")))
    + lab-0: VCPU=64
    """
    comparer = _Comparer(ledger, site, prune, prune_others, generations)
    difference = comparer.compare(comparer.machines)
    removals = DefinitionChanges("site", removals=comparer.removals())
    changes = [change for change in (*difference.changes, removals) if change]
    definitions = merge_changes("site", changes) if changes else None
    uuids = [order.provider_uuid for order in difference.disabling]
    read = ledger.backend.read(*uuids, allocations=False) if uuids else Columns()
    stored = zip(read.providers.uuid, read.providers.name, strict=True)
    names_of = {uuid: name for uuid, name in stored if uuid in uuids}
    plan = Plan(definitions, names=names_of, disabling=difference.disabling)
    if plan:
        ledger.apply(plan, dry_run=True)
    return plan


def count_pruned(ledger: Ledger, site: Site) -> tuple[int, int]:
    """Return how many providers :func:`apply_site` would remove with ``prune``, and the total.

    Cost: one read of all definitions.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     _ = apply_site(ledger, Site.parse("machines: {'lab-[0-5]': {inventories: VCPU=64}}"))
    ...     count_pruned(ledger, Site.parse("machines: {lab-0: {}}"))
    (5, 6)
    """
    comparer = _Comparer(ledger, site, False, False)
    named = {
        names.provider_key(name)
        for machine in comparer.machines
        for name in comparer.pattern(machine).names(machine.name)
    }
    stored = ledger.backend.read(allocations=False).providers
    pairs = zip(stored.name, stored.uuid, strict=True)
    return sum(named.isdisjoint(pair) for pair in pairs), len(stored.name)


class _Comparer:
    """Compares the machines of a site with the stored ones, a batch at a time."""

    def __init__(
        self,
        ledger: Ledger,
        site: Site,
        prune: bool,
        prune_others: bool,
        generations: Mapping[str, int] = FrozenDict(),
    ) -> None:
        if not isinstance(site, Site):
            raise InvalidInput("value", "site", site, "a Site, as Site.parse() returns")
        self.machines = list(site.each_machine())
        self._ledger = ledger
        self._site = site
        self._prune = prune
        self._prunes_others = prune and prune_others
        self._generations = generations
        self._patterns: dict[tuple[int, bool], Pattern] = {}
        if self._prunes_others and not site.machines:  # more likely a mistake than intended
            removed, stored = count_pruned(ledger, site)
            if removed:
                expected = f"1 or more: a prune would remove {removed} of {stored} providers"
                raise InvalidInput("site file", f"{site.file}, machines", 0, expected)

    def pattern(self, machine: SiteMachine) -> Pattern:
        """Return the pattern of a machine; machines of one entry share it."""
        key = id(machine.part), machine.is_pool
        if key not in self._patterns:
            self._patterns[key] = Pattern(machine.part, machine.is_pool)
        return self._patterns[key]

    def write(self, machines: Sequence[SiteMachine]) -> SyncResult:
        """Write a batch; compare again if a machine was changed in between."""
        subject = subject_of_roots([machine.name for machine in machines])
        write = self._ledger.definitions.write
        return write("define", subject, None, lambda: self.compare(machines))

    def compare(self, machines: Sequence[SiteMachine]) -> Difference:
        """Compare some machines with the stored ones."""
        keys = [names.provider_key(machine.name) for machine in machines]
        columns = self._ledger.backend.read(*keys, allocations=False) if keys else Columns()
        stored = stored_definitions(columns)
        self._check_generations(stored)
        self._check_uuids(machines)
        tree_of: dict[str, dict[str, StoredDefinition]] = defaultdict(dict)
        root_of: dict[str, str] = {}
        for entry in stored.values():
            tree_of[entry.root_uuid][entry.definition.name] = entry
            root_of[entry.definition.name] = entry.root_uuid
        changes = []
        for machine in machines:
            root = root_of.get(machine.name)
            if root is not None and stored[root].definition.name != machine.name:
                detail = f"in the tree of {stored[root].definition.name}"
                raise AlreadyExists("provider", machine.name, detail)
            with self._naming_line(machine):
                pattern = self.pattern(machine)
                tree = {} if root is None else tree_of[root]
                changes.append(pattern.changes(machine.name, tree, self._prune))
        disabling = tuple(self._disabling(machines, columns, stored, changes))
        return Difference(stored, tuple(changes), disabling=disabling)

    def _check_generations(self, stored: StoredDefinitions) -> None:
        """Raise ``Stale`` if a provider is not at the generation at which it was read."""
        if not self._generations:
            return
        now = {entry.definition.name: entry.generation for entry in stored.values()}
        for name, generation in self._generations.items():
            if now.get(name) != generation:
                state = "it is not there" if name not in now else f"it is at {now[name]}"
                raise Stale("provider", name, f"{state}, not at {generation}")

    def _check_uuids(self, machines: Iterable[SiteMachine]) -> None:
        """Raise if a name in the file is the uuid of a provider with another name.

        A file identifies providers by name. If a uuid matched here, applying would rename.
        """
        uuids = [
            (machine, name, names.provider_key(name))
            for machine in machines
            for name in (machine.name, *self.pattern(machine).fixed_names)
            if names.is_uuid(name)
        ]
        if not uuids:
            return
        read = self._ledger.backend.read(*(key for *_, key in uuids), allocations=False).providers
        name_of = dict(zip(read.uuid, read.name, strict=True))
        for machine, name, key in uuids:
            if name_of.get(key, name) != name:
                expected = f"a name of its own: it is the uuid of {name_of[key]}"
                error = InvalidInput("name", "name", name, expected)
                location = "" if name == machine.name else machine.name
                raise fault_at(self._site.file, machine.part.line, error, location)

    @contextlib.contextmanager
    def _naming_line(self, machine: SiteMachine) -> Iterator[None]:
        """Name the line of the entry in errors about a machine."""
        try:
            yield
        except InvalidInput as error:
            raise fault_at(self._site.file, machine.part.line, error, machine.name) from error

    def _disabling(
        self,
        machines: Iterable[SiteMachine],
        columns: Columns,
        stored: StoredDefinitions,
        changes: Iterable[DefinitionChanges],
    ) -> Iterator[DisableOrder]:
        """Yield the orders that disable or enable providers as the entries specify.

        Only differences from the stored states are yielded. A state that has ended enables.

        :param changes: the changes of the same write, for the uuids of new providers
        """
        outages: dict[str, Outage] = {}
        has_outages = {
            id(part): part.has_outages for part in self._site.machines + self._site.pools
        }
        for machine in machines:
            if self._prune or has_outages[id(machine.part)]:
                outages.update(self.pattern(machine).outages(machine.name, self._prune))
        if not outages:
            return
        uuids = {entry.definition.name: uuid for uuid, entry in stored.items()}
        for change in changes:
            uuids |= {definition.name: definition.uuid for definition in change.definitions}
        name_of = columns.index.names
        disabled = {name_of[number]: state for number, state in columns.disabled.items()}
        has_ends = any(outage.until is not None for outage in outages.values())
        now = self._ledger.now() if has_ends else None
        for name, outage in outages.items():
            if now is not None:
                outage = outage.at(now)
            if outage != Outage.of(disabled.get(name)):
                yield DisableOrder(uuids[name], outage.reason, outage.until)

    def removals(self) -> tuple[ProviderRemoval, ...]:
        """Return the removals of the trees that the file does not name, children before parents."""
        if not self._prunes_others:
            return ()
        named = {names.provider_key(machine.name) for machine in self.machines}
        return tuple(
            ProviderRemoval(provider.uuid or "", provider.name, provider.generation or 0)
            for root in trees(self._ledger.backend.read(allocations=False))
            if named.isdisjoint((root.name, root.uuid))
            for provider in reversed(list(root.walk()))
        )
