"""Metrics and stats of Nova's compute nodes, as statistics."""

from __future__ import annotations

import contextlib
import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.interop.nova.statistics import METRICS, STATS, load_statistics
from resource_objects.testing.refusals import raises_code

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


def metric(name: str = "cpu.percent", **text: Any) -> dict[str, Any]:
    """Return a metric as Nova writes it into the column."""
    source = "libvirt.LibvirtDriver"
    return {"name": name, "timestamp": "2026-11-22T12:00:00.000000", "source": source, **text}


def enveloped(kind: str, /, **data: Any) -> dict[str, Any]:
    """Return an object of Nova's as it is sent."""
    return {
        "nova_object.name": kind,
        "nova_object.namespace": "nova",
        "nova_object.version": "1.1",
        "nova_object.data": data,
    }


def values(result: Any) -> dict[str, Any]:
    return {item.name: item.value for item in result.statistics}


@pytest.mark.law(7)
@given(st.integers(0, 100))
def test_no_metric_loses_a_point(percent: int) -> None:
    """Nova divides by 100.0, writes the float, reads ``int(value * 100)``: 29 becomes 28."""
    column = json.dumps([metric(value=percent / 100.0)])
    sent = enveloped(
        "MonitorMetricList", objects=[enveloped("MonitorMetric", **metric(value=percent))]
    )
    for source in (column, column.encode(), json.loads(column), sent, json.dumps(sent)):
        [result] = load_statistics(source).statistics
        assert (result.value, type(result.value)) == (percent, int)


def test_a_metric_has_its_source_and_time() -> None:
    text = [metric("cpu.user.time", value=10**15), metric("cpu.frequency", value=2400)]
    [time, frequency] = load_statistics(text).statistics
    assert (time.value, frequency.value) == (10**15, 2400)
    assert (time.since, time.source) == (NOON, "libvirt.LibvirtDriver")
    assert load_statistics([metric(value=0.125)]).statistics[0].value == Decimal("12.5")


def test_counters_are_numbers_and_other_words_text() -> None:
    stats = {"failed_builds": "3", "io_workload": 0, "num_instances": "2", "cpu_arch": "x86_64"}
    for source in (stats, json.dumps(stats)):
        result = load_statistics(stats=source)
        assert values(result) == {
            **{name: int(stats[name]) for name in STATS},
            "cpu_arch": "x86_64",
        }
        assert result.skipped == ()


@pytest.mark.parametrize(
    ("metrics", "stats", "reason"),
    [
        ([metric("numa.membw.current", numa_membw_values={"0": 7})], None, "each NUMA node"),
        ([metric(value="high")], None, "a number"),
        ([metric(value=0.1234567)], None, "six places"),
        ([metric(value=True)], None, "a number"),
        ([metric("cpu.frequency", value=2.4)], None, "an integer"),
        ([metric(value=1, timestamp="noon")], None, "a time"),
        ([metric("my metric", value=1)], None, "name of a statistic"),
        ([metric(value=1), metric(value=2)], None, "repeated"),
        (None, {"num_vm_active": "3"}, "contains a state"),
        (None, {"num_task_None": "3"}, "contains a state"),
        (None, {"num_proj_4711": "3"}, "contains a state"),
        (None, {"num_vcpus_used": "3"}, "the allocations"),
        (None, {"failed_builds": "many"}, "a whole number"),
        (None, {"failed_builds": "9" * 30}, "a whole number"),
        (None, {"failed_builds": "²"}, "a whole number"),
        (None, {"boot option": "local"}, "name of a statistic"),
        (None, {"cpu_info": "{" * 300}, "255"),
        (None, {"uptime": None}, "null"),
    ],
)
def test_what_is_no_statistic_is_left_out_with_why(metrics: Any, stats: Any, reason: str) -> None:
    good = metric("cpu.user.percent", value=0.07)
    result = load_statistics([good, *(metrics or ())], stats)
    assert values(result)["cpu.user.percent"] == 7
    [skipped] = result.skipped
    assert reason in skipped.detail


def test_a_metric_of_another_monitor_is_a_number() -> None:
    [item] = load_statistics([metric("room.temperature", value=21.5)]).statistics
    assert item.value == Decimal("21.5")


def test_nothing_is_nothing() -> None:
    assert load_statistics() == load_statistics("", "") == load_statistics("[]", "{}") == ((), ())


@pytest.mark.law(8)
@pytest.mark.parametrize("wrong", [7, "{", '"x"', {"a": 1}, [7], ["x"], enveloped("Flavor")])
def test_what_is_no_list_of_metrics_is_refused(wrong: Any) -> None:
    with raises_code("InvalidPrimitive", match="metrics"):
        load_statistics(wrong)


@pytest.mark.law(8)
@pytest.mark.parametrize("wrong", [7, "{", [7], {"a": []}, {3: "x"}])
def test_what_are_no_stats_is_refused(wrong: Any) -> None:
    with raises_code("InvalidPrimitive", match="stats"):
        load_statistics(None, wrong)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=9,
    )
)
def test_any_json_is_read_or_refused(document: Any) -> None:
    for text in ((document, None), (None, document), ([metric(value=document)], None)):
        with contextlib.suppress(exceptions.InvalidInput):
            load_statistics(*text)


def test_every_metric_that_nova_has_a_number_of_is_known() -> None:
    assert len(METRICS) == 10
