"""Metrics and stats beside the real Nova: what it writes into the columns, read as it was meant."""

from __future__ import annotations

import datetime
import json
import os
import warnings
from typing import Any

import pytest

from resource_objects.interop import nova as words

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    from nova import objects
    from nova.compute.stats import Stats
    from nova.objects import fields

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
#: What Nova gives back of some percentages, once they were in the column.
LOST = {29: 28, 57: 56, 58: 57}


def metrics(**values: int) -> Any:
    """Return metrics of Nova's; an underscore stands for a dot."""
    return objects.MonitorMetricList(
        objects=[
            objects.MonitorMetric(
                name=name.replace("_", "."), value=value, timestamp=NOON, source="libvirt"
            )
            for name, value in values.items()
        ]
    )


def column(found: Any) -> str:
    """Return metrics as Nova writes them into ``compute_nodes.metrics``."""
    return json.dumps(found.to_list())


@pytest.mark.law(7)
def test_no_percentage_loses_a_point() -> None:
    lost = {}
    for percent in range(101):
        said = metrics(cpu_percent=percent)
        [back] = objects.MonitorMetricList.from_json(column(said)).objects
        if back.value != percent:
            lost[percent] = back.value
        for source in (said, said.obj_to_primitive(), column(said)):
            [read] = words.load_statistics(source).statistics
            assert (read.value, read.since, read.source) == (percent, NOON, "libvirt")
    assert lost == LOST


def test_every_metric_of_nova_is_known() -> None:
    numa = {"numa.membw.max", "numa.membw.current"}
    names = set(fields.MonitorMetricType.ALL) - numa
    said = metrics(**{name.replace(".", "_"): 7 for name in names})
    for source in (said, column(said)):
        found = words.load_statistics(source)
        assert {one.name for one in found.statistics} == names
        assert all(one.value == 7 for one in found.statistics)
    of_nodes = objects.MonitorMetric(
        name="numa.membw.max", numa_membw_values={"0": 7}, timestamp=NOON, source="libvirt"
    )
    [left] = words.load_statistics(objects.MonitorMetricList(objects=[of_nodes])).skipped
    assert left.subject == "numa.membw.max"


def test_the_stats_of_a_host_with_servers_are_three_counters() -> None:
    stats = Stats()
    for number in range(3):
        stats.update_stats_for_instance(
            {
                "uuid": str(number),
                "vm_state": "building" if number else "active",
                "task_state": None,
                "os_type": "linux",
                "project_id": "4711",
                "vcpus": 2,
            }
        )
    stats["failed_builds"] = 1
    found = words.load_statistics(stats=json.dumps(stats))
    told = {one.name: one.value for one in found.statistics}
    assert told == {"num_instances": 3, "io_workload": 2, "failed_builds": 1}
    assert len(found.skipped) == len(stats) - 3
