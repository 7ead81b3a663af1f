"""Statistics: what agents tell of their hosts beside what these have, and that they are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from resource_objects import exceptions, names
from resource_objects.ledger.store import Store
from resource_objects.providers.statistics import (
    SOURCE,
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    StatisticType,
    statistic_name,
)


class Statistics:
    """The statistics of a ledger: ``ledger.statistics``.

    ==================  =======================================================================
    :meth:`put`         say what hosts tell, and that they reported; the values that changed are
                        written, for all hosts in one transaction
    :meth:`read`        the statistics of all hosts, or of some
    :meth:`forget`      forget those of some hosts, or of some names
    :meth:`declare`     what statistics there are, with their descriptions
    :meth:`types`       those that are declared
    ==================  =======================================================================

    A host here is any provider, by name or uuid. What is put twice is written once, so these
    methods take no operation id, and the change feed does not tell them: a scheduler reads all
    statistics when it wants them. Nothing of it bears on what can be claimed.

    >>> import resource_objects as ro
    >>> from resource_objects.providers.statistics import StatisticType
    >>> load = StatisticType("cpu.percent", "decimal", "%")
    >>> builds = StatisticType("failed_builds", "integer")
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("box", "VCPU=8"))
    ...     for busy in ("12.5", "12.5", "29"):
    ...         print(ledger.statistics.put({"box": [load(busy), builds(0)]}))
    ...     for one in ledger.statistics.read()["box"].values():
    ...         print(one)
    2
    0
    1
    cpu.percent 29 %
    failed_builds 0
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(
        self,
        values: Mapping[str, Iterable[Statistic]],
        *,
        source: str = SOURCE,
        reported: Iterable[str] = (),
    ) -> int:
        """Keep all that a source says of some hosts; return how many values were written or gone.

        One that the source said before and does not say now is gone; what other sources said
        stays. A value that is the same stays since when it was, so what a source says again costs
        a read and writes nothing. Cost: two small reads, and if something changed one transaction
        of at most ten statements, for one host or for thousands (MariaDB changes 500 values in
        each).

        :param values: ``{host: statistics}``
        :param source: who says it: a word for the program, which stays the same when it is
            restarted. One host has one value of a statistic, of whoever said it last
        :param reported: the hosts whose agent is heard of by this, also where nothing changed: it
            is kept when that was (``reported_at``), which is a write each time
        :raises ProviderNotFound: if a host is not there; then nothing is written
        :raises StatisticConflict: if a statistic is declared with another type or unit
        :raises DuplicateKey: if a host is given a statistic twice
        """
        if not isinstance(values, Mapping):
            raise exceptions.InvalidField("values", values, "a mapping of hosts to statistics")
        said = {names.provider_key(host): _statistics(host, some) for host, some in values.items()}
        heard = _keys("reported", reported)
        uuids = self._store.uuids([*dict.fromkeys((*said, *heard))])
        by_uuid = {uuids[key]: some for key, some in said.items()}
        if len(by_uuid) != len(said):
            raise exceptions.DuplicateKey("values", sorted(values), "each host once")
        order = StatisticsOrder(by_uuid, source, reported=frozenset(uuids[key] for key in heard))
        if not order.providers:
            return 0
        return self._store.backend.put_statistics(order)

    def read(self, *hosts: str, names: Iterable[str] | None = None) -> StatisticsByProvider:
        """Return ``{host: {name: statistic}}``, hosts in the order they were made; empty ones not.

        Cost: two queries, for one host or for all.

        :param hosts: of these alone (names or uuids); none: of all
        :param names: these statistics alone
        :raises ProviderNotFound: if there is no provider of a name
        """
        return self._store.backend.read_statistics(self._filter(hosts, names))

    def forget(self, *hosts: str, names: Iterable[str] | None = None) -> int:
        """Forget the statistics of some hosts, or of some names; return how many values they were.

        A name that is forgotten of all hosts is declared no more, and may get another type or unit.
        Whoever says one again makes it anew.

        :param hosts: of these (names or uuids); none: of all
        :param names: these statistics alone; None: all, if hosts are given
        :raises InvalidField: if neither is given
        :raises ProviderNotFound: if there is no provider of a name
        """
        if not hosts and names is None:
            raise exceptions.InvalidField("forget", names, "hosts, or names of statistics")
        return self._store.backend.forget_statistics(self._filter(hosts, names))

    def declare(self, *types: StatisticType) -> None:
        """Declare statistics, or describe those anew that are declared.

        What is put is declared by that, if it was not; so this is for descriptions, and for who
        wants a name to be his own before somebody else says it.

        :raises StatisticConflict: if one is declared with another type or unit
        """
        for one in types:
            if not isinstance(one, StatisticType):
                raise exceptions.InvalidField("declare", one, "a StatisticType")
        if types:
            self._store.backend.put_statistics(StatisticsOrder(types=types))

    def types(self) -> tuple[StatisticType, ...]:
        """Return the statistics that are declared, by name. Cost: one statement."""
        return self._store.backend.statistic_types()

    def _filter(self, hosts: Iterable[str], wanted: Iterable[str] | None) -> StatisticFilter:
        keys = [names.provider_key(host) for host in hosts]
        of = frozenset(self._store.uuids(keys).values()) if keys else None
        if wanted is not None and (isinstance(wanted, str) or not isinstance(wanted, Iterable)):
            raise exceptions.InvalidField("names", wanted, "a list of names")
        named = None if wanted is None else frozenset(map(statistic_name, wanted))
        return StatisticFilter(of, named)


def _keys(what: str, given: Iterable[str]) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise exceptions.InvalidField(what, given, "a list of hosts")
    return [names.provider_key(host) for host in given]


def _statistics(host: str, given: object) -> tuple[Statistic, ...]:
    expected = f"statistics of {host}, in a list"
    if not isinstance(given, Iterable):
        raise exceptions.InvalidField("values", given, expected)
    found = tuple(given)
    for one in found:
        if not isinstance(one, Statistic):
            raise exceptions.InvalidField("values", one, expected)
    return found
