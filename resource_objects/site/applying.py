"""A site and a ledger: export, apply, and the plan of what would be done."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resource_objects import collector, exceptions, names
from resource_objects.fields import FrozenDict
from resource_objects.ledger.definitions import (
    Difference,
    SyncResult,
    check_roots,
    compare_trees,
    subject_of_roots,
)
from resource_objects.providers import Provider
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
from resource_objects.site.parts import Entry, Outage, PartInventories
from resource_objects.site.patterns import Kept, Patterns
from resource_objects.site.site import Site
from resource_objects.site.trees import outages_of, providers_below, tree_of
from resource_objects.site.writing import Writer
from resource_objects.yaml_nodes import fault_at

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: So many machines are written in one transaction.
BATCH = 500

#: ``progress(done, total)``, in machines.
Progress = Callable[[int, int], object]


@dataclasses.dataclass(frozen=True, slots=True)
class SiteResult:
    """What applying a file did: providers, and how many machines and pools it looked at."""

    created: int = 0
    updated: int = 0
    removed: int = 0
    machines: int = 0
    disabled: int = 0
    enabled: int = 0

    def after(self, batch: SyncResult, machines: int) -> SiteResult:
        """Return what was done when a batch of so many machines is done too."""
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


@collector.seldom()
def export_site(
    ledger: Ledger, hosts: Iterable[str] = (), *, progress: Progress | None = None
) -> Site:
    """Return the file that says what a ledger keeps, at one moment; without who holds what.

    Cost: one read of everything, and some 50 microseconds for each provider.

    :param hosts: only the trees of these providers (names or uuids)
    :param progress: is called with how many machines are done, and of how many
    :raises NotFound: if one of them is not there

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
    given = columns.providers
    known = {*given.name, *given.uuid}
    for key in keys:
        if key not in known:
            raise exceptions.NotFound("provider", key)
    uuid = columns.index.uuids
    out = {uuid[number]: one for number, one in columns.disabled.items()}
    definitions = (one.definition for one in stored_definitions(columns).values())
    return Site.of_definitions(Writer(definitions, out), progress)


@collector.seldom()
def apply_site(
    ledger: Ledger,
    site: Site,
    *,
    prune: bool = False,
    others: bool = True,
    batch: int | None = BATCH,
    generations: Mapping[str, int] = FrozenDict(),
    progress: Progress | None = None,
) -> SiteResult:
    """Make a ledger look as a file says; what consumers hold is not touched.

    A batch of machines is written in one transaction, whole or not at all. After an error those
    before it are done, as ``progress`` told; to apply again does the rest. Cost: a read and a write
    for each batch; of what is as the file says already, only the read.

    :param prune: also remove what the file does not name, at last: machines, children, and what a
        missing key would say. See :func:`count_pruned`
    :param others: whether to prune goes for machines that the file does not name, too
    :param batch: so many machines in one transaction; None: all of them
    :param generations: those that providers were read at, by name: if one is at another one by
        now nothing is written. Then there is one transaction
    :param progress: is called with how many machines are done, and of how many
    :raises InvalidInput: naming the line, if a machine cannot be as the file says beside what of it
        is left alone, or is called by the uuid of a provider that has another name; if the file
        names no machine, and prune would remove something
    :raises Stale: if a provider is not at the generation that is given
    :raises AlreadyExists, InUse, Conflict: as ``Ledger.sync``

    >>> import resource_objects as ro
    >>> site = Site.parse("machines: {'lab-[0-5]': {inventories: VCPU=64}}")
    >>> with ro.connect("memory://") as ledger:
    ...     print(apply_site(ledger, site))
    ...     print(apply_site(ledger, site))
    6 created
    nothing changed
    """
    every = _entries(site)
    if prune and others:
        _check_prune(ledger, site)
    size = _size(None if generations else batch, len(every))
    comparer = _Comparer(ledger, site, prune, generations)
    done = SiteResult()
    for start in range(0, len(every), size):
        some = every[start : start + size]
        done = done.after(comparer.write(some), len(some))
        if progress is not None:
            progress(done.machines, len(every))
    if prune and others:
        gone = _unnamed(ledger, every)
        if gone:
            ledger.apply(Plan(DefinitionChanges("site", removals=tuple(gone))))
            done = dataclasses.replace(done, removed=done.removed + len(gone))
    return done


