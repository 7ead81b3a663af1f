"""What an audit found, as data: findings, each of a kind, with figures and names."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections import Counter
from collections.abc import Iterator
from typing import Any


class FindingKind(enum.StrEnum):
    """What a :class:`Finding` is about."""

    OVER_CAPACITY = "over_capacity"  #: more is used than the capacity: after a shrink
    WRONG_USED = "wrong_used"  #: ``used`` is not the sum of allocations times shares
    UNIT_TWICE = "unit_twice"  #: a unit belongs to two consumers
    UNIT_LOOSE = "unit_loose"  #: a unit is taken by somebody with no allocation there
    UNIT_GONE = "unit_gone"  #: a unit is taken that is not there: lost, or a CPU that is offline
    UNIT_ELSEWHERE = "unit_elsewhere"  #: a unit is taken, and given out in another way too
    UNIT_MISSING = "unit_missing"  #: somebody has some units, and not as many as it holds
    CONTRADICTION = "contradiction"  #: what is kept in parts makes no inventory
    UNDESCRIBED = "undescribed"  #: a provider is counted like a part, and is described as none
    UNSHARED = "unshared"  #: held of a pool that does not give to the consumer's host any more
    COUNTED_TWICE = "counted_twice"  #: a class is counted in a host's tree and at a pool of it
    EXPIRED = "expired"  #: a claim whose time is over, and that is still held
    STALE_POOL = "stale_pool"  #: a pool whose owner did not report for long
    ORPHANED = "orphaned"  #: it belongs to something that is not there


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    ``found`` and ``expected`` are figures: what is used, and the capacity or what should be used.
    ``at`` is when a claim expired, or a pool was last heard of; ``other`` a second provider or
    consumer, the kind of row, or what contradicts.
    """

    kind: FindingKind
    provider: str | None = None
    resource_class: str | None = None
    consumer: str | None = None
    unit: str | None = None
    found: int | None = None
    expected: int | None = None
    at: datetime.datetime | None = None
    other: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without what does not apply."""
        said = {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }
        if self.at is not None:
            said["at"] = self.at.isoformat()
        return {**said, "kind": self.kind.value, "text": str(self)}

    def __str__(self) -> str:
        at = "never" if self.at is None else f"at {self.at}"
        about = ", ".join(filter(None, (self.resource_class, self.consumer)))
        return _WORDS[self.kind].format(self, at=at, said=f" ({about})" if about else "")


_WORDS = {
    FindingKind.OVER_CAPACITY: (
        "{0.provider}: {0.resource_class} has {0.found} used of {0.expected}"
    ),
    FindingKind.WRONG_USED: (
        "{0.provider}: {0.resource_class} says {0.found} used, allocations come to {0.expected}"
    ),
    FindingKind.UNIT_TWICE: "{0.provider}: {0.unit} is taken by {0.other} and by {0.consumer}",
    FindingKind.UNIT_LOOSE: (
        "{0.provider}: {0.unit} is taken by {0.consumer}, who holds no {0.resource_class} there"
    ),
    FindingKind.UNIT_GONE: (
        "{0.provider}: {0.unit} is taken by {0.consumer}, and no {0.resource_class} is called that"
    ),
    FindingKind.UNIT_ELSEWHERE: (
        "{0.provider}: {0.unit} of {0.resource_class} is taken by {0.consumer}, "
        "and given out in another way"
    ),
    FindingKind.UNIT_MISSING: (
        "{0.provider}: {0.consumer} holds {0.expected} {0.resource_class}, and {0.found} units"
    ),
    FindingKind.CONTRADICTION: "{0.provider}: {0.resource_class} contradicts itself: {0.other}",
    FindingKind.UNDESCRIBED: "{0.provider}: it is counted like {0.other}, and is not described",
    FindingKind.UNSHARED: (
        "{0.provider}: {0.consumer} holds {0.found} {0.resource_class}, "
        "which is not given to {0.other}"
    ),
    FindingKind.COUNTED_TWICE: (
        "{0.provider}: {0.resource_class} is counted here and at the pool {0.other}"
    ),
    FindingKind.EXPIRED: "{0.consumer}: its claim expired {at}",
    FindingKind.STALE_POOL: "{0.provider}: the owner of the pool reported last {at}",
    FindingKind.ORPHANED: "{0.provider}: {0.other} without what it belongs to{said}",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found. A sequence of findings, empty where all is well.

    >>> print(Audit())
    nothing found
    """

    findings: tuple[Finding, ...] = ()

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def of(self, kind: FindingKind | str) -> tuple[Finding, ...]:
        """Return the findings of one kind."""
        wanted = FindingKind(kind)
        return tuple(finding for finding in self.findings if finding.kind is wanted)

    def counts(self) -> dict[str, int]:
        """Return how many findings there are of each kind that was found."""
        return dict(Counter(finding.kind.value for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "counts": self.counts(),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing found"
