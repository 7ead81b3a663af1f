"""What a view sends to its ledger: what is pending, as changes of one consumer.

Of the host itself goes what no topology locates; what one does goes to the providers of its
cells, and through their shares is used of the host too (D1, D2). So the host's figures change by
what is pending, no more: counts that were taken beside a topology are sent once. A topology that
was taken without its counts locates what the consumer holds of the host already: that is given back
there.
"""

from __future__ import annotations

import uuid as uuids
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.host._compute_ledger import Binding, Sent
from resource_objects.host._compute_located import NUMA, taken_of_host
from resource_objects.host._compute_record import units, with_units
from resource_objects.providers import Allocation
from resource_objects.providers.located import Located, Spot
from resource_objects.resources import Amount, Amounts, IntegerAmount
from resource_objects.resources.numa import OF_HOST, NUMATopologyAmount


class Change(NamedTuple):
    """A change of one class of one cell."""

    amount: int
    taken: frozenset[str]  #: units, by name
    given: frozenset[str]


def changes_of(binding: Binding, sent: Sent) -> Mapping[str, Any] | list[Allocation]:
    """Return what ``ledger.adjust`` is to be told; empty if it comes to nothing.

    The topology of a consumer with a name goes as it is, so that the ledger knows what was asked;
    those of the host's unattributed one as what they come to.

    :raises InvalidAmount: for several topologies of a consumer with a name, which nobody could tell
        apart again
    """
    located = binding.located
    if not sent.topologies or located is None:
        return {binding.uuid or binding.provider: sent.amounts}
    if not binding.aggregate:
        _check_one(binding, sent.topologies)
    rest = beside(binding, sent.amounts, sent.topologies)
    if binding.aggregate or set(rest.names()).intersection(OF_HOST):
        return [*_of_host(binding, rest.by_name()), *_of_cells(located, sent.topologies)]
    topologies = ((NUMA, topology) for topology in sent.topologies)
    return [*_of_host(binding, rest.by_name()), *_of_host(binding, topologies)]


def _check_one(binding: Binding, topologies: Iterable[NUMATopologyAmount]) -> None:
    taken = [topology for topology in topologies if not topology.is_negative]
    if len(taken) > 1:
        raise exceptions.InvalidAmount(
            f"topologies of {binding.consumer}",
            [str(topology) for topology in taken],
            "one: several are held by a consumer for each",
        )


def beside(binding: Binding, amounts: Amounts, topologies: Iterable[NUMATopologyAmount]) -> Amounts:
    """Return what is left of amounts without what topologies take of the host."""
    given = tuple(topologies)
    for name in OF_HOST:
        if binding.kept_inventory(name) is not None:
            amounts = with_units(amounts, name, units(amounts, name) - taken_of_host(given, name))
    return amounts


def steps_of(binding: Binding, sent: Sent) -> tuple[Sent, ...]:
    """Return the writes that a change takes: one, or two if a topology goes and another comes.

    An adjustment gives back or takes units of a place, not both, and a consumer with a name has one
    topology. So where CPUs of one cell are given back and others taken, or such a consumer
    exchanges its own, what is given back goes first, as an operation of its own whose id follows
    from the other's.
    """
    back = tuple(amount for amount in sent.topologies if amount.is_negative)
    located = binding.located
    if located is None or len(back) in (0, len(sent.topologies)):
        return (sent,)
    if binding.aggregate and not _moves(located, sent.topologies):
        return (sent,)
    counts = Amounts({name: taken_of_host(back, name) for name in OF_HOST})
    known = Amounts({k: v for k, v in counts.by_name() if binding.kept_inventory(k) is not None})
    first = str(uuids.uuid5(uuids.UUID(sent.operation), "what is given back"))
    rest = tuple(amount for amount in sent.topologies if not amount.is_negative)
    return Sent(first, known, back), Sent(sent.operation, sent.amounts - known, rest)


def _moves(located: Located, topologies: Iterable[NUMATopologyAmount]) -> bool:
    return any(change.taken and change.given for change in _net(located, topologies).values())


def _of_host(binding: Binding, amounts: Iterable[tuple[str, Amount]]) -> Iterable[Allocation]:
    for name, amount in amounts:
        yield Allocation(
            provider=binding.provider,
            provider_uuid=binding.uuid,
            resource_class=name,
            amount=amount,
        )


def _of_cells(located: Located, topologies: Iterable[NUMATopologyAmount]) -> Iterable[Allocation]:
    for (spot, name), change in _net(located, topologies).items():
        if change.amount:
            yield Allocation(
                provider=spot.name,
                provider_uuid=spot.uuid,
                resource_class=name,
                amount=IntegerAmount(change.amount),
                units=tuple(sorted(change.taken or change.given)),
            )


def _net(
    located: Located, topologies: Iterable[NUMATopologyAmount]
) -> dict[tuple[Spot, str], Change]:
    """Return what topologies come to, by cell and class."""
    amounts: dict[tuple[Spot, str], int] = defaultdict(int)
    taken: dict[tuple[Spot, str], set[str]] = defaultdict(set)
    given: dict[tuple[Spot, str], set[str]] = defaultdict(set)
    for topology in topologies:
        for spot, record in located.taken(topology):
            key = spot, record.resource_class
            amounts[key] += record.amount
            (taken if record.amount > 0 else given)[key].update(record.units)
    return {
        key: Change(amount, frozenset(taken[key] - given[key]), frozenset(given[key] - taken[key]))
        for key, amount in amounts.items()
    }
