"""A flavor and its image, as one topology amount.

The rules are those of Nova 34 (``numa_get_constraints``), checked in its order, so that of several
broken rules the same one is named. A topology is made if, and only if, one of these is asked for:
a number of guest cells, a page size, persistent memory, dedicated or mixed CPUs.

What differs from Nova is only what it refuses late, ignores or takes by accident:

=====================================  =============================================================
words                                  Nova, and here
=====================================  =============================================================
``hw:cpu_realtime=maybe``,             it says no; refused (InvalidFlag)
``hw:locked_memory=maybe``
``resources:PCPU=four``                ignored; refused (InvalidResourceCount)
``resources_A:PCPU=4``                 taken in placement, not pinned; pinned, as in any group
``resources:PCPU_X``, ``trait:..._X``  read as PCPU and as the trait; another name
trait neither required nor forbidden,  ignored; refused (InvalidHyperthreadingTrait)
or forbidden by an image
trait required and forbidden           the first key counts; refused (HyperthreadingTraitConflict)
``hw:numa_mem.0=many``                 a bare ValueError; refused (InvalidCellMemory)
``hw:numa_mem.0=-512``                 added up; refused (InvalidCellMemory)
a guest cell of nothing                asks for a host cell; refused (EmptyCell)
``hw:numa_mem.0=``                     a bare ValueError; refused (InvalidCellMemory)
``hw_numa_nodes=02``                   2, of an image only; refused (InvalidCellCount)
``hw_numa_nodes=0`` beside             ignored; refused (CellsSaidTwice)
``hw:numa_nodes``
more than 1024 guest cells             never fits; refused (InvalidCellCount)
``hw:mem_page_size=0``                 no page size; refused (InvalidPageSize)
``hw:mem_page_size=3000``, ``16Mb``,   never fits; refused (InvalidPageSize)
``0.5MB``, 2 TiB and more
``hw:mem_page_size=2M``, ``2048kB``    refused though its interface takes it; 2 MiB
``hw:pmem=6GB-FAST``, ``é``            the class of ``6GB_FAST``, of ``_``; refused
                                       (InvalidPmemLabel)
CPU numbers such as ``+1``, ``1_0``,   read; refused (InvalidCPUList)
``٣``, and above 65535
a flavor of more than 65536 vCPUs,     never fits; refused (InvalidFlavorSize)
of 2 PiB and more
any other key with empty text          says nothing, or for some keys "no"; says nothing, but for
                                       ``hw:numa_cpus.N``: no vCPUs, in both
=====================================  =============================================================

Memory encryption, which implies locked memory, is not read here; nor is which host an image or a
trait asks for: hyperthreading becomes a thread policy and stays a trait of the request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from resource_objects.fields import FrozenDict
from resource_objects.interop.nova.cells import cell_count, guest_cells
from resource_objects.interop.nova.cpu_policy import (
    check_emulator_policy,
    cpu_policy,
    emulator_policy,
)
from resource_objects.interop.nova.cpu_resources import policy_with_resources
from resource_objects.interop.nova.flavor_words import FlavorWords
from resource_objects.interop.nova.masks import dedicated_mask, dedicated_vcpus, realtime_vcpus
from resource_objects.interop.nova.pages import locked_memory, page_size
from resource_objects.interop.nova.pmem import pmem_classes
from resource_objects.interop.nova.thread_policy import (
    check_thread_policy,
    policy_with_trait,
    thread_policy,
)
from resource_objects.resources.amounts import Amounts
from resource_objects.resources.numa.amount import NUMATopologyAmount

__all__ = ["FlavorTopology", "flavor_topology"]

_NOTHING: Mapping[str, Any] = FrozenDict()


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorTopology:
    """What a flavor and its image ask of CPUs and memory.

    ``amount`` is the topology, None if they ask for none. The rest is the guest's configuration,
    which no host is chosen by: ``realtime`` vCPUs, ``locked_memory``. ``pmem`` is persistent
    memory, ``{resource class: count}``.
    """

    vcpus: int
    memory_mb: int
    amount: NUMATopologyAmount | None
    realtime: tuple[int, ...] = ()
    locked_memory: bool = False
    pmem: Mapping[str, int] = FrozenDict()

    @property
    def resources(self) -> Amounts:
        """CPUs, memory, persistent memory and the topology, as a request asks for them.

        Without disks, and without other ``resources:`` than VCPU and PCPU.

        >>> flavor_topology(4, 2048).resources
        Amounts('VCPU=4,MEMORY_MB=2048')
        """
        asked: dict[str, Any] = {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb}
        if self.amount is not None:
            asked = {**self.amount.located, "NUMA_TOPOLOGY": self.amount}
        return Amounts.of({**asked, **self.pmem})


def flavor_topology(
    vcpus: int,
    memory_mb: int,
    *,
    extra_specs: Mapping[str, Any] = _NOTHING,
    image: Mapping[str, Any] = _NOTHING,
) -> FlavorTopology:
    """Return what a flavor and its image ask of CPUs and memory.

    :param memory_mb: MiB
    :param extra_specs: of the flavor, text by key; other keys are left alone
    :param image: the image's properties as the image service keeps them, text by key
    :raises InvalidWords: of the type of the first rule that is broken, see ``errors``
    :returns: the topology amount, and what else is said; O(vcpus)

    >>> asked = flavor_topology(8, 8192, extra_specs={
    ...     "hw:numa_nodes": "2", "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0,4",
    ...     "hw:mem_page_size": "large"}, image={"hw_mem_page_size": "2MB"})
    >>> for cell in asked.amount.cells:
    ...     print(cell)
    GuestCell(shared=(0,), dedicated=(1, 2, 3), memory_mb=4096)
    GuestCell(shared=(), dedicated=(4, 5, 6, 7), memory_mb=4096)
    >>> flavor_topology(8, 8192, extra_specs={"hw:numa_nodes": "3"})
    Traceback (most recent call last):
    resource_objects.interop.nova.errors.CellsUneven: vcpus: got 8, expected a multiple of 3 ...
    """
    words = FlavorWords(vcpus, memory_mb, extra_specs, image)
    policy = cpu_policy(words)
    threads = thread_policy(words)
    realtime = realtime_vcpus(words)
    masked = dedicated_mask(words)
    emulator = emulator_policy(words)
    policy = policy_with_resources(words, policy, emulator)
    threads = policy_with_trait(words, threads)
    check_thread_policy(policy, threads)
    check_emulator_policy(policy, emulator)
    dedicated = dedicated_vcpus(words, policy, realtime, masked)
    count = cell_count(words)
    size = page_size(words)
    pmem = pmem_classes(words)
    locked = locked_memory(words)
    amount = None
    if count or size or pmem or dedicated:
        amount = NUMATopologyAmount(
            guest_cells(words, count or 1, dedicated),
            page_size=size,
            thread_policy=threads,
            emulator_policy=emulator,
        )
    return FlavorTopology(vcpus, memory_mb, amount, realtime, locked, pmem)
