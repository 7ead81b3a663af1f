"""A site in a file: machines and what they have, as YAML that people write, and back.

::

    version: 1
    machines:
      lab-[0-5]:
        inventories: VCPU=64,MEMORY_MB=512000
        aggregates: [rack-1]
        children:
          /gpu[0-7]:
            inventories: PGPU=1
            traits: [CUSTOM_H100]
            split: halves
    pools:
      nfs:
        inventories: DISK_GB=100000
        aggregates: [rack-1]

A key is a name. ``[0-5]``, ``[00-12]`` and ``[0-3,7]`` stand for numbers: one entry for things that
are equal. A child whose name begins with ``/`` is called like what it is below, and then that:
``lab-0/gpu0``. A backslash takes what follows as it is: ``\\[``, ``\\/``. Each has:

================  ================================================================================
``inventories``   text as :class:`~resource_objects.resources.Inventories` parses it, or a mapping
                  of classes: ``VCPU: 64``, ``VCPU: 64:reserved=2``, ``VCPU: {total: 64}``
``traits``        a list
``aggregates``    a list
``split``         how a device is had in parts: a word of a device rule, such as ``halves``
                  (:mod:`resource_objects.host.rules`)
``shares``        a list: ``VCPU uses 1 VCPU of /``. ``/`` is the machine, ``/x`` what is called
                  like the machine and then that; without ``of`` it is the provider itself
``structured``    inventories with a structure: ``DEVICES: {classes: PGPU=1, body: ...}``, as an
                  export writes them
``children``      a mapping of what is below
================  ================================================================================

What the file says is made so; what it does not name is left alone: other machines, other children,
and of a machine each key that is missing. What a key says, it says as a whole: ``traits`` are all
traits, and ``inventories`` with ``split``, ``shares`` and ``structured`` all there is. ``prune``
removes what is not named.

The text is read from a stranger: values are text and numbers by the place they stand at and never
objects, so ``no`` and ``007`` are names; tags, anchors, a key that comes twice, and what is too
long or too deep are refused, naming the line. Source of the notation of ranges: the host lists of
Slurm and pdsh.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import yaml

from resource_objects import exceptions, names
from resource_objects.exceptions import InvalidSite
from resource_objects.host.rules import SPLITS, split_of
from resource_objects.providers import Provider
from resource_objects.providers.columns import inventories_of, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    diff,
    merge_changes,
    to_records,
)
from resource_objects.providers.plain import MAX_LENGTH
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import SHARES
from resource_objects.providers.provider import MAX_DEPTH, Share
from resource_objects.resources import Inventories, resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.resources.traits import known_traits

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["Site", "SitePart", "SiteResult", "apply_site", "export_site", "plan_site"]

#: Version of the file.
VERSION = 1
#: The most providers that a file may make: far more than any site has.
MAX_PROVIDERS = 1_000_000
#: So many machines are written in one transaction.
BATCH = 500

_T = TypeVar("_T")
#: ``progress(done, total)``, in machines.
Progress = Callable[[int, int], object]


@dataclasses.dataclass(frozen=True, slots=True)
class SitePart:
    """An entry of a file: one provider, or several that are equal; None is what it does not say.

    ``structured`` are ``(resource, classes, body)``. All values are the canonical text.
    """

    name: str
    inventories: str | None = None
    traits: tuple[str, ...] | None = None
    aggregates: tuple[str, ...] | None = None
    split: str | None = None
    shares: tuple[str, ...] | None = None
    structured: tuple[tuple[str, str, str], ...] = ()
    children: tuple[SitePart, ...] = ()
    line: int = dataclasses.field(default=0, compare=False)

    @property
    def says_inventories(self) -> bool:
        """Whether it says what the provider has."""
        return self.inventories is not None or bool(self.structured)


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """What a file says. :meth:`parse` reads one, ``str()`` writes it, :meth:`of` makes it of trees.

    ``file`` is what errors call it.

    >>> site = Site.parse("machines: {'lab-[0-1]': {inventories: VCPU=8}}")
    >>> site.machine_names
    ('lab-0', 'lab-1')
    >>> print(site)
    version: 1
    machines:
      lab-[0-1]:
        inventories: VCPU=8
    >>> Site.parse("machines:\\n  lab-0: {inventories: VCPU}", file="lab.yaml")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidSite: lab.yaml, line 2, inventories: got 'VCPU', expected ...
    """

    machines: tuple[SitePart, ...] = ()
    pools: tuple[SitePart, ...] = ()
    file: str = dataclasses.field(default="site", compare=False)

    @classmethod
    def parse(cls, text: str | bytes, *, file: str = "site") -> Self:
        """Return what the text of a file says. Cost: linear in its length.

        :param file: what errors call it
        :raises InvalidSite: naming the line, for what is no site, or says something twice
        """
        return cls(*_Reader(file).read(_tree(text, file)), file)

    @classmethod
    def of(cls, roots: Iterable[Provider]) -> Self:
        """Return the file that says these trees: equal neighbours as a range, in natural order.

        Cost: linear in the providers.
        """
        writer = _Writer()
        found: tuple[list[SitePart], list[SitePart]] = ([], [])
        for root in roots:
            found[SHARES in root.traits].append(writer.part(root, root, None))
        machines, pools = map(_joined, found)
        return cls(machines, pools)

    @property
    def machine_names(self) -> tuple[str, ...]:
        """The names of all machines and pools."""
        return tuple(name for part, _ in self._entries() for name in _expanded(part.name))

    def _entries(self) -> Iterator[tuple[SitePart, bool]]:
        """Yield the entries of roots, and whether each is one of pools."""
        yield from ((part, False) for part in self.machines)
        yield from ((part, True) for part in self.pools)

    def __str__(self) -> str:
        lines = [f"version: {VERSION}"]
        for word, parts in (("machines", self.machines), ("pools", self.pools)):
            if parts:
                lines.append(f"{word}:")
                lines += itertools.chain.from_iterable(_lines(part, "  ") for part in parts)
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, slots=True)
class SiteResult:
    """What applying a file did: providers, and how many machines and pools it looked at."""

    created: int = 0
    updated: int = 0
    removed: int = 0
    machines: int = 0

    def __bool__(self) -> bool:
        return bool(self.created or self.updated or self.removed)

    def __str__(self) -> str:
        if not self:
            return "nothing changed"
        done = (("created", self.created), ("updated", self.updated), ("removed", self.removed))
        return ", ".join(f"{count} {word}" for word, count in done if count)


# --- with a ledger --------------------------------------------------------------------------------


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
    every = _Entry.all_of(site)
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
    every = _Entry.all_of(site)
    changes = [diff(kept, wanted) for kept, wanted in _wanted(ledger, site, every, prune)]
    if prune:
        changes.append(DefinitionChanges("site", removals=tuple(_unnamed(ledger, every))))
    found = [one for one in changes if one]
    plan = Plan(merge_changes("site", found) if found else None)
    if plan:
        ledger.apply(plan, dry_run=True)
    return plan


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """A machine or a pool that a file names."""

    name: str
    part: SitePart
    is_pool: bool

    @classmethod
    def all_of(cls, site: Site) -> list[_Entry]:
        if not isinstance(site, Site):
            raise exceptions.InvalidInput("site", site, "a Site, as Site.parse() returns")
        return [
            cls(name, part, is_pool)
            for part, is_pool in site._entries()
            for name in _expanded(part.name)
        ]


def _size(batch: int | None, every: int) -> int:
    if batch is not None and (type(batch) is not int or batch < 1):
        raise exceptions.InvalidField("batch", batch, "a number of machines, or None")
    return batch or max(every, 1)


def _told(found: Sequence[_T], progress: Progress | None) -> Iterator[_T]:
    for number, one in enumerate(found):
        yield one
        if progress is not None and (number + 1) % BATCH == 0:
            progress(number + 1, len(found))


def _written(ledger: Ledger, site: Site, some: Sequence[_Entry], prune: bool) -> Any:
    """Write a batch, again if somebody changed a machine in between."""
    tries = ledger.retries.definitions
    while True:
        pairs = _wanted(ledger, site, some, prune)
        roots = [wanted for kept, wanted in pairs if kept is None or diff(kept, wanted)]
        try:
            return ledger.sync(*roots)
        except exceptions.StaleDefinition:
            if tries <= 0:
                raise
            tries -= 1


def _wanted(
    ledger: Ledger, site: Site, some: Sequence[_Entry], prune: bool
) -> list[tuple[Provider | None, Provider]]:
    """Return the trees of some machines as they are kept and as the file wants them."""
    keys = [names.provider_key(entry.name) for entry in some]
    read = trees(ledger.backend.read(*keys, allocations=False)) if keys else []
    kept = {key: root for root in read for key in (root.name, root.uuid)}
    found: list[tuple[Provider | None, Provider]] = []
    builder = _Builder()
    for entry, key in zip(some, keys, strict=True):
        try:
            before = kept.get(key)
            wanted = builder.tree(entry, before, prune)
            if wanted.shares or any(one.shares for one in wanted.walk()):
                wanted.check_shares()
        except exceptions.InvalidInput as error:
            raise _fault(site.file, entry.part.line, error, entry.name) from error
        found.append((before, wanted))
    return found


def _unnamed(ledger: Ledger, every: Sequence[_Entry]) -> list[ProviderRemoval]:
    """Return what removes the trees that a file does not name, children before parents."""
    named = {names.provider_key(entry.name) for entry in every}
    return [
        ProviderRemoval(one.uuid or "", one.name, one.generation or 0)
        for root in trees(ledger.backend.read(allocations=False))
        if named.isdisjoint((root.name, root.uuid))
        for one in reversed(list(root.walk()))
    ]


class _Builder:
    """Makes providers of entries; what is equal is read once."""

    def __init__(self) -> None:
        self._had: dict[SitePart, tuple[Inventories, tuple[Share, ...]]] = {}

    def tree(self, entry: _Entry, kept: Provider | None, prune: bool) -> Provider:
        """Return the tree of a machine, as an entry says it beside what is kept."""
        known = {} if kept is None else {one.name: one for one in kept.walk()}
        said = {entry.name, *_names_below(entry.part, entry.name)}
        return _Tree(self, entry, known, said, prune).provider(entry.part, entry.name)

    def inventories(self, part: SitePart) -> tuple[Inventories, tuple[Share, ...]]:
        """Return what an entry has, and the shares that its split makes, of ``itself``."""
        bare = dataclasses.replace(part, name=_SELF, children=()) if part.children else part
        if bare not in self._had:
            self._had[bare] = _inventories(bare)
        return self._had[bare]


@dataclasses.dataclass(frozen=True, slots=True)
class _Tree:
    """One machine, being made."""

    builder: _Builder
    entry: _Entry
    known: Mapping[str, Provider]
    said: Collection[str]
    prune: bool

    def provider(self, part: SitePart, name: str) -> Provider:
        kept = self.known.get(name)
        base = None if self.prune else kept
        inventories, shares = self._had(part, name, base)
        traits = frozenset(part.traits or ())
        if part.traits is None and base is not None:
            traits = base.traits
        if name == self.entry.name and self.entry.is_pool:
            traits |= {SHARES}
        aggregates: Iterable[str] | None = part.aggregates
        if aggregates is None and self.prune:
            aggregates = ()
        children = [
            self.provider(child, below)
            for child in part.children
            for below in _expanded(child.name, name)
        ]
        if base is not None:
            children += [
                _left(one, self.said) for one in base.children if one.name not in self.said
            ]
        return Provider(
            name,
            inventories,
            traits=traits,
            uuid=kept.uuid if kept is not None else name if names.is_uuid(name) else None,
            generation=None if kept is None else kept.generation,
            children=children,
            aggregates=aggregates,
            shares=shares,
        )

    def _had(
        self, part: SitePart, name: str, base: Provider | None
    ) -> tuple[Inventories | None, tuple[Share, ...]]:
        if not part.says_inventories:
            said = tuple(self._share(text, name) for text in part.shares or ())
            if base is None:
                return None, said
            return base.inventories, base.shares if part.shares is None else said
        inventories, made = self.builder.inventories(part)
        shares = [share.replace(of=name) for share in made]
        shares += [self._share(text, name) for text in part.shares or ()]
        return inventories, tuple(shares)

    def _share(self, text: str, name: str) -> Share:
        resource_class, factor, of_class, of = _read_share(text)
        if of is None:
            where = name
        elif of == "/":
            where = self.entry.name
        else:
            (where,) = _expanded(of, self.entry.name)
        return Share(resource_class=resource_class, of=where, of_class=of_class, factor=factor)


def _left(kept: Provider, said: Collection[str]) -> Provider:
    """Return what is left alone of a kept child: all of it but what is named elsewhere."""
    if not any(one.name in said for one in kept.walk()):
        return kept
    return Provider(
        kept.name,
        kept.inventories,
        traits=kept.traits,
        uuid=kept.uuid,
        generation=kept.generation,
        children=[_left(one, said) for one in kept.children if one.name not in said],
        aggregates=kept.aggregates,
        shares=kept.shares,
    )


def _names_below(part: SitePart, name: str) -> Iterator[str]:
    for child in part.children:
        for below in _expanded(child.name, name):
            yield below
            yield from _names_below(child, below)


# --- what an entry has ----------------------------------------------------------------------------

#: What the provider of an entry is called while it has no name.
_SELF = "itself"
_SHARE = re.compile(r"([A-Z0-9_]+) uses ([0-9]{1,10}) ([A-Z0-9_]+)(?: of (.+))?", re.DOTALL)


def _inventories(part: SitePart) -> tuple[Inventories, tuple[Share, ...]]:
    """Return what an entry has, and the shares that its split makes."""
    found = Inventories(part.inventories or {})
    if part.structured:
        found = _with_structured(found, part.structured)
    if part.split is None:
        return found, ()
    device = Provider(_SELF, found)
    split_of(part.split, whole := _whole_of(found)).apply(device, whole)
    return device.inventories, device.shares


def _with_structured(
    counted: Inventories, structured: Iterable[tuple[str, str, str]]
) -> Inventories:
    records = list(to_records(counted)[0])
    kinds: list[KindRecord] = []
    for name, classes, body in structured:
        figures = to_records(Inventories(classes))[0]
        known = resource(name)
        kinds.append(KindRecord(known.name, tuple(one.resource_class for one in figures), body))
        records += figures
    made = inventories_of(records, kinds)
    if sorted(map(_key, to_records(made)[0])) != sorted(map(_key, records)):
        raise exceptions.InvalidInventory(
            "structured", [classes for _, classes, _ in structured], "the figures that its body has"
        )
    return made


def _key(record: InventoryRecord) -> str:
    return repr(record)


def _whole_of(inventories: Inventories) -> str:
    """Return the class of a device that is split: the only one, or the only one of devices.

    :raises InvalidInventory: if there is none, or several
    """
    classes = [record.resource_class for record in to_records(inventories)[0]]
    for found in (classes, [name for name in classes if is_device(name)]):
        if len(found) == 1:
            return found[0]
    raise exceptions.InvalidInventory("split", classes, "one class of devices, such as PGPU=1")


def _read_share(text: str) -> tuple[str, int, str, str | None]:
    match = _SHARE.fullmatch(text)
    if match is None:
        raise exceptions.InvalidText("share", text, "such as VCPU uses 1 VCPU of /")
    return match[1], int(match[2]), match[3], match[4]


# --- names ----------------------------------------------------------------------------------------

_RANGE = re.compile(r"\[([0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)\]")
_SPECIAL = re.compile(r"[\[\\]")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)
_HOW = r"a range such as [0-5], or \[ where a bracket is meant"


def _expanded(pattern: str, parent: str | None = None) -> Iterator[str]:
    """Yield the names that a key stands for.

    :param parent: the name of the provider that it is below

    >>> list(_expanded("/gpu[08-10]", "lab-0")), list(_expanded(r"a\\[0]"))
    (['lab-0/gpu08', 'lab-0/gpu09', 'lab-0/gpu10'], ['a[0]'])
    """
    if "[" not in pattern and "\\" not in pattern:
        yield pattern if parent is None or pattern[:1] != "/" else parent + pattern
        return
    front = "" if parent is None or pattern[:1] != "/" else parent
    for parts in itertools.product(*_pieces(pattern)):
        yield front + "".join(parts)


def _count(pattern: str) -> int:
    """Return how many names a key stands for, without making them."""
    found = 1
    for piece in _pieces(pattern):
        found *= sum(map(len, piece.runs)) if isinstance(piece, _Numbers) else 1
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers of a range, as text."""

    runs: tuple[range, ...]
    widths: tuple[int, ...]

    def __iter__(self) -> Iterator[str]:
        for run, width in zip(self.runs, self.widths, strict=True):
            for number in run:
                yield str(number).zfill(width)


