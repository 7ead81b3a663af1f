"""Limits on what may be used of each host cell: totals set from outside, for one claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from resource_objects import base, exceptions, fields
from resource_objects.resources import abstract
from resource_objects.resources.numa.host import listed
from resource_objects.resources.records import AmountRecord


@base.register
class NUMATopologyLimit(abstract.Amount):
    """The most that may be used of each host cell, in all: shared vCPUs, MiB of ordinary memory.

    What is not named is without bound. Dedicated CPUs and huge pages need no limit: they are never
    given out twice.

    >>> limit = NUMATopologyLimit(vcpus={0: 16, 1: 16})
    >>> limit.of_cell(0), limit.of_cell(7)
    ((16, None), (None, None))
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "vcpus": fields.IntegerPairsField(default=()),
        "memory_mb": fields.IntegerPairsField(default=()),
    }
    vcpus: tuple[tuple[int, int], ...]
    memory_mb: tuple[tuple[int, int], ...]

    def __init__(
        self,
        *,
        vcpus: Mapping[int, int] | Iterable[tuple[int, int]] = (),
        memory_mb: Mapping[int, int] | Iterable[tuple[int, int]] = (),
    ) -> None:
        super().__init__(
            vcpus=vcpus if isinstance(vcpus, Mapping) else listed(vcpus),
            memory_mb=memory_mb if isinstance(memory_mb, Mapping) else listed(memory_mb),
        )

    def of_cell(self, cell: int) -> tuple[int | None, int | None]:
        """Return the bounds on shared vCPUs and on memory of one host cell, None for none."""
        return dict(self.vcpus).get(cell), dict(self.memory_mb).get(cell)

    @property
    def is_zero(self) -> bool:
        """False: a limit of nothing is a limit."""
        return False

    @property
    def is_negative(self) -> bool:
        """False: limits are 0 or more."""
        return False

    def __neg__(self) -> Self:
        raise exceptions.NegativeAmount("limit", self, "a limit, which is not given back")

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return nothing: limits are not kept."""
        return ()


def given(value: object) -> NUMATopologyLimit | None:
    """Return a limit as it is, refusing other kinds.

    :raises WrongAmountKind: for an amount of another kind
    """
    if value is not None and not isinstance(value, NUMATopologyLimit):
        raise exceptions.WrongAmountKind("limit", value, "a NUMATopologyLimit or None")
    return value
