"""What a look at the hosts did and found: what changed, what is wrong and where."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from resource_objects import exceptions
from resource_objects.providers import DefinitionChanges
from resource_objects.providers.usage import InventoryUsage


class FindingKind(enum.StrEnum):
    """What is wrong with a host, or worth telling of it.

    Where it says so, or is about something beside what the host has, the host is in step all the
    same; else the ledger keeps it as it was. ``ORPHAN``, ``UNKNOWN_CONSUMER``, ``ELSEWHERE`` and
    ``DIFFERS`` are drift: they are about a consumer, looked for apart (:mod:`.drift`), and in no
    report of a look.
    """

    #: Less is there than is used. That is written as it is: who holds what, the finding says.
    OVER_CAPACITY = "over capacity"
    #: A device that somebody holds is gone or another now; it stays, and nobody else gets it.
    DEVICE_RETAINED = "device retained"
    #: A provider configuration file says what the driver says too, or names what is not there.
    CONFIGURATION = "configuration"
    #: The driver tells something of the host that holds nothing up.
    WARNING = "warning"
    #: The driver raised something.
    DRIVER_FAILED = "driver failed"
    #: The driver reported an invalid value: a negative figure, a float, an unknown class. If single
    #: inventories are invalid, these stay as they were, and the rest of the host is in step.
    INVALID = "invalid"
    #: What the driver made is no tree: a loop, a name twice, a share that leads nowhere.
    INVALID_TREE = "invalid tree"
    #: A class, a provider or a cell is no longer reported and in use. What is counted stays, all of
    #: it reserved, until it is released; the rest is in step. Because of a cell, or of a class that
    #: is counted above or below from now on, the ledger keeps the host as it was.
    IN_USE = "in use"
    #: Moves would lose or invent an allocation, do not say where one goes, or one does not fit.
    RESHAPE_FAILED = "reshape failed"
    #: A name or uuid of the tree is that of a provider of another tree.
    OTHER_TREE = "of another tree"
    #: The machine says another uuid than the ledger keeps: another machine has its name.
    REPLACED = "replaced"
    #: What is in use there before the ledger knew of it cannot be adopted; see ``OldRecords``.
    NOT_ADOPTED = "not adopted"
    #: Its record could not be brought up to what the ledger says; the next look tries again.
    RECORDS = "records"
    #: Somebody else undid what was written here twice within an hour: a second tracker by mistake.
    CONTESTED = "contested"
    #: The driver named the host more than once; it was looked at once.
    NAMED_TWICE = "named twice"
    #: The driver does not name a host that was asked for.
    UNKNOWN_HOST = "unknown host"
    #: Its statistics could not be asked, or not all of them kept; what it has is in step.
    STATISTICS = "statistics"
    #: ``on_change`` raised: the change is written, and who was to hear of it may not know.
    NOTIFICATION = "notification"
    #: A consumer holds something of the host and does not run there.
    ORPHAN = "orphan"
    #: A consumer runs on the host and holds nothing.
    UNKNOWN_CONSUMER = "unknown consumer"
    #: A consumer runs on the host and holds something of others only.
    ELSEWHERE = "elsewhere"
    #: A consumer holds other amounts than it runs with.
    DIFFERS = "differs"
    #: The ledger refused it for another reason; ``error`` is that.
    REFUSED = "refused"


#: Those that say that nothing was heard of the host that the ledger keeps.
_SILENT = frozenset(
    {
        FindingKind.DRIVER_FAILED,
        FindingKind.OTHER_TREE,
        FindingKind.REPLACED,
        FindingKind.UNKNOWN_HOST,
    }
)

#: What an error is a sign of, the first that fits.
_SIGN_OF: tuple[tuple[type[Exception] | str, FindingKind], ...] = (
    (exceptions.InvalidTree, FindingKind.INVALID_TREE),
    ("CountedTwice", FindingKind.INVALID_TREE),
    (exceptions.InvalidInput, FindingKind.INVALID),
    (exceptions.InvalidPlan, FindingKind.RESHAPE_FAILED),
    (exceptions.CapacityException, FindingKind.RESHAPE_FAILED),
    ("ProviderInUse", FindingKind.IN_USE),
    ("InventoryInUse", FindingKind.IN_USE),
    ("ProviderExists", FindingKind.OTHER_TREE),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a host.

    ``error`` is what was raised, None if nothing was; ``said`` is what is wrong in words;
    ``uses`` are the inventories that are over capacity, or gone and held, with their holders;
    ``consumer`` is who it is about, of drift.

    >>> print(Finding("box", FindingKind.DRIVER_FAILED, ValueError("no such node")))
    box: driver failed: ValueError: no such node
    """

    host: str
    kind: FindingKind
    error: Exception | None = None
    said: str = ""
    uses: tuple[InventoryUsage, ...] = ()
    consumer: str | None = None

    @classmethod
    def of(cls, host: str, error: Exception) -> Finding:
        """Return the finding of what the library raised about a host.

        >>> Finding.of("box", exceptions.InUse("provider", "box/numa1")).kind.value
        'in use'
        """
        kind = FindingKind.REFUSED
        if isinstance(error, exceptions.ResourceObjectsError):
            kind = next((kind for sign, kind in _SIGN_OF if error.matches(sign)), kind)
        return cls(host, kind, error)

    @classmethod
    def over_capacity(cls, host: str, uses: tuple[InventoryUsage, ...]) -> Finding:
        """Return the finding of inventories that are over capacity."""
        said = "; ".join(_held(use, f": {use.used} used of {use.capacity}") for use in uses)
        return cls(host, FindingKind.OVER_CAPACITY, said=said, uses=uses)

    def held(self, uses: tuple[InventoryUsage, ...]) -> Finding:
        """Return the finding with the inventories that are gone and held."""
        said = f"gone, but held: {'; '.join(map(_held, uses))}"
        return dataclasses.replace(self, said=said, uses=uses)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.host, self.kind, self.said or _said(self.error))))


