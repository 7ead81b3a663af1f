"""What agents told of their hosts: statistics, and when they were heard of."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping

import numpy as np

from resource_objects.exceptions import InvalidInput
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
        """Return a statistic of all hosts that tell it. Cost: one query for each name."""
        if name not in self._by_name:
            found: StatisticsByProvider = {}
            if self._ledger is not None:
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
        """Every statistic of every host. Cost: one query."""
        return {} if self._ledger is None else self._ledger.statistics.read()

    def require_reported(self, name: str) -> None:
        """Raise unless some host reports a statistic: a name that no host reports is misspelled.

        :raises InvalidInput: if no host reports it
        """
        if not self.of(name):
            known = ", ".join(sorted({one for some in self.statistics.values() for one in some}))
            expected = f"one that a host reports: {known or 'none'}"
            raise InvalidInput("field", "statistic", name, expected)

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
    """Return a statistic as a number; NaN for a text."""
    return float("nan") if isinstance(statistic.value, str) else float(statistic.value)
