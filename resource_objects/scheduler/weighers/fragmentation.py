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
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.resources import Amounts, resource
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.scheduler.weighers.base import finite
from resource_objects.scheduler.weighers.fragments import Task, Usual, growth
from resource_objects.search.arrays import Figures

_invalid_field = functools.partial(InvalidInput, "field")


class Fragmentation:
    """Prefers hosts whose devices are fragmented least by the request.

    :param workload: what is usually asked, ``{request: how usual}``: counts, and devices either
        whole (``PGPU=1``) or a part of one (``CUSTOM_PGPU_THOUSANDTHS=500``); weights are brought
        to a sum of 1
    :param whole: the class of whole devices
    :param part: the class of their parts; None: devices are only taken whole
    :param parts: into how many parts one device is divided
    :raises InvalidInput: for an empty workload, or parts of more than one device
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
            raise _invalid_field("workload", workload, "{request: how usual it is}")
        if type(parts) is not int or parts < 1:
            raise _invalid_field("parts", parts, "an integer of 1 or more")
        self._whole = resource(whole).name
        self._part = None if part is None else resource(part).name
        self._parts = parts if part is not None else 1
        weights = [finite(f"weight of {text}", value) for text, value in workload.items()]
        if min(weights) < 0 or not sum(weights):
            raise _invalid_field("workload", workload, "weights of 0 or more, not all 0")
        self._tasks = tuple(
            dataclasses.replace(self.task(Amounts.of(text)), weight=weight / sum(weights))
            for text, weight in zip(workload, weights, strict=True)
        )

    def task(self, asked: Amounts) -> Task:
        """Return amounts as a task.

        :raises InvalidInput: for parts of more than one device, or parts and whole ones
        """
        every: Any = asked.items()
        counts = {kind.name: int(amount) for kind, amount in every if not kind.is_located}
        whole = counts.pop(self._whole, 0)
        part = 0 if self._part is None else counts.pop(self._part, 0)
        if part > self._parts or (part and whole):
            expected = f"whole devices, or at most {self._parts} parts of one"
            raise _invalid_field("devices", str(asked), expected)
        return Task(counts, part or (self._parts if whole else 0), 1 if part else whole)

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return how little more of a host's devices is lost: 0, or below."""
        task = self.task(spec.resources)
        counts = {name: host.free(name) for name in self._classes(task)}
        fleet = host.beside.fleet
        rows = fleet.rows(self._part or self._whole)
        free = fleet.free(rows.part(rows.of_tree(host.tree))).tolist()
        before = _fragmentation(counts, free, self._tasks)
        then = {name: counts[name] - task.counts.get(name, 0) for name in counts}
        ways = [_fragmentation(then, after, self._tasks) for after in _ways(free, task)]
        return before - min(ways) if ways else -float(sum(free))

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return how little more of each host's devices is lost: 0, or below."""
        task = self.task(spec.resources)
        classes = sorted(self._classes(task))
        counts = np.array([hosts.free(name) for name in classes]).reshape(-1, len(hosts)).T
        less = np.array([task.counts.get(name, 0) for name in classes], dtype=np.int64)
        rows = hosts.fleet.rows(self._part or self._whole)
        first = rows.tree.searchsorted(np.arange(len(hosts)))
        place = np.arange(len(rows.tree)) - first[rows.tree]
        devices = np.full((len(hosts), int(place.max(initial=0)) + 1), -1)
        devices[rows.tree, place] = hosts.fleet.free(rows)
        usual = Usual.of(self._tasks, classes)
        grown, _ = growth(task, less, counts, devices, usual, self._parts)
        found: Figures = -np.where(np.isinf(grown), devices.clip(0).sum(1), grown)
        return found

    def _classes(self, task: Task) -> set[str]:
        return {*task.counts, *(name for one in self._tasks for name in one.counts)}


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
    if task.devices == 1:
        for place, left in enumerate(free):
            if left >= task.each:
                yield [*free[:place], left - task.each, *free[place + 1 :]]
        return
    able = [place for place, left in enumerate(free) if left >= task.each]
    if len(able) >= task.devices:
        gone = set(able[: task.devices])
        yield [left - task.each * (place in gone) for place, left in enumerate(free)]
