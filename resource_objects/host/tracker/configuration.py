"""Provider configuration files: what an operator adds to the providers of an agent's hosts.

::

    meta:
      schema_version: '1.0'
    providers:
      - identification:
          uuid: $COMPUTE_NODE
        inventories:
          additional:
            - CUSTOM_LICENSE: {total: 20, max_unit: 2}
        traits:
          additional: [CUSTOM_RACK_7]

The format is Nova's. An entry is about one provider of a host's tree, by its uuid or its name, or
with ``$COMPUTE_NODE`` about the root of each host of the agent that no other entry names. The
rules:

* ``schema_version`` is ``1.`` and any number: later minor versions add keys, and keys that are not
  known are passed over, but for those of an ``identification`` and of an inventory.
* Classes and traits are ``CUSTOM_`` ones. Of a class that an entry lists twice the last counts, as
  in Nova; a trait may be listed twice. A class of ``total: 0`` is not there.
* Figures are numbers as YAML reads them, such as ``4.0``.
* The files of a folder that end in ``.yaml`` are read in the order of their names. A uuid or name
  that two entries have is refused, wherever they stand; so is all of it, for one fault. An entry
  that adds nothing is passed over, and kept in ``ignored``.
* Two entries about one provider, by its uuid and by its name, only show at its tree: the first one
  counts, and the other is a finding.
* What the driver says counts. A class that it gives the provider itself is not taken from a file;
  that is a finding, and all else is done. A trait that it gives too is no conflict.
* A provider that is in no tree of the agent is a finding, once until it was there again.
* What no file says any more goes again: :meth:`ProviderConfiguration.following`.

Some files that Nova reads are refused here, naming the line:

* with an anchor, an alias, a tag, or a key that a mapping has twice (Nova uses the last);
* with figures for which Placement refuses the whole report of Nova: a negative or too large one,
  more reserved than the total, units below 1, a ratio of 0;
* with figures that are invalid here only: a ``max_unit`` above the total and below the capacity, a
  ``min_unit`` above the ``max_unit``, a ratio above 4000 or of more than six decimal places;
* with a provider name that has characters which cannot be printed, or spaces at its ends;
* with the class ``CUSTOM_`` or trait ``CUSTOM_``, or a class of a plug-in that is not counted;
* that are not UTF-8, have more than 2^28 characters, or more than 220 nested levels;
* with two entries whose uuids differ in upper and lower case only.

Sources: Nova's specification *provider-config-file*, ``nova/compute/provider_config.py`` and the
tracker's ``_merge_provider_configs``. There a conflict with the driver's classes is an error by
which the host is not reported at all, though the specification has it passed over; a trait stays
for ever; and on a provider that the driver leaves alone what the file itself added is taken for a
conflict the next time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import functools
import json
import math
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Self

import yaml

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.providers import Provider
from resource_objects.resources import IntegerInventory, Inventories
from resource_objects.resources.traits import known_traits
from resource_objects.yaml_nodes import Node, NodeReader, read_nodes

__all__ = ["COMPUTE_NODE", "ProviderConfiguration", "ProviderEntry"]

#: As a uuid: the root of each host that no other entry names.
COMPUTE_NODE = "$COMPUTE_NODE"
#: What this library writes, and the versions that it reads.
VERSION = "1.0"
_VERSION = re.compile(r"1\.(0|[1-9][0-9]*)")
_MOST = re.compile(r":max_unit=([0-9]{1,18})(?![^:])")
_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderEntry:
    """What is added to one provider. ``where`` says in which line of which file.

    >>> print(ProviderEntry("uuid", COMPUTE_NODE, "CUSTOM_LICENSE=20", traits=("CUSTOM_RACK_7",)))
    uuid $COMPUTE_NODE: CUSTOM_LICENSE=20, CUSTOM_RACK_7
    """

    by: str  #: ``uuid`` or ``name``
    value: str
    inventories: str = ""  #: as ``Inventories`` parses it
    traits: tuple[str, ...] = ()
    where: str = dataclasses.field(default="", compare=False)

    def __bool__(self) -> bool:
        return bool(self.inventories or self.traits)

    def __str__(self) -> str:
        return (
            f"{self.by} {self.value}: {', '.join(filter(None, (self.inventories, *self.traits)))}"
        )

    @property
    def classes(self) -> frozenset[str]:
        """The names of the classes that it adds."""
        return frozenset(name for name, _ in Inventories(self.inventories).by_name())

    def is_about(self, provider: Provider) -> bool:
        """Tell whether it names a provider."""
        return self.value == (provider.uuid if self.by == "uuid" else provider.name)


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderConfiguration:
    """What files add to providers. :meth:`load` reads a folder, :meth:`parse` a text.

    ``ignored`` says which entries add nothing. ``str()`` writes one file that says the same.

    >>> configuration = ProviderConfiguration.parse('''
    ... meta: {schema_version: '1.0'}
    ... providers:
    ... - identification: {name: box}
    ...   inventories: {additional: [CUSTOM_LICENSE: {total: 20}]}
    ... ''')
    >>> tree = Provider("box", "VCPU=8")
    >>> configuration.add(tree)
    ()
    >>> print(tree)
    box: VCPU=8,CUSTOM_LICENSE=20
    """

    entries: tuple[ProviderEntry, ...] = ()
    ignored: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    _before: tuple[tuple[ProviderEntry, ...], ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Return what the files of a folder say, those that end in ``.yaml``. None need be there.

        :raises InvalidInput: if the folder or a file cannot be read, or as :meth:`parse`
        """
        try:
            paths = sorted(pathlib.Path(folder).iterdir(), key=lambda path: path.name)
            texts = [
                (path.name, path.read_bytes())
                for path in paths
                if path.suffix == ".yaml" and not path.name.startswith(".")
            ]
        except OSError as error:
            what = f"provider configuration {error.filename or folder}"
            raise InvalidInput(
                "provider configuration", what, error.strerror, "what can be read"
            ) from error
        return cls._of(entry for file, text in texts for entry in _entries(text, file))

    @classmethod
    def parse(cls, text: str | bytes, *, file: str = "provider.yaml") -> Self:
        """Return what the text of a file says. Cost: linear in its length.

        :param file: what errors call it
        :raises InvalidInput: naming file and line, for what is no such file
        """
        return cls._of(_entries(text, file))

    @classmethod
    def _of(cls, every: Iterable[ProviderEntry]) -> Self:
        found: dict[tuple[str, str], ProviderEntry] = {}
        ignored = []
        for entry in every:
            key = entry.by, entry.value
            if not entry:
                ignored.append(f"{entry.where}: {entry.by} {entry.value} adds nothing")
            elif key in found:
                what = f"{entry.where}, {entry.by}"
                expected = f"each provider once: {found[key].where} has it"
                raise InvalidInput("provider configuration", what, entry.value, expected)
            else:
                found[key] = entry
        return cls(tuple(found.values()), tuple(ignored))

    def following(self, before: ProviderConfiguration) -> Self:
        """Return this configuration, by which also goes what an earlier one said and it does not.

        In a process that reads its files again, and after a restart if the agent keeps what it had:
        ``str(configuration)``, which :meth:`parse` reads.
        """
        kept = [one for one in (before.entries, *before._before) if one and one != self.entries]
        return dataclasses.replace(self, _before=tuple(dict.fromkeys(kept)))

    def settled(self) -> Self:
        """Return this configuration once nothing of an earlier one is left anywhere."""
        return dataclasses.replace(self, _before=()) if self._before else self

    def __bool__(self) -> bool:
        return bool(self.entries or self._before)

    def __str__(self) -> str:
        lines = ["meta:", f"  schema_version: '{VERSION}'", "providers:"]
        return "\n".join(lines + [line for entry in self.entries for line in _lines(entry)])

    # --- a tree ---

    def named_in(self, tree: Provider) -> frozenset[ProviderEntry]:
        """Return the entries that name a provider of a tree."""
        every = list(tree.walk())
        return frozenset(one for one in self.entries if any(map(one.is_about, every)))

    def take_away(self, tree: Provider) -> None:
        """Take out of a tree what was added to it, before its driver says what it has."""
        if not self:
            return
        for provider in tree.walk():
            said = [
                entry
                for entries in (self.entries, *self._before)
                for entry in _about(entries, provider, tree)
            ]
            traits = {trait for entry in said for trait in entry.traits}
            classes = {name for entry in said for name in entry.classes}
            own = dict(provider.inventories.by_name())
            if not traits.isdisjoint(provider.traits):
                provider.update(traits=provider.traits - traits)
            if not classes.isdisjoint(own):
                left = {name: one for name, one in own.items() if name not in classes}
                provider.update(inventories=Inventories(left))

    def add(self, tree: Provider) -> tuple[InvalidInput, ...]:
        """Add to a tree what this says of it; return what could not be, with its file and line.

        Cost: linear in providers and entries.
        """
        found: list[InvalidInput] = []
        for provider in tree.walk():
            said = _about(self.entries, provider, tree)
            for entry in said[1:]:
                what = f"{entry.where}, {entry.by}"
                expected = f"one entry about {provider.name}: {said[0].where} is about it too"
                found.append(InvalidInput("provider configuration", what, entry.value, expected))
            for entry in said[:1]:
                found += _added(provider, entry)
        return tuple(found)


