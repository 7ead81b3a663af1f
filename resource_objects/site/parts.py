"""An entry of a site: what it says of a provider, and the inventories and shares it makes."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import re
from collections.abc import Iterable
from typing import Any

from resource_objects import exceptions
from resource_objects.host.device_rules import parse_partitioning
from resource_objects.host.partitions import MIG_CARDS, mig_placements
from resource_objects.providers import Provider
from resource_objects.providers.definition import inventories_of, to_records
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories, resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.records import InventoryRecord, KindRecord

#: What the provider of an entry is called while it has no name.
ITSELF = "itself"
#: The provider above, of a share of a placement that a split makes; no name of a file.
PARENT = "\0"
_SHARE = re.compile(r"([A-Z0-9_]+) uses ([0-9]{1,10}) ([A-Z0-9_]+)(?: of (.+))?", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Outage:
    """What an entry says of whether something is in service: why it is not. No reason: it is."""

    reason: str | None = None
    until: datetime.datetime | None = None

    @classmethod
    def of(cls, kept: Disabled | None) -> Outage:
        """Return what is kept of a provider or a device."""
        return cls() if kept is None else cls(kept.reason, kept.until)

    def to_dict(self) -> dict[str, Any] | bool:
        """Return plain data for JSON, as a file says it."""
        if self.reason is None:
            return False
        until = {} if self.until is None else {"until": self.until.isoformat()}
        return {"reason": self.reason, **until}

    def at(self, now: datetime.datetime) -> Outage:
        """Return what it says at a moment: nothing is out of service for what is over."""
        return Outage() if self.until is not None and self.until <= now else self


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
    disabled: Outage | None = None
    children: tuple[SitePart, ...] = ()
    line: int = dataclasses.field(default=0, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: what the entry says, as a file says it, without its name."""
        found: dict[str, Any] = {}
        for word in ("inventories", "split"):
            if getattr(self, word) is not None:
                found[word] = getattr(self, word)
        for word in ("traits", "aggregates", "shares"):
            if getattr(self, word) is not None:
                found[word] = list(getattr(self, word))
        if self.structured:
            found["structured"] = {
                name: {"classes": classes, "body": json.loads(body) if body else ""}
                for name, classes, body in self.structured
            }
        if self.disabled is not None:
            found["disabled"] = self.disabled.to_dict()
        if self.children:
            found["children"] = {child.name: child.to_dict() for child in self.children}
        return found

    @property
    def below(self) -> tuple[SitePart, ...]:
        """The entries below it: its children, and the placements that its split makes."""
        if self.split not in MIG_CARDS:
            return self.children
        return (*self.children, *_placements_of(self.split))

    @property
    def says_inventories(self) -> bool:
        """Whether it says what the provider has."""
        return self.inventories is not None or bool(self.structured)

    @property
    def says_outages(self) -> bool:
        """Whether it says of itself, or of something below it, whether that is in service."""
        if self.disabled is not None:
            return True
        return any(child.says_outages for child in self.children)


@functools.lru_cache(maxsize=len(MIG_CARDS))
def _placements_of(card: str) -> tuple[SitePart, ...]:
    """Return the entries of the placements of a card."""
    return tuple(
        SitePart(
            f"/{place}",
            f"{name}=1",
            shares=tuple(
                f"{name} uses {count} {slice_} of {PARENT}" for slice_, count in uses.items()
            ),
        )
        for place, (name, uses) in mig_placements(card).items()
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A machine or a pool that a file names."""

    name: str
    part: SitePart
    is_pool: bool


class PartInventories:
    """What entries have; what is equal is worked out once."""

    def __init__(self) -> None:
        self._had: dict[SitePart, tuple[Inventories, tuple[Share, ...]]] = {}

    def of(self, part: SitePart) -> tuple[Inventories, tuple[Share, ...]]:
        """Return what an entry has, and the shares that its split makes, of ``itself``."""
        bare = dataclasses.replace(part, name=ITSELF, children=()) if part.children else part
        if bare not in self._had:
            self._had[bare] = inventories_of_part(bare)
        return self._had[bare]


def inventories_of_part(part: SitePart) -> tuple[Inventories, tuple[Share, ...]]:
    """Return what an entry has, and the shares that its split makes."""
    found = Inventories(part.inventories or {})
    if part.structured:
        found = _with_structured(found, part.structured)
    if part.split is None:
        return found, ()
    device = Provider(ITSELF, found)
    parse_partitioning(part.split, _whole_of(found)).apply(device)
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


def read_share(text: str) -> tuple[str, int, str, str | None]:
    match = _SHARE.fullmatch(text)
    if match is None:
        raise exceptions.InvalidInput("text", "share", text, "such as VCPU uses 1 VCPU of /")
    return match[1], int(match[2]), match[3], match[4]
