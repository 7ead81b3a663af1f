"""``compute_nodes.metrics`` and ``compute_nodes.stats`` of Nova as statistics.

==========================  =======================================================================
Nova                        here
==========================  =======================================================================
a metric of percent         a number of percent. The object has 29; the column has 0.29, which Nova
                            reads as 28; here both are 29
a metric of time            an integer in ns; the frequency is an integer in MHz
``timestamp``, ``source``   ``since``, in UTC as in Nova; the same
``num_instances``,          integers, where Nova has text
``io_workload``,
``failed_builds``
other keys of ``stats``     text, as a driver stored it
==========================  =======================================================================

Left out are metrics with a value for each NUMA node, ``num_vcpus_used`` (the ledger has the usage),
and keys that contain states, projects or systems (``num_vm_active``, ``num_proj_<project>``): the
names of statistics are known in advance. An unknown metric, of another monitor, is a number.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from resource_objects.exceptions import InvalidInput
from resource_objects.findings import Finding
from resource_objects.interop.nova.primitive import (
    METRIC,
    METRIC_LIST,
    Document,
    invalid,
    is_wrapped,
    parse_document,
    parse_list,
    require_object,
    require_texts,
    unwrap,
)
from resource_objects.providers.statistics import SOURCE, Statistic
from resource_objects.ratio import decimal_of, millionths_of

__all__ = ["METRICS", "STATS", "NovaStatistics", "load_statistics"]

#: The metrics of Nova with their units.
METRICS: Final = {
    "cpu.frequency": "MHz",
    **dict.fromkeys(("cpu.user.time", "cpu.kernel.time", "cpu.idle.time", "cpu.iowait.time"), "ns"),
    **dict.fromkeys(
        (
            *("cpu.user.percent", "cpu.kernel.percent", "cpu.idle.percent", "cpu.iowait.percent"),
            "cpu.percent",
        ),
        "%",
    ),
}
#: The counters of ``stats`` that are statistics.
STATS: Final = ("num_instances", "io_workload", "failed_builds")
_GENERATED: Final = ("num_vm_", "num_task_", "num_os_type_", "num_proj_")
#: The highest percentage, and the highest value of an unknown metric.
_HIGHEST: Final = 10**9


class NovaStatistics(NamedTuple):
    """The statistics of a host, each name once, and findings for the names that are left out."""

    statistics: tuple[Statistic, ...]
    skipped: tuple[Finding, ...] = ()


def load_statistics(metrics: Document | None = None, stats: Any = None) -> NovaStatistics:
    """Return the metrics and stats of a compute node of Nova as statistics.

    :param metrics: JSON text as in ``compute_nodes.metrics``, the value of that text, or an object
        ``MonitorMetricList``; None for none
    :param stats: JSON text as in ``compute_nodes.stats``, or the mapping; None for none
    :raises InvalidInput: if one of them is something else

    >>> column = '''[{"name": "cpu.percent", "value": 0.29, "source": "libvirt.LibvirtDriver",
    ...               "timestamp": "2026-11-22T12:00:00.000000"}]'''
    >>> result = load_statistics(column, {"failed_builds": "3", "num_vm_active": "7"})
    >>> print(*result.statistics, sep=", ")
    cpu.percent 29, failed_builds 3
    >>> result.skipped[0].subject
    'num_vm_active'
    """
    by_name: dict[str, Statistic] = {}
    skipped: list[Finding] = []
    for name, statistic in (*_metrics(metrics), *_stats(stats)):
        if isinstance(statistic, Statistic) and name not in by_name:
            by_name[name] = statistic
            continue
        is_repeated = isinstance(statistic, Statistic)
        reason = "it is repeated; the first counts" if is_repeated else str(statistic)
        skipped.append(Finding(name or "''", "skipped", reason))
    return NovaStatistics(tuple(by_name.values()), tuple(skipped))


def _metrics(source: Document | None) -> Iterator[tuple[str, Statistic | InvalidInput | str]]:
    """Yield each metric by name, or the reason why it is left out."""
    document = parse_document(source or None, "metrics")
    if document is None:
        return
    if isinstance(document, Mapping) and is_wrapped(document):
        document = unwrap(document, "metrics", METRIC_LIST)[0].get("objects")
    for index, entry in enumerate(parse_list(document, "metrics")):
        path = f"metrics[{index}]"
        data = require_object(entry, path)
        is_object = is_wrapped(data)
        if is_object:
            data = unwrap(data, path, METRIC)[0]
        name = str(data.get("name"))
        if data.get("value") is None:
            yield name, "it has no value, or one for each NUMA node, which providers have"
            continue
        try:
            yield name, _metric(name, data, is_object)
        except InvalidInput as error:
            yield name, error


def _metric(name: str, data: Mapping[Any, Any], is_object: bool) -> Statistic:
    unit, value, timestamp = METRICS.get(name), data["value"], data.get("timestamp")
    if unit in ("MHz", "ns") and type(value) is not int:
        raise invalid(name, value, "an integer")
    if unit == "%" or type(value) is not int:
        number = millionths_of(value, _HIGHEST)
        if number is None:
            raise invalid(name, value, "a number of at most six places")
        if unit == "%" and not is_object:  # a fraction of 1
            value = decimal_of(number * 100)
        elif type(value) is not int:
            value = decimal_of(number)
    since = None
    if timestamp is not None:
        try:
            since = datetime.datetime.fromisoformat(timestamp)
        except (TypeError, ValueError):
            expected = "a time, such as 2026-11-22T12:00:00"
            raise invalid(f"{name}.timestamp", timestamp, expected) from None
        if since.tzinfo is None:  # Nova writes UTC without a time zone
            since = since.replace(tzinfo=datetime.UTC)
    return Statistic(name, value, since, data.get("source") or SOURCE)


def _stats(source: Any) -> Iterator[tuple[str, Statistic | InvalidInput | str]]:
    """Yield each key of the column, or the reason why it is left out."""
    document = parse_document(source or None, "stats")
    if document is None:
        return
    for name, text in require_texts(document, "stats").items():
        if text is None:
            yield name, "it is null"
        elif name.startswith(_GENERATED):
            yield name, "its name contains a state, a project or a system"
        elif name == "num_vcpus_used":
            yield name, "the usage is that of the allocations"
        else:
            try:
                yield name, _stat(name, text)
            except InvalidInput as error:
                yield name, error


def _stat(name: str, text: str) -> Statistic:
    if name not in STATS:
        return Statistic(name, text)
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        raise invalid(name, text, "a whole number")
    return Statistic(name, int(text))
