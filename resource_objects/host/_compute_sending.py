"""What a view sends to its ledger: what is pending, as changes of one consumer.

Of the host itself goes what no topology locates; what one does goes to the providers of its
cells, and through their shares is used of the host too (D1, D2). So the host's figures change by
what is pending, no more: counts that were taken beside a topology are sent once. A topology that
was taken without its counts locates what the consumer holds of the host already: that is given back
there. Devices go to their providers; the host counts none of them.

What a consumer with a name takes goes as it was asked, so that the ledger can tell it again; what
the host's unattributed one takes, who stands for many, as what it comes to.
"""

from __future__ import annotations

import uuid as uuids
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.host._compute_ledger import Binding, Pending, Sent
from resource_objects.host._compute_located import NUMA, taken_of_host
from resource_objects.host._compute_pci import PCI
from resource_objects.host._compute_placed import in_one
from resource_objects.host._compute_record import units, with_units
from resource_objects.providers import Allocation
from resource_objects.providers.located import Located, Spot
from resource_objects.resources import Amount, Amounts, IntegerAmount
from resource_objects.resources.numa import OF_HOST, NUMATopologyAmount
from resource_objects.resources.pci import PCIAmount


class Change(NamedTuple):
    """A change of one class of one provider."""

    amount: int
    taken: frozenset[str]  #: units, by name
    given: frozenset[str]


def changes_of(binding: Binding, sent: Sent) -> Mapping[str, Any] | list[Allocation]:
    """Return what ``ledger.adjust`` is to be told; empty if it comes to nothing.

    :raises InvalidAmount: for several topologies of a consumer with a name, which nobody could tell
        apart again
    """
    what = sent.what
    if not any(kind in binding.located for kind, _ in what.located()):
        return {binding.uuid or binding.provider: what.amounts}
    rest = what.amounts
    if NUMA in binding.located:
        rest = beside(binding, rest, what.topologies)
    return [
        *_of_host(binding, rest.by_name()),
        *_topologies(binding, what.topologies, rest),
        *_devices(binding, what.devices),
    ]


def _topologies(
    binding: Binding, topologies: Sequence[NUMATopologyAmount], rest: Amounts
) -> Iterable[Allocation]:
    located = binding.located.get(NUMA)
    if not topologies or located is None:
        return ()
    if not binding.aggregate:
        _check_one(binding, topologies)
    if binding.aggregate or set(rest.names()).intersection(OF_HOST):
        return _of_parts(located, topologies)
    return _of_host(binding, ((NUMA, topology) for topology in topologies))


def _devices(binding: Binding, devices: Sequence[PCIAmount]) -> Iterable[Allocation]:
    located = binding.located.get(PCI)
    if not devices or located is None:
        return ()
    asked = None if binding.aggregate else in_one(devices)
    return _of_parts(located, devices) if asked is None else _of_host(binding, [(PCI, asked)])


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
    """Return the writes that a change takes: one, or two if something goes and something comes.

    An adjustment gives back or takes units of a provider, not both, and a consumer with a name has
    one topology. So where CPUs of one cell are given back and others taken, or functions of one
    device, or such a consumer exchanges its topology or what it asked of devices, what is given
    back goes first, as an operation of its own whose id follows from the other's. A device for
    another one of that kind is one write.
    """
    if not any(_needs_two(binding, *one) for one in sent.what.located()):
        return (sent,)
    back, rest = _back(sent.what), _rest(sent.what)
    counts = Amounts({name: taken_of_host(back.topologies, name) for name in OF_HOST})
    known = Amounts({k: v for k, v in counts.by_name() if binding.kept_inventory(k) is not None})
    first = str(uuids.uuid5(uuids.UUID(sent.operation), "what is given back"))
    return (
        Sent(first, back._replace(amounts=known)),
        Sent(sent.operation, rest._replace(amounts=sent.what.amounts - known)),
    )


def _back(what: Pending) -> Pending:
    return Pending(
        topologies=tuple(one for one in what.topologies if one.is_negative),
        devices=tuple(one for one in what.devices if one.is_negative),
    )


def _rest(what: Pending) -> Pending:
    return Pending(
        topologies=tuple(one for one in what.topologies if not one.is_negative),
        devices=tuple(one for one in what.devices if not one.is_negative),
    )


def _needs_two(binding: Binding, kind: str, amounts: Sequence[Amount]) -> bool:
    back = [amount for amount in amounts if amount.is_negative]
    located = binding.located.get(kind)
    if located is None or len(back) in (0, len(amounts)):
        return False
    if not binding.aggregate and (kind == NUMA or not _stays_asked(amounts)):
        return True
    return any(change.taken and change.given for change in _net(located, amounts).values())


def _stays_asked(amounts: Iterable[Amount]) -> bool:
    """Return whether as much of each kind comes as goes."""
    counts: Counter[Amount] = Counter()
    for amount in amounts:
        counts[amount.unassigned()] += -1 if amount.is_negative else 1
    return not any(counts.values())


def _of_host(binding: Binding, amounts: Iterable[tuple[str, Amount]]) -> Iterator[Allocation]:
    for name, amount in amounts:
        yield Allocation(
            provider=binding.provider,
            provider_uuid=binding.uuid,
            resource_class=name,
            amount=amount,
        )


def _of_parts(located: Located, amounts: Iterable[Amount]) -> Iterator[Allocation]:
    for (spot, name), change in _net(located, amounts).items():
        if change.amount:
            yield Allocation(
                provider=spot.name,
                provider_uuid=spot.uuid,
                resource_class=name,
                amount=IntegerAmount(change.amount),
                units=tuple(sorted(change.taken or change.given)),
            )


def _net(located: Located, given: Iterable[Amount]) -> dict[tuple[Spot, str], Change]:
    """Return what amounts come to, by provider and class."""
    amounts: dict[tuple[Spot, str], int] = defaultdict(int)
    taken: dict[tuple[Spot, str], set[str]] = defaultdict(set)
    back: dict[tuple[Spot, str], set[str]] = defaultdict(set)
    for amount in given:
        for spot, record in located.taken(amount):
            key = spot, record.resource_class
            amounts[key] += record.amount
            (taken if record.amount > 0 else back)[key].update(record.units)
    return {
        key: Change(amount, frozenset(taken[key] - back[key]), frozenset(back[key] - taken[key]))
        for key, amount in amounts.items()
    }