def _about(
    entries: tuple[ProviderEntry, ...], provider: Provider, tree: Provider
) -> list[ProviderEntry]:
    """Return the entries about a provider; those of all hosts only if no other is about it."""
    said = [one for one in entries if one.is_about(provider)]
    if said or provider is not tree:
        return said
    return [one for one in entries if one.value == COMPUTE_NODE and one.by == "uuid"]


def _added(provider: Provider, entry: ProviderEntry) -> Iterator[InvalidInput]:
    own = dict(provider.inventories.by_name())
    new = dict(Inventories(entry.inventories).by_name())
    for name in sorted(own.keys() & new.keys()):
        what = f"{entry.where}, inventory of {provider.name}"
        yield InvalidInput(
            "provider configuration", what, name, "a class that the host's driver does not report"
        )
    added = {name: one for name, one in new.items() if name not in own}
    if added:
        provider.update(inventories=Inventories({**own, **added}))
    if not provider.traits.issuperset(entry.traits):
        provider.update(traits=provider.traits.union(entry.traits))


class AppliedConfiguration:
    """What was done of a configuration in the trees of an agent's hosts, and what is left."""

    def __init__(self, configuration: ProviderConfiguration) -> None:
        self.now = configuration
        self._named: dict[str, frozenset[ProviderEntry]] = {}  # by host
        self._told: set[ProviderEntry] = set()

    def change(self, configuration: ProviderConfiguration) -> None:
        """Take another configuration from now on; what this one alone says goes."""
        self.now = configuration.following(self.now)
        self._named.clear()
        self._told.clear()

    def done(self, host: str, tree: Provider) -> None:
        """Note that the tree of a host is kept as the configuration has it."""
        self._named[host] = self.now.named_in(tree) if self.now else frozenset()

    def left(self, hosts: Collection[str]) -> tuple[InvalidInput, ...]:
        """Return what names a provider that no host has, once as long as it is so.

        :param hosts: all of the agent; while something is wrong with one, nobody knows
        """
        self._named = {host: one for host, one in self._named.items() if host in hosts}
        if len(self._named) < len(hosts):
            return ()
        self.now = self.now.settled()
        there = frozenset[ProviderEntry]().union(*self._named.values())
        every = (one for one in self.now.entries if one.value != COMPUTE_NODE)
        away = [one for one in every if one not in there]
        found = [one for one in away if one not in self._told]
        self._told = set(away)
        expected = "a provider of a host of this agent"
        return tuple(
            InvalidInput("provider configuration", f"{one.where}, {one.by}", one.value, expected)
            for one in found
        )


