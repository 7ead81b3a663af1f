"""What a tracker tells of its hosts besides what they have: statistics, and that they are there.

Both are one write for all hosts that were looked at, and none if nothing is another and nobody is
to report. What is wrong with the statistics of one host stops no other, and not what it has.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from resource_objects import clock, exceptions
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.findings import Finding, FindingKind
from resource_objects.providers.statistics import Statistic, StatisticsOrder

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: Hosts report no more often than this.
LEAST = datetime.timedelta(minutes=1)


class Reporting:
    """Tells the statistics of the hosts of a driver, and that these are heard of.

    :param every: how often it is kept that hosts reported; None: never
    :raises InvalidInput: if that is less than a minute
    """

    def __init__(self, ledger: Ledger, driver: Driver, every: datetime.timedelta | None) -> None:
        if every is not None and (not isinstance(every, datetime.timedelta) or every < LEAST):
            expected = "a timedelta of at least a minute, or None"
            raise exceptions.InvalidInput("field", "report_every", every, expected)
        self._ledger = ledger
        self._driver = driver
        self._every = every
        self._reported: float | None = None

    def tell(self, hosts: Collection[str], *, all_of_them: bool) -> list[Finding]:
        """Put the statistics of hosts that are heard of; return what is wrong with some.

        Cost: nothing if the driver says none and nobody is to report; else four small queries, and
        a write if something is another.

        :param all_of_them: whether these are all that are heard of: only then they report
        """
        findings: list[Finding] = []
        said: dict[str, tuple[Statistic, ...]] = {}
        for host in hosts:
            try:
                found = self._asked(host)
            except Exception as error:  # a driver may fail in any way: it is told with its host
                findings.append(Finding(host, FindingKind.STATISTICS, error))
            else:
                if found is not None:
                    said[host] = found
        reported = hosts if all_of_them and self._is_due() else ()
        if said or reported:
            self._put(said, reported)
        if reported:
            self._reported = clock.monotonic()
        return findings

    def _asked(self, host: str) -> tuple[Statistic, ...] | None:
        """Return what the driver says of a host, checked; None if it says nothing."""
        found = self._driver.statistics(host)
        if found is None:
            return None
        said = tuple(found)
        for one in said:
            if not isinstance(one, Statistic):
                raise exceptions.InvalidInput("field", f"statistics of {host}", one, "statistics")
        StatisticsOrder({host: said})
        return said

    def _is_due(self) -> bool:
        if self._every is None:
            return False
        last = self._reported
        return last is None or clock.monotonic() - last >= self._every.total_seconds()

    def _put(self, said: Mapping[str, tuple[Statistic, ...]], reported: Collection[str]) -> None:
        """Write the statistics and reports of all hosts in one transaction."""

        def attempt() -> None:
            there = self._ledger.backend.uuids([*said, *reported])
            values = {there[host]: some for host, some in said.items() if host in there}
            heard = [there[host] for host in reported if host in there]
            self._ledger.statistics.put(values, reported=heard)

        # a host may be removed meanwhile
        self._ledger.retries.retry(attempt, "ProviderNotFound")