def _pieces(pattern: str) -> list[Iterable[str]]:
    found: list[Iterable[str]] = []
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\" and place + 1 < len(pattern):
            found.append((pattern[place + 1],))
            place += 2
        elif letter == "\\":
            raise exceptions.InvalidText("name", pattern, r"\\ where a backslash is meant")
        elif letter == "[":
            match = _RANGE.match(pattern, place)
            if match is None:
                raise exceptions.InvalidText("name", pattern, _HOW)
            found.append(_numbers(pattern, match[1]))
            place = match.end()
        else:
            special = _SPECIAL.search(pattern, place)
            end = len(pattern) if special is None else special.start()
            found.append((pattern[place:end],))
            place = end
    return found


def _numbers(pattern: str, text: str) -> _Numbers:
    runs: list[range] = []
    widths: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        run = range(int(first), int(last or first) + 1)
        if not run:
            raise exceptions.InvalidText("name", pattern, "a range that ends after it begins")
        runs.append(run)
        widths.append(len(first) if first[0] == "0" else 0)
    return _Numbers(tuple(runs), tuple(widths))


def _literal(name: str) -> str:
    return name.replace("\\", "\\\\").replace("[", "\\[")


def _below(name: str, parent: str | None) -> str:
    """Return the key of a provider below another."""
    if parent is None:
        return _literal(name)
    if name.startswith(f"{parent}/"):
        return _literal(name[len(parent) :])
    return f"\\{name}" if name[:1] == "/" else _literal(name)


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key by which lab-2 is before lab-10."""
    parts = re.split("([0-9]+)", name)
    return [(int(part), "") if n % 2 else (-1, part) for n, part in enumerate(parts)], name


def _joined(parts: Iterable[SitePart]) -> tuple[SitePart, ...]:
    """Return entries in natural order, those that are equal but for a last number as one."""
    ordered = sorted(parts, key=lambda part: _natural(part.name))
    found: list[SitePart] = []
    runs: dict[SitePart, tuple[int, str, str]] = {}  # body: (place, first number, last number)
    for part in ordered:
        match = _NUMBERED.fullmatch(part.name)
        if match is None:
            found.append(part)
            continue
        body = dataclasses.replace(part, name=match[1])
        place, first, last = runs.get(body, (-1, "", ""))
        width = len(first) if first[:1] == "0" else 0
        if place >= 0 and match[2] == str(int(last) + 1).zfill(width):
            runs[body] = place, first, match[2]
            found[place] = dataclasses.replace(part, name=f"{match[1]}[{first}-{match[2]}]")
        else:
            runs[body] = len(found), match[2], match[2]
            found.append(part)
    return tuple(found)


# --- written --------------------------------------------------------------------------------------


class _Writer:
    """Makes entries of providers; what is equal is worked out once."""

    def __init__(self) -> None:
        self._texts: dict[InventoryRecord, str] = {}
        self._bodies: dict[Any, tuple[Any, ...]] = {}

    def part(self, provider: Provider, root: Provider, parent: str | None) -> SitePart:
        """Return the entry of a provider."""
        records, kinds = to_records(provider.inventories)
        shares = tuple(sorted(_share_text(share, provider, root) for share in provider.shares))
        key = (records, kinds, shares)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = self._body(records, kinds, shares)
        inventories, split, shares, structured = body
        below = provider.children
        traits = provider.traits - {SHARES} if provider is root else provider.traits
        return SitePart(
            _below(provider.name, parent),
            inventories,
            tuple(sorted(traits)) or None,
            tuple(sorted(provider.aggregates or ())) or None,
            split,
            shares,
            structured,
            _joined(self.part(one, root, provider.name) for one in below) if below else (),
        )

    def _body(
        self,
        records: Sequence[InventoryRecord],
        kinds: Sequence[KindRecord],
        shares: tuple[str, ...],
    ) -> tuple[Any, ...]:
        if shares:
            split = self._split(records, kinds, shares)
            if split is not None:
                return split
        within = {name for kind in kinds for name in kind.classes}
        own = [record for record in records if record.resource_class not in within]
        by_class = {record.resource_class: record for record in records}
        structured = tuple(
            (kind.resource_class, self._text([by_class[one] for one in kind.classes]), kind.body)
            for kind in kinds
        )
        return self._text(own) or None, None, shares or None, structured

    def _split(
        self,
        records: Sequence[InventoryRecord],
        kinds: Sequence[KindRecord],
        shares: tuple[str, ...],
    ) -> tuple[Any, ...] | None:
        """Return the body with the word that says how a device is split, if there is one."""
        uses: dict[str, dict[str, int]] = {}
        for text in shares:
            name, factor, of_class, of = _read_share(text)
            if of is not None:
                return None
            uses.setdefault(name, {})[of_class] = factor
        for whole, slices in uses.items():
            made = {*slices, *uses} - {whole}
            if made.intersection(name for kind in kinds for name in kind.classes):
                continue  # functions of one card
            base = [record for record in records if record.resource_class not in made]
            inventories, _, _, structured = self._body(base, kinds, ())
            for word in _words(whole, slices, uses):
                part = SitePart(_SELF, inventories, split=word, structured=structured)
                try:
                    found, of_split = _inventories(part)
                except exceptions.InvalidInput:
                    continue
                itself = Provider(_SELF)
                again = sorted(_share_text(share, itself, itself) for share in of_split)
                if again == list(shares) and to_records(found) == (records, kinds):
                    return inventories, word, None, structured
        return None

    def _text(self, records: Iterable[InventoryRecord]) -> str:
        return ",".join(map(self._figure, records))

    def _figure(self, record: InventoryRecord) -> str:
        found = self._texts.get(record)
        if found is None:
            kind = resource(record.resource_class)
            figures = kind.format_inventory(kind.inventory_from_records([record]))
            found = self._texts[record] = f"{record.resource_class}={figures}"
        return found


def _words(
    whole: str, slices: Mapping[str, int], uses: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield the words that may say how a device is split."""
    yield from ("halves", "thousandths")
    order = sorted(slices)
    of_parts = [(name, uses[name]) for name in sorted(uses) if name != whole]
    parts = [f"/{name}*{'+'.join(str(used.get(s, 0)) for s in order)}" for name, used in of_parts]
    yield f"partitions={'+'.join(f'{s}*{slices[s]}' for s in order)}{''.join(parts)}"


