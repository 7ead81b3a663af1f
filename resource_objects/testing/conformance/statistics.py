"""Tests of statistics: values with time and source, and times of reports."""

from __future__ import annotations

import contextlib
import datetime
import functools
import time
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers import Backend, Provider
from resource_objects.providers.backend import Capability
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import Operation
from resource_objects.providers.statistics import (
    MAX_DECIMAL,
    SOURCE,
    Statistic,
    StatisticFilter,
    StatisticsOrder,
)
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.races import together
from resource_objects.testing.conformance.requirements import requires
from resource_objects.testing.refusals import raises_code

LOAD = functools.partial(Statistic, "cpu.percent")
BUILDS = functools.partial(Statistic, "failed_builds")
STATE = functools.partial(Statistic, "power.state")
UP = functools.partial(Statistic, "is_up")
NAMES = "cpu.percent", "failed_builds", "is_up", "power.state"
_NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
#: extreme values of each type
EXTREMES: tuple[Any, ...] = (
    *(0, -1, MAX_AMOUNT, -MAX_AMOUNT, True, False),
    *(0.29, Decimal("-0.000001"), MAX_DECIMAL, Decimal("8999999999999.999999")),
    *("a", "ä" * 255, "\N{SNOWMAN} and \N{PILE OF POO}", "NULL", "a'b\"c\\d%s", "true", "12.5"),
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.integers(-MAX_AMOUNT, MAX_AMOUNT),
    st.decimals(-MAX_DECIMAL, MAX_DECIMAL, places=6),
    st.booleans(),
    st.sampled_from(EXTREMES),
)


def put(
    backend: Backend, provider: str, *options: Statistic, source: str = SOURCE, **more: Any
) -> int:
    """Write the statistics of a source for one provider."""
    return backend.put_statistics(StatisticsOrder({provider: options}, source, **more))


def read(backend: Backend, *providers: str, names: Any = None) -> dict[str, dict[str, Statistic]]:
    """Return the statistics of some providers (uuids), or of all."""
    of = frozenset(providers) if providers else None
    return backend.read_statistics(StatisticFilter(of, None if names is None else frozenset(names)))


def values(backend: Backend) -> dict[str, dict[str, Any]]:
    """Return the values of all statistics."""
    return {
        provider: {name: item.value for name, item in sample.items()}
        for provider, sample in read(backend).items()
    }


def until_later(backend: Backend) -> datetime.datetime:
    """Return the time of the ledger, and wait until its clock has advanced."""
    at = backend.now()
    while backend.now() <= at:
        time.sleep(0.001)
    return at


