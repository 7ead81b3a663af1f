"""Provider configuration files: inventories and traits that an operator adds to providers.

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

The format is Nova's, with ``schema_version`` 1 and any minor number. An entry concerns one provider
of a host's tree, by its uuid or its name, or with ``$COMPUTE_NODE`` the root of each host of the
agent that no other entry names. :doc:`/howto/provider_configuration` has all rules, and the files
of Nova that are refused here. In short:

* One fault refuses all files, with the file and the line. Unknown keys are ignored, for later minor
  versions, except in an ``identification`` and in an inventory.
* The report of the driver takes precedence. If the driver reports a class of an entry for the same
  provider, that is a finding, and the rest of the entry is added. A trait may be reported too.
* If one entry names a provider by uuid and another one by name, the first one counts, and the other
  one is a finding. So is a provider that is in no tree of the agent.
* What a previous configuration added is removed: :meth:`ProviderConfiguration.replacing`.

Sources: Nova's specification *provider-config-file*, ``nova/compute/provider_config.py`` and the
tracker's ``_merge_provider_configs``. There, a class that the driver reports too is an error, and
the host is not reported at all, although the specification ignores such a class. A trait stays for
ever. On a provider that the driver does not report, the file's own class of the previous report
is taken for a conflict.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from typing import Any, Self

import yaml

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.host.settings import HostSettings
from resource_objects.providers import Provider
from resource_objects.resources import IntegerInventory, Inventories
from resource_objects.resources.numa import NUMA_TOPOLOGY, NUMATopologyInventory
from resource_objects.resources.traits import checked_traits
from resource_objects.yaml_nodes import Node, NodeReader, is_empty, is_plain, read_nodes

__all__ = ["COMPUTE_NODE", "ProviderConfiguration", "ProviderEntry"]

#: As a uuid: the root of each host that no other entry names.
COMPUTE_NODE = "$COMPUTE_NODE"
#: The kind of errors.
_KIND = "provider configuration"
#: The version that is written, and those that are read.
VERSION = "1.0"
_VERSION = re.compile(r"1\.(0|[1-9][0-9]*)")
_MAX_UNIT = re.compile(r":max_unit=([0-9]{1,18})(?![^:])")
_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderEntry:
    """The inventories and traits added to one provider, with file and line in ``location``.

    >>> print(ProviderEntry("uuid", COMPUTE_NODE, "CUSTOM_LICENSE=20", traits=("CUSTOM_RACK_7",)))
    uuid $COMPUTE_NODE: CUSTOM_LICENSE=20, CUSTOM_RACK_7
    """

    key: str  #: ``uuid`` or ``name``
    value: str
    inventories: str = ""  #: as ``Inventories`` parses them
    traits: tuple[str, ...] = ()
    location: str = dataclasses.field(default="", compare=False)

    def __bool__(self) -> bool:
        return bool(self.inventories or self.traits)

    def __str__(self) -> str:
        added = ", ".join(filter(None, (self.inventories, *self.traits)))
        return f"{self.key} {self.value}: {added}"

    def names(self, provider: Provider) -> bool:
        """Return True if the entry names a provider."""
        return self.value == (provider.uuid if self.key == "uuid" else provider.name)

    def refusal(self, field: str, value: object, expected: str) -> InvalidInput:
        """Return the error about the entry, with its file and line."""
        return InvalidInput(_KIND, f"{self.location}, {field}", value, expected)


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderConfiguration:
    """The entries of provider configuration files, in their order.

    :meth:`load` reads a folder, :meth:`parse` a text; ``str()`` returns one file with all entries.
    ``ignored`` describes the entries that add nothing.

    >>> configuration = ProviderConfiguration.parse('''
    ... meta: {schema_version: '1.0'}
    ... providers:
    ... - identification: {name: box}
    ...   inventories: {additional: [CUSTOM_LICENSE: {total: 20}]}
    ... ''')
    >>> tree = Provider("box", "VCPU=8")
    >>> configuration.add_to(tree)
    ()
    >>> print(tree)
    box: VCPU=8,CUSTOM_LICENSE=20
    """

    entries: tuple[ProviderEntry, ...] = ()
    ignored: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    _replaced: tuple[tuple[ProviderEntry, ...], ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the configuration of the files of a folder that end in ``.yaml``.

        :raises InvalidInput: if the folder or a file cannot be read, or as :meth:`parse`
        """
        try:
            paths = sorted(pathlib.Path(folder).iterdir(), key=lambda path: path.name)
            texts = [
                (path.read_bytes(), path.name)
                for path in paths
                if path.suffix == ".yaml" and not path.name.startswith(".")
            ]
        except OSError as error:
            subject = f"{_KIND} {error.filename or folder}"
            raise InvalidInput(
                _KIND, subject, error.strerror, "a readable folder or file"
            ) from error
        return cls._of(
            entry for text, file in texts for entry in _Reader(file, _KIND).entries(text)
        )

    @classmethod
    def parse(cls, text: str | bytes, *, file: str = "provider.yaml") -> Self:
        """Return the configuration of the text of a file. Cost: linear in its length.

        :param file: the name of the file in errors
        :raises InvalidInput: for an invalid file, with file and line
        """
        return cls._of(_Reader(file, _KIND).entries(text))

    @classmethod
    def _of(cls, entries: Iterable[ProviderEntry]) -> Self:
        by_key: dict[tuple[str, str], ProviderEntry] = {}
        ignored = []
        for entry in entries:
            if not entry:
                ignored.append(f"{entry.location}: {entry.key} {entry.value} adds nothing")
                continue
            first = by_key.setdefault((entry.key, entry.value), entry)
            if first is not entry:
                expected = f"each provider once: {first.location} has it"
                raise entry.refusal(entry.key, entry.value, expected)
        return cls(tuple(by_key.values()), tuple(ignored))

    def replacing(self, previous: ProviderConfiguration) -> Self:
        """Return this configuration, which also removes what a previous one added and it does not.

        For a process that reads its files again. After a restart it works if the agent stored
        ``str(configuration)``, which :meth:`parse` reads.
        """
        replaced = (previous.entries, *previous._replaced)
        retained = [entries for entries in replaced if entries and entries != self.entries]
        return dataclasses.replace(self, _replaced=tuple(dict.fromkeys(retained)))

    def __bool__(self) -> bool:
        return bool(self.entries or self._replaced)

    def __str__(self) -> str:
        lines = ["meta:", f"  schema_version: '{VERSION}'", "providers:"]
        for entry in self.entries:
            lines.append(f"- identification: {{{entry.key}: {json.dumps(entry.value)}}}")
            if entry.inventories:
                lines += ["  inventories:", "    additional:"]
            for name, inventory in Inventories(entry.inventories).by_name():
                figures = ((key, getattr(inventory, key)) for key in _FIGURES)
                text = ", ".join(f"{key}: {value}" for key, value in figures if value is not None)
                lines.append(f"    - {name}: {{{text}}}")
            if entry.traits:
                lines.append(f"  traits: {{additional: [{', '.join(entry.traits)}]}}")
        return "\n".join(lines)

    def remove_from(self, tree: Provider) -> None:
        """Remove from a tree what was added to it, before the driver edits it."""
        for provider in tree.walk() if self else ():
            entries = [
                entry
                for configured in (self.entries, *self._replaced)
                for entry in _entries_about(configured, provider, tree)
            ]
            traits = {trait for entry in entries for trait in entry.traits}
            if not traits.isdisjoint(provider.traits):
                provider.update(traits=provider.traits - traits)
            added = {name for entry in entries for name in _inventories(entry)}
            counts = dict(provider.inventories.by_name())
            if not added.isdisjoint(counts):
                remaining = {name: count for name, count in counts.items() if name not in added}
                provider.update(inventories=Inventories(remaining))

    def add_to(self, tree: Provider) -> tuple[InvalidInput, ...]:
        """Add the inventories and traits to a tree; return the errors of those not added.

        Cost: linear in providers and entries.
        """
        errors: list[InvalidInput] = []
        for provider in tree.walk():
            entries = _entries_about(self.entries, provider, tree)
            if not entries:
                continue
            first = entries[0]
            for entry in entries[1:]:
                expected = f"one entry about {provider.name}: {first.location} is about it too"
                errors.append(entry.refusal(entry.key, entry.value, expected))
            counts, added = dict(provider.inventories.by_name()), _inventories(first)
            for name in sorted(counts.keys() & added.keys()):
                field = f"inventory of {provider.name}"
                expected = "a class that the host's driver does not report"
                errors.append(first.refusal(field, name, expected))
            new = {name: count for name, count in added.items() if name not in counts}
            if new:
                provider.update(inventories=Inventories({**counts, **new}))
            if not provider.traits.issuperset(first.traits):
                provider.update(traits=provider.traits.union(first.traits))
        return tuple(errors)