def plan_site(
    ledger: Ledger,
    site: Site,
    *,
    prune: bool = False,
    others: bool = True,
    generations: Mapping[str, int] = FrozenDict(),
) -> Plan:
    """Return what :func:`apply_site` would do now, as one plan; nothing is written.

    What may be said, and errors, are those of :func:`apply_site`, as far as they show without
    writing.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     print(plan_site(ledger, Site.parse("machines: {lab-0: {inventories: VCPU=64}}")))
    + lab-0: VCPU=64
    """
    every = _entries(site)
    if prune and others:
        _check_prune(ledger, site)
    wanted = _Comparer(ledger, site, prune, generations).compare(every)
    changes = [*wanted.changes]
    if prune and others:
        changes.append(DefinitionChanges("site", removals=tuple(_unnamed(ledger, every))))
    found = [one for one in changes if one]
    definitions = merge_changes("site", found) if found else None
    uuids = [one.provider_uuid for one in wanted.disabling]
    read = (
        ledger.backend.read(*uuids, allocations=False).providers if uuids else Columns().providers
    )
    known = zip(read.uuid, read.name, strict=True)
    mentioned = {uuid: name for uuid, name in known if uuid in uuids}
    plan = Plan(definitions, names=mentioned, disabling=wanted.disabling)
    if plan:
        ledger.apply(plan, dry_run=True)
    return plan


def count_pruned(ledger: Ledger, site: Site) -> tuple[int, int]:
    """Return how many providers :func:`apply_site` would remove with ``prune``, and of how many.

    Cost: one read of everything.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     _ = apply_site(ledger, Site.parse("machines: {'lab-[0-5]': {inventories: VCPU=64}}"))
    ...     count_pruned(ledger, Site.parse("machines: {lab-0: {}}"))
    (5, 6)
    """
    named = {
        names.provider_key(name)
        for entry in _entries(site)
        for name in (entry.name, *(below for below, _ in providers_below(entry.part, entry.name)))
    }
    stored = ledger.backend.read(allocations=False).providers
    pairs = zip(stored.name, stored.uuid, strict=True)
    return sum(named.isdisjoint(pair) for pair in pairs), len(stored.name)


def _check_prune(ledger: Ledger, site: Site) -> None:
    """Raise if a file without machines would remove something: it is more likely a mistake."""
    if not site.machines:
        removed, stored = count_pruned(ledger, site)
        if removed:
            expected = f"1 or more: a prune would remove {removed} of {stored} providers"
            raise exceptions.InvalidInput("site file", f"{site.file}, machines", 0, expected)


def _entries(site: Site) -> list[Entry]:
    if not isinstance(site, Site):
        raise exceptions.InvalidInput("value", "site", site, "a Site, as Site.parse() returns")
    return list(site.entries())


def _size(batch: int | None, every: int) -> int:
    if batch is not None and (type(batch) is not int or batch < 1):
        raise exceptions.InvalidInput("field", "batch", batch, "a number of machines, or None")
    return batch or max(every, 1)


