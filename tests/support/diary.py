"""What a writer writes down: what it will ask, and what it was told.

One line of JSON each, handed to the operating system at once: a process that is killed loses
nothing of it. Lines are ``asks`` (an id, the orders, what capacities will be), ``did`` (what was
acknowledged), ``refused`` (nothing was done) and ``lost`` (nobody knows; it is tried again).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Key, Write

#: ``{(provider's uuid, class): (amount, units)}``
Holds = dict[Key, tuple[int, frozenset[str]]]


class Diary:
    """A file that lines are added to, until the ``with`` block ends."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def asks(self, write: Write) -> None:
        """Note what will be asked."""
        self._line(
            asks=write.operation.id,
            kind=write.kind,
            subject=write.subject,
            orders=[_order(one) for one in write.orders],
            capacities=list(_capacities(write.definitions)),
        )

    def did(self, operation: str, claims: Iterable[ConsumerRecord]) -> None:
        """Note what was acknowledged."""
        self._line(did=operation, claims=[said(claim) for claim in claims])

    def refused(self, operation: str, error: BaseException) -> None:
        """Note that it was refused: nothing may have been done."""
        self._line(refused=operation, error=getattr(error, "code", type(error).__name__))

    def lost(self, operation: str) -> None:
        """Note that nobody knows whether it was done."""
        self._line(lost=operation)

    def died(self, reason: str) -> None:
        """Note what a writer did not expect."""
        self._line(died=reason)

    def _line(self, **said: Any) -> None:
        self._file.write(json.dumps(said).encode() + b"\n")


def said(claim: ConsumerRecord) -> list[Any]:
    """Return a claim as JSON: consumer, its uuid, generation, state, and what it holds."""
    held = [[*one.key, one.amount, sorted(one.units)] for one in claim.held]
    return [
        claim.consumer,
        claim.uuid,
        claim.generation,
        "released" if claim.state == "released" else "held",
        sorted(held),
    ]


def _order(order: ConsumerOrder) -> list[Any]:
    held = [[*one.key, one.amount, sorted(one.units)] for one in order.uses]
    word = "claim" if order.is_claim else "release" if order.is_release else order.mode.value
    return [word, order.consumer, held]


def _capacities(changes: DefinitionChanges | None) -> Iterator[list[Any]]:
    """Yield (uuid, class, capacity) of every inventory that changes, None for those that go.

    Those of a provider that goes are said by (uuid, None, None).
    """
    for created in changes.creates if changes else ():
        for record in created.inventories:
            yield [created.uuid, record.resource_class, record.capacity]
    for update in changes.updates if changes else ():
        for record in update.changed:
            yield [update.definition.uuid, record.resource_class, record.capacity]
        for name in update.removed:
            yield [update.definition.uuid, name, None]
    for removal in changes.removals if changes else ():
        yield [removal.uuid, None, None]


@dataclasses.dataclass
class Asked:
    """One write, as the diaries tell of it."""

    kind: str
    subject: str
    orders: dict[str, tuple[str, Holds]]  #: by consumer: which order, and its deltas
    capacities: list[tuple[str, str | None, int | None]]
    did: list[list[Any]] | None = None  #: the claims that were acknowledged
    refused: str | None = None  #: by which error


def read(paths: Iterable[Path]) -> tuple[dict[str, Asked], list[str]]:
    """Return every write that was asked, by operation, and why writers died by themselves."""
    found: dict[str, Asked] = {}
    died = []
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue  # killed while it wrote
            told = json.loads(line)
            if "asks" in told:
                orders = {who: (what, _holds(deltas)) for what, who, deltas in told["orders"]}
                capacities = [(uuid, name, most) for uuid, name, most in told["capacities"]]
                found[told["asks"]] = Asked(told["kind"], told["subject"], orders, capacities)
            elif "did" in told:
                found[told["did"]].did = told["claims"]
            elif "refused" in told:
                found[told["refused"]].refused = told["error"]
            elif "died" in told:
                died.append(f"{path.name}: {told['died']}")
    return found, died


def _holds(said: Iterable[list[Any]]) -> Holds:
    return {(uuid, name): (amount, frozenset(units)) for uuid, name, amount, units in said}
