"""``instance_extra.numa_topology``: a guest's NUMA topology as Nova keeps it, read and written.

Every version is read, ``InstanceNUMACell`` 1.0 to 1.6 and the plain dicts from before Liberty; each
versioned one is written. Cells are read by what is in them, for their version may lie (Nova's bug
2097360): dedicated vCPUs are in ``pcpuset``, or, where that is empty, in ``cpuset``.

What ``id`` of a cell means is decided here, once:

=============  ====================================================================================
not assigned   the guest cell: 0, 1, ... in their order; or -1 in each, where Nova took the guest
               from its host again
assigned       the host cell
=============  ====================================================================================

Which it is, the content tells nearly always:

==========================================================  =======================================
each dedicated vCPU has a CPU                               assigned
dedicated vCPUs, and none has a CPU                         not assigned
an id of -1, or a page size in words (``small``, ...)       not assigned
shared vCPUs only, and ids that are not 0, 1, ...           assigned
shared vCPUs only, ids 0, 1, ...                            both look the same: ``assigned`` tells
==========================================================  =======================================

Nothing is guessed: what contradicts itself or ``assigned`` is refused, and so is what cannot be
told.

What an assigned topology does not say, and who does:

* the CPUs that shared vCPUs run on, the siblings that ``isolate`` leaves empty, and (for sizes from
  8 to 512 KiB) whether pages are ordinary or huge: ``host``. Beside the emulator's CPU no sibling
  counts as taken, though Nova counts it where the policy is ``isolate``;
* the page size that was asked for: Nova writes the size that was found over it. ``page_size`` says
  it; else it is that size, as long as all cells have the same.

Nova keeps elsewhere, or nowhere, which networks are asked for and whether all has to be in one
socket: writing refuses them in every version, unless they may be left out.

What is read and written again is what it was, up to this: sets ascending; a policy of None is
``shared``, and ``mixed`` without shared vCPUs is ``dedicated``; no ``cpu_topology``, which Nova has
no use for either; no ``instance_uuid`` but the one that is given; no page size in cells without
memory; ids of -1 are those of the guest cells again; and the version asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from resource_objects.exceptions import (
    CannotDowngrade,
    InvalidInput,
    InvalidPrimitive,
)
from resource_objects.interop.nova import _guest_cell, _guest_place, _primitive
from resource_objects.interop.nova._versions import GUEST, GUEST_CELL, guest_versions
from resource_objects.names import uuid_text
from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory, words
from resource_objects.resources.numa.amount import given

__all__ = ["dump_instance_numa_topology", "load_instance_numa_topology"]

_FIELDS: Final = frozenset({"id", "instance_uuid", "cells", "emulator_threads_policy"})
#: What may be left out, for no version has a word for it.
_OPTIONAL: Final = ("physnets", "tunneled", "one_socket")
#: First version of the topology that has a policy for emulator threads.
_EMULATOR = 3


def load_instance_numa_topology(
    source: str | bytes | Mapping[str, Any],
    *,
    host: NUMATopologyInventory | None = None,
    assigned: bool | None = None,
    page_size: str | int | None = None,
) -> NUMATopologyAmount:
    """Return the amount of a guest's topology, assigned where that is.

    :param source: JSON text as in ``instance_extra.numa_topology``, or the mapping it stands for
    :param host: the host it is on; needed where the module says so
    :param assigned: whether it is assigned; None: as the content tells
    :param page_size: what was asked, where Nova wrote the size that was found over it; as
        :func:`~resource_objects.resources.numa.numa` takes it
    :raises InvalidPrimitive: if it is no topology, in any version, or contradicts itself, the host
        or the parameters; also if it cannot be told what it means without one of them
    :raises InvalidText: for a ``page_size`` that is none

    Cost: 0.1 milliseconds for 2 cells.

    >>> shared = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 1024}}]}'
    >>> print(load_instance_numa_topology(shared, assigned=False).located)
    {'VCPU': 4, 'MEMORY_MB': 1024}
    >>> load_instance_numa_topology(shared)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidPrimitive: numa_topology.cells: got (0,), expected ...
    """
    asked_size = page_size if page_size in (None, "") else words.page_size(page_size)
    data, found = _primitive.cells_of(source, GUEST, GUEST_CELL, _FIELDS, _guest_cell.of_plain)
    cells = []
    for place, (raw, _) in enumerate(found):
        try:
            cells.append(_guest_cell.read_cell(raw))
        except InvalidInput as error:
            _primitive.at(f"{_primitive.ROOT}.cells[{place}]", error)
    try:
        return _guest_place.amount_of(
            cells,
            _read_emulator_policy(data.get("emulator_threads_policy")),
            host,
            assigned,
            asked_size,
        )
    except InvalidInput as error:
        _primitive.at(_primitive.ROOT, error)


def _read_emulator_policy(value: object) -> str | None:
    if value is None or value in words.EMULATOR_POLICIES:
        return None if value is None else str(value)
    raise InvalidPrimitive("emulator_threads_policy", value, "share, isolate or null")


def dump_instance_numa_topology(
    amount: NUMATopologyAmount,
    version: str | Mapping[str, str] | None = None,
    *,
    host: NUMATopologyInventory | None = None,
    instance_uuid: str | None = None,
    leave_out: Collection[str] = (),
) -> str:
    """Return a guest's topology as ``instance_extra.numa_topology`` has it.

    :param version: of ``InstanceNUMACell``, such as ``"1.4"``; or what a receiver reads, ``{name:
        version}``; None for the newest
    :param host: the host an assigned amount is on; needed where any or small pages were asked for
        and it is in ordinary ones: Nova writes their size
    :param instance_uuid: the uuid of the guest, to be written with it
    :param leave_out: what may be left unsaid, for Nova keeps it elsewhere or nowhere:
        ``physnets``, ``tunneled``, ``one_socket``
    :raises CannotDowngrade: if the version cannot say it
    :raises UnsupportedVersion: if there is no such version
    :raises WrongAmountKind: if it is no such amount
    :raises InvalidInventory: if ``host`` has no such cell
    :raises InvalidField: if something else is to be left out
    :raises InvalidName: for a uuid that is none

    >>> from resource_objects.resources.numa import numa
    >>> asked = numa(cells=2, dedicated=4, memory_mb=2048, page_size="large")
    >>> load_instance_numa_topology(dump_instance_numa_topology(asked)) == asked
    True
    >>> dump_instance_numa_topology(asked, "1.1")
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: InstanceNUMACell cannot be said in version 1.1: ...
    """
    asked, versions = given(amount), guest_versions(version)
    minor = versions[GUEST_CELL]
    allowed = _primitive.left_out(leave_out, _OPTIONAL)
    for reason in _guest_cell.unsaid(asked, versions, allowed):
        raise CannotDowngrade(GUEST_CELL, f"1.{minor}", reason)
    cells = []
    for place in range(len(asked.cells)):
        size = _guest_place.written_size(asked, place, host, minor)
        cells.append(_guest_cell.written_cell(asked, place, size, minor))
    data: dict[str, Any] = {"cells": cells}
    if versions[GUEST] >= _EMULATOR:
        data["emulator_threads_policy"] = asked.emulator_policy
    if instance_uuid is not None:
        data["instance_uuid"] = uuid_text(instance_uuid)
    return _primitive.written(_primitive.enveloped(GUEST, versions[GUEST], data))
