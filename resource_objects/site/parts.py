"""SitePart: an entry of a site file, and the definition of the providers that it describes."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import re
from typing import Any

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.host.device_rules import partition_device
from resource_objects.host.partitions import MIG_CARDS, mig_placements
from resource_objects.providers import Provider
from resource_objects.providers.definition import (
    ProviderDefinition,
    ShareRecord,
    inventories_of,
    to_records,
)
from resource_objects.providers.disabled import Disabled
from resource_objects.resources import Inventories, resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.records import InventoryRecord, KindRecord

#: The providers that a share of an entry can refer to, besides names: the provider itself, the
#: machine, and the provider above.
ITSELF, MACHINE, PARENT = "", "/", "\0"
_SHARE = re.compile(r"([A-Z0-9_]+) uses ([0-9]{1,10}) ([A-Z0-9_]+)(?: of (.+))?", re.DOTALL)
_Structured = tuple[tuple[str, str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Outage:
    """The state of a provider in a file: why it is disabled, or enabled without a reason."""

    reason: str | None = None
    until: datetime.datetime | None = None

    @classmethod
    def of(cls, disabled: Disabled | None) -> Outage:
        """Return the state of a stored provider."""
        return cls() if disabled is None else cls(disabled.reason, disabled.until)

    def to_data(self, *, is_short: bool = False) -> dict[str, Any] | str | bool:
        """Return plain data for JSON; with ``is_short`` only the reason if there is no end."""
        if self.reason is None:
            return False
        if is_short and self.until is None:
            return self.reason
        until = {} if self.until is None else {"until": self.until.isoformat()}
        return {"reason": self.reason, **until}

    def at(self, now: datetime.datetime) -> Outage:
        """Return the state at a moment: enabled after the end."""
        return Outage() if self.until is not None and self.until <= now else self


@dataclasses.dataclass(frozen=True, slots=True)
class SitePart:
    """An entry of a site file: one provider, or several equal ones if its name has ranges.

    None marks a key that the entry lacks. All values are the canonical text. ``structured`` has
    ``(resource, classes, body)`` of each inventory with a structure.
    """

    name: str
    inventories: str | None = None
    traits: tuple[str, ...] | None = None
    aggregates: tuple[str, ...] | None = None
    split: str | None = None
    shares: tuple[str, ...] | None = None
    structured: _Structured = ()
    disabled: Outage | None = None
    children: tuple[SitePart, ...] = ()
    line: int = dataclasses.field(default=0, compare=False)

    def to_dict(self, *, is_short: bool = False) -> dict[str, Any]:
        """Return the keys of the entry as plain data for JSON, without its name.

        :param is_short: whether a disabled provider without an end has only its reason, as in files
        """
        data: dict[str, Any] = {
            "inventories": self.inventories,
            "split": self.split,
            "disabled": None if self.disabled is None else self.disabled.to_data(is_short=is_short),
            "traits": self.traits,
            "aggregates": self.aggregates,
            "shares": self.shares,
            "structured": {
                name: {"classes": classes, "body": json.loads(body) if body else ""}
                for name, classes, body in self.structured
            }
            or None,
            "children": {child.name: child.to_dict(is_short=is_short) for child in self.children}
            or None,
        }
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in data.items()
            if value is not None
        }

    @property
    def providers_below(self) -> tuple[SitePart, ...]:
        """The entries below: the children, and the placements that a partitioning creates."""
        if self.split not in MIG_CARDS:
            return self.children
        return (*self.children, *_placements_of(self.split))

    @property
    def has_inventories(self) -> bool:
        """Whether the entry specifies the inventories, which replace the stored ones."""
        return self.inventories is not None or bool(self.structured)

    @property
    def has_outages(self) -> bool:
        """Whether the entry, or one below, specifies if a provider is disabled."""
        return self.disabled is not None or any(child.has_outages for child in self.children)

    def definition(self) -> ProviderDefinition:
        """Return the definition of a provider of the entry, without names and uuids.

        Shares refer to ITSELF, MACHINE, PARENT or the key of a provider.

        :raises InvalidInput: for inventories or a partitioning that are not possible
        """
        inventories, kinds, shares = _stored_form(self.inventories, self.structured, self.split)
        for text in self.shares or ():
            resource_class, factor, of_class, of = read_share(text)
            shares = (*shares, ShareRecord(resource_class, of or ITSELF, of_class, factor))
        return ProviderDefinition(
            uuid="",
            name=self.name,
            parent_uuid=None,
            inventories=inventories,
            traits=frozenset(self.traits or ()),
            aggregates=None if self.aggregates is None else frozenset(self.aggregates),
            shares=shares,
            kinds=kinds,
        )


@functools.lru_cache(maxsize=len(MIG_CARDS))
def _placements_of(card: str) -> tuple[SitePart, ...]:
    return tuple(
        SitePart(
            f"/{place}",
            f"{name}=1",
            shares=tuple(f"{name} uses {count} {part} of {PARENT}" for part, count in uses.items()),
        )
        for place, (name, uses) in mig_placements(card).items()
    )


@functools.lru_cache(maxsize=1024)
def _stored_form(
    inventories: str | None, structured: _Structured, split: str | None
) -> tuple[tuple[InventoryRecord, ...], tuple[KindRecord, ...], tuple[ShareRecord, ...]]:
    """Return the records of the inventories of an entry, and the shares of its partitioning."""
    device = Provider("device", _read_inventories(inventories or "", structured))
    if split is not None:
        classes = [record.resource_class for record in to_records(device.inventories)[0]]
        devices = classes if len(classes) == 1 else list(filter(is_device, classes))
        if len(devices) != 1:
            raise InvalidInventory("split", classes, "one class of devices, such as PGPU=1")
        partition_device(device, split, devices[0])
    shares = [
        ShareRecord(share.resource_class, ITSELF, share.of_class, share.factor)
        for share in device.shares
    ]
    return (*to_records(device.inventories), tuple(shares))


def _read_inventories(text: str, structured: _Structured) -> Inventories:
    counted = Inventories(text)
    if not structured:
        return counted
    records = list(to_records(counted)[0])
    kinds: list[KindRecord] = []
    for name, classes, body in structured:
        figures = to_records(Inventories(classes))[0]
        kinds.append(
            KindRecord(
                resource(name).name, tuple(record.resource_class for record in figures), body
            )
        )
        records += figures
    inventories = inventories_of(records, kinds)
    if sorted(map(repr, to_records(inventories)[0])) != sorted(map(repr, records)):
        raise InvalidInventory(
            "structured", [classes for _, classes, _ in structured], "the figures of its body"
        )
    return inventories


def read_share(text: str) -> tuple[str, int, str, str | None]:
    """Return (class, factor, class that is used, key of its provider) of the text of a share.

    >>> read_share("VCPU uses 1 VCPU of /")
    ('VCPU', 1, 'VCPU', '/')
    """
    match = _SHARE.fullmatch(text)
    if match is None:
        raise InvalidInput("text", "share", text, "such as VCPU uses 1 VCPU of /")
    return match[1], int(match[2]), match[3], match[4]