# --- one file -------------------------------------------------------------------------------------


def _entries(text: str | bytes, file: str) -> Iterator[ProviderEntry]:
    """Yield the entries of a file, also those that add nothing."""
    return _Reader(file).read(read_nodes(text, file, "provider configuration"))


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._nodes = NodeReader(file, "provider configuration")

    def read(self, node: Node) -> Iterator[ProviderEntry]:
        said = self._keys(node, "meta and providers")
        if "__source_file" in said:
            raise self._nodes.fault(said["__source_file"], "key", "__source_file", "another")
        meta = self._needed(node, said, "meta")
        version = self._needed(meta, self._keys(meta, "schema_version"), "schema_version")
        if not _VERSION.fullmatch(self._nodes.text(version)):
            expected = "1.0, or a later minor version of 1"
            raise self._nodes.fault(version, "schema_version", version.value, expected)
        providers = said.get("providers")
        if providers is not None:
            for one in self._nodes.items(providers, "providers", "a list of providers"):
                yield self._entry(one)

    def _entry(self, node: Node) -> ProviderEntry:
        said = self._keys(node, "identification, inventories, traits")
        identification = self._needed(node, said, "identification")
        by, value = self._identified(identification)
        inventories = traits = None
        if "inventories" in said:
            inventories = self._keys(said["inventories"], "additional").get("additional")
        if "traits" in said:
            traits = self._keys(said["traits"], "additional").get("additional")
        return ProviderEntry(
            by,
            value,
            "" if inventories is None else self._inventories(inventories),
            () if traits is None else self._traits(traits),
            where=f"{self._file}, line {identification.line}",
        )

    def _identified(self, node: Node) -> tuple[str, str]:
        pairs = self._nodes.pairs(node, "uuid or name")
        if len(pairs) != 1 or pairs[0][0].value not in ("uuid", "name"):
            given = ", ".join(str(key.value) for key, _ in pairs)
            raise self._nodes.fault(node, "identification", given, "either uuid or name")
        key, value = pairs[0]
        text = self._nodes.text(value)
        if value.is_nothing:
            raise self._nodes.fault(value, str(key.value), value.value or None, "text")
        if key.value == "uuid" and text == COMPUTE_NODE:
            return "uuid", text
        check = names.uuid_text if key.value == "uuid" else names.provider_name
        return key.value, self._nodes.checked(key.value, value, lambda _: check(text))

    def _inventories(self, node: Node) -> str:
        found: dict[str, str] = {}
        for one in self._nodes.items(node, "additional", "a list of classes with their figures"):
            for key, value in self._nodes.pairs(one, "a class with its figures"):
                if value.kind != "map":
                    raise self._nodes.fault(value, "inventory", value.value, "a mapping of figures")
                text = f"{key.value}={self._nodes.figures(value, self._figure)}"
                read = functools.partial(_inventory, key.value, text)
                found[key.value] = self._nodes.checked("", key, read)
        return ",".join(found[name] for name in sorted(found) if found[name])

    def _figure(self, node: Node) -> str:
        """Return the number that YAML reads as text, ``4`` for ``4.0``; what is no number as is."""
        text = self._nodes.text(node)
        number: object = text
        if node.is_plain:
            with contextlib.suppress(yaml.YAMLError, ValueError):
                number = yaml.safe_load(text)  # type: ignore[no-untyped-call]
        if type(number) is float and math.isfinite(number):
            return f"{decimal.Decimal(repr(number)):f}".removesuffix(".0")
        return str(number) if type(number) is int else text

    def _traits(self, node: Node) -> tuple[str, ...]:
        words = functools.partial(self._nodes.words, node, "traits", "CUSTOM_RACK_7")
        return words(_custom_trait, is_once=False)

    def _keys(self, node: Node, expected: str) -> dict[str, Node]:
        return {key.value: value for key, value in self._nodes.pairs(node, expected)}

    def _needed(self, node: Node, said: dict[str, Node], key: str) -> Node:
        if key not in said:
            given = ", ".join(said) or "nothing"
            raise self._nodes.fault(node, "keys", given, f"{key} among them")
        return said[key]