def _inventories(entry: ProviderEntry) -> dict[str, object]:
    return dict(Inventories(entry.inventories).by_name())


def _entries_about(
    entries: tuple[ProviderEntry, ...], provider: Provider, tree: Provider
) -> list[ProviderEntry]:
    """Return the entries about a provider; those about every root only if no other one is."""
    naming = [entry for entry in entries if entry.names(provider)]
    if naming or provider is not tree:
        return naming
    return [entry for entry in entries if (entry.key, entry.value) == ("uuid", COMPUTE_NODE)]


class AppliedConfiguration:
    """The configuration of an agent, with the entries that name a provider of each host."""

    def __init__(self, configuration: ProviderConfiguration) -> None:
        self.current = configuration
        self._entries: dict[str, frozenset[ProviderEntry]] = {}  # by host
        self._reported: set[ProviderEntry] = set()

    def change(self, configuration: ProviderConfiguration) -> None:
        """Replace the configuration; what only the previous one added is removed."""
        self.current = configuration.replacing(self.current)
        self._entries.clear()
        self._reported.clear()

    def record(self, host: str, tree: Provider) -> None:
        """Record that the stored tree of a host has what the configuration adds."""
        providers = list(tree.walk()) if self.current else []
        entries = (entry for entry in self.current.entries if any(map(entry.names, providers)))
        self._entries[host] = frozenset(entries)

    def unused(self, hosts: Collection[str]) -> list[InvalidInput]:
        """Return errors about entries that name no provider of any host, each once while so.

        :param hosts: all hosts of the agent; unless all are recorded, the result is empty
        """
        self._entries = {host: used for host, used in self._entries.items() if host in hosts}
        if len(self._entries) < len(hosts):
            return []
        # every tree was written since the change: none has additions of a previous one
        self.current = dataclasses.replace(self.current, _replaced=())
        used = frozenset[ProviderEntry]().union(*self._entries.values())
        named = (entry for entry in self.current.entries if entry.value != COMPUTE_NODE)
        unused = [entry for entry in named if entry not in used]
        expected = "a provider of a host of this agent"
        errors = [
            entry.refusal(entry.key, entry.value, expected)
            for entry in unused
            if entry not in self._reported
        ]
        self._reported = set(unused)
        return errors


