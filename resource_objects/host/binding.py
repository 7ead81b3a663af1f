"""What a compute node is bound to: a host in a ledger, as it was read, and what is pending on top.

A bound node is a view of a host. Its :class:`Binding` says which host of which ledger, and for
which consumer; :class:`Host` is that host at one moment; :class:`Pending` is what the view used
since and did not save. :func:`states` makes of these the inventories of the view: as the ledger
says, and with what is pending. Nothing here writes; :mod:`resource_objects.host.saving` does.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException
from resource_objects.host.adoption import Drift, Record, unexplained
from resource_objects.host.columns import (
    COUNTS,
    NOTHING,
    column_of,
    columns,
    count_of,
    members,
    units,
)
from resource_objects.providers import Provider
from resource_objects.providers.columns import Columns, find
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.dry_run import with_taken
from resource_objects.providers.holders import unattributed
from resource_objects.providers.orders import Use
from resource_objects.providers.tree_shape import free_removed_units
from resource_objects.providers.usage import usage_of
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerInventory,
    Inventories,
    Inventory,
    resource,
)
from resource_objects.resources.placed import HasNamedUnits

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

NO_DRIFT = Drift()
#: The figures of a definition that a compute node has a word for.
FIGURES = ("total", "reserved", "allocation_ratio")


@dataclasses.dataclass(frozen=True, slots=True)
class Pending:
    """What is used by a view and not saved: counts, and what says where something is, assigned.

    What the located amounts take of the host is in the counts too, as far as the host counts it.
    """

    amounts: Amounts = NOTHING
    located: Mapping[str, tuple[Amount, ...]] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.amounts or self.located)

    @classmethod
    def between(cls, saved: Inventories, now: Inventories) -> Pending:
        """Return what is used of inventories that was not of those that are saved."""
        counts: dict[str, int] = {}
        located: dict[str, tuple[Amount, ...]] = {}
        before = members(saved)
        for name, inventory in members(now).items():
            if isinstance(inventory, IntegerInventory):
                was = before[name].used if name in before else 0
                counts[name] = inventory.used - was
            elif inventory.taken:
                located[name] = inventory.taken
        return cls(Amounts({name: count for name, count in counts.items() if count}), located)

    def split(self) -> tuple[Pending, Pending]:
        """Return the located amounts that give back, and those that take."""
        back = {k: tuple(a for a in some if a.is_negative) for k, some in self.located.items()}
        rest = {k: tuple(a for a in some if not a.is_negative) for k, some in self.located.items()}
        return (
            Pending(NOTHING, {kind: some for kind, some in back.items() if some}),
            Pending(NOTHING, {kind: some for kind, some in rest.items() if some}),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A change of usage that was sent, by the id of its operation."""

    operation: str
    what: Pending


