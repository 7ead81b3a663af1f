"""What lies over a tree, read: the inventory over all its parts, and where a consumer has some."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects import exceptions, names
from resource_objects.ledger.base import claim_of
from resource_objects.ledger.fitting import kept_as
from resource_objects.ledger.reading import ReadMethods
from resource_objects.providers import Claim, jointly
from resource_objects.providers.columns import Columns, KindColumns, find
from resource_objects.providers.located import Located, LocatedViews, Near, located_amounts
from resource_objects.providers.orders import ClaimRecord, Delta, Held, Key
from resource_objects.resources import Amount, Amounts, Inventories, Inventory


class LocateMethods(ReadMethods):
    """The methods of a ledger that read what lies over trees."""

    def inventories(self, name: str) -> Inventories:
        """Return what a provider (by name or uuid) has, and what of it is used.

        That of a host is all that is counted at the host itself, and what lies over its tree: a
        NUMA topology over all its cells, with the CPUs that are taken. That of another provider is
        its own. It is a copy: what is consumed of it is not taken in the ledger. Cost: one read of
        the tree.

        :raises ProviderNotFound: if there is none
        :raises InvalidInventory: if what is kept of cells does not go together

        >>> import resource_objects as ro
        >>> from resource_objects.providers.located import add_parts
        >>> ledger = ro.connect("memory://")
        >>> host = ro.Provider("host0", "PCPU=8,DISK_GB=100")
        >>> cells = [ro.HostCell(n, dedicated=range(4 * n, 4 * n + 4)) for n in (0, 1)]
        >>> _ = add_parts(host, "NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
        >>> _ = ledger.sync(host)
        >>> print(ledger.inventories("host0").fit("NUMA_TOPOLOGY=1:dedicated=2,DISK_GB=10"))
        DISK_GB=10,PCPU=2,NUMA_TOPOLOGY=1:dedicated=2:on=0;0>0+1>1
        """
        key = names.provider_key(name)
        columns = self.backend.read(key)
        found = find(columns, key)
        if found is None:
            raise exceptions.ProviderNotFound(name)
        root, provider = found
        own = dict(provider.inventories.by_name())
        own.update(_over(columns, root.uuid, provider.uuid))
        return Inventories(own)

    def assigned(self, consumer: str) -> dict[str, Amounts]:
        """Return what a consumer holds and where, by provider name, as it can be claimed again.

        A topology is told of the host, assigned: which cell, which CPU for each vCPU; and so are
        devices, by request. It is what the request says that the claim was made for, laid over the
        units that are held: of more devices than it asked for, the first that meet it. What is
        held of the cells beside it is told of the cells, and claimed again by :meth:`adjust`.
        Where it cannot be told apart (it was changed by counts since), or the CPUs held are of
        another cell now (firmware numbered anew), all is told as counts of the cells. Names of
        other units are told by :meth:`held`. Cost: two reads.

        :raises ConsumerNotFound: if the consumer holds nothing
        """
        record = self.backend.held(names.consumer_name(consumer))
        if record is None:
            raise exceptions.ConsumerNotFound(consumer)
        return self._told(record)

    def _told(self, record: ClaimRecord) -> dict[str, Amounts]:
        claim = claim_of(record)
        if not asked_of(claim):
            return claim.by_provider()
        places = dict.fromkeys(one.provider_uuid for one in record.held)
        return told(record, self.backend.read(*places, allocations=False))


def _over(columns: Columns, root: str | None, uuid: str | None) -> Iterator[tuple[str, Inventory]]:
    """Yield the inventories that lie over a tree; of a provider below the root, what it keeps."""
    given = columns.providers
    numbers = dict(zip(given.uuid, given.provider_id, strict=True))
    if uuid != root:
        own = [row for row in zip(*columns.kinds, strict=True) if row[0] == numbers[uuid or ""]]
        kinds = KindColumns(*zip(*own, strict=True)) if own else KindColumns()
        columns = dataclasses.replace(columns, kinds=kinds)
    views = LocatedViews(columns)
    for kind in sorted(views.kinds()):
        located = views.of_tree(numbers[root or ""], kind)
        if located is not None:
            yield kind, located.inventory


# --- told again ---


def asked_of(claim: Claim) -> dict[str, Amount]:
    """Return the amounts of a claim's request that lie over a tree."""
    return {} if claim.request is None else located_amounts(claim.request.unnamed.resources)


def told(record: ClaimRecord, columns: Columns) -> dict[str, Amounts]:
    """Return what a consumer holds, by provider; what lies over a tree as one amount of its host.

    :param columns: the trees of the providers it holds something of
    """
    asked, left = asked_of(claim_of(record)), list(record.held)
    views, keys = LocatedViews(columns), kept_as(columns)
    found: dict[str, Amounts] = {}
    cells: dict[str, Near] = {}
    for kind in sorted(asked, key=lambda name: not _has_cells(name, views)):
        laid = _laid(kind, asked[kind], left, views, keys[kind], cells)
        if laid is not None:
            found[laid.host] = found.get(laid.host, Amounts()) + Amounts({kind: laid.amount})
            left = laid.rest
            if laid.near is not None:
                cells[laid.host] = laid.near
    rest = claim_of(dataclasses.replace(record, held=tuple(left))).by_provider()
    for name, amounts in rest.items():
        found[name] = found[name] + amounts if name in found else amounts
    return found


def _has_cells(kind: str, views: LocatedViews) -> bool:
    """Return whether others are near to what is of this resource, so that it is told first."""
    located = (views.of_tree(root, kind) for root in views.trees(kind))
    return any(one is not None and one.inventory.all_cells() is not None for one in located)


@dataclasses.dataclass(frozen=True, slots=True)
class _Laid:
    """An amount found in a tree."""

    host: str
    amount: Amount  #: assigned
    near: Near | None  #: the host cells it is on
    rest: list[Held]  #: what else is held
    is_alone: bool  #: whether nothing else is held of what the parts are kept as


def _laid(
    kind: str,
    amount: Amount,
    held: Sequence[Held],
    views: LocatedViews,
    keys: Collection[Key],
    cells: Mapping[str, Near],
) -> _Laid | None:
    """Return where an amount is, None if it is nowhere or nobody can tell where.

    :param cells: by host, the host cells of what the consumer holds there
    """
    ways: list[_Laid] = []
    for root in views.trees(kind):
        located = views.of_tree(root, kind)
        assert located is not None, "trees() tells those that have some"
        spots = {spot.uuid for spot in located.spots}
        here = [one for one in held if one.provider_uuid in spots and one.key in keys]
        assigned = _placed(located, amount, here, cells.get(located.host)) if here else None
        if assigned is not None:
            rest = list(_less(held, located.deltas(-assigned)))
            is_alone = not any(one.key in keys and one.provider_uuid in spots for one in rest)
            near = jointly.near_to({kind: assigned}, {kind: located})
            ways.append(_Laid(located.host, assigned, near, rest, is_alone))
    alone = [way for way in ways if way.is_alone] or ways
    return alone[0] if len(alone) == 1 else None


def _placed(
    located: Located, amount: Amount, held: Sequence[Held], near: Near | None
) -> Amount | None:
    """Return where an amount is, near host cells if it is, None if nobody can tell where."""
    for cells in (None,) if near is None else (near, None):
        with contextlib.suppress(exceptions.ForeignAmount):
            return located.placed(amount, held, cells)
    return None


def _less(held: Iterable[Held], given: Iterable[Delta]) -> Iterator[Held]:
    """Yield what is left of what is held once some of it is given back."""
    gone = {delta.key: delta for delta in given}
    for one in held:
        delta = gone.get(one.key)
        if delta is None:
            yield one
        elif one.amount + delta.amount:
            units = tuple(unit for unit in one.units if unit not in delta.units)
            yield dataclasses.replace(one, amount=one.amount + delta.amount, units=units)
