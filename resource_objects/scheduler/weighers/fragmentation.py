"""Fragmentation of devices: prefer hosts that stay most useful for the usual requests (FGD).

A device with 0.3 of it free is useless if the usual requests need 0.5. The *fragment* of a host for
one usual task is

* everything that is free of its devices, if the host cannot hold the task, or the task needs no
  device;
* otherwise what is free of the devices that have less free than the task needs of one.

The fragmentation of a host is the mean over the usual tasks, weighted by their frequency.
Fragmentation gradient descent prefers the host, and on it the device, where placing the request
makes it grow least.

Source: Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023, sections 3 and 4.

The functions take hosts as rows of two arrays: the free amount of each count, ``(hosts, classes)``,
and of each device, ``(hosts, devices)``, in parts of one, -1 where a host has fewer devices.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.resources import Amounts, resource
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import ArrayWeigher, finite
from resource_objects.search.arrays import Booleans, Figures, Integers

_invalid_field = functools.partial(InvalidInput, "field")


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A usual task: counts of the host, and ``size`` parts of each of ``devices`` devices.

    Parts of less than a whole device are always of one device; 0 and 0 for no device.
    """

    counts: Mapping[str, int]
    size: int
    devices: int
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The usual tasks as arrays with an entry for each task; the weights sum up to 1."""

    classes: Sequence[str]  #: the columns of the counts
    counts: Integers  #: ``(tasks, classes)``
    size: Integers
    devices: Integers
    weight: Figures

    @classmethod
    def of(cls, tasks: Sequence[Task], classes: Sequence[str]) -> Workload:
        """Return tasks as arrays."""
        weight = np.array([task.weight for task in tasks], dtype=np.float64)
        return cls(
            classes,
            np.array([[task.counts.get(name, 0) for name in classes] for task in tasks]),
            np.array([task.size for task in tasks]),
            np.array([task.devices for task in tasks]),
            weight / weight.sum(),
        )

    def have_counts(self, counts: Integers) -> Booleans:
        """Return which hosts have the counts of which tasks; none for a task without devices."""
        enough = (counts[:, None, :] >= self.counts) | (self.counts == 0)  # also if overcommitted
        result: Booleans = (self.devices > 0) & enough.all(2)
        return result


def fragmentation(counts: Integers, devices: Integers, workload: Workload) -> Figures:
    """Return the fragmentation of each host, in parts of a device.

    Cost: some passes over hosts x devices x tasks.
    """
    free = np.maximum(devices, 0)[:, :, None]  # hosts, devices, tasks
    is_enough = free >= workload.size
    holds = workload.have_counts(counts) & (is_enough.sum(1) >= workload.devices)
    lost = np.where(is_enough, 0, free).sum(1)
    result: Figures = np.where(holds, lost, free.sum(1)) @ workload.weight
    return result


def growth(
    task: Task,
    counts: Integers,
    devices: Integers,
    workload: Workload,
    parts: int,
    before: Figures | None = None,
) -> tuple[Figures, Integers]:
    """Return by how much a task makes the fragmentation of each host grow, and by which device.

    The device is the one where it grows least, the first of several; -1 for a task that needs no
    part of one. Without capacity for the devices the growth is infinite.

    :param parts: the number of parts of a device
    :param before: the fragmentation of each host, if it is known
    """
    if before is None:
        before = fragmentation(counts, devices, workload)
    remaining = counts - np.array([task.counts.get(name, 0) for name in workload.classes])
    if task.devices == 1 and task.size < parts:
        return _growth_of_part(task, remaining, devices, workload, before)
    is_whole = devices >= parts
    used = is_whole & (is_whole.cumsum(1) <= task.devices)
    after = fragmentation(remaining, devices - used * parts, workload)
    has_capacity = is_whole.sum(1) >= task.devices
    return np.where(has_capacity, after - before, np.inf), np.full(len(counts), -1)


def _growth_of_part(
    task: Task, counts: Integers, devices: Integers, workload: Workload, before: Figures
) -> tuple[Figures, Integers]:
    """Return growth and device of a part of one: compared are all devices of each host."""
    free = np.maximum(devices, 0)
    is_enough = free[:, :, None] >= workload.size
    lost = np.where(is_enough, 0, free[:, :, None])
    remaining = (free - task.size)[:, :, None]
    is_enough_after = remaining >= workload.size
    fitting = is_enough.sum(1)[:, None, :] - is_enough + is_enough_after
    lost_after = lost.sum(1)[:, None, :] - lost + np.where(is_enough_after, 0, remaining)
    holds = workload.have_counts(counts)[:, None, :] & (fitting >= workload.devices)
    total = (free.sum(1) - task.size)[:, None, None]
    after = np.where(holds, lost_after, total) @ workload.weight
    grown = np.where(devices >= task.size, after - before[:, None], np.inf)
    device = grown.argmin(1)
    return grown[np.arange(len(device)), device], device


class Fragmentation(ArrayWeigher):
    """Prefers hosts whose devices are fragmented least by the request.

    :param workload: the usual requests, ``{request: frequency}``: counts, and devices either whole
        (``PGPU=1``) or a part of one (``CUSTOM_PGPU_THOUSANDTHS=500``); frequencies are normalized
        to a sum of 1
    :param whole: the class of whole devices
    :param part: the class of their parts; None: devices are only allocated as a whole
    :param parts: the number of parts of one device
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
            raise _invalid_field("workload", workload, "{request: frequency}")
        if type(parts) is not int or parts < 1:
            raise _invalid_field("parts", parts, "an integer of 1 or more")
        self._whole = resource(whole).name
        self._part = None if part is None else resource(part).name
        self._parts = parts if part is not None else 1
        weights = [finite(f"weight of {text}", value) for text, value in workload.items()]
        if min(weights) < 0 or not sum(weights):
            raise _invalid_field("workload", workload, "weights of 0 or more, not all 0")
        self._tasks = [
            dataclasses.replace(self.task(Amounts.from_value(text)), weight=weight)
            for text, weight in zip(workload, weights, strict=True)
        ]

    def task(self, amounts: Amounts) -> Task:
        """Return amounts as a task.

        :raises InvalidInput: for parts of more than one device, or both parts and whole devices
        """
        amounts_of_kinds: Any = amounts.items()
        counts = {kind.name: int(amount) for kind, amount in amounts_of_kinds if not kind.is_placed}
        devices = counts.pop(self._whole, 0)
        part = 0 if self._part is None else counts.pop(self._part, 0)
        if part > self._parts or (part and devices):
            expected = f"whole devices, or at most {self._parts} parts of one"
            raise _invalid_field("devices", str(amounts), expected)
        return Task(counts, part or (self._parts if devices else 0), 1 if part else devices)

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the growth of each host's fragmentation, negated.

        A host without capacity for the devices counts as if it lost all that is free of them.
        """
        task = self.task(spec.resources)
        classes = sorted({*task.counts, *(name for usual in self._tasks for name in usual.counts)})
        counts = np.array([hosts.free(name) for name in classes]).reshape(-1, len(hosts)).T
        rows = hosts.fleet.rows(self._part or self._whole)
        first = rows.tree.searchsorted(np.arange(len(hosts)))
        column = np.arange(len(rows.tree)) - first[rows.tree]
        devices = np.full((len(hosts), int(column.max(initial=0)) + 1), -1)
        devices[rows.tree, column] = hosts.fleet.free(rows)
        workload = Workload.of(self._tasks, classes)
        grown, _ = growth(task, counts, devices, workload, self._parts)
        result: Figures = -np.where(np.isinf(grown), devices.clip(0).sum(1), grown)
        return result