def _share_text(share: Share, provider: Provider, root: Provider) -> str:
    said = f"{share.resource_class} uses {share.factor} {share.of_class}"
    if share.of == provider.name:
        return said
    return f"{said} of {'/' if share.of == root.name else _below(share.of, root.name)}"


_PLAIN = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_/.=,:+*@\[\]\\-]*(?<!:)")
_IN_LIST = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_/.=+*@-]*")


def _lines(part: SitePart, indent: str) -> Iterator[str]:
    """Yield the lines of an entry."""
    inner = f"{indent}  "
    said = list(_values(part))
    if not said and not part.structured and not part.children:
        yield f"{indent}{_scalar(part.name)}: {{}}"
        return
    yield f"{indent}{_scalar(part.name)}:"
    yield from (f"{inner}{line}" for line in said)
    if part.structured:
        yield f"{inner}structured:"
        for name, classes, body in part.structured:
            yield f"{inner}  {name}:"
            yield f"{inner}    classes: {_scalar(classes)}"
            yield f"{inner}    body: {_ascii(body)}"
    if part.children:
        yield f"{inner}children:"
        for child in part.children:
            yield from _lines(child, f"{inner}  ")


def _values(part: SitePart) -> Iterator[str]:
    if part.inventories is not None:
        yield f"inventories: {_scalar(part.inventories)}"
    if part.split is not None:
        yield f"split: {_scalar(part.split)}"
    for word in ("traits", "aggregates", "shares"):
        given = getattr(part, word)
        if given is not None:
            yield f"{word}: [{', '.join(_scalar(one, _IN_LIST) for one in given)}]"


