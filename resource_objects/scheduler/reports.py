"""Reports of agents: statistics of hosts, and the times of the reports."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.ledger import Ledger
from resource_objects.providers.statistics import Statistic, StatisticsByProvider
from resource_objects.search.arrays import Figures, frozen

#: Later than every report.
_END_OF_TIME = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


class Reports:
    """The reports of all agents, read from the ledger when they are first needed, then cached.

    Hosts that reported nothing are absent. Without a ledger there are no reports.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._by_name: dict[str, dict[str, Statistic]] = {}
        self._figures: dict[str, tuple[tuple[str, ...], Figures]] = {}

    def of(self, name: str) -> Mapping[str, Statistic]:
        """Return a statistic by host. Cost: one query for each name."""
        if name not in self._by_name:
            by_host: StatisticsByProvider = {}
            if self._ledger is not None:
                by_host = self._ledger.statistics.read(names=[name])
            self._by_name[name] = {host: values[name] for host, values in by_host.items()}
        return self._by_name[name]

    def figures(self, name: str, hosts: tuple[str, ...]) -> Figures:
        """Return a statistic of hosts as numbers; NaN for a text, and if it is not reported."""
        cached = self._figures.get(name)
        if cached is None or cached[0] is not hosts:
            statistics = self.of(name)
            values = [_number(statistics.get(host)) for host in hosts]
            cached = self._figures[name] = hosts, frozen(np.array(values, dtype=np.float64))
        return cached[1]

    @functools.cached_property
    def statistics(self) -> StatisticsByProvider:
        """Every statistic of every host. Cost: one query."""
        return {} if self._ledger is None else self._ledger.statistics.read()

    def require_reported(self, name: str) -> None:
        """Raise unless some host reports a statistic: a name that no host reports is misspelled.

        :raises InvalidInput: if no host reports it
        """
        if not self.of(name):
            known = ", ".join(sorted(set().union(*self.statistics.values())))
            expected = f"one that a host reports: {known or 'none'}"
            raise InvalidInput("field", "statistic", name, expected)

    @functools.cached_property
    def seconds_since_report(self) -> Mapping[str, float]:
        """The age of the last report by host, by the clock of the ledger.

        Cost: a list of all hosts that ever reported.
        """
        if self._ledger is None:
            return {}
        now = self._ledger.now()
        return {
            provider.name: (now - provider.reported_at).total_seconds()
            for provider in self._ledger.providers(reported_before=_END_OF_TIME)
            if provider.reported_at is not None and provider.parent is None
        }


def _number(statistic: Statistic | None) -> float:
    if statistic is None or isinstance(statistic.value, str):
        return float("nan")
    return float(statistic.value)