def apply_settings(
    settings: HostSettings, tree: Provider, stored: Provider | None
) -> tuple[InvalidInput, ...]:
    """Set the ratios and the reserved amounts of an operator in the tree of a host.

    =============  =================================================================================
    ratio          replaces the one that the driver reports
    ratio None     retains the stored ratio; a new inventory has the initial one
    initial ratio  applies to a new inventory, and is retained from then on
    reserved       replaces the amount that the driver reports as reserved, with the memory in huge
                   pages that :class:`.MachineDriver` reserves
    not named      as the driver reports
    =============  =================================================================================

    They apply to the host itself; ratios also apply to the cells of its topology. Classes that the
    host does not have are ignored. With overcommit, one consumer can still have at most the total.
    Source: Nova's *initial-allocation-ratios*.

    :param stored: the stored tree, None for a new host
    :returns: the errors of inventories in which the settings are invalid, with more reserved than
        the total: these stay as they are stored, and a new one is left out

    >>> tree = Provider("box", "VCPU=8,MEMORY_MB=4096")
    >>> apply_settings(HostSettings(ratios="VCPU=16", reserved="MEMORY_MB=512"), tree, None)
    ()
    >>> print(tree)
    box: VCPU=8:max_unit=8:allocation_ratio=16,MEMORY_MB=4096:reserved=512
    """
    reserved = settings.reserved_counts
    if not (settings.ratios or settings.initial_ratios or reserved):
        return ()
    providers = () if stored is None else stored.walk()
    before = {old.name: dict(old.inventories.by_name()) for old in providers}
    errors: list[InvalidInput] = []
    inventories: dict[str, Any] = dict(tree.inventories.by_name())
    for name in sorted({*settings.ratios, *settings.initial_ratios, *reserved} & {*inventories}):
        inventory, old = inventories[name], before.get(tree.name, {}).get(name)
        if not isinstance(inventory, IntegerInventory):
            continue
        figures: dict[str, Any] = {
            "allocation_ratio": _ratio(settings, name, "allocation_ratio", old, inventory),
            "reserved": reserved.get(name, inventory.reserved),
        }
        if figures["allocation_ratio"] > 1:
            max_unit = inventory.max_unit or inventory.total
            figures["max_unit"] = min(inventory.total, max_unit) or None
        inventories[name] = inventory.obj_clone()
        try:
            inventories[name].update(**figures)
        except InvalidInput as error:
            errors.append(error)
            inventories[name] = old
    present = {name: count for name, count in inventories.items() if count is not None}
    tree.update(inventories=Inventories(present))
    for child in tree.children:
        topology = child.inventories.get(NUMA_TOPOLOGY)
        if isinstance(topology, NUMATopologyInventory):
            old = before.get(child.name, {}).get(NUMA_TOPOLOGY.name)
            changed = topology.obj_clone()
            ratios = {
                field: _ratio(settings, name, field, old, topology)
                for name, field in (("VCPU", "cpu_ratio"), ("MEMORY_MB", "memory_ratio"))
            }
            if changed.update(**ratios):
                inventories = dict(child.inventories.by_name())
                child.update(inventories=Inventories({**inventories, NUMA_TOPOLOGY.name: changed}))
    return tuple(errors)