def _scalar(text: str, plain: re.Pattern[str] = _PLAIN) -> str:
    """Return text as a YAML scalar: plain where it can be, else in double quotes."""
    if plain.fullmatch(text):
        return text
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _ascii(body: str) -> str:
    """Return JSON as YAML of one line, in which nothing needs two escapes."""
    return _flow(json.loads(body)) if body else '""'


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return '"' + "".join(map(_quoted, value)) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(one)}' for key, one in value.items())}}}"
    return json.dumps(value)


# --- read -----------------------------------------------------------------------------------------


class _Node:
    """A value of the file and its line: text, a list, or a list of pairs."""

    __slots__ = ("is_plain", "kind", "line", "value")

    def __init__(self, kind: str, value: Any, line: int, is_plain: bool = False) -> None:
        self.kind = kind
        self.value = value
        self.line = line
        self.is_plain = is_plain

    @property
    def is_nothing(self) -> bool:
        """Whether nothing stands there."""
        return self.kind == "text" and self.is_plain and self.value in ("", "~", "null")


#: What may stand in YAML (5.1 of its specification).
_CHARACTER = re.compile(
    "[\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]"
)
#: Values within values: each level of a tree takes two.
_MAX_NESTED = 2 * MAX_DEPTH + 20


def _tree(text: str | bytes, file: str) -> _Node:
    """Return the values of YAML text, with their lines, by the events of its parser.

    Values are not resolved and aliases not followed, so no text makes more than it has.
    """
    if isinstance(text, bytes):
        text = _decoded(text, file)
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise InvalidSite(file, text, f"text of at most {MAX_LENGTH} characters")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    top = _Node("list", [], 1)
    try:
        _fill(top, yaml.parse(text, Loader=loader), file)  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = text.rstrip().count("\n") + 1  # libyaml names the line after the end, too
        where = file if mark is None else f"{file}, line {min(mark.line + 1, last)}"
        raise InvalidSite(where, error.problem or "no YAML", "YAML") from None
    except (yaml.reader.ReaderError, UnicodeEncodeError):
        places = (n for n, letter in enumerate(text) if not _CHARACTER.fullmatch(letter))
        place = next(places, 0)
        line = text.count("\n", 0, place) + 1
        letter = text[place : place + 1]
        raise InvalidSite(f"{file}, line {line}", letter, "a character of YAML") from None
    if len(top.value) > 1:
        raise InvalidSite(f"{file}, line {top.value[1].line}", "---", "one document")
    return top.value[0] if top.value else _Node("text", "", 1, True)