def _said(error: Exception | None) -> str:
    if error is None or type(error).__module__.startswith("resource_objects."):
        return str(error or "")
    return f"{type(error).__name__}: {error}"


def _held(use: InventoryUsage, figures: str = "") -> str:
    held = ", ".join(f"{consumer} holds {amount}" for consumer, amount in use.holders)
    return f"{use.resource_class} of {use.provider}{figures}{f' ({held})' if held else ''}"


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """What a look at one host did: what it changed in the ledger, and what is wrong.

    ``reshaped`` are the consumers whose allocations went elsewhere with the changes.
    """

    host: str
    changes: DefinitionChanges | None = None
    findings: tuple[Finding, ...] = ()
    reshaped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.findings)

    @property
    def is_reported(self) -> bool:
        """Whether the driver answered for the host, and it is the one that the ledger keeps.

        >>> HostReport("box", findings=(Finding("box", FindingKind.OVER_CAPACITY),)).is_reported
        True
        >>> HostReport("box", findings=(Finding("box", FindingKind.DRIVER_FAILED),)).is_reported
        False
        """
        return not any(finding.kind in _SILENT for finding in self.findings)

    def __str__(self) -> str:
        lines = [str(self.changes)] if self.changes else []
        if self.reshaped:
            lines.append(f"allocations of {len(self.reshaped)} moved")
        return "\n".join((*lines, *map(str, self.findings)))


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a look at all hosts did: the hosts with something to say. True if there are any.

    >>> print(Report())
    nothing changed
    """

    hosts: tuple[HostReport, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.hosts)

    def __str__(self) -> str:
        return "\n".join(map(str, self.hosts)) or "nothing changed"

    @property
    def changed(self) -> tuple[str, ...]:
        """The hosts whose definition was changed."""
        return tuple(report.host for report in self.hosts if report.changes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, by host."""
        return tuple(self._findings())

    def _findings(self) -> Iterator[Finding]:
        for host in self.hosts:
            yield from host.findings
