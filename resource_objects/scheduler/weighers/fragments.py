"""How much placing a task fragments devices, for many hosts at once.

The definitions are those of :mod:`.fragmentation`. Hosts are
rows of two arrays: what is free of each count, ``(hosts, classes)``, and what is free of each
device in parts of one, ``(hosts, devices)``, -1 where a host has fewer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects.search.arrays import Booleans, Figures, Integers


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
class Usual:
    """What is usually asked, as arrays with an entry for each task; weights sum up to 1."""

    counts: Integers  #: ``(tasks, classes)``
    each: Integers
    devices: Integers
    weight: Figures

    @classmethod
    def of(cls, tasks: Sequence[Task], classes: Sequence[str]) -> Usual:
        """Return tasks as arrays; classes are the columns of the counts."""
        weight = np.array([one.weight for one in tasks], dtype=np.float64)
        return cls(
            np.array([[one.counts.get(name, 0) for name in classes] for one in tasks]),
            np.array([one.each for one in tasks]),
            np.array([one.devices for one in tasks]),
            weight / weight.sum(),
        )


def fragmentation(counts: Integers, devices: Integers, usual: Usual) -> Figures:
    """Return the fragmentation of each host, in parts of a device.

    Cost: some passes over hosts x devices x tasks.
    """
    free = np.maximum(devices, 0)[:, :, None]  # hosts, devices, tasks
    is_enough = free >= usual.each
    holds = _holds(counts, is_enough.sum(1), usual)
    lost = np.where(is_enough, 0, free).sum(1)
    found: Figures = np.where(holds, lost, free.sum(1)) @ usual.weight
    return found


def growth(
    task: Task,
    less: Integers,
    counts: Integers,
    devices: Integers,
    usual: Usual,
    parts: int,
    before: Figures | None = None,
) -> tuple[Figures, Integers]:
    """Return by how much the fragmentation of each host grows with a task, and by which device.

    The device is that where it grows least, of several that of the lowest number; -1 where the task
    takes no part of one. Where a host cannot give the devices, growth is infinite.

    :param less: what the task takes of each count
    :param parts: into how many parts a device is divided
    :param before: the fragmentation of each host, where it is known
    """
    if before is None:
        before = fragmentation(counts, devices, usual)
    then = counts - less
    if task.devices == 1 and task.each < parts:
        return _of_a_part(task, then, devices, usual, before)
    is_whole = devices >= parts
    taken = is_whole & (is_whole.cumsum(1) <= task.devices)
    after = fragmentation(then, devices - taken * parts, usual)
    can = is_whole.sum(1) >= task.devices
    return np.where(can, after - before, np.inf), np.full(len(counts), -1)


def _of_a_part(
    task: Task, then: Integers, devices: Integers, usual: Usual, before: Figures
) -> tuple[Figures, Integers]:
    """Return growth where one device gives a part: one of each host for each way to choose it."""
    free = np.maximum(devices, 0)
    is_enough = free[:, :, None] >= usual.each
    lost = np.where(is_enough, 0, free[:, :, None])
    left = (free - task.each)[:, :, None]
    is_enough_then = left >= usual.each
    fit = is_enough.sum(1)[:, None, :] - is_enough + is_enough_then
    lost_then = lost.sum(1)[:, None, :] - lost + np.where(is_enough_then, 0, left)
    holds = _has_counts(then, usual)[:, None, :] & (fit >= usual.devices)
    total = (free.sum(1) - task.each)[:, None, None]
    after = np.where(holds, lost_then, total) @ usual.weight
    grown = np.where(devices >= task.each, after - before[:, None], np.inf)
    device = grown.argmin(1)
    return grown[np.arange(len(device)), device], device


def _holds(counts: Integers, fit: Any, usual: Usual) -> Booleans:
    """Return which hosts can hold which usual tasks; none holds one that asks for no device."""
    found: Booleans = _has_counts(counts, usual) & (fit >= usual.devices)
    return found


def _has_counts(counts: Integers, usual: Usual) -> Booleans:
    """Return which hosts have the counts of which usual tasks that ask for devices."""
    enough = (counts[:, None, :] >= usual.counts) | (usual.counts == 0)  # also where overdrawn
    found: Booleans = (usual.devices > 0) & enough.all(2)
    return found
