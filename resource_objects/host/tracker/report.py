"""The results of an update: findings and changes by host; the statistics of hosts."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from resource_objects import clock, exceptions
from resource_objects.findings import Finding
from resource_objects.host.tracker.driver import Driver
from resource_objects.providers import DefinitionChanges
from resource_objects.providers.statistics import Statistic, StatisticsOrder
from resource_objects.providers.usage import InventoryUsage

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


class FindingKind(enum.StrEnum):
    """The kinds of findings about a host.

    With a kind that is marked *in step*, the ledger has the rest of the report of the driver; else
    the host stays as it was. ``ORPHAN``, ``UNKNOWN_CONSUMER``, ``ELSEWHERE`` and ``DIFFERS`` are
    drift: they concern a consumer (:mod:`.drift`) and are in no report of an update.
    """

    #: In step: more is used than the new capacity. The finding has the consumers.
    OVER_CAPACITY = "over capacity"
    #: In step: an allocated device was removed or changed. It stays, and cannot be allocated again.
    DEVICE_RETAINED = "device retained"
    #: In step: a provider file adds what the driver reports, or names a provider that no host has.
    CONFIGURATION = "configuration"
    #: In step: a warning of the driver.
    WARNING = "warning"
    #: The driver raised an exception.
    DRIVER_FAILED = "driver failed"
    #: The driver reported an invalid value: a negative figure, a float, an unknown class. Single
    #: invalid inventories stay as they were, with the rest of the host in step.
    INVALID = "invalid"
    #: The driver made an invalid tree: a loop, a repeated name, a share of a missing inventory.
    INVALID_TREE = "invalid tree"
    #: A class, a provider or a cell is no longer reported, and in use. In step if it is counted: it
    #: stays, completely reserved, until it is released. With a cell, or a class that is counted
    #: above or below from now on, the host stays as it was.
    IN_USE = "in use"
    #: Moves would lose or invent an allocation, or lack a destination with capacity.
    RESHAPE_FAILED = "reshape failed"
    #: A name or uuid of the tree is that of a provider of another tree.
    OTHER_TREE = "of another tree"
    #: The machine reports another uuid than the stored one: another machine has its name.
    REPLACED = "replaced"
    #: The usage of a host that the ledger did not have cannot be adopted; see ``LegacyRecords``.
    NOT_ADOPTED = "not adopted"
    #: In step: the ledger's figures could not be written to the record; the next update repeats it.
    RECORDS = "records"
    #: Another writer reverted the same change twice within an hour: probably a second tracker.
    CONTESTED = "contested"
    #: In step: the driver named the host more than once; it was updated once.
    NAMED_TWICE = "named twice"
    #: The driver does not name a host that the caller named.
    UNKNOWN_HOST = "unknown host"
    #: In step: the statistics of the host failed, or are invalid.
    STATISTICS = "statistics"
    #: In step: ``on_change`` raised an exception; the change is written.
    NOTIFICATION = "notification"
    #: A consumer has allocations of the host and does not run there.
    ORPHAN = "orphan"
    #: A consumer runs on the host and has no allocations.
    UNKNOWN_CONSUMER = "unknown consumer"
    #: A consumer runs on the host and has allocations of other hosts only.
    ELSEWHERE = "elsewhere"
    #: The allocations of a consumer differ from the amounts it runs with.
    DIFFERS = "differs"
    #: The ledger refused the write for another reason, which is the ``error``.
    REFUSED = "refused"


#: The kinds with which a host counts as not reported.
_UNREPORTED = frozenset(
    {
        FindingKind.DRIVER_FAILED,
        FindingKind.OTHER_TREE,
        FindingKind.REPLACED,
        FindingKind.UNKNOWN_HOST,
    }
)

#: The kind of the finding of an error; the first entry that matches.
_KIND_OF_ERROR: tuple[tuple[type[Exception] | str, FindingKind], ...] = (
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
class HostFinding(Finding):
    """A finding about a host, which is its ``subject``.

    ``uses`` are the inventories that are over capacity, or removed and in use, with their
    consumers; ``consumer`` is the consumer of a drift.

    >>> print(HostFinding("box", FindingKind.DRIVER_FAILED, error=ValueError("no such node")))
    box: driver failed: ValueError: no such node
    """

    kind: FindingKind = FindingKind.REFUSED
    uses: tuple[InventoryUsage, ...] = ()
    consumer: str | None = None

    @classmethod
    def of(cls, host: str, error: Exception, uses: tuple[InventoryUsage, ...] = ()) -> HostFinding:
        """Return the finding of an error of the library about a host.

        :param uses: the inventories that could not be removed, with their consumers

        >>> HostFinding.of("box", exceptions.InUse("provider", "box/numa1")).kind.value
        'in use'
        """
        kind = FindingKind.REFUSED
        if isinstance(error, exceptions.ResourceObjectsError):
            kind = next((kind for match, kind in _KIND_OF_ERROR if error.matches(match)), kind)
        removed = "; ".join(f"{use.resource_class} of {use.provider}{_users(use)}" for use in uses)
        return cls(host, kind, f"removed, but in use: {removed}" if uses else "", error, uses)

    @classmethod
    def over_capacity(cls, host: str, uses: tuple[InventoryUsage, ...]) -> HostFinding:
        """Return the finding of inventories that are over capacity."""
        detail = "; ".join(
            f"{use.resource_class} of {use.provider}: "
            f"{use.used} used of {use.capacity}{_users(use)}"
            for use in uses
        )
        return cls(host, FindingKind.OVER_CAPACITY, detail, uses=uses)

    def __str__(self) -> str:
        kind = type(self.error)
        if self.detail or self.error is None or kind.__module__.startswith("resource_objects."):
            return Finding.__str__(self)
        return f"{self.subject}: {self.kind}: {kind.__name__}: {self.error}"


def _users(use: InventoryUsage) -> str:
    users = ", ".join(f"{consumer} holds {amount}" for consumer, amount in use.holders)
    return f" ({users})" if users else ""


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """The result of an update of one host: the changes in the ledger, and the findings.

    ``reshaped`` are the consumers whose allocations moved to other providers with the changes.
    """

    host: str
    changes: DefinitionChanges | None = None
    findings: tuple[HostFinding, ...] = ()
    reshaped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.findings)

    @property
    def is_reported(self) -> bool:
        """True if the driver reported the host, and it is the one that the ledger has.

        >>> finding = HostFinding("box", FindingKind.OVER_CAPACITY)
        >>> HostReport("box", findings=(finding,)).is_reported
        True
        >>> finding = HostFinding("box", FindingKind.DRIVER_FAILED)
        >>> HostReport("box", findings=(finding,)).is_reported
        False
        """
        return not any(finding.kind in _UNREPORTED for finding in self.findings)

    def __str__(self) -> str:
        lines = [str(self.changes)] if self.changes else []
        if self.reshaped:
            lines.append(f"allocations of {len(self.reshaped)} moved")
        return "\n".join((*lines, *map(str, self.findings)))


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The result of an update of all hosts: those with changes or findings. True if any has some.

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
    def findings(self) -> tuple[HostFinding, ...]:
        """All findings, by host."""
        return tuple(finding for report in self.hosts for finding in report.findings)


class StatisticsReporter:
    """Writes the statistics of the hosts of a driver, and the time at which they reported.

    :param interval: the least time between two such times of report; None: none are written
    :raises InvalidInput: if it is less than a minute
    """

    def __init__(self, ledger: Ledger, driver: Driver, interval: datetime.timedelta | None) -> None:
        minute = datetime.timedelta(minutes=1)
        if interval is not None and (
            not isinstance(interval, datetime.timedelta) or interval < minute
        ):
            expected = "a timedelta of at least a minute, or None"
            raise exceptions.InvalidInput("field", "report_every", interval, expected)
        self._ledger = ledger
        self._driver = driver
        self._interval = interval
        self._written: float | None = None

    def write(self, hosts: Collection[str], *, are_all: bool) -> list[HostFinding]:
        """Write the statistics of hosts in one transaction; return the findings about them.

        Cost: none without statistics and due report times; else four small queries, and a write if
        something changed.

        :param are_all: whether these are all hosts of the driver: only then report times are due
        """
        findings: list[HostFinding] = []
        statistics: dict[str, tuple[Statistic, ...]] = {}
        for host in hosts:
            try:
                described = self._driver.statistics(host)
                if described is None:
                    continue
                values: tuple[Any, ...] = tuple(described)
                for value in values:
                    if not isinstance(value, Statistic):
                        field = f"statistics of {host}"
                        raise exceptions.InvalidInput("field", field, value, "statistics")
                StatisticsOrder({host: values})  # checks them
                statistics[host] = values
            except Exception as error:  # a driver may fail in any way: the finding names its host
                findings.append(HostFinding(host, FindingKind.STATISTICS, error=error))
        is_due = are_all and self._interval is not None
        if is_due and self._written is not None and self._interval is not None:
            is_due = clock.monotonic() - self._written >= self._interval.total_seconds()
        reported = hosts if is_due else ()
        if not statistics and not reported:
            return findings

        def write() -> None:
            uuids = self._ledger.backend.uuids([*statistics, *reported])
            self._ledger.statistics.put(
                {uuids[host]: values for host, values in statistics.items() if host in uuids},
                reported=[uuids[host] for host in reported if host in uuids],
            )

        self._ledger.retries.retry(write, "ProviderNotFound")  # a host may be removed meanwhile
        if reported:
            self._written = clock.monotonic()
        return findings
