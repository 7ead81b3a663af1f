"""What agents told of their hosts: statistics, and when they were heard of."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping

import numpy as np

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.providers.statistics import Statistic, StatisticsByProvider
from resource_objects.search.arrays import Figures, frozen

#: After all that was ever reported.
_EVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


class Reports:
    """What agents told, read when it is first asked for, and then kept.

    Hosts are named; one that told nothing is not there. Without a ledger nobody told anything.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._by_name: dict[str, dict[str, Statistic]] = {}
        self._figures: dict[str, tuple[tuple[str, ...], Figures]] = {}

    def of(self, name: str) -> Mapping[str, Statistic]:
        """Return a statistic of all hosts that tell it. Cost: two queries for each name."""
        if name not in self._by_name:
            found: StatisticsByProvider = {}
            if self._ledger is not None and name in self.declared:
                found = self._ledger.statistics.read(names=[name])
            self._by_name[name] = {host: told[name] for host, told in found.items()}
        return self._by_name[name]

    def figures(self, name: str, hosts: tuple[str, ...]) -> Figures:
        """Return a statistic of hosts as numbers; NaN where one has none, or no number."""
        known = self._figures.get(name)
        if known is None or known[0] is not hosts:
            told = self.of(name)
            some = [number_of(told[host]) if host in told else np.nan for host in hosts]
            known = self._figures[name] = hosts, frozen(np.array(some, dtype=np.float64))
        return known[1]

    @functools.cached_property
    def statistics(self) -> StatisticsByProvider:
        """Every statistic of every host. Cost: two queries."""
        return {} if self._ledger is None else self._ledger.statistics.read()

    @functools.cached_property
    def declared(self) -> frozenset[str]:
        """The names of the statistics that there are. Cost: one query."""
        if self._ledger is None:
            return frozenset()
        return frozenset(one.name for one in self._ledger.statistics.types())

    def require_declared(self, name: str) -> None:
        """Raise unless there is a statistic of a name.

        :raises InvalidField: if there is none
        """
        if name not in self.declared:
            known = ", ".join(sorted(self.declared)) or "none"
            raise exceptions.InvalidField("statistic", name, f"one that is declared: {known}")

    @functools.cached_property
    def silence(self) -> Mapping[str, float]:
        """For how many seconds hosts have not reported, by the clock of the ledger.

        Cost: a list of all hosts that ever did.
        """
        if self._ledger is None:
            return {}
        now = self._ledger.now()
        return {
            one.name: (now - one.reported_at).total_seconds()
            for one in self._ledger.providers(reported_before=_EVER)
            if one.reported_at is not None and one.parent is None
        }


def number_of(statistic: Statistic) -> float:
    """Return a statistic as a number: a moment in seconds since 1970; NaN for a text."""
    value = statistic.value
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    return float("nan") if isinstance(value, str) else float(value)
