"""Nova's own NUMA functions in this process, on hosts and requests that stand for ours.

What is called is what Nova's scheduler and compute agent call: ``numa_fit_instance_to_host``,
``numa_usage_from_instance_numa`` and ``NUMATopology.obj_from_db_obj``. Nova writes into the request
it is given, so its callers copy that first; no copy is in these figures.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import warnings
from typing import Any

from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory

NAME = "nova 34"

_SIZES = {"": None, "small": -1, "large": -2, "any": -3}


def is_installed() -> bool:
    """Return whether there is a nova to be measured beside."""
    return importlib.util.find_spec("nova") is not None


@functools.cache
def nova() -> tuple[Any, Any]:
    """Return Nova's objects and its ``virt.hardware``, loaded without configuration files."""
    os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other libraries' own, at import
        import nova.conf
        from nova import objects

        objects.register_all()
        from nova.virt import hardware
    nova.conf.CONF([], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    return objects, hardware


def host(inventory: NUMATopologyInventory) -> Any:
    """Return a ``NUMATopology`` of the same cells, with the same use of them."""
    objects, _ = nova()
    return objects.NUMATopology(
        cells=[
            objects.NUMACell(
                id=cell.id,
                cpuset=set(cell.shared),
                pcpuset=set(cell.dedicated),
                memory=cell.memory_mb,
                socket=cell.socket,
                cpu_usage=used.shared,
                memory_usage=used.memory_mb,
                pinned_cpus=set(used.pinned),
                siblings=[set(core) for core in cell.siblings],
                mempages=[
                    objects.NUMAPagesTopology(
                        size_kb=pool.size_kib, total=pool.total, used=0, reserved=pool.reserved
                    )
                    for pool in cell.pages
                ],
            )
            for cell, used in zip(inventory.cells, inventory.usage, strict=True)
        ]
    )


def request(amount: NUMATopologyAmount) -> Any:
    """Return an ``InstanceNUMATopology`` that asks for the same."""
    objects, _ = nova()
    size = amount.page_size
    return objects.InstanceNUMATopology(
        cells=[
            objects.InstanceNUMACell(
                id=number,
                cpuset=set(cell.shared),
                pcpuset=set(cell.dedicated),
                memory=cell.memory_mb,
                pagesize=_SIZES[size] if size in _SIZES else int(size),
                cpu_policy=amount.cpu_policy,
                cpu_thread_policy=amount.thread_policy,
            )
            for number, cell in enumerate(amount.cells)
        ],
        emulator_threads_policy=amount.emulator_policy,
    )


def limits() -> Any:
    """Return limits by ratios of 1, without which shared CPUs that are used do not count."""
    objects, _ = nova()
    return objects.NUMATopologyLimits(cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0)
