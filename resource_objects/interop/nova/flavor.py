"""A flavor and its image, as one topology amount.

The rules are those of Nova 34 (``numa_get_constraints``), checked in its order, so that of several
broken rules the same one is named. A topology is made if, and only if, one of these is asked for:
a number of guest cells, a page size, persistent memory, dedicated or mixed CPUs.

What differs from Nova is only what it refuses late, ignores or takes by accident:

=====================================  =============================================================
words                                  Nova, and here
=====================================  =============================================================
``hw:cpu_realtime=maybe``,             it says no; refused (INVALID_FLAG)
``hw:locked_memory=maybe``
``resources:PCPU=four``                ignored; refused (INVALID_RESOURCE_COUNT)
``resources_A:PCPU=4``                 taken in placement, not pinned; pinned, as in any group
``resources:PCPU_X``, ``trait:..._X``  read as PCPU and as the trait; another name
trait neither required nor forbidden,  ignored; refused (INVALID_HYPERTHREADING_TRAIT)
or forbidden by an image
trait required and forbidden           the first key counts; refused (HYPERTHREADING_TRAIT_CONFLICT)
``hw:numa_mem.0=many``                 a bare ValueError; refused (INVALID_CELL_MEMORY)
``hw:numa_mem.0=-512``                 added up; refused (INVALID_CELL_MEMORY)
a guest cell of nothing                asks for a host cell; refused (EMPTY_CELL)
``hw:numa_mem.0=``                     a bare ValueError; refused (INVALID_CELL_MEMORY)
``hw_numa_nodes=02``                   2, of an image only; refused (INVALID_CELL_COUNT)
``hw_numa_nodes=0`` beside             ignored; refused (CELLS_SAID_TWICE)
``hw:numa_nodes``
more than 1024 guest cells             never fits; refused (INVALID_CELL_COUNT)
``hw:mem_page_size=0``                 no page size; refused (INVALID_PAGE_SIZE)
``hw:mem_page_size=3000``, ``16Mb``,   never fits; refused (INVALID_PAGE_SIZE)
``0.5MB``, 2 TiB and more
``hw:mem_page_size=2M``, ``2048kB``    refused though its interface takes it; 2 MiB
``hw:pmem=6GB-FAST``, ``é``            the class of ``6GB_FAST``, of ``_``; refused
                                       (INVALID_PMEM_LABEL)
CPU numbers such as ``+1``, ``1_0``,   read; refused (INVALID_CPU_LIST)
``٣``, and above 65535
a flavor of more than 65536 vCPUs,     never fits; refused (INVALID_FLAVOR_SIZE)
of 2 PiB and more
any other key with empty text          says nothing, or for some keys "no"; says nothing, but for
                                       ``hw:numa_cpus.N``: no vCPUs, in both
=====================================  =============================================================

Memory encryption, which implies locked memory, is not read here; nor is which host an image or a
trait asks for: hyperthreading becomes a thread policy and stays a trait of the request.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import os_resource_classes

from resource_objects import exceptions, names
from resource_objects.fields import FrozenDict
from resource_objects.interop.nova.cpus import (
    check_emulator_policy,
    check_thread_policy,
    cpu_policy,
    dedicated_mask,
    dedicated_vcpus,
    emulator_policy,
    format_cpu_spec,
    parse_cpu_spec,
    policy_with_resources,
    policy_with_trait,
    realtime_vcpus,
    thread_policy,
)
from resource_objects.interop.nova.flavor_words import FlavorWords, flag_of, text_of
from resource_objects.interop.nova.nova_objects import extra_specs_of, image_properties
from resource_objects.interop.nova.primitive import Document
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.amounts import Amounts
from resource_objects.resources.numa.amount import MAX_GUEST_CELLS, GuestCell, NUMATopologyAmount
from resource_objects.resources.numa.cells import ANY, LARGE, PAGE_SIZES, parse_page_size

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
        amounts: dict[str, Any] = {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb}
        if self.amount is not None:
            amounts = {**self.amount.placed_counts, "NUMA_TOPOLOGY": self.amount}
        return Amounts.from_value({**amounts, **self.pmem})


def flavor_topology(
    vcpus: int,
    memory_mb: int,
    *,
    extra_specs: Document = _NOTHING,
    image: Document = _NOTHING,
) -> FlavorTopology:
    """Return what a flavor and its image ask of CPUs and memory.

    :param memory_mb: MiB
    :param extra_specs: of the flavor, text by key, or Nova's own ``Flavor``; other keys are left
        alone
    :param image: the image's properties as the image service keeps them, text by key, or Nova's own
        ``ImageMeta``
    :raises InvalidNovaInput: by the first rule that is broken
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
    resource_objects.interop.nova.rules.InvalidNovaInput: vcpus: got 8, expected a multiple of 3 ...
    """
    words = FlavorWords(vcpus, memory_mb, extra_specs_of(extra_specs), image_properties(image))
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


# --- guest cells ---
#
# Either nothing is said of what is in them (vCPUs and memory are split evenly, vCPUs in order), or
# numa_cpus.N and numa_mem.N (MiB) are said of every one. Reading stops at the first N that is
# missing or None; empty text is a list without vCPUs, as in Nova, and no number. Each of the three
# is said by the flavor or by the image, not by both. Where nothing asks for a topology, numa_cpus
# and numa_mem are not read.

#: Cells beyond these are not read.
MAX_CELLS = 128

_CELL_COUNT = re.compile(r"[1-9][0-9]{0,17}\Z", re.ASCII)
_CELL_MEMORY = re.compile(r"[0-9]{1,10}\Z", re.ASCII)

_T = TypeVar("_T")


def cell_count(words: FlavorWords) -> int | None:
    """Return the number of guest cells that is asked for, None if none is.

    :raises InvalidNovaInput: ``CELLS_SAID_TWICE`` if flavor and image both say it;
        ``INVALID_CELL_COUNT`` for what is no number from 1

    >>> cell_count(FlavorWords(4, 512, {"hw:numa_nodes": "2"}, {}))
    2
    """
    flavor, image = words.flavor("numa_nodes"), words.image("numa_nodes")
    if flavor and image:
        raise _said_twice("numa_nodes", image)
    key = "hw:numa_nodes" if flavor else "hw_numa_nodes"
    text = flavor or image
    if text and not _CELL_COUNT.match(text):
        raise InvalidNovaInput(
            NovaRule.INVALID_CELL_COUNT, key, text, "a number of guest cells from 1"
        )
    return int(text) if text else None


def guest_cells(words: FlavorWords, count: int, dedicated: Iterable[int]) -> list[GuestCell]:
    """Return the guest cells; ``dedicated`` are the vCPUs that have a CPU each.

    :raises InvalidNovaInput: ``CELLS_SAID_TWICE`` if flavor and image both say what is in them;
        ``INVALID_CPU_LIST`` or ``INVALID_CELL_MEMORY`` for what cannot be read; ``CELLS_UNEVEN`` if
        nothing is said, and the split is not even; ``INVALID_CELL_COUNT`` if the split is into more
        than a request can have; ``CELLS_INCOMPLETE`` if something is said, and not both for each;
        ``CELL_CPU_OUT_OF_RANGE``, ``CELL_CPU_TWICE`` or ``CELL_CPUS_MISSING`` unless each vCPU is
        in one cell; ``CELL_MEMORY_MISMATCH`` if the memory of all is not the flavor's;
        ``EMPTY_CELL`` if one has neither vCPUs nor memory

    >>> guest_cells(FlavorWords(4, 512, {}, {}), 2, dedicated=[3])[1]
    GuestCell(shared=(2,), dedicated=(3,), memory_mb=256)
    """
    cpus = _said_of_cells(words, "numa_cpus", parse_cpu_spec)
    memory = _said_of_cells(words, "numa_mem", _cell_memory)
    if cpus is None and memory is None:
        parts = _split_evenly(words, count)
    else:
        for name, said in (("numa_cpus", cpus or []), ("numa_mem", memory or [])):
            if len(said) != count:
                raise InvalidNovaInput(
                    NovaRule.CELLS_INCOMPLETE,
                    f"hw:{name}.N, hw_{name}.N",
                    f"of {len(said)} guest cells",
                    f"of {count}: of none, or of each with the other of numa_cpus and numa_mem",
                )
        parts = list(zip(cpus or [], memory or [], strict=True))
        _check_cells(words, parts)
    pinned = frozenset(dedicated)
    return [
        GuestCell(
            shared=[vcpu for vcpu in vcpus if vcpu not in pinned],
            dedicated=[vcpu for vcpu in vcpus if vcpu in pinned],
            memory_mb=memory_mb,
        )
        for vcpus, memory_mb in parts
    ]


def _split_evenly(words: FlavorWords, count: int) -> list[tuple[tuple[int, ...], int]]:
    """Return (vCPUs, memory) of each cell, split evenly."""
    for what, total in (("vcpus", words.vcpus), ("memory_mb", words.memory_mb)):
        if total % count:
            raise InvalidNovaInput(
                NovaRule.CELLS_UNEVEN, what, total, f"a multiple of {count} guest cells"
            )
    if count > MAX_GUEST_CELLS:
        raise InvalidNovaInput(
            NovaRule.INVALID_CELL_COUNT,
            "hw:numa_nodes, hw_numa_nodes",
            count,
            f"at most {MAX_GUEST_CELLS} guest cells",
        )
    each, memory = words.vcpus // count, words.memory_mb // count
    return [(tuple(range(n * each, (n + 1) * each)), memory) for n in range(count)]


def _check_cells(words: FlavorWords, parts: list[tuple[tuple[int, ...], int]]) -> None:
    seen: set[int] = set()
    for number, (vcpus, memory) in enumerate(parts):
        key = f"numa_cpus.{number}"
        for vcpu in vcpus:
            if vcpu >= words.vcpus:
                raise InvalidNovaInput(
                    NovaRule.CELL_CPU_OUT_OF_RANGE, key, vcpu, f"vCPUs below {words.vcpus}"
                )
            if vcpu in seen:
                raise InvalidNovaInput(
                    NovaRule.CELL_CPU_TWICE, key, vcpu, "each vCPU in one guest cell"
                )
            seen.add(vcpu)
        if not vcpus and not memory:
            raise InvalidNovaInput(
                NovaRule.EMPTY_CELL, f"guest cell {number}", "nothing", "vCPUs or memory, or both"
            )
    missing = set(range(words.vcpus)) - seen
    if missing:
        raise InvalidNovaInput(
            NovaRule.CELL_CPUS_MISSING,
            "numa_cpus",
            f"without {format_cpu_spec(missing)}",
            "every vCPU in a guest cell",
        )
    total = sum(memory for _, memory in parts)
    if total != words.memory_mb:
        raise InvalidNovaInput(
            NovaRule.CELL_MEMORY_MISMATCH, "numa_mem", total, f"{words.memory_mb} MiB all together"
        )


def _said_of_cells(
    words: FlavorWords, name: str, read: Callable[[str, str], _T]
) -> list[_T] | None:
    flavor = _each_cell(words.extra_specs, f"hw:{name}", read)
    image = _each_cell(words.properties, f"hw_{name}", read)
    if flavor and image:
        raise _said_twice(name, f"{len(image)} guest cells")
    return flavor or image or None


def _each_cell(given: Mapping[str, Any], prefix: str, read: Callable[[str, str], _T]) -> list[_T]:
    """Read the keys ``<prefix>.0``, ``<prefix>.1``... up to the first that is missing."""
    result: list[_T] = []
    for number in range(MAX_CELLS):
        key = f"{prefix}.{number}"
        if given.get(key) is None:
            break
        result.append(read(text_of(key, given[key]), key))
    return result


def _cell_memory(text: str, key: str) -> int:
    if not _CELL_MEMORY.match(text):
        raise InvalidNovaInput(
            NovaRule.INVALID_CELL_MEMORY, key, text, "MiB, a whole number from 0"
        )
    return int(text)


def _said_twice(name: str, said: str) -> InvalidNovaInput:
    return InvalidNovaInput(
        NovaRule.CELLS_SAID_TWICE, f"hw_{name}", said, f"none, for the flavor says hw:{name}"
    )


# --- page sizes, and memory that is locked ---
#
# "2MB" is 2 MiB and a bare number is KiB. Nova's reading refuses "2M" and "2048kB", which its
# interface takes; here they are read. It takes sizes in bits ("16Mb"), sizes that no page has
# ("3000"), and 0 for no size at all; here they are refused.

_SIZE = re.compile(r"[0-9]{1,12}(?:[kKMGT](?:i?B)?)?\Z", re.ASCII)


def page_size(words: FlavorWords) -> str:
    """Return the page size as a topology amount keeps it, ``""`` for none.

    An image may choose only if the flavor says large or any.

    :raises InvalidNovaInput: ``INVALID_PAGE_SIZE`` for what is no page size; ``PAGE_SIZE_CONFLICT``
        if the image asks for one and may not

    >>> page_size(FlavorWords(4, 512, {"hw:mem_page_size": "large"}, {"hw_mem_page_size": "1GB"}))
    '1048576'
    """
    flavor, image = words.flavor("mem_page_size"), words.image("mem_page_size")
    size = _size_text("hw:mem_page_size", flavor) if flavor else ""
    if not image:
        return size
    if size not in (LARGE, ANY):
        against = f"hw:mem_page_size={flavor}" if flavor else "no hw:mem_page_size"
        raise InvalidNovaInput(
            NovaRule.PAGE_SIZE_CONFLICT,
            "hw_mem_page_size",
            image,
            f"none, for the flavor says {against}, not large or any",
        )
    return _size_text("hw_mem_page_size", image)


def size_in_kib(key: str, text: str) -> int:
    """Return the size that a number with or without a unit says, in KiB.

    :raises InvalidNovaInput: ``INVALID_PAGE_SIZE`` if it says none

    >>> size_in_kib("size", "1GB"), size_in_kib("size", "2048")
    (1048576, 2048)
    """
    try:
        if _SIZE.match(text):
            return int(parse_page_size(text))
    except exceptions.InvalidInput as error:
        if not error.is_about("text"):
            raise
        raise _invalid_size(key, text) from error
    raise _invalid_size(key, text)


def locked_memory(words: FlavorWords) -> bool:
    """Return whether memory shall stay where it is. What memory encryption implies is not read.

    :raises InvalidNovaInput: ``INVALID_FLAG`` for neither yes nor no; ``LOCKED_MEMORY_CONFLICT`` if
        flavor and image disagree; ``LOCKED_MEMORY_WITHOUT_PAGE_SIZE`` if neither says a page size

    >>> locked_memory(FlavorWords(4, 512, {"hw:locked_memory": "true",
    ...                                    "hw:mem_page_size": "small"}, {}))
    True
    """
    flavor = flag_of("hw:locked_memory", words.flavor("locked_memory"))
    image = flag_of("hw_locked_memory", words.image("locked_memory"))
    if flavor is not None and image is not None and flavor != image:
        raise InvalidNovaInput(
            NovaRule.LOCKED_MEMORY_CONFLICT,
            "hw_locked_memory",
            image,
            f"{flavor}, as the flavor says, or none",
        )
    locked = bool(image if flavor is None else flavor)
    if locked and not (words.flavor("mem_page_size") or words.image("mem_page_size")):
        raise InvalidNovaInput(
            NovaRule.LOCKED_MEMORY_WITHOUT_PAGE_SIZE, "hw:mem_page_size", "", "one, to lock memory"
        )
    return locked


def _size_text(key: str, text: str) -> str:
    return text if text in PAGE_SIZES else str(size_in_kib(key, text))


def _invalid_size(key: str, text: str) -> InvalidNovaInput:
    return InvalidNovaInput(
        NovaRule.INVALID_PAGE_SIZE,
        key,
        text,
        "small, large, any, or a power of two such as 2048 (KiB) or 1GB",
    )


# --- persistent memory ---
#
# "hw:pmem = 6GB,16GB": labels of namespaces. The class of a label says the label, but for the case
# of its letters. Nova turns whatever is no ASCII letter or digit into an underscore, and several of
# them into one, so that all of "é" and "-" is one class, and "6GB-FAST" is that of "6GB_FAST": such
# labels are refused.


def pmem_classes(words: FlavorWords) -> Mapping[str, int]:
    """Return how many namespaces are asked for, ``{resource class: count}``; images have no say.

    :raises InvalidNovaInput: ``INVALID_PMEM_LABEL`` for a label that makes no resource class, or
        that of other labels too

    >>> dict(pmem_classes(FlavorWords(4, 512, {"hw:pmem": "6GB, 16GB,6GB"}, {})))
    {'CUSTOM_PMEM_NAMESPACE_6GB': 2, 'CUSTOM_PMEM_NAMESPACE_16GB': 1}
    """
    labels = [label.strip() for label in words.flavor("pmem").split(",")]
    return FrozenDict(Counter(_pmem_class(label) for label in labels if label))


def _pmem_class(label: str) -> str:
    name = f"CUSTOM_PMEM_NAMESPACE_{label.upper()}"
    normalized = os_resource_classes.normalize_name(  # type: ignore[no-untyped-call]
        f"PMEM_NAMESPACE_{label}"
    )
    if name != normalized:
        raise InvalidNovaInput(
            NovaRule.INVALID_PMEM_LABEL,
            "hw:pmem",
            label,
            "ASCII letters and digits, with single underscores between them",
        )
    try:
        return names.resource_class_name(name)
    except exceptions.InvalidInput as error:
        if not error.is_about("resource class"):
            raise
        raise InvalidNovaInput(
            NovaRule.INVALID_PMEM_LABEL, "hw:pmem", label, error.expected
        ) from error
