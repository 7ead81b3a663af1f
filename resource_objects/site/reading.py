"""From the text of a site file to its entries; every error names the line."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.host.device_rules import PARTITIONINGS
from resource_objects.providers.arguments import moment
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.resources.traits import checked_traits
from resource_objects.site.parts import MACHINE, Outage, SitePart, read_share
from resource_objects.site.ranges import count_names, expand
from resource_objects.yaml_nodes import Node, NodeReader, fault_at, is_empty, read_nodes

#: The version of the file format.
VERSION = 1
#: Maximum number of providers of a file.
MAX_PROVIDERS = 1_000_000

_MOMENT = "a moment with its time zone, such as 2030-01-01T08:00+00:00"
_PARTITIONS = "slices: {CLASS: COUNT}, partitions: {CLASS: {SLICE: COUNT}}"


def read_site(text: str | bytes, file: str) -> tuple[tuple[SitePart, ...], tuple[SitePart, ...]]:
    """Return the machines and the pools of the text of a site file.

    :raises InvalidInput: naming the line
    """
    return _Reader(file).read(read_nodes(text, file))


class _Reader:
    def __init__(self, file: str) -> None:
        self._nodes = NodeReader(file)
        self._file = file
        self._named: dict[str, SitePart] = {}
        self._values: dict[str, Callable[[Node], Any]] = {
            "inventories": self._inventories,
            "traits": self._list("CUSTOM_H100", "traits", lambda name: checked_traits([name])),
            "aggregates": self._list("rack-1", "aggregates", names.aggregate_name),
            "split": self._split,
            "shares": self._list("VCPU uses 1 VCPU of /", "shares", _check_share),
            "structured": self._structured,
            "disabled": self._disabled,
        }

    def read(self, root: Node) -> tuple[tuple[SitePart, ...], tuple[SitePart, ...]]:
        parts: dict[str, tuple[SitePart, ...]] = {"machines": (), "pools": ()}
        for key, value in self._nodes.pairs(root, "a site: machines, pools"):
            if key.value in parts:
                parts[key.value] = self._parts(value, key.value)
            elif key.value != "version":
                raise self._nodes.fault(key, "key", key.value, "one of version, machines, pools")
            elif value.value != str(VERSION):
                raise self._nodes.fault(value, "version", value.value, str(VERSION))
        for part in (*parts["machines"], *parts["pools"]):
            for name in expand(part.name):
                self._check_name(name, part)
        return parts["machines"], parts["pools"]

    def _check_name(self, name: str, part: SitePart) -> None:
        """Raise if a provider of an entry, or one below it, has no valid and unique name."""
        try:
            names.provider_name(name)
        except InvalidInput as error:
            raise fault_at(self._file, part.line, error) from error
        if name in self._named:
            first = self._named[name]
            if first is not part:
                expected = f"each provider once: line {first.line} has it"
            elif [*expand(part.name)].count(name) > 1:
                expected = "each number once in the ranges of a name"
            else:  # several parents have a child of this name
                expected = f"/{part.name}, which names one child of each parent"
            raise InvalidInput("site file", f"{self._file}, line {part.line}, name", name, expected)
        self._named[name] = part
        for child in part.providers_below:
            for below in expand(child.name, name):
                self._check_name(below, child)

    def _parts(self, node: Node, section: str, count: int = 1) -> tuple[SitePart, ...]:
        """Return the entries of a mapping.

        :param count: the number of providers that have these entries
        """
        pairs = self._nodes.pairs(node, f"{section}: names with the keys of each")
        return tuple(self._part(key, value, count) for key, value in pairs)

    def _part(self, key: Node, node: Node, count: int) -> SitePart:
        count *= self._nodes.checked("", key, lambda _: count_names(key.value))
        if count > MAX_PROVIDERS:
            raise self._nodes.fault(key, "name", key.value, f"at most {MAX_PROVIDERS} providers")
        values: dict[str, Any] = {}
        for word, value in self._nodes.pairs(node, "the keys of a provider"):
            if word.value == "children":
                values["children"] = self._parts(value, "children", count)
            elif word.value in self._values:
                read = self._values[word.value]
                values[word.value] = self._nodes.checked(word.value, value, read)
            else:
                expected = f"one of {', '.join(self._values)}, children"
                raise self._nodes.fault(word, "key", word.value, expected)
        part = SitePart(key.value, line=key.start_mark.line + 1, **values)
        if count * len(part.providers_below) > MAX_PROVIDERS:
            raise self._nodes.fault(key, "split", part.split, f"at most {MAX_PROVIDERS} providers")
        if part.split is not None and not part.has_inventories:
            raise self._nodes.fault(key, "split", part.split, "inventories beside it")
        self._nodes.checked("", key, lambda _: part.definition())
        return part

    # --- values of keys ---

    def _inventories(self, node: Node) -> str:
        if node.id == "scalar" and not is_empty(node):
            text = str(node.value)
        else:
            pairs = self._nodes.pairs(node, "inventories: text, or classes with figures")
            text = ",".join(f"{key.value}={self._nodes.figures(value)}" for key, value in pairs)
        return str(Inventories(text)) if text else ""

    def _list(
        self, example: str, key: str, check: Callable[[str], object]
    ) -> Callable[[Node], tuple[str, ...]]:
        return lambda node: self._nodes.words(node, key, example, check)

    def _split(self, node: Node) -> str:
        text = self._partitions(node) if node.id == "mapping" else self._nodes.text(node)
        if text.partition("=")[0] not in PARTITIONINGS:
            raise self._nodes.fault(node, "split", text, f"one of {', '.join(PARTITIONINGS)}")
        return text

    def _partitions(self, node: Node) -> str:
        """Return a mapping of slices and partitions as the word ``partitions=...``."""
        keys = {key.value: value for key, value in self._nodes.pairs(node, _PARTITIONS)}
        if not keys.keys() <= {"slices", "partitions"} or "slices" not in keys:
            raise self._nodes.fault(node, "split", ", ".join(keys), _PARTITIONS)
        slices = self._counts(keys["slices"])
        texts = ["+".join(f"{name}*{count}" for name, count in sorted(slices.items()))]
        parts = self._nodes.pairs(keys["partitions"], _PARTITIONS) if "partitions" in keys else []
        for key, value in sorted(parts, key=lambda pair: str(pair[0].value)):
            uses = self._counts(value)
            for name in uses.keys() - slices.keys():
                raise self._nodes.fault(value, "slice", name, f"one of {', '.join(slices)}")
            texts.append(f"{key.value}*{'+'.join(uses.get(name, '0') for name in sorted(slices))}")
        return f"partitions={'/'.join(texts)}"

    def _counts(self, node: Node) -> dict[str, str]:
        pairs = self._nodes.pairs(node, _PARTITIONS)
        return {key.value: self._nodes.text(value) for key, value in pairs}

    def _disabled(self, node: Node) -> Outage:
        if node.id == "mapping":
            texts = {"reason": "", "until": ""}
            for key, value in self._nodes.pairs(node, "reason and until"):
                if key.value not in texts:
                    raise self._nodes.fault(key, "key", key.value, "one of reason, until")
                texts[key.value] = self._nodes.text(value)
            return Outage(names.label(texts["reason"], "reason"), _read_moment(texts["until"]))
        text = self._nodes.text(node)
        if is_empty(node):
            return Outage()
        if node.tag == "tag:yaml.org,2002:bool":
            if text.lower() in ("true", "yes", "on"):
                raise self._nodes.fault(node, "disabled", text, "why, such as: fan")
            return Outage()
        return Outage(names.label(text, "reason"))

    def _structured(self, node: Node) -> tuple[tuple[str, str, str], ...]:
        structured = []
        for key, value in self._nodes.pairs(node, "structured: resources with classes and body"):
            values = {
                word.value: item for word, item in self._nodes.pairs(value, "classes and body")
            }
            if values.keys() != {"classes", "body"}:
                raise self._nodes.fault(key, key.value, sorted(values), "classes and body")
            body = self._nodes.data(values["body"])
            text = json.dumps(body) if body not in (None, "") else ""
            structured.append((key.value, self._nodes.text(values["classes"]), text))
        return tuple(structured)


def _read_moment(text: str) -> datetime.datetime | None:
    if not text:
        return None
    try:
        value = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput("field", "until", text, _MOMENT) from error
    if value.utcoffset() is None:
        raise InvalidInput("field", "until", text, _MOMENT)
    return moment("until", value)


def _check_share(text: str) -> None:
    resource_class, factor, of_class, of = read_share(text)
    Share(resource_class=resource_class, of="x", of_class=of_class, factor=factor)
    if of not in (None, MACHINE) and count_names(of or "") != 1:
        raise InvalidInput("text", "share", text, "of one provider")