def _inventory(name: str, text: str, _: Node) -> str:
    """Return an inventory of a class as text, if it is a custom one that is counted."""
    if not names.resource_class_name(name).startswith(names.CUSTOM_PREFIX):
        raise InvalidInput(
            "resource class", "resource class", name, "one of CUSTOM_: others are the driver's"
        )
    most = _MOST.search(text)
    made = Inventories(text if most is None else text.replace(most[0], ""))
    if not all(isinstance(one, IntegerInventory) for _, one in made.by_name()):
        raise InvalidInput("resource class", "resource class", name, "one that is counted")
    # Placement's max_unit may be anything (its default is 2^31-1); here it is at most the total,
    # and one that nobody can come to is none
    beyond = most is not None and all(
        int(most[1]) >= record.capacity for one in made.values() for record in one.to_records()
    )
    return str(made if most is None or beyond else Inventories(text))


def _custom_trait(name: str) -> None:
    if not name.startswith(names.CUSTOM_PREFIX):
        raise InvalidInput("trait", "trait", name, "one of CUSTOM_: others are the driver's")
    known_traits([name])


def _lines(entry: ProviderEntry) -> Iterator[str]:
    """Yield the lines that say an entry."""
    yield f"- identification: {{{entry.by}: {json.dumps(entry.value)}}}"
    if entry.inventories:
        yield "  inventories:"
        yield "    additional:"
        for name, one in Inventories(entry.inventories).by_name():
            said = ((key, getattr(one, key)) for key in _FIGURES)
            figures = ", ".join(f"{key}: {value}" for key, value in said if value is not None)
            yield f"    - {name}: {{{figures}}}"
    if entry.traits:
        yield f"  traits: {{additional: [{', '.join(entry.traits)}]}}"