def _decoded(text: bytes, file: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        byte = text[error.start : error.end]
        raise InvalidSite(f"{file}, line {line}", byte, "UTF-8") from None


def _fill(top: _Node, events: Iterable[Any], file: str) -> None:
    open_nodes = [top]
    for event in events:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            node = _Node("text", event.value, event.start_mark.line + 1, event.implicit[0])
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            word = "map" if kind is yaml.MappingStartEvent else "list"
            node = _Node(word, [], event.start_mark.line + 1)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            open_nodes.pop()
            continue
        elif kind is yaml.AliasEvent:
            where = f"{file}, line {event.start_mark.line + 1}"
            raise InvalidSite(where, f"*{event.anchor}", "no alias: a range says what is equal")
        else:
            continue
        where = f"{file}, line {node.line}"
        if event.anchor is not None:
            raise InvalidSite(where, f"&{event.anchor}", "no anchor: a range says what is equal")
        if event.tag is not None:
            raise InvalidSite(where, event.tag, "no tag: values are text, lists and mappings")
        open_nodes[-1].value.append(node)
        if node.kind != "text":
            open_nodes.append(node)
            if len(open_nodes) > _MAX_NESTED:
                raise InvalidSite(where, len(open_nodes), f"at most {_MAX_NESTED} levels")


_PART_KEYS = (
    "inventories",
    "traits",
    "aggregates",
    "split",
    "shares",
    "structured",
    "children",
)
_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class _Reader:
    """Reads entries, every fault with its line."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._builder = _Builder()
        self._lines: dict[str, int] = {}

    def read(self, node: _Node) -> tuple[tuple[SitePart, ...], tuple[SitePart, ...]]:
        found: dict[str, tuple[SitePart, ...]] = {}
        for key, value in self._pairs(node, "a site: machines, pools"):
            if key.value == "version":
                if value.value != str(VERSION):
                    raise self._fault(value, "version", value.value, str(VERSION))
            elif key.value in ("machines", "pools"):
                found[key.value] = self._parts(value, key.value)
            else:
                raise self._fault(key, "key", key.value, "one of version, machines, pools")
        for parts in found.values():
            for part in parts:
                for name in _expanded(part.name):
                    self._once(name, part)
        return found.get("machines", ()), found.get("pools", ())

    def _once(self, name: str, part: SitePart) -> None:
        """Raise if a name is not one, or comes twice, in the tree of an entry."""
        try:
            names.provider_name(name)
        except exceptions.InvalidInput as error:
            raise _fault(self._file, part.line, error) from error
        if name in self._lines:
            first = self._lines[name]
            expected = f"each provider once: line {first} has it"
            raise InvalidSite(f"{self._file}, line {part.line}, name", name, expected)
        self._lines[name] = part.line
        for child in part.children:
            for below in _expanded(child.name, name):
                self._once(below, child)

    def _parts(self, node: _Node, what: str, times: int = 1) -> tuple[SitePart, ...]:
        return tuple(
            self._part(key, value, times)
            for key, value in self._pairs(node, f"{what}: names with what they have")
        )

    def _part(self, key: _Node, node: _Node, times: int) -> SitePart:
        try:
            times *= _count(key.value)
        except exceptions.InvalidInput as error:
            raise _fault(self._file, key.line, error) from error
        if times > MAX_PROVIDERS:
            raise self._fault(key, "name", key.value, f"at most {MAX_PROVIDERS} providers")
        said: dict[str, Any] = {}
        for word, value in self._pairs(node, "what the provider has"):
            if word.value == "disabled":
                raise self._fault(word, "key", word.value, "none: the command disable says it")
            if word.value not in _PART_KEYS:
                raise self._fault(word, "key", word.value, f"one of {', '.join(_PART_KEYS)}")
            if word.value == "children":
                said["children"] = self._parts(value, "children", times)
            else:
                read = getattr(self, f"_{word.value}")
                said[word.value] = self._checked(word.value, value, read)
        part = SitePart(key.value, line=key.line, **said)
        if part.split is not None and not part.says_inventories:
            raise self._fault(key, "split", part.split, "inventories beside it")
        self._checked("", key, lambda _: self._builder.inventories(part))
        return part

    def _checked(self, word: str, node: _Node, read: Callable[[_Node], _T]) -> _T:
        try:
            return read(node)
        except InvalidSite:
            raise
        except exceptions.InvalidInput as error:
            raise _fault(self._file, node.line, error, word) from error

    # --- one value ---

    def _inventories(self, node: _Node) -> str:
        if node.kind == "text" and not node.is_nothing:
            text: str = node.value
        else:
            text = ",".join(
                f"{key.value}={self._figures(value)}"
                for key, value in self._pairs(node, "inventories: text, or classes with figures")
            )
        return str(Inventories(text)) if text else ""

    def _figures(self, node: _Node) -> str:
        if node.kind == "text" and not node.is_nothing:
            return str(node.value)
        said = {}
        for key, value in self._pairs(node, "figures of an inventory"):
            if key.value not in _FIGURES:
                raise self._fault(key, "figure", key.value, f"one of {', '.join(_FIGURES)}")
            said[key.value] = "none" if value.is_nothing else self._text(value)
        if "total" not in said:
            raise self._fault(node, "inventory", said, "a total")
        return ":".join([said.pop("total"), *(f"{key}={text}" for key, text in said.items())])

    def _traits(self, node: _Node) -> tuple[str, ...]:
        return self._words(node, "traits", lambda name: known_traits([name]))

    def _aggregates(self, node: _Node) -> tuple[str, ...]:
        return self._words(node, "aggregates", names.aggregate_name)

    def _shares(self, node: _Node) -> tuple[str, ...]:
        return self._words(node, "shares", _checked_share)

    def _split(self, node: _Node) -> str:
        text = self._text(node)
        if text.partition("=")[0] not in SPLITS:
            raise self._fault(node, "split", text, f"one of {', '.join(SPLITS)}")
        return text

    def _structured(self, node: _Node) -> tuple[tuple[str, str, str], ...]:
        found = []
        for key, value in self._pairs(node, "structured: resources with classes and body"):
            said = {word.value: one for word, one in self._pairs(value, "classes and body")}
            if set(said) != {"classes", "body"}:
                raise self._fault(key, key.value, sorted(said), "classes and body")
            body = said["body"]
            is_empty = body.kind == "text" and not body.value
            text = "" if is_empty else json.dumps(self._data(body))
            found.append((key.value, self._text(said["classes"]), text))
        return tuple(found)

    def _data(self, node: _Node) -> Any:
        """Return plain data as JSON has it."""
        if node.kind == "list":
            return [self._data(one) for one in node.value]
        if node.kind == "map":
            return {k.value: self._data(one) for k, one in self._pairs(node, "a mapping")}
        if not node.is_plain:
            return node.value
        words = {"true": True, "false": False, "null": None, "": None, "~": None}
        if node.value in words:
            return words[node.value]
        return json.loads(node.value) if _NUMBER.fullmatch(node.value) else node.value

    # --- forms ---

    def _words(self, node: _Node, what: str, check: Callable[[str], object]) -> tuple[str, ...]:
        if node.is_nothing:
            return ()
        if node.kind != "list":
            raise self._fault(node, what, node.value, f"a list, such as [{_SUCH[what]}]")
        found: list[str] = []
        for one in node.value:
            text = self._text(one)
            self._checked(what, one, lambda _, text=text: check(text))  # type: ignore[misc]
            if text in found:
                raise self._fault(one, what, text, "each once")
            found.append(text)
        return tuple(sorted(found))

    def _text(self, node: _Node) -> str:
        if node.kind != "text":
            raise self._fault(node, "value", f"a {_KINDS[node.kind]}", "text")
        return str(node.value)

    def _pairs(self, node: _Node, expected: str) -> list[tuple[_Node, _Node]]:
        """Return the keys and values of a mapping, each key once."""
        if node.is_nothing:
            return []
        if node.kind != "map":
            found = node.value if node.kind == "text" else f"a {_KINDS[node.kind]}"
            raise self._fault(node, "value", found, f"a mapping, {expected}")
        pairs = list(zip(node.value[::2], node.value[1::2], strict=True))
        seen: dict[str, int] = {}
        for key, _ in pairs:
            if self._text(key) in seen:
                first = seen[key.value]
                raise self._fault(key, "key", key.value, f"each once: line {first} has it")
            seen[key.value] = key.line
        return pairs

    def _fault(self, node: _Node, what: str, value: object, expected: str) -> InvalidSite:
        return InvalidSite(f"{self._file}, line {node.line}, {what}", value, expected)


_KINDS = {"text": "text", "list": "list", "map": "mapping"}
_SUCH = {"traits": "CUSTOM_H100", "aggregates": "rack-1", "shares": "VCPU uses 1 VCPU of /"}


def _checked_share(text: str) -> None:
    of = _read_share(text)[3]
    if of is not None and _count(of) != 1:
        raise exceptions.InvalidText("share", text, "of one provider")


def _fault(file: str, line: int, error: exceptions.InvalidInput, where: str = "") -> InvalidSite:
    said = f"{file}, line {line}{', ' if where else ''}{where}"
    if where != error.what:
        said += f", {error.what}"
    return InvalidSite(said, error.value, error.expected)