def _ratio(
    settings: HostSettings, name: str, field: str, stored: object, reported: object
) -> Decimal:
    """Return the ratio of a class: the configured, the stored, the initial or the reported one."""
    configured = settings.ratios.get(name)
    if configured is not None:
        return configured
    ratio: Decimal = getattr(reported, field)
    if name not in settings.ratios and name not in settings.initial_ratios:
        return ratio
    return getattr(stored, field, None) or settings.initial_ratios.get(name, ratio)


class _Reader(NodeReader):
    """Reads the entries of one file."""

    def entries(self, text: str | bytes) -> Iterator[ProviderEntry]:
        """Yield the entries of a file, also those that add nothing."""
        top = read_nodes(text, self._file, _KIND)
        sections = self._mapping(top, "meta and providers")
        if "__source_file" in sections:
            raise self.fault(sections["__source_file"], "key", "__source_file", "another")
        meta = self._required(top, sections, "meta")
        version = self._required(meta, self._mapping(meta, "schema_version"), "schema_version")
        if not _VERSION.fullmatch(self.text(version)):
            expected = "1.0, or a later minor version of 1"
            raise self.fault(version, "schema_version", version.value, expected)
        if "providers" in sections:
            expected = "a list of providers"
            for node in self.items(sections["providers"], "providers", expected):
                yield self._entry(node)

    def _entry(self, node: Node) -> ProviderEntry:
        sections = self._mapping(node, "identification, inventories, traits")
        identification = self._required(node, sections, "identification")
        key, value = self._identification(identification)
        added = {
            section: self._mapping(sections[section], "additional").get("additional")
            for section in ("inventories", "traits")
            if section in sections
        }
        inventories, traits = added.get("inventories"), added.get("traits")
        trait_names: tuple[str, ...] = ()
        if traits is not None:
            trait_names = self.words(
                traits, "traits", "CUSTOM_RACK_7", _custom_trait, is_once=False
            )
        return ProviderEntry(
            key,
            value,
            "" if inventories is None else self._inventories(inventories),
            trait_names,
            f"{self._file}, line {identification.start_mark.line + 1}",
        )

    def _identification(self, node: Node) -> tuple[str, str]:
        pairs = self.pairs(node, "uuid or name")
        if len(pairs) != 1 or pairs[0][0].value not in ("uuid", "name"):
            keys = ", ".join(str(key.value) for key, _ in pairs)
            raise self.fault(node, "identification", keys, "either uuid or name")
        ((key, value),) = pairs
        text = self.text(value)
        if is_empty(value):
            raise self.fault(value, str(key.value), value.value or None, "text")
        if key.value == "uuid" and text == COMPUTE_NODE:
            return "uuid", text
        check = names.uuid_text if key.value == "uuid" else names.provider_name
        return key.value, self.checked(key.value, value, lambda _: check(text))

    def _inventories(self, node: Node) -> str:
        texts: dict[str, str] = {}
        for item in self.items(node, "additional", "a list of classes with their figures"):
            for key, value in self.pairs(item, "a class with its figures"):
                if value.id != "mapping":
                    raise self.fault(value, "inventory", value.value, "a mapping of figures")
                text = f"{key.value}={self.figures(value, self._figure)}"
                read = functools.partial(_custom_inventory, key.value, text)
                texts[key.value] = self.checked("", key, read)
        return ",".join(texts[name] for name in sorted(texts) if texts[name])

    def _figure(self, node: Node) -> str:
        """Return a number of YAML as text, ``4`` for ``4.0``; other text unchanged."""
        text = self.text(node)
        number: object = text
        if is_plain(node):
            with contextlib.suppress(yaml.YAMLError, ValueError):
                number = yaml.safe_load(text)  # type: ignore[no-untyped-call]
        if type(number) is float and math.isfinite(number):
            return f"{Decimal(repr(number)):f}".removesuffix(".0")
        return str(number) if type(number) is int else text

    def _mapping(self, node: Node, expected: str) -> dict[str, Node]:
        return {key.value: value for key, value in self.pairs(node, expected)}

    def _required(self, node: Node, mapping: dict[str, Node], key: str) -> Node:
        if key not in mapping:
            present = ", ".join(mapping) or "nothing"
            raise self.fault(node, "keys", present, f"{key} among them")
        return mapping[key]


def _custom_inventory(name: str, text: str, _: Node) -> str:
    """Return the text of an inventory, if its class is a custom one that is counted."""
    if not names.resource_class_name(name).startswith(names.CUSTOM_PREFIX):
        raise InvalidInput(
            "resource class", "resource class", name, "one of CUSTOM_: others are the driver's"
        )
    max_unit = _MAX_UNIT.search(text)
    inventories = Inventories(text if max_unit is None else text.replace(max_unit[0], ""))
    if not all(isinstance(count, IntegerInventory) for _, count in inventories.by_name()):
        raise InvalidInput("resource class", "resource class", name, "one that is counted")
    # Placement accepts any max_unit (its default is 2^31-1); here it is at most the total. One that
    # no amount can reach limits nothing, and is left out
    is_limit = max_unit is not None and any(
        int(max_unit[1]) < record.capacity
        for inventory in inventories.values()
        for record in inventory.to_records()
    )
    return str(Inventories(text) if is_limit else inventories)


def _custom_trait(name: str) -> None:
    if not name.startswith(names.CUSTOM_PREFIX):
        raise InvalidInput("trait", "trait", name, "one of CUSTOM_: others are the driver's")
    checked_traits([name])
