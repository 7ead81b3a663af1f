"""The statistics of a ledger: values that agents report of their hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext
from resource_objects.providers.statistics import (
    SOURCE,
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    statistic_name,
)


class Statistics:
    """The statistics of a ledger: ``ledger.statistics``.

    ==================  =======================================================================
    :meth:`put`         write the values of some hosts that changed, in one transaction, and
                        record that the hosts reported
    :meth:`read`        return the statistics of all hosts, or of some
    :meth:`forget`      delete those of some hosts, or of some names
    ==================  =======================================================================

    A host is any provider, by name or uuid. Repeating :meth:`put` writes nothing, so these methods
    have no operation id, and the change feed has no entries for them: a scheduler reads all
    statistics when it needs them. Claims and searches ignore them.

    >>> import resource_objects as ro
    >>> from resource_objects.providers.statistics import Statistic
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("box", "VCPU=8"))
    ...     for busy in (12.5, 12.5, 29.0):
    ...         values = [Statistic("cpu.percent", busy), Statistic("failed_builds", 0)]
    ...         print(ledger.statistics.put({"box": values}))
    ...     for statistic in ledger.statistics.read()["box"].values():
    ...         print(statistic)
    2
    0
    1
    cpu.percent 29
    failed_builds 0
    """

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def put(
        self,
        values: Mapping[str, Iterable[Statistic]],
        *,
        source: str = SOURCE,
        reported: Iterable[str] = (),
    ) -> int:
        """Write all statistics that a source reports of some hosts; return the number of changes.

        A statistic that the source reported before and does not report now is deleted; those of
        other sources are unchanged. An unchanged value keeps its ``since``. Repeating a call writes
        nothing.

        Cost: two small reads, and if something changed one transaction of at most eight statements,
        for one host or for thousands (MariaDB changes 500 values in each).

        :param values: ``{host: statistics}``
        :param source: the program that reports them, under a name that does not change when it is
            restarted. A host has one value of a statistic: that of the last source
        :param reported: the hosts whose agent has reported with this call, also if no value
            changed: the time is recorded (``reported_at``), which is a write each time
        :raises NotFound: if there is no such host; then nothing is written
        :raises InvalidInput: if a host has a statistic twice
        """
        if not isinstance(values, Mapping):
            raise exceptions.InvalidInput("field", "values", values, "statistics by host")
        by_key = {names.provider_key(host): _checked(host, of) for host, of in values.items()}
        if isinstance(reported, str) or not isinstance(reported, Iterable):
            raise exceptions.InvalidInput("field", "reported", reported, "a list of hosts")
        reporting = [names.provider_key(host) for host in reported]
        uuids = self._context.uuids([*dict.fromkeys((*by_key, *reporting))])
        by_uuid = {uuids[key]: statistics for key, statistics in by_key.items()}
        if len(by_uuid) != len(by_key):
            raise exceptions.InvalidInput("repetition", "values", sorted(values), "each host once")
        order = StatisticsOrder(by_uuid, source, frozenset(uuids[key] for key in reporting))
        return self._context.backend.put_statistics(order) if order.providers else 0

    def read(self, *hosts: str, names: Iterable[str] | None = None) -> StatisticsByProvider:
        """Return ``{host: {name: statistic}}``, hosts in the order in which they were created.

        A host without statistics is left out. Cost: one query, for one host or for all.

        :param hosts: only these (names or uuids); none: all
        :param names: only these statistics
        :raises NotFound: if there is no such host
        """
        return self._context.backend.read_statistics(self._filter(hosts, names))

    def forget(self, *hosts: str, names: Iterable[str] | None = None) -> int:
        """Delete the statistics of some hosts, or of some names; return the number of values.

        :param hosts: only of these (names or uuids); none: of all
        :param names: only these statistics; None: all, if hosts are passed
        :raises InvalidInput: if neither is passed
        :raises NotFound: if there is no such host
        """
        if not hosts and names is None:
            raise exceptions.InvalidInput("field", "forget", names, "hosts, or names of statistics")
        return self._context.backend.forget_statistics(self._filter(hosts, names))

    def _filter(self, hosts: Iterable[str], statistics: Iterable[str] | None) -> StatisticFilter:
        keys = [names.provider_key(host) for host in hosts]
        uuids = frozenset(self._context.uuids(keys).values()) if keys else None
        if statistics is None:
            return StatisticFilter(uuids)
        if isinstance(statistics, str) or not isinstance(statistics, Iterable):
            raise exceptions.InvalidInput("field", "names", statistics, "a list of names")
        return StatisticFilter(uuids, frozenset(map(statistic_name, statistics)))


def _checked(host: str, statistics: object) -> tuple[Statistic, ...]:
    expected = f"statistics of {host}, in a list"
    if not isinstance(statistics, Iterable):
        raise exceptions.InvalidInput("field", "values", statistics, expected)
    checked = tuple(statistics)
    for statistic in checked:
        if not isinstance(statistic, Statistic):
            raise exceptions.InvalidInput("field", "values", statistic, expected)
    return checked
