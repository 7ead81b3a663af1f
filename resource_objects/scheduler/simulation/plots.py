"""Pictures of simulations, by Matplotlib (the extra ``plot``), which is imported here only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from resource_objects.exceptions import InvalidInput, PluginError
from resource_objects.scheduler.simulation.packing import Packing
from resource_objects.scheduler.simulation.timeline import Replay

_SIZE = 8, 3.4


def plot_packings(packings: Sequence[Packing], path: str | os.PathLike[str]) -> None:
    """Write a picture: what was allocated, and what was fragmented, against what arrived.

    :param path: what the file is called says what it is: ``.svg``, ``.png``, ``.pdf``
    :raises PluginError: if Matplotlib is not installed
    :raises InvalidInput: if nothing was packed
    """
    if not packings:
        raise InvalidInput("trace", "plot", "nothing", "at least one packing")
    figure, (left, right) = _pictures(2)
    colours: dict[str, Any] = {}
    for one in packings:
        (line,) = left.plot(
            100 * one.arrived,
            100 * one.allocated,
            color=colours.get(one.policy),
            label=None if one.policy in colours else one.policy,
            linewidth=1,
        )
        colour = colours.setdefault(one.policy, line.get_color())
        right.plot(100 * one.arrived, 100 * one.fragmented, color=colour, linewidth=1)
    left.set_ylabel("allocated, % of all GPUs")
    right.set_ylabel("fragmented, % of all GPUs")
    left.legend()
    for axes in (left, right):
        axes.set_xlabel("arrived, % of all GPUs")
    figure.savefig(path)


def plot_replays(
    replays: Mapping[str, Replay], gpu_parts: int, path: str | os.PathLike[str]
) -> None:
    """Write a picture: what is held after each job that came, a line for each replay.

    :param replays: by what they are called
    :param gpu_parts: all GPUs, in thousandths
    :raises PluginError: if Matplotlib is not installed
    :raises InvalidInput: if there are no GPUs
    """
    if not gpu_parts:
        raise InvalidInput("trace", "plot", "no GPUs", "hosts with GPUs")
    figure, (axes,) = _pictures(1)
    for name, done in replays.items():
        held = [100 * held / gpu_parts for held in done.held]
        axes.plot(held, linewidth=1, label=f"{name}: {done.refused} refused")
    axes.legend()
    axes.set_xlabel("jobs that came")
    axes.set_ylabel("held, % of all GPUs")
    figure.savefig(path)


def _pictures(count: int) -> tuple[Any, Sequence[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PluginError(
            "matplotlib", "plots", "it is not installed: pip install 'resource_objects[plot]'"
        ) from error
    figure = Figure(figsize=_SIZE, layout="constrained")
    return figure, [figure.add_subplot(1, count, number + 1) for number in range(count)]