class _Comparer:
    """Compares what a file says with what is kept, a batch at a time."""

    def __init__(
        self,
        ledger: Ledger,
        site: Site,
        prune: bool,
        generations: Mapping[str, int] = FrozenDict(),
    ) -> None:
        self._generations = generations
        self._ledger = ledger
        self._site = site
        self._prune = prune
        self._had = PartInventories()
        self._patterns = Patterns(self._had, prune)

    def write(self, some: Sequence[Entry]) -> SyncResult:
        """Write a batch, again if somebody changed a machine in between."""
        subject = subject_of_roots([entry.name for entry in some])
        write = self._ledger.definitions.write
        return write("define", subject, None, lambda: self.compare(some))

    def compare(self, some: Sequence[Entry]) -> Difference:
        """Compare some machines as the file wants them with those that are kept."""
        keys = [names.provider_key(entry.name) for entry in some]
        columns = self._ledger.backend.read(*keys, allocations=False) if keys else Columns()
        kept, every = _kept(columns)
        self._check_generations(every)
        taken = frozenset(columns.providers.name)
        told: list[DefinitionChanges | None] = []
        others: list[tuple[Entry, str]] = []
        for entry, key in zip(some, keys, strict=True):
            told.append(self._patterns.changes(entry, kept.get(key), taken))
            if told[-1] is None:
                others.append((entry, key))
        worked_out = iter(self._worked_out(others, columns) if others else ())
        changes = tuple(next(worked_out) if one is None else one for one in told)
        disabling = tuple(self._disabling(columns, every, changes, some))
        return Difference(every, changes, disabling=disabling)

    def _check_generations(self, every: StoredDefinitions) -> None:
        """Raise if a provider is not at the generation that it was read at."""
        if not self._generations:
            return
        now = {one.definition.name: one.generation for one in every.values()}
        for name, generation in self._generations.items():
            if now.get(name) != generation:
                said = "it is not there" if name not in now else f"it is at {now[name]}"
                raise exceptions.Stale("provider", name, f"{said}, not at {generation}")

    def _worked_out(
        self, some: Sequence[tuple[Entry, str]], columns: Columns
    ) -> tuple[DefinitionChanges, ...]:
        """Return what machines are to be changed by, as trees of objects."""
        self._check_uuids([entry for entry, _ in some])
        kept = {key: root for root in trees(columns) for key in (root.name, root.uuid)}
        roots: list[Provider] = []
        for entry, key in some:
            with self._naming(entry):
                roots.append(tree_of(entry, kept.get(key), self._had, self._prune))
        check_roots(roots)
        try:
            return compare_trees(columns, roots).changes
        except exceptions.InvalidTree:
            for (entry, _), root in zip(some, roots, strict=True):
                with self._naming(entry):
                    root.check_shares()
            raise

    def _check_uuids(self, some: Iterable[Entry]) -> None:
        """Raise if something is called by the uuid of a provider that has another name.

        A file names; were a uuid to find a provider here, applying would rename it.
        """
        called = [
            (entry, name, names.provider_key(name))
            for entry in some
            for name in (
                entry.name,
                *(below for below, _ in providers_below(entry.part, entry.name)),
            )
            if names.is_uuid(name)
        ]
        if not called:
            return
        known = self._ledger.backend.read(*(key for *_, key in called), allocations=False).providers
        name_of = dict(zip(known.uuid, known.name, strict=True))
        for entry, name, key in called:
            if name_of.get(key, name) != name:
                expected = f"a name of its own: it is the uuid of {name_of[key]}"
                error = exceptions.InvalidInput("name", "name", name, expected)
                where = "" if name == entry.name else entry.name
                raise fault_at(self._site.file, entry.part.line, error, where)

    @contextlib.contextmanager
    def _naming(self, entry: Entry) -> Iterator[None]:
        """Name the line of an entry where it cannot be."""
        try:
            yield
        except exceptions.InvalidInput as error:
            raise fault_at(self._site.file, entry.part.line, error, entry.name) from error

    def _disabling(
        self,
        columns: Columns,
        kept: StoredDefinitions,
        changes: Iterable[DefinitionChanges],
        some: Sequence[Entry],
    ) -> Iterator[DisableOrder]:
        """Yield the orders that disable or enable providers as the entries specify.

        Only differences from what is stored are yielded. A period that has ended enables. With
        ``prune``, a provider that its entry does not mark as disabled is enabled.

        :param columns: what is stored
        :param kept: the stored definitions by uuid
        :param changes: the changes of definitions of the same write, for the uuids of new providers
        :param some: the entries that the write applies
        """
        wanted: dict[str, Outage] = {}
        for entry in some if self._prune else _saying_outages(some):
            wanted |= outages_of(entry, self._prune)
        if not wanted:
            return
        uuids = {one.definition.name: uuid for uuid, one in kept.items()}
        for change in changes:
            made = (*change.creates, *(one.definition for one in change.updates))
            uuids |= {one.name: one.uuid for one in made}
        called = columns.index.names
        out = {called[number]: one for number, one in columns.disabled.items()}
        has_ends = any(one.until is not None for one in wanted.values())
        now = self._ledger.now() if has_ends else None
        for name, said in wanted.items():
            outage = said if now is None else said.at(now)
            if outage != Outage.of(out.get(name)):
                yield DisableOrder(uuids[name], outage.reason, outage.until)


def _saying_outages(some: Sequence[Entry]) -> list[Entry]:
    """Return the entries that say what is in service; many machines are of one entry."""
    parts = {id(entry.part): entry.part for entry in some}
    say = {key for key, part in parts.items() if part.says_outages}
    return [entry for entry in some if id(entry.part) in say]


def _kept(columns: Columns) -> tuple[dict[str, Kept], dict[str, StoredDefinition]]:
    """Return trees by the name and the uuid of their roots, and all providers by uuid."""
    every = stored_definitions(columns)
    below: dict[str, dict[str, StoredDefinition]] = defaultdict(dict)
    for one in every.values():
        below[one.root_uuid][one.definition.name] = one
    roots = {uuid: every[uuid].definition.name for uuid in below}
    return {key: below[uuid] for uuid, name in roots.items() for key in (uuid, name)}, every


def _unnamed(ledger: Ledger, every: Sequence[Entry]) -> list[ProviderRemoval]:
    """Return what removes the trees that a file does not name, children before parents."""
    named = {names.provider_key(entry.name) for entry in every}
    return [
        ProviderRemoval(one.uuid or "", one.name, one.generation or 0)
        for root in trees(ledger.backend.read(allocations=False))
        if named.isdisjoint((root.name, root.uuid))
        for one in reversed(list(root.walk()))
    ]
