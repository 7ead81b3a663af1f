"""A site and a ledger: export, apply, and the plan of what would be done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from resource_objects import exceptions, names
from resource_objects.host.site.parts import Entry, Outage, PartInventories
from resource_objects.host.site.reading import fault_at
from resource_objects.host.site.site import Site
from resource_objects.host.site.trees import outages_of, tree_of
from resource_objects.ledger.definitions import (
    Comparison,
    SyncResult,
    check_roots,
    compared,
    subject_of_roots,
)
from resource_objects.providers import Provider
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    merge_changes,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.plan import Plan

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: So many machines are written in one transaction.
BATCH = 500

_T = TypeVar("_T")
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

    def __bool__(self) -> bool:
        return any(count for count, _ in self._counts())

    def _counts(self) -> Iterator[tuple[int, str]]:
        for word in ("created", "updated", "removed", "disabled", "enabled"):
            yield getattr(self, word), word

    def __str__(self) -> str:
        if not self:
            return "nothing changed"
        return ", ".join(f"{count} {word}" for count, word in self._counts() if count)


def export_site(
    ledger: Ledger, hosts: Iterable[str] = (), *, progress: Progress | None = None
) -> Site:
    """Return the file that says what a ledger keeps, at one moment; without who holds what.

    Cost: one read of everything, and some 100 microseconds for each provider.

    :param hosts: only the trees of these providers (names or uuids)
    :param progress: is called with how many machines are done, and of how many
    :raises ProviderNotFound: if one of them is not there

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
    roots = trees(ledger.backend.read(*keys, allocations=False))
    known = {key for root in roots for one in root.walk() for key in (one.name, one.uuid)}
    for key in keys:
        if key not in known:
            raise exceptions.ProviderNotFound(key)
    return Site.of(_told(roots, progress))


def apply_site(
    ledger: Ledger,
    site: Site,
    *,
    prune: bool = False,
    batch: int | None = BATCH,
    progress: Progress | None = None,
) -> SiteResult:
    """Make a ledger look as a file says; what consumers hold is not touched.

    A batch of machines is written in one transaction, whole or not at all. After an error those
    before it are done, as ``progress`` told; to apply again does the rest. Cost: a read and a write
    for each batch; of what is as the file says already, only the read.

    :param prune: also remove what the file does not name, at last: machines, children, and what a
        missing key would say
    :param batch: so many machines in one transaction; None: all of them
    :param progress: is called with how many machines are done, and of how many
    :raises InvalidSite: naming the line, if a machine cannot be as the file says beside what of it
        is left alone
    :raises ProviderExists, ProviderInUse, InventoryInUse, CountedTwice: as ``Ledger.sync``

    >>> import resource_objects as ro
    >>> site = Site.parse("machines: {'lab-[0-5]': {inventories: VCPU=64}}")
    >>> with ro.connect("memory://") as ledger:
    ...     print(apply_site(ledger, site))
    ...     print(apply_site(ledger, site))
    6 created
    nothing changed
    """
    every = _entries(site)
    size = _size(batch, len(every))
    done = SiteResult()
    for start in range(0, len(every), size):
        some = every[start : start + size]
        result = _written(ledger, site, some, prune)
        done = SiteResult(
            done.created + result.created,
            done.updated + result.updated,
            done.removed + result.removed,
            start + len(some),
            done.disabled + result.disabled,
            done.enabled + result.enabled,
        )
        if progress is not None:
            progress(done.machines, len(every))
    if prune:
        gone = _unnamed(ledger, every)
        if gone:
            ledger.apply(Plan(DefinitionChanges("site", removals=tuple(gone))))
            done = dataclasses.replace(done, removed=done.removed + len(gone))
    return done