@dataclasses.dataclass(frozen=True)
class Host:
    """A host in its tree, read at one moment; ``inventories`` are its own.

    ``unexplained`` is what a record says is used and nobody holds: it is used in all the rest, as
    if it were held already. ``drift`` is the same of a host that was adopted before; it is not. It
    tells too what a record says is free and the host does not have.
    """

    name: str
    uuid: str
    inventories: Inventories
    columns: Columns
    adopted_at: datetime.datetime | None = None
    unexplained: tuple[Use, ...] = ()
    drift: Drift = NO_DRIFT

    @classmethod
    def find(cls, columns: Columns, key: str) -> Host | None:
        """Return the host of a name or uuid, None if it is not there."""
        given = columns.providers
        for row, pair in enumerate(zip(given.name, given.uuid, strict=True)):
            if key in pair:
                number = given.provider_id[row]
                own = columns.index.inventories_of(number)
                return cls(*pair, own, columns, given.adopted_at[row])
        return None

    @functools.cached_property
    def in_tree(self) -> tuple[Provider, Provider]:
        """The root of its tree, and itself, with all below: made when a definition is asked for."""
        found = find(self.columns, self.uuid)
        assert found is not None, "it was found in them"
        return found

    @functools.cached_property
    def located(self) -> Mapping[str, LocatedView]:
        """What lies over the tree of the host and has a column, by resource."""
        given = self.columns.providers
        root = self.columns.index.numbers.get(self.uuid)
        if root is None or root not in given.root_id:
            return {}  # a provider within a tree: cells and devices are the whole tree's
        # a device that was removed from the host is not offered: what a loop takes can be saved
        views = LocatedViews(self.columns, free_removed_units(self.columns))
        kinds = [c.resource for c in columns() if resource(c.resource).is_placed]
        found = ((kind, views.of_tree(root, kind)) for kind in kinds)
        return {kind: located for kind, located in found if located is not None}

    def count(self, name: str) -> IntegerInventory | None:
        """Return what the host has of a count, None if nothing."""
        return count_of(self.inventories, name)

    def holders(self, name: str) -> tuple[tuple[str, int], ...]:
        """Return who holds how much of a class of the host."""
        for use in usage_of(self.columns):
            if (use.provider, use.resource_class) == (self.name, name):
                return use.holders
        return ()


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Where a view writes to. ``host`` is as last read, None if it was not there.

    A host that is there is known by its uuid, for names move: ``provider`` is only what it was
    called when it was read. ``sent`` is a change whose outcome is not known: the connection was
    lost meanwhile. ``aggregate`` is whether the consumer stands for many, of whom nothing is known:
    that one is called after the host, as it is called now.
    ``record`` is what a record says is used, until the host is adopted.
    """

    ledger: Ledger
    provider: str
    consumer: str
    aggregate: bool = False
    host: Host | None = None
    sent: Sent | None = None
    record: Record | None = None

    def at(self, host: Host | None) -> Binding:
        """Return the binding to a host as it was read, None if it was not there."""
        name = self.provider if host is None else host.name
        holder = unattributed(name) if self.aggregate else self.consumer
        return dataclasses.replace(self, provider=name, consumer=holder, host=host)

    @property
    def uuid(self) -> str | None:
        """The uuid of the host, None if it was not there."""
        return None if self.host is None else self.host.uuid

    @property
    def located(self) -> Mapping[str, LocatedView]:
        """What lies over the tree of the host and has a column, by resource."""
        return {} if self.host is None else self.host.located

    @property
    def drift(self) -> Drift:
        """What a record said beyond the ledger when it was bound."""
        return NO_DRIFT if self.host is None else self.host.drift

    def count(self, name: str) -> IntegerInventory | None:
        """Return what the host had of a count when it was read."""
        return None if self.host is None else self.host.count(name)

    def writes_where(self, other: Binding) -> bool:
        """Return whether both write to the same host as the same consumer."""
        host = self.uuid or self.provider, other.uuid or other.provider
        same = (self.ledger, self.consumer) == (other.ledger, other.consumer)
        return same and host[0] == host[1]

    def read(self, uuid: str | None = None) -> Host | None:
        """Return the host as it is now, None if it is not there and was not.

        :param uuid: of one that was just made
        :raises NotFound: if it was there and is gone
        """
        found = read_host(self.ledger, self.provider, uuid or self.uuid, self.record)
        if found is None and (self.host is not None or uuid is not None):
            raise exceptions.NotFound("provider", self.provider)
        return found


def require_ledger(given: object) -> None:
    """Refuse what is no ledger.

    :raises InvalidInput: if it is something else
    """
    from resource_objects.ledger import Ledger  # whoever has one has loaded it

    if not isinstance(given, Ledger):
        raise exceptions.InvalidInput("value", "ledger", given, "a Ledger, as connect() returns")


def read_host(
    ledger: Ledger, name: str, uuid: str | None = None, record: Record | None = None
) -> Host | None:
    """Return the host of a name or uuid as it is now, None if it is not in the ledger.

    With a ``uuid``, only the host of that uuid will do, whatever it is called. With a ``record``,
    it is as if what that says is used and nobody holds were held.
    """
    key = uuid or name
    columns = ledger.backend.read(key)
    host = Host.find(columns, key)  # a uuid is nobody's name but its own provider's
    if host is None or record is None:
        return host
    seen, provider = Inventories(_there_in(host)), host.in_tree[1]
    found = unexplained(record, provider, host.located, seen, columns)
    if host.adopted_at is not None:
        return dataclasses.replace(host, drift=Drift(found))
    if not found:
        return host
    then = Host.find(with_taken(columns, found, unattributed(host.name)), key)
    assert then is not None, "it was there"
    return dataclasses.replace(then, unexplained=found)


def refuse_other_uuid(found: Host, uuid: str | None) -> None:
    """Refuse a provider of the right name that is another machine.

    :raises AlreadyExists: if it has another uuid
    """
    if uuid not in (None, found.uuid):
        raise exceptions.AlreadyExists(
            "provider", found.name, f"with the uuid {found.uuid}, not {uuid}"
        )


# --- what a view has ------------------------------------------------------------------------------


def states(
    binding: Binding,
    pending: Pending,
    stated: Mapping[str, Mapping[str, Any]],
    own: Inventories,
) -> tuple[Inventories, Inventories]:
    """Return what the ledger says a host has, and that with what is stated and pending on top.

    :param stated: ``{count: {figure: value}}``; what is reserved is without what is set aside
    :param own: what the view had: a host that is still to be made has its cells and devices
    :raises CapacityException: if more is given back than is used there
    """
    found = there(binding, own)
    now = {name: inventory.obj_clone() for name, inventory in found.items()}
    _state(now, stated)
    for name in set(pending.amounts.names()).union(_counts(now)):
        change = units(pending.amounts, name)
        used = now[name].used if name in now else 0
        if used + change < 0:
            raise CapacityException([_gives_back_too_much(name, change, used, binding)])
        if name in now and change:
            now[name].update(used=used + change)
    for kind, amounts in pending.located.items():
        if kind not in now:
            raise CapacityException(_absent(kind, one, binding) for one in amounts)
        for amount in gives_back_first(amounts):
            if amount.is_negative or isinstance(now[kind], HasNamedUnits):
                _fit(now[kind], amount, binding)
            now[kind].apply(amount)
        now[kind].taken = amounts
    return Inventories(found), Inventories(now)


def there(binding: Binding, own: Inventories) -> dict[str, Any]:
    """Return what the ledger has, or will have once the host is made."""
    found: dict[str, Any] = {}
    if binding.host is None:
        record = binding.record
        for name, inventory in members(own if record is None else record.inventories).items():
            column = column_of(name)
            made = None if column is None else column.new(inventory, used=record is not None)
            if column is not None and made is not None:
                found.update(column.stated(made, {}))
        return found
    return _there_in(binding.host)


def _there_in(host: Host) -> dict[str, Any]:
    """Return what the ledger has of a host, by class."""
    found: dict[str, Any] = {}
    for kind, located in host.located.items():
        column = column_of(kind)
        assert column is not None, "it was looked for by its column"
        for name, inventory in column.stated(located.inventory, {}).items():
            count = host.count(name)
            if name == kind:
                found[name] = inventory
            elif count is not None:
                found[name] = count.obj_clone()
    for name in COUNTS:
        count = host.count(name)
        if count is not None:
            found[name] = count.obj_clone()
    return found


def _state(now: dict[str, Any], stated: Mapping[str, Mapping[str, Any]]) -> None:
    """Write stated figures into counts."""
    for name, says in stated.items():
        count = now.get(name)
        total = says.get("total", 0 if count is None else count.total)
        if not total:
            now.pop(name, None)
            continue
        figures = dict(says)
        aside = sum(column.aside(name, now) for column in columns())
        if "reserved" in figures:
            own = figures["reserved"]
            figures["reserved"] = own + min(aside, max(0, total - own))
        if count is None:
            figures = {"max_unit": total, **figures}
            now[name] = IntegerInventory(resource_class=name, **{**figures, "total": total})
        else:
            count.update(**figures)


def _counts(inventories: Mapping[str, Inventory]) -> set[str]:
    return {name for name, one in inventories.items() if isinstance(one, IntegerInventory)}


def _fit(inventory: Inventory, amount: Amount, binding: Binding) -> None:
    try:
        inventory.fit(amount)
    except CapacityException as refusal:
        raise CapacityException(
            dataclasses.replace(reason, where=reason.where or binding.provider)
            for reason in refusal.reasons
        ) from refusal


def gives_back_first(pending: Iterable[Amount]) -> list[Amount]:
    """Return amounts in an order in which what is given back can be taken again."""
    return sorted(pending, key=lambda one: not one.is_negative)


def of_host(amounts: Iterable[Amount]) -> Counter[str]:
    """Return what assigned amounts take of the host as a whole, by class."""
    found: Counter[str] = Counter()
    for amount in amounts:
        sign = -1 if amount.is_negative else 1
        found.update({name: sign * count for name, count in amount.host_usage.items()})
    return found


def _gives_back_too_much(name: str, change: int, used: int, binding: Binding) -> Reason:
    where = None if binding.host is None else binding.provider
    return Reason(Rule.USED_BELOW_ZERO, change, bound=0, used=used, resource=name, where=where)


def _absent(kind: str, amount: Amount, binding: Binding) -> Reason:
    return Reason(Rule.NO_INVENTORY, amount.item_count, 0, 0, kind, where=binding.provider)
