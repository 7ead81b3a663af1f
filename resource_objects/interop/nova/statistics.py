"""``compute_nodes.metrics`` and ``.stats`` of Nova as statistics.

==========================  =======================================================================
Nova                        here
==========================  =======================================================================
a metric of percent         a number of percent. As an object Nova has 29, in the column the float
                            0.29, of which it makes 28 when it reads it; here both are 29
a metric of time            an integer in ns; the frequency is an integer in MHz
``timestamp``, ``source``   ``since``, in UTC as Nova means it; the same
``num_instances``,          integers, where Nova has text
``io_workload``,
``failed_builds``
another key of ``stats``    a text, as a driver has put it there
==========================  =======================================================================

Left out, each with why: metrics with a value for each NUMA node; ``num_vcpus_used``, which the
ledger knows better; and keys that are made of states, projects and systems (``num_vm_active``,
``num_proj_<project>``), for a statistic has a name that everybody knows beforehand.

A metric that Nova does not know, of another monitor, is a number.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.primitive import METRIC, METRIC_LIST, Document
from resource_objects.providers.statistics import SOURCE, Statistic
from resource_objects.ratio import decimal_of, millionths_of

__all__ = ["METRICS", "STATS", "NovaStatistics", "SkippedStatistic", "load_statistics"]

#: The metrics of Nova, with their units.
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
_MADE_UP: Final = ("num_vm_", "num_task_", "num_os_type_", "num_proj_")
_COUNTED: Final = "num_vcpus_used"
#: No percentage is larger, nor any metric of somebody's own.
_MOST: Final = 10**9


class SkippedStatistic(NamedTuple):
    """A metric or a key that was left out: its name as it is there, and why."""

    name: str
    reason: str


class NovaStatistics(NamedTuple):
    """The statistics of a host, each name once, and what was left out."""

    statistics: tuple[Statistic, ...]
    skipped: tuple[SkippedStatistic, ...] = ()


def load_statistics(metrics: Document | None = None, stats: Any = None) -> NovaStatistics:
    """Return the metrics and stats of a compute node of Nova as statistics.

    :param metrics: JSON text as in ``compute_nodes.metrics``, what it stands for, or a
        ``MonitorMetricList`` of Nova's; None for none
    :param stats: JSON text as in ``compute_nodes.stats``, or the mapping; None for none
    :raises InvalidInput: if one is something else altogether

    >>> column = '''[{"name": "cpu.percent", "value": 0.29, "source": "libvirt.LibvirtDriver",
    ...               "timestamp": "2026-11-22T12:00:00.000000"}]'''
    >>> found = load_statistics(column, {"failed_builds": "3", "num_vm_active": "7"})
    >>> print(*found.statistics, sep=", ")
    cpu.percent 29, failed_builds 3
    >>> found.skipped[0].name
    'num_vm_active'
    """
    found: dict[str, Statistic] = {}
    skipped: list[SkippedStatistic] = []
    for name, given in (*_metrics(metrics), *_stats(stats)):
        if isinstance(given, str):
            skipped.append(SkippedStatistic(name, given))
        elif name in found:
            skipped.append(SkippedStatistic(name, "it is told twice; the first counts"))
        else:
            found[name] = given
    return NovaStatistics(tuple(found.values()), tuple(skipped))


# --- metrics --------------------------------------------------------------------------------------


def _metrics(source: Document | None) -> Iterator[tuple[str, Statistic | str]]:
    """Yield each metric by name, or why it is left out."""
    document = primitive.parse_document(source or None, "metrics")
    if document is None:
        return
    if isinstance(document, Mapping) and primitive.is_wrapped(document):
        document = primitive.unwrap(document, "metrics", METRIC_LIST)[0].get("objects")
    for place, one in enumerate(primitive.parse_list(document, "metrics")):
        where = f"metrics[{place}]"
        data = primitive.require_object(one, where)
        is_object = primitive.is_wrapped(data)
        if is_object:
            data = primitive.unwrap(data, where, METRIC)[0]
        name = str(data.get("name"))
        try:
            yield name, _metric(name, data, is_object)
        except InvalidInput as error:
            yield name, str(error)


def _metric(name: str, data: Mapping[Any, Any], is_object: bool) -> Statistic | str:
    if data.get("value") is None:
        return "it has no value, or one for each NUMA node, whose providers are the place for these"
    unit, value = METRICS.get(name), data["value"]
    if unit in ("MHz", "ns") and type(value) is not int:
        raise primitive.invalid(name, value, "an integer")
    number = millionths_of(value, _MOST) if unit == "%" or type(value) is not int else value
    if number is None:
        raise primitive.invalid(name, value, "a number of at most six places")
    if unit == "%" and not is_object:  # a fraction, of up to 1
        value = decimal_of(number * 100)
    elif type(value) is not int:
        value = decimal_of(number)
    source = data.get("source")
    return Statistic(name, value, _since(name, data.get("timestamp")), source or SOURCE)


def _since(name: str, given: object) -> datetime.datetime | None:
    """Return the moment of a metric, which Nova writes in UTC without saying so."""
    if given is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        expected = "a moment, such as 2026-11-22T12:00:00"
        raise primitive.invalid(f"{name}.timestamp", given, expected) from None
    return found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found


# --- stats ----------------------------------------------------------------------------------------


def _stats(source: Any) -> Iterator[tuple[str, Statistic | str]]:
    """Yield each key of the column, or why it is left out."""
    document = primitive.parse_document(source or None, "stats")
    if document is None:
        return
    for name, given in primitive.require_texts(document, "stats").items():
        if given is None:
            yield name, "it is null"
        elif name.startswith(_MADE_UP):
            yield name, "its name is made of a state, a project or a system"
        elif name == _COUNTED:
            yield name, "what is used is what consumers hold"
        else:
            try:
                yield name, _stat(name, given)
            except InvalidInput as error:
                yield name, str(error)


def _stat(name: str, given: str) -> Statistic:
    if name not in STATS:
        return Statistic(name, given)
    if not (given.isascii() and given.removeprefix("-").isdigit() and len(given) < 20):
        raise primitive.invalid(name, given, "a whole number")
    return Statistic(name, int(given))
