"""Fragmentation of devices: hosts that stay most useful for what is usually asked (FGD).

A device with 0.3 of it free is worth nothing where everybody asks for halves. How much of the free
part of a host's devices is so lost, for a task that is usual, is its *fragment* for that task:

* all that is free, if the host cannot hold the task, or the task asks for no device;
* else what is free of the devices that have less free than one such task takes of one.

The fragmentation of a host is the mean over usual tasks, by how usual each is. Fragmentation
gradient descent prefers the host, and on it the device, where placing the request makes it grow
least.

Source: Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023, sections 3 and 4.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from resource_objects import exceptions
from resource_objects.resources import Amounts, resource
from resource_objects.scheduler.reports import Figures
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.scheduler.weighers.base import finite
from resource_objects.search.arrays import Booleans, Integers


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """What a usual task asks: counts of the host, and devices, in parts of one.

    ``each`` is how much of one device it takes, ``devices`` of how many it does; 0 for none. Whole
    devices are taken whole, a part is always of one device.
    """

    counts: Mapping[str, int]
    each: int
    devices: int
    weight: float = 1.0

    @property
    def parts(self) -> int:
        """All that it takes of devices, in parts."""
        return self.each * self.devices


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """The devices of some hosts: parallel arrays, one entry each."""

    host: Integers  #: which host each is of
    free: Integers  #: how many parts of it are free


class Fragmentation:
    """Prefers hosts whose devices are fragmented least by the request.

    :param workload: what is usually asked, ``{request: how usual}``: counts, and devices either
        whole (``PGPU=1``) or a part of one (``CUSTOM_PGPU_THOUSANDTHS=500``); weights are brought
        to a sum of 1
    :param whole: the class of whole devices
    :param part: the class of their parts; None: devices are only taken whole
    :param parts: into how many parts one device is divided
    :raises InvalidField: for an empty workload, or parts of more than one device
    """

    takes_negative = False

    def __init__(
        self,
        workload: Mapping[str, float] | None = None,
        whole: str = "PGPU",
        part: str | None = None,
        parts: int = 1000,
    ) -> None:
        if not isinstance(workload, Mapping) or not workload:
            raise exceptions.InvalidField("workload", workload, "{request: how usual it is}")
        if type(parts) is not int or parts < 1:
            raise exceptions.InvalidField("parts", parts, "an integer of 1 or more")
        self._whole = resource(whole).name
        self._part = None if part is None else resource(part).name
        self._parts = parts if part is not None else 1
        weights = [finite(f"weight of {text}", value) for text, value in workload.items()]
        if min(weights) < 0 or not sum(weights):
            raise exceptions.InvalidField("workload", workload, "weights of 0 or more, not all 0")
        self._tasks = tuple(
            dataclasses.replace(self.task(Amounts.of(text)), weight=weight / sum(weights))
            for text, weight in zip(workload, weights, strict=True)
        )

    def task(self, asked: Amounts) -> Task:
        """Return amounts as a task.

        :raises InvalidField: for parts of more than one device, or parts and whole ones
        """
        every: Any = asked.items()
        counts = {kind.name: int(amount) for kind, amount in every if not kind.is_located}
        whole = counts.pop(self._whole, 0)
        part = 0 if self._part is None else counts.pop(self._part, 0)
        if part > self._parts or (part and whole):
            expected = f"whole devices, or at most {self._parts} parts of one"
            raise exceptions.InvalidField("devices", str(asked), expected)
        return Task(counts, part or (self._parts if whole else 0), 1 if part else whole)

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return how little more of a host's devices is lost: 0, or below."""
        task = self.task(spec.resources)
        counts = {name: host.free(name) for name in self._classes(task)}
        free = self._devices(host.beside, [host.tree]).free.tolist()
        before = _fragmentation(counts, free, self._tasks)
        then = {name: counts[name] - task.counts.get(name, 0) for name in counts}
        ways = [_fragmentation(then, after, self._tasks) for after in _ways(free, task)]
        return before - min(ways) if ways else -float(sum(free))

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return how little more of each host's devices is lost: 0, or below."""
        task = self.task(spec.resources)
        counts = {name: hosts.free(name) for name in self._classes(task)}
        return -growth(task, counts, self._devices(hosts), self._tasks, self._parts)

    def _classes(self, task: Task) -> set[str]:
        return {*task.counts, *(name for one in self._tasks for name in one.counts)}

    def _devices(self, hosts: HostStates, trees: Iterable[int] | None = None) -> Devices:
        rows = hosts.fleet.rows(self._part or self._whole)
        here = slice(None)
        if trees is not None:
            (tree,) = trees
            here = rows.of_tree(tree)
        return Devices(rows.tree[here], np.maximum(rows.free[here], 0))