@requires(Capability.STATISTICS)
class StatisticRules(kit.Kit):
    """Statistics of providers."""

    @kit.law(7)
    def test_every_value_is_read_as_it_was_written(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        assert read(backend) == {}
        statistics = [Statistic(f"n{number}", value) for number, value in enumerate(EXTREMES)]
        put(backend, here, *statistics)
        result = read(backend)["host0"]
        for statistic in statistics:
            value = result[statistic.name].value
            assert (value, type(value)) == (statistic.value, type(statistic.value))
        assert list(result) == sorted(result)

    def test_a_value_has_the_time_of_its_last_change(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        before = backend.now()
        assert put(backend, here, LOAD(12.5)) == 1
        first = read(backend)["host0"]["cpu.percent"].since
        assert first is not None and before <= first <= backend.now()
        later = until_later(backend)
        assert put(backend, here, LOAD(Decimal("12.50"))) == 0
        assert put(backend, here, LOAD(12.5, since=_NOON)) == 0, "an equal value"
        assert read(backend)["host0"]["cpu.percent"].since == first
        assert put(backend, here, LOAD(12.6)) == 1
        second = read(backend)["host0"]["cpu.percent"].since
        assert second is not None and second >= later
        zone = datetime.timezone(datetime.timedelta(hours=2))
        put(backend, here, LOAD(1, since=_NOON.astimezone(zone)))
        assert read(backend)["host0"]["cpu.percent"].since == _NOON

    def test_a_value_keeps_its_time_when_another_source_writes_it(self, backend: Backend) -> None:
        here, _ = kit.two_hosts(backend)
        put(backend, here, LOAD(1), BUILDS(2))
        before = read(backend)["host0"]["cpu.percent"]
        assert put(backend, here, LOAD(1), STATE("on"), source="bmc") == 2
        after = read(backend)["host0"]["cpu.percent"]
        assert (after.source, after.since) == ("bmc", before.since)
        assert put(backend, here) == 1
        assert values(backend) == {"host0": {"cpu.percent": 1, "power.state": "on"}}

    def test_many_providers_are_one_write(self, backend: Backend) -> None:
        names = kit.define(backend, *(Provider(f"host{n}", "VCPU=1") for n in range(40)))
        options = {names[f"host{n}"]: (LOAD(n), BUILDS(n)) for n in range(40)}
        assert backend.put_statistics(StatisticsOrder(options)) == 80
        assert backend.put_statistics(StatisticsOrder(options)) == 0
        changed = {**options, names["host7"]: (LOAD(1), BUILDS(7)), names["host9"]: (LOAD(9),)}
        assert backend.put_statistics(StatisticsOrder(changed)) == 2
        result = values(backend)
        assert list(result) == [f"host{n}" for n in range(40)], "in the order they were created"
        assert result["host7"] == {"cpu.percent": 1, "failed_builds": 7}
        assert result["host9"] == {"cpu.percent": 9}

    def test_statistics_are_read_by_provider_and_by_name(self, backend: Backend) -> None:
        here, destination = kit.two_hosts(backend)
        put(backend, here, LOAD(1), BUILDS(2))
        put(backend, destination, LOAD(3))
        assert list(read(backend, destination)) == ["host1"]
        assert read(backend, here, names=["failed_builds"])["host0"].keys() == {"failed_builds"}
        assert read(backend, names=["failed_builds"]).keys() == {"host0"}
        assert read(backend, names=["nothing"]) == read(backend, names=[]) == {}
        no_provider = StatisticFilter(frozenset())
        assert backend.read_statistics(no_provider) == {}

    # --- removal ---

    def test_statistics_are_removed_by_provider_and_by_name(self, backend: Backend) -> None:
        here, destination = kit.two_hosts(backend)
        put(backend, here, LOAD(1), BUILDS(2))
        put(backend, destination, LOAD(3), BUILDS(4))
        sample = StatisticFilter(frozenset([here]), frozenset(["cpu.percent", "nothing"]))
        assert backend.forget_statistics(sample) == 1
        assert backend.forget_statistics(sample) == 0
        assert values(backend)["host0"] == {"failed_builds": 2}
        assert backend.forget_statistics(StatisticFilter(frozenset([here]))) == 1
        assert values(backend) == {"host1": {"cpu.percent": 3, "failed_builds": 4}}
        assert backend.forget_statistics(StatisticFilter(None, frozenset(["cpu.percent"]))) == 1
        assert values(backend) == {"host1": {"failed_builds": 4}}

    def test_statistics_are_removed_with_their_provider(self, backend: Backend) -> None:
        kit.define(backend, _with_gpu("host0"), Provider("host1", "VCPU=8"))
        names = backend.uuids(["host0", "host0/gpu", "host1"])
        for uuid in names.values():
            put(backend, uuid, LOAD(1))
        kit.define(backend, Provider("host0", "VCPU=9"))
        assert list(values(backend)) == ["host0", "host1"], "a change of the definition leaves them"
        kit.define(backend, _with_gpu("host0"))
        assert list(values(backend)) == ["host0", "host1"], "the new one has none"
        with raises_code("ProviderNotFound"):
            put(backend, names["host0/gpu"], LOAD(2))

    # --- independence of definitions ---

    @kit.law(2)
    def test_an_unknown_provider_refuses_all_statistics_of_the_order(
        self, backend: Backend
    ) -> None:
        here, _ = kit.two_hosts(backend)
        unknown = "00000000-0000-4000-8000-000000000000"
        for reported in ((), (here,), (unknown,)):
            order = StatisticsOrder(
                {here: (LOAD(1),), unknown: (LOAD(2),)}, reported=frozenset(reported)
            )
            with raises_code("ProviderNotFound", match=unknown):
                backend.put_statistics(order)
        assert values(backend) == {}
        assert kit.stored_tree(backend, "host0").reported_at is None

    def test_statistics_change_neither_the_feed_nor_the_definition(self, backend: Backend) -> None:
        here, destination = kit.two_hosts(backend)
        cursor = backend.cursor()
        before, other = kit.stored_tree(backend, "host0"), kit.stored_tree(backend, "host1")
        put(backend, here, LOAD(1), reported=frozenset([destination]))
        backend.forget_statistics(StatisticFilter(frozenset([here])))
        assert backend.cursor() == cursor
        assert kit.stored_tree(backend, "host0") == before
        assert kit.stored_tree(backend, "host1").generation == other.generation

    # --- reports ---

    def test_the_time_of_a_report_is_stored_with_statistics(self, backend: Backend) -> None:
        here, destination = kit.two_hosts(backend)
        first = backend.now()
        assert put(backend, here, LOAD(1), reported=frozenset([here])) == 1
        at = kit.stored_tree(backend, "host0").reported_at
        assert at is not None and first <= at <= backend.now()
        assert kit.stored_tree(backend, "host1").reported_at is None
        later = until_later(backend)
        both = StatisticsOrder(reported=frozenset([here, destination]))
        assert backend.put_statistics(both) == 0, "no value is written"
        again = [listed.reported_at for listed in backend.list_providers(ProviderFilter(), 10)]
        assert again[0] == again[1] and again[0] is not None and again[0] >= later
        provider_filter = ProviderFilter(reported_before=later)
        assert backend.list_providers(provider_filter, 10) == ()

    # --- concurrent writers ---

    def test_threads_write_statistics_at_once(self, backend: Backend) -> None:
        names = kit.define(backend, *(Provider(f"host{n}", "VCPU=1") for n in range(4)))
        all_hosts = frozenset(names.values())

        def tell(worker: int) -> int:
            for turn in range(4):
                options = {uuid: (LOAD(turn), BUILDS(worker)) for uuid in sorted(all_hosts)}
                heard = all_hosts if worker % 2 else frozenset()
                backend.put_statistics(StatisticsOrder(options, reported=heard))
            return worker

        assert together(tell, workers=4) == [0, 1, 2, 3]
        result = values(backend)
        assert all(value["cpu.percent"] == 3 for value in result.values()), result

    def test_statistics_of_a_provider_that_is_removed_meanwhile_are_refused(
        self, backend: Backend
    ) -> None:
        def tell_or_remove(worker: int) -> int:
            for turn in range(6):
                if worker == 0:
                    uuid = kit.define(backend, Provider("host0", "VCPU=1"))["host0"]
                    put(backend, uuid, LOAD(turn))
                    backend.define(Operation(), kit.removal_of(backend, "host0"))
                else:
                    for uuid in backend.uuids(["host0"]).values():
                        with contextlib.suppress(exceptions.NotFound):
                            put(backend, uuid, BUILDS(turn), source="another")
            return worker

        assert together(tell_or_remove, workers=3) == [0, 1, 2]
        assert values(backend) == {}

    def test_statistics_agree_with_a_dict(self, backend: Backend) -> None:
        hosts = dict(zip(kit.two_hosts(backend), ("host0", "host1"), strict=True))

        @settings(max_examples=10, deadline=None)
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            backend.forget_statistics(StatisticFilter(None))
            model: dict[tuple[str, str], tuple[Any, str]] = {}
            for _ in range(data.draw(st.integers(1, 6))):
                source = data.draw(st.sampled_from(["agent", "bmc"]))
                sample = data.draw(st.sets(st.sampled_from(sorted(hosts)), min_size=1))
                options: dict[str, tuple[Statistic, ...]] = {}
                before = dict(model)
                for host in sorted(sample):
                    names = sorted(data.draw(st.sets(st.sampled_from(NAMES))))
                    options[host] = tuple(Statistic(name, data.draw(VALUES)) for name in names)
                    for key, (_, writer) in before.items():
                        if key[0] == host and writer == source:
                            del model[key]
                    for value in options[host]:
                        model[host, value.name] = value.to_stored(), source
                keys = before.keys() | model.keys()
                expected = sum(before.get(key) != model.get(key) for key in keys)
                assert backend.put_statistics(StatisticsOrder(options, source)) == expected
                now = {
                    (name, key): (item.to_stored(), item.source)
                    for name, stored in read(backend).items()
                    for key, item in stored.items()
                }
                assert now == {(hosts[host], key): item for (host, key), item in model.items()}

        check()


def _with_gpu(name: str) -> Provider:
    root = Provider(name, "VCPU=8")
    root.add(f"{name}/gpu", "PGPU=1")
    return root
