"""From the text of a site to its entries, every fault with its line."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any, TypeVar

from resource_objects import exceptions, names
from resource_objects.exceptions import InvalidInput
from resource_objects.host.device_rules import PARTITIONINGS
from resource_objects.providers.arguments import moment
from resource_objects.resources import Inventories
from resource_objects.resources.traits import known_traits
from resource_objects.site.parts import Outage, PartInventories, SitePart, read_share
from resource_objects.site.ranges import count_names, expanded
from resource_objects.yaml_nodes import Node, NodeReader, fault_at, is_empty, is_plain

_T = TypeVar("_T")

#: Version of the file.
VERSION = 1
#: The most providers that a file may make: far more than any site has.
MAX_PROVIDERS = 1_000_000


_PART_KEYS = (
    "inventories",
    "traits",
    "aggregates",
    "split",
    "shares",
    "structured",
    "disabled",
    "children",
)
#: Words, besides none, that say that a provider is in service.
IN_SERVICE = ("false", "no", "off")


class Reader:
    """Reads entries, every fault with its line."""

    def __init__(self, file: str) -> None:
        self._nodes = NodeReader(file)
        self._file = file
        self._had = PartInventories()
        self._named: dict[str, SitePart] = {}

    def read(self, node: Node) -> tuple[tuple[SitePart, ...], tuple[SitePart, ...]]:
        found: dict[str, tuple[SitePart, ...]] = {}
        for key, value in self._nodes.pairs(node, "a site: machines, pools"):
            if key.value == "version":
                if value.value != str(VERSION):
                    raise self._nodes.fault(value, "version", value.value, str(VERSION))
            elif key.value in ("machines", "pools"):
                found[key.value] = self._parts(value, key.value)
            else:
                raise self._nodes.fault(key, "key", key.value, "one of version, machines, pools")
        for parts in found.values():
            for part in parts:
                for name in expanded(part.name):
                    self._once(name, part)
        return found.get("machines", ()), found.get("pools", ())

    def _once(self, name: str, part: SitePart) -> None:
        """Raise if a name is not one, or comes twice, in the tree of an entry."""
        try:
            names.provider_name(name)
        except exceptions.InvalidInput as error:
            raise fault_at(self._file, part.line, error) from error
        if name in self._named:
            first = self._named[name]
            if first is not part:
                expected = f"each provider once: line {first.line} has it"
            elif [*expanded(part.name, "")].count(name) > 1:
                expected = "each number once in the ranges of a name"
            else:  # several parents have a child of this name
                expected = f"/{part.name}, which names one child of each parent"
            raise InvalidInput("site file", f"{self._file}, line {part.line}, name", name, expected)
        self._named[name] = part
        for child in part.below:
            for below in expanded(child.name, name):
                self._once(below, child)

    def _parts(self, node: Node, what: str, times: int = 1) -> tuple[SitePart, ...]:
        return tuple(
            self._part(key, value, times)
            for key, value in self._nodes.pairs(node, f"{what}: names with what they have")
        )

    def _part(self, key: Node, node: Node, times: int) -> SitePart:
        try:
            times *= count_names(key.value)
        except exceptions.InvalidInput as error:
            raise fault_at(self._file, key.start_mark.line + 1, error) from error
        if times > MAX_PROVIDERS:
            raise self._nodes.fault(key, "name", key.value, f"at most {MAX_PROVIDERS} providers")
        said: dict[str, Any] = {}
        for word, value in self._nodes.pairs(node, "what the provider has"):
            if word.value not in _PART_KEYS:
                raise self._nodes.fault(word, "key", word.value, f"one of {', '.join(_PART_KEYS)}")
            if word.value == "children":
                said["children"] = self._parts(value, "children", times)
            else:
                read = getattr(self, f"_{word.value}")
                said[word.value] = self._nodes.checked(word.value, value, read)
        part = SitePart(key.value, line=key.start_mark.line + 1, **said)
        if times * len(part.below) > MAX_PROVIDERS:
            raise self._nodes.fault(key, "split", part.split, f"at most {MAX_PROVIDERS} providers")
        if part.split is not None and not part.says_inventories:
            raise self._nodes.fault(key, "split", part.split, "inventories beside it")
        self._nodes.checked("", key, lambda _: self._had.of(part))
        return part

    # --- one value ---

    def _inventories(self, node: Node) -> str:
        if node.id == "scalar" and not is_empty(node):
            text: str = node.value
        else:
            text = ",".join(
                f"{key.value}={self._nodes.figures(value)}"
                for key, value in self._nodes.pairs(
                    node, "inventories: text, or classes with figures"
                )
            )
        return str(Inventories(text)) if text else ""

    def _traits(self, node: Node) -> tuple[str, ...]:
        return self._words(node, "traits", lambda name: known_traits([name]))

    def _aggregates(self, node: Node) -> tuple[str, ...]:
        return self._words(node, "aggregates", names.aggregate_name)

    def _shares(self, node: Node) -> tuple[str, ...]:
        return self._words(node, "shares", _checked_share)

    def _split(self, node: Node) -> str:
        text = self._partitions(node) if node.id == "mapping" else self._nodes.text(node)
        if text.partition("=")[0] not in PARTITIONINGS:
            raise self._nodes.fault(node, "split", text, f"one of {', '.join(PARTITIONINGS)}")
        return text

    def _partitions(self, node: Node) -> str:
        """Return the long form of a split as its word: ``partitions=...``."""
        such = "slices: {CLASS: COUNT}, partitions: {CLASS: {SLICE: COUNT}}"
        said = {key.value: value for key, value in self._nodes.pairs(node, such)}
        if not said.keys() <= {"slices", "partitions"} or "slices" not in said:
            raise self._nodes.fault(node, "split", ", ".join(said), such)
        slices = self._counts(said["slices"], such)
        found = ["+".join(f"{name}*{count}" for name, count in sorted(slices.items()))]
        parts = self._nodes.pairs(said["partitions"], such) if "partitions" in said else []
        for key, value in sorted(parts, key=lambda pair: str(pair[0].value)):
            uses = self._counts(value, such)
            for name in uses.keys() - slices.keys():
                raise self._nodes.fault(value, "slice", name, f"one of {', '.join(slices)}")
            found.append(f"{key.value}*{'+'.join(uses.get(name, '0') for name in sorted(slices))}")
        return f"partitions={'/'.join(found)}"

    def _counts(self, node: Node, such: str) -> dict[str, str]:
        return {key.value: self._nodes.text(value) for key, value in self._nodes.pairs(node, such)}

    def _disabled(self, node: Node) -> Outage:
        if node.id == "mapping":
            said = dict.fromkeys(("reason", "until"), "")
            for key, value in self._nodes.pairs(node, "reason and until"):
                if key.value not in said:
                    raise self._nodes.fault(key, "key", key.value, "one of reason, until")
                said[key.value] = self._nodes.text(value)
            return Outage(names.label(said["reason"], "reason"), _moment(said["until"]))
        text = self._nodes.text(node)
        if is_empty(node) or (is_plain(node) and text.lower() in IN_SERVICE):
            return Outage()
        if is_plain(node) and text.lower() in ("true", "yes", "on"):
            raise self._nodes.fault(node, "disabled", text, "why, such as: fan")
        return Outage(names.label(text, "reason"))

    def _structured(self, node: Node) -> tuple[tuple[str, str, str], ...]:
        found = []
        for key, value in self._nodes.pairs(node, "structured: resources with classes and body"):
            said = {word.value: one for word, one in self._nodes.pairs(value, "classes and body")}
            if set(said) != {"classes", "body"}:
                raise self._nodes.fault(key, key.value, sorted(said), "classes and body")
            body = said["body"]
            is_empty = body.id == "scalar" and not body.value
            text = "" if is_empty else json.dumps(self._nodes.data(body))
            found.append((key.value, self._nodes.text(said["classes"]), text))
        return tuple(found)

    def _words(self, node: Node, what: str, check: Callable[[str], object]) -> tuple[str, ...]:
        return self._nodes.words(node, what, _SUCH[what], check)


_MOMENT = "a moment with its time zone, such as 2030-01-01T08:00+00:00"
_SUCH = {"traits": "CUSTOM_H100", "aggregates": "rack-1", "shares": "VCPU uses 1 VCPU of /"}


def _moment(text: str) -> datetime.datetime | None:
    if not text:
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise exceptions.InvalidInput("field", "until", text, _MOMENT) from error
    if found.utcoffset() is None:
        raise exceptions.InvalidInput("field", "until", text, _MOMENT)
    return moment("until", found)


def _checked_share(text: str) -> None:
    of = read_share(text)[3]
    if of is not None and count_names(of) != 1:
        raise exceptions.InvalidInput("text", "share", text, "of one provider")
