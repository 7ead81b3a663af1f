"""Which CPUs of a machine serve what: shared ones, dedicated ones, and those the host keeps.

=====================  =============================================================================
``shared``             run any number of shared vCPUs, up to a ratio; counted as ``VCPU``
``dedicated``          are given to one vCPU each, or left empty for it; counted as ``PCPU``
in neither             the host's own: its kernel, its agents, whatever serves guests
=====================  =============================================================================

Where neither set is given, all CPUs are shared. Where one is, the CPUs it does not name are the
host's own unless the other names them. Source: ``cpu_shared_set`` and ``cpu_dedicated_set`` of
Nova's *cpu-resources* specification (Train).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeAlias

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.host.facts import Machine
from resource_objects.resources.numa.cpus import format_cpus, parse_cpus

__all__ = ["CPUSet", "CPUSets", "cpu_sets"]

#: CPUs as a list in text (``"2-15,^4"``) or as their numbers; None where none are named.
CPUSet: TypeAlias = str | Iterable[int] | None


@dataclasses.dataclass(frozen=True, slots=True)
class CPUSets:
    """The CPUs that are shared and those that are dedicated, ascending; no CPU is both."""

    shared: tuple[int, ...]
    dedicated: tuple[int, ...]


def cpu_sets(machine: Machine, shared: CPUSet = None, dedicated: CPUSet = None) -> CPUSets:
    """Return which CPUs of a machine serve what. O(CPUs).

    :raises InvalidText: for text that is no list of CPUs, or names none
    :raises InvalidInput: for anything else that is no set of CPUs, or an empty one
    :raises InvalidInventory: for a CPU that is not online, or is in both sets

    >>> from resource_objects.host.facts import Core
    >>> machine = Machine(cpus=(0, 1, 2, 3), memory_bytes=0, offline_cpus=(4,),
    ...                   cores=tuple(Core(0, number, (number,)) for number in range(4)))
    >>> cpu_sets(machine)
    CPUSets(shared=(0, 1, 2, 3), dedicated=())
    >>> cpu_sets(machine, dedicated="2-3")
    CPUSets(shared=(), dedicated=(2, 3))
    >>> cpu_sets(machine, shared=[1], dedicated="2-4")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInventory: dedicated CPUs: got '4', expected CPUs that ...
    """
    if shared is None and dedicated is None:
        return CPUSets(machine.cpus, ())
    found = CPUSets(
        _online(machine, "shared CPUs", shared), _online(machine, "dedicated CPUs", dedicated)
    )
    both = set(found.shared).intersection(found.dedicated)
    if both:
        raise InvalidInventory("dedicated CPUs", format_cpus(both), "CPUs that are not shared too")
    return found


def _online(machine: Machine, what: str, given: CPUSet) -> tuple[int, ...]:
    """Return the CPUs of a set, all online; none where it is not given."""
    if given is None:
        return ()
    cpus = parse_cpus(given, what) if isinstance(given, str) else _numbers(what, given)
    away = sorted(set(cpus).difference(machine.cpus))
    if away:
        expected = f"CPUs that are online: {format_cpus(machine.cpus)}"
        raise InvalidInventory(what, format_cpus(away), expected)
    return cpus


def _numbers(what: str, given: Any) -> tuple[int, ...]:
    numbers = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes) else ()
    if not numbers or not all(type(each) is int and each >= 0 for each in numbers):
        raise InvalidInput(what, given, "a list of CPUs such as 0-3,8, or their numbers")
    return tuple(sorted(set(numbers)))