# --- all hosts at once ----------------------------------------------------------------------------


def growth(
    task: Task, counts: Mapping[str, Integers], devices: Devices, usual: Iterable[Task], parts: int
) -> Figures:
    """Return by how much the fragmentation of each host would grow with a task, at least.

    Where a host cannot give the devices of the task, it is all that is free of its devices.

    :param counts: what is free of each class, by host; of those that tasks ask for
    :param parts: into how many parts a device is divided

    Cost: some passes over the devices for each usual task.
    """
    hosts = len(next(iter(counts.values()))) if counts else int(devices.host.max(initial=-1)) + 1
    at, free = devices.host, devices.free
    total = _sums(at, free, hosts)
    grown = np.zeros(len(free) if _takes_part(task, parts) else hosts)
    where = at if _takes_part(task, parts) else np.arange(hosts)
    for one in usual:
        holds = _hold(one, counts, {}, hosts)
        holds_then = _hold(one, counts, task.counts, hosts)
        lost = np.where(free < one.each, free, 0)
        fit = _sums(at, free >= one.each, hosts) if one.each else np.zeros(hosts, dtype=np.int64)
        before = _fragment(one, holds, fit, total, _sums(at, lost, hosts))
        if _takes_part(task, parts):
            left = free - task.each
            fit_then = fit[at] - (free >= one.each) + (left >= one.each)
            lost_then = _sums(at, lost, hosts)[at] - lost + np.where(left < one.each, left, 0)
            after = _fragment(one, holds_then[at], fit_then, total[at] - task.each, lost_then)
        else:
            fit_then = fit - (task.devices if one.each else 0)
            after = _fragment(one, holds_then, fit_then, total - task.parts, _sums(at, lost, hosts))
        grown += one.weight * (after - before[where])
    if not _takes_part(task, parts):
        can = _sums(at, free >= parts, hosts) >= task.devices
        return np.where(can, grown, total)
    least = np.full(hosts, np.inf)
    can = free >= task.each
    np.minimum.at(least, at[can], grown[can])
    return np.where(np.isinf(least), total, least)


def _takes_part(task: Task, parts: int) -> bool:
    return task.devices == 1 and task.each < parts


def _sums(at: Integers, values: Any, hosts: int) -> Integers:
    """Return sums of whole numbers by host."""
    found = np.zeros(hosts, dtype=np.int64)
    np.add.at(found, at, values)
    return found


def _hold(
    one: Task, counts: Mapping[str, Integers], less: Mapping[str, int], hosts: int
) -> Booleans:
    """Return which hosts have the counts of a task, with less of them free."""
    found = np.ones(hosts, dtype=np.bool_)
    for name, amount in one.counts.items():
        found &= counts[name] - less.get(name, 0) >= amount
    return found


def _fragment(one: Task, holds: Booleans, fit: Integers, total: Integers, lost: Integers) -> Any:
    """Return the fragments for a task: all that is free, or what is lost to it."""
    if not one.devices:
        return total
    return np.where(holds & (fit >= one.devices), lost, total)


# --- one host -------------------------------------------------------------------------------------


def _fragmentation(counts: Mapping[str, int], free: list[int], usual: Iterable[Task]) -> float:
    """Return the fragmentation of one host, by the definition."""
    found = 0.0
    for one in usual:
        fit = sum(left >= one.each for left in free)
        holds = all(counts[name] >= amount for name, amount in one.counts.items())
        if one.devices and holds and fit >= one.devices:
            found += one.weight * sum(left for left in free if left < one.each)
        else:
            found += one.weight * sum(free)
    return found


def _ways(free: list[int], task: Task) -> Iterator[list[int]]:
    """Yield what is left of the devices of a host, for each way to give a task its devices."""
    if task.devices == 1:
        for place, left in enumerate(free):
            if left >= task.each:
                yield [*free[:place], left - task.each, *free[place + 1 :]]
        return
    able = [place for place, left in enumerate(free) if left >= task.each]
    if len(able) >= task.devices:
        gone = set(able[: task.devices])
        yield [left - task.each * (place in gone) for place, left in enumerate(free)]