def plan_site(ledger: Ledger, site: Site, *, prune: bool = False) -> Plan:
    """Return what :func:`apply_site` would do now, as one plan; nothing is written.

    The errors are those of :func:`apply_site`, as far as they show without writing.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     print(plan_site(ledger, Site.parse("machines: {lab-0: {inventories: VCPU=64}}")))
    + lab-0: VCPU=64
    """
    every = _entries(site)
    wanted = _compared(ledger, site, every, prune)
    changes = [*wanted.changes]
    if prune:
        changes.append(DefinitionChanges("site", removals=tuple(_unnamed(ledger, every))))
    found = [one for one in changes if one]
    definitions = merge_changes("site", found) if found else None
    known = {one.uuid or "": one.name for root in wanted.kept for one in root.walk()}
    mentioned = [one.provider_uuid for one in wanted.disabling if one.provider_uuid in known]
    plan = Plan(
        definitions,
        names={uuid: known[uuid] for uuid in mentioned},
        disabling=wanted.disabling,
    )
    if plan:
        ledger.apply(plan, dry_run=True)
    return plan


def _entries(site: Site) -> list[Entry]:
    if not isinstance(site, Site):
        raise exceptions.InvalidInput("site", site, "a Site, as Site.parse() returns")
    return list(site.entries())


def _size(batch: int | None, every: int) -> int:
    if batch is not None and (type(batch) is not int or batch < 1):
        raise exceptions.InvalidField("batch", batch, "a number of machines, or None")
    return batch or max(every, 1)


def _told(found: Sequence[_T], progress: Progress | None) -> Iterator[_T]:
    for number, one in enumerate(found):
        yield one
        if progress is not None and (number + 1) % BATCH == 0:
            progress(number + 1, len(found))


def _written(ledger: Ledger, site: Site, some: Sequence[Entry], prune: bool) -> SyncResult:
    """Write a batch, again if somebody changed a machine in between."""

    def compare() -> Comparison:
        return _compared(ledger, site, some, prune)

    subject = subject_of_roots([entry.name for entry in some])
    return ledger.definitions.write("define", subject, None, compare)


def _compared(ledger: Ledger, site: Site, some: Sequence[Entry], prune: bool) -> Comparison:
    """Compare the trees of some machines as the file wants them with those that are kept."""
    keys = [names.provider_key(entry.name) for entry in some]
    read = trees(ledger.backend.read(*keys, allocations=False)) if keys else []
    kept = {key: root for root in read for key in (root.name, root.uuid)}
    roots: list[Provider] = []
    had = PartInventories()
    for entry, key in zip(some, keys, strict=True):
        try:
            before = kept.get(key)
            wanted = tree_of(entry, before, had, prune)
            if wanted.shares or any(one.shares for one in wanted.walk()):
                wanted.check_shares()
        except exceptions.InvalidInput as error:
            raise fault_at(site.file, entry.part.line, error, entry.name) from error
        roots.append(wanted)
    check_roots(roots)
    found = compared(read, roots)
    disabling = tuple(_disabling(ledger, found, some, prune))
    return dataclasses.replace(found, disabling=disabling) if disabling else found


def _disabling(
    ledger: Ledger, found: Comparison, some: Sequence[Entry], prune: bool
) -> Iterator[DisableOrder]:
    """Yield what is put out of service, or into it again; what is over is in service."""
    wanted: dict[str, Outage] = {}
    for entry in some:
        wanted |= outages_of(entry, prune)
    if not wanted:
        return
    kept = {one.name: one for root in found.kept for one in root.walk()}
    uuids = {name: one.uuid or "" for name, one in kept.items()}
    for change in found.changes:
        made = (*change.creates, *(one.definition for one in change.updates))
        uuids |= {one.name: one.uuid for one in made}
    now = ledger.now() if any(one.until is not None for one in wanted.values()) else None
    for name, said in wanted.items():
        outage = said if now is None else said.at(now)
        if outage != Outage.of(kept[name].disabled if name in kept else None):
            yield DisableOrder(uuids[name], outage.reason, outage.until)


def _unnamed(ledger: Ledger, every: Sequence[Entry]) -> list[ProviderRemoval]:
    """Return what removes the trees that a file does not name, children before parents."""
    named = {names.provider_key(entry.name) for entry in every}
    return [
        ProviderRemoval(one.uuid or "", one.name, one.generation or 0)
        for root in trees(ledger.backend.read(allocations=False))
        if named.isdisjoint((root.name, root.uuid))
        for one in reversed(list(root.walk()))
    ]
