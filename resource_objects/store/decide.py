"""The rules of orders: what a write allocates and releases, or every reason to refuse it.

:func:`decide` reads the rows that orders are about through :class:`OrderRows`. It writes nothing
itself, but a database may lock server groups and set their generation when it reads their members
(:meth:`OrderRows.group_members`). Every backend, a dry run and a scenario call it, so they cannot
differ in what they allow. A backend locks the rows before, and writes the :class:`Effects` after.

The rules. A refusal has the reasons of rules 1 to 4 in the sequence of the orders, then those of
rules 5, 7 and 6:

1. A consumer releases at most what is allocated to it.
2. An allocation needs an inventory.
3. The unit rules of an inventory bind the whole amount that one consumer has there afterwards, if
   the amount grows. They do not bind an aggregate, nor an amount that another consumer of the same
   write had there before: a move leaves it to the migration and a revert restores it, also where
   the rules of the host are tighter by now.
4. ``used`` of an inventory is the sum of the allocations there and of those that share it, times
   their factors. The net change of all orders together does not raise it above the capacity, so two
   consumers can exchange full inventories; nor above a limit of the write, whatever the capacity.
5. A unit is allocated to one consumer.
6. Nothing more is allocated of a disabled provider than before, also through shares, and no free
   unit of it, unless the order ignores that. A unit that was removed from the host is not allocated
   once it is free, and is no part of the capacity that rule 4 compares with.
7. A consumer that joins a server group with a strict policy, or is in one and allocates on another
   host, leaves the members where the policy wants them. All members are compared as they are after
   all orders, so they can exchange hosts; other members that violate the policy already refuse
   nothing elsewhere.

Rules 3, 4, 6 and 7 do not bind an order that adopts: it records what is in use already.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from resource_objects import exceptions
from resource_objects._dataclass import fast_init
from resource_objects.exceptions import CapacityException
from resource_objects.fields import FrozenDict
from resource_objects.names import natural_order
from resource_objects.providers.allocation import HELD, RELEASED
from resource_objects.providers.arguments import later
from resource_objects.providers.disabled import Disabled, RemovedUnit
from resource_objects.providers.holders import absent, held_by, unit_removed
from resource_objects.providers.orders import (
    UNLIMITED,
    Change,
    ConsumerOrder,
    ConsumerRecord,
    Expect,
    Key,
    Mode,
    Use,
    UseLimits,
    new_id,
)
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord

#: (provider's uuid, unit): a CPU or device by name.
Unit: TypeAlias = tuple[str, str]


class Inventory(Protocol):
    """An inventory as the rules read it: its figures with its use, and its shares.

    ``shares`` are ``(key, factor)``: an allocation here also uses ``factor`` of that inventory for
    each unit.
    """

    @property
    def record(self) -> InventoryRecord: ...

    @property
    def shares(self) -> tuple[tuple[Key, int], ...]: ...


class Restrictions(NamedTuple):
    """The restrictions on the use of a provider, in addition to its inventories."""

    disabled_until: datetime.datetime | None = None  #: itself or an ancestor; None: it is enabled
    removed_units: int = 0  #: how many units were removed from the host while allocated


@dataclasses.dataclass(frozen=True, slots=True)
class GroupMembers:
    """Server groups and the hosts on which their members have allocations.

    A host is the root of a tree. A pool has no host.
    """

    groups: Mapping[str, ServerGroup]  #: those that exist, by name
    #: by group, the names of the hosts of each member; only of groups with a strict policy
    members: Mapping[str, Mapping[str, Collection[str]]]
    host_of: Mapping[str, str]  #: the name of the host of each provider, by uuid


class OrderRows(Protocol):
    """The rows that orders are about.

    ``restrictions`` is called for each inventory, ``unit_consumers`` if units are allocated, the
    other methods with a body for few writes. The bodies answer for rows without such things.
    ``consumer`` may return None unread for a single claim: the write finds an existing consumer.
    """

    def consumer(self, name: str) -> ConsumerRecord | None:
        """Return a consumer with the present names of its providers, None if it does not exist."""

    def inventory(self, key: Key) -> Inventory | None:
        """Return an inventory that orders are about, or that one of these shares."""

    def provider_name(self, uuid: str) -> str | None:
        """Return the name of a provider, None if it does not exist."""

    def restrictions(self, uuid: str) -> Restrictions | None:
        """Return the restrictions on the use of a provider; None if there are none."""
        return None

    def users_of(self, keys: Collection[Key]) -> Mapping[Key, Iterable[tuple[str, int]]]:
        """Return the consumers that use inventories, with their amounts."""
        return {}

    def unit_consumers(self, units: Collection[Unit]) -> Mapping[Unit, str]:
        """Return the consumers of those units that are allocated."""
        return {}

    def disabled_at(self, uuids: Collection[str], now: datetime.datetime) -> Mapping[str, Disabled]:
        """Return why providers or their ancestors are disabled, by name."""
        return {}

    def removed_units_of(self, uuids: Collection[str]) -> Mapping[str, Sequence[RemovedUnit]]:
        """Return the units that were removed while allocated, by provider."""
        return {}

    def group_members(self, names: Collection[str], uuids: Collection[str]) -> GroupMembers | None:
        """Return server groups and the hosts of providers; None if there are no groups.

        A database locks the groups, and may set their generation to that of the write.
        """
        return None


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerEffect:
    """The effect of an order on its consumer.

    ``stored`` is the record before (None: the consumer is new), ``claim`` the record after (without
    allocations and released: the consumer is deleted). ``stated`` are further inventories at which
    the write is counted: the order repeats the allocation, or is a ``counted`` release.
    """

    stored: ConsumerRecord | None
    claim: ConsumerRecord
    changes: tuple[Change, ...]
    stated: tuple[Key, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether the consumer is deleted."""
        return self.claim.state == RELEASED


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Effects:
    """The effects of orders on consumers and inventories.

    ``nets`` is the net change of ``used`` of each inventory that is written, also where it is 0.
    """

    consumers: tuple[ConsumerEffect, ...]  #: one per order
    nets: Mapping[Key, int]
    overridden: tuple[str, ...] = ()  #: uuids of disabled providers of which orders allocate
    groups: tuple[str, ...] = ()  #: server groups that get the generation of the write

    def counted(self, rows: OrderRows) -> frozenset[Key]:
        """Return the inventories at which the write is counted: one of each provider.

        A consumer that keeps what is allocated to it is counted as well, as Placement does. So the
        sum over the inventories of a provider counts each write once, and the provider itself need
        not be locked to count it.
        """
        first: dict[str, Key] = {}
        for effect in self.consumers:
            keys = [change.key for change in effect.changes if change.after]
            for key in (*keys, *effect.stated):
                for written in _with_targets(key, rows):
                    first.setdefault(written[0], written)
        return frozenset(first.values())


def _with_targets(key: Key, rows: OrderRows) -> list[Key]:
    """Return an inventory and those that it shares."""
    return [key, *[target for target, _ in _shares(key, rows)]]


def _shares(key: Key, rows: OrderRows) -> tuple[tuple[Key, int], ...]:
    inventory = rows.inventory(key)
    return () if inventory is None else inventory.shares


def keys_of(
    orders: Iterable[ConsumerOrder], consumers: Mapping[str, ConsumerRecord]
) -> dict[Key, None]:
    """Return the inventories that orders name, without those that they share.

    :param consumers: the records of the consumers of the orders that exist, by name
    """
    keys: dict[Key, None] = {}
    for order in orders:
        for use in order.uses:
            keys[use.key] = None
        if order.mode is Mode.SET and order.consumer in consumers:
            for use in consumers[order.consumer].held:
                keys[use.key] = None
    return keys


def decide(
    rows: OrderRows,
    orders: Sequence[ConsumerOrder],
    now: datetime.datetime,
    *,
    generation: int | None = None,
    limits: UseLimits = UNLIMITED,
) -> Effects:
    """Return the effects of orders, or raise. Writes nothing but server groups (see above).

    :param now: by the clock of the ledger
    :param generation: of the consumers that are written; None: it stays, 0 for a new consumer
    :param limits: the maximum total usage of inventories, in addition to their capacity
    :raises AlreadyExists: if a claim is ordered for a consumer that exists
    :raises NotFound: if a release or renewal is ordered for one that does not exist; if a provider
        does not exist; if a consumer joins a server group that does not exist
    :raises Stale: if a consumer is not at the expected generation, or has another claim to renew
    :raises Conflict: if a unit is released that is not allocated to the consumer
    :raises InvalidInput: if a part of an allocation with units is released without naming units
    :raises CapacityException: with every reason, and the consumers that use what is missing
    """
    pending = [_pending(order, rows.consumer(order.consumer)) for order in orders]
    nets = _nets(pending, rows)
    maintenance = _maintenance(pending, nets, rows, now)
    reasons = _amounts(pending, nets, rows, limits, maintenance.free)
    reasons += _allocated_units(pending, rows)
    groups = tuple(sorted({entry.group for entry in pending if entry.group and entry.adds_host}))
    if groups:
        reasons += _group_violations(groups, pending, rows)
    is_disabled = bool(maintenance.providers or maintenance.units)
    if reasons or is_disabled:
        reasons += maintenance.reasons(reasons, rows, now)
        raise CapacityException(reasons, is_disabled=is_disabled)
    for entry in pending:
        for key in entry.stated:
            for written in _with_targets(key, rows):
                nets.setdefault(written, 0)
    effects = tuple([_effect(entry, rows, now, generation) for entry in pending])
    return Effects(effects, nets, tuple(maintenance.overridden), groups)


@dataclasses.dataclass(slots=True)  # one per order: making a frozen one takes three times as long
class _Pending:
    """An order with the record of its consumer and its changes."""

    order: ConsumerOrder
    stored: ConsumerRecord | None
    changes: tuple[Change, ...]
    stated: tuple[Key, ...] = ()

    @property
    def group(self) -> str | None:
        """The server group of the consumer after the write."""
        return self.order.group or self.group_before

    @property
    def group_before(self) -> str | None:
        return None if self.stored is None else self.stored.group

    @property
    def adds_host(self) -> bool:
        """Whether a member of a group joins it, or allocates of a provider it had nothing of.

        The group must exist, also for an order that adopts, which the policy does not bind.
        """
        if self.group != self.group_before:
            return True
        uses = () if self.stored is None else self.stored.held
        providers = {use.provider_uuid for use in uses}
        is_bound = self.group is not None and not self.order.adopts
        return is_bound and any(
            change.after > change.before and change.key[0] not in providers
            for change in self.changes
        )


# --- the changes of an order ----------------------------------------------------------------------


def _pending(order: ConsumerOrder, stored: ConsumerRecord | None) -> _Pending:
    _check_expected(order, stored)
    if order.mode is Mode.KEEP:
        return _Pending(order, stored, ())
    name = order.consumer
    if stored is None:  # most orders are claims
        changes = [
            Change(name, (use.provider_uuid, use.resource_class), 0, use.amount, use.units)
            for use in order.uses
        ]
        if order.mode is Mode.SET:
            return _Pending(order, stored, tuple(changes))
    elif order.is_release:
        changes = [Change(name, use.key, use.amount, 0, (), use.units) for use in stored.held]
        stated = tuple(use.key for use in stored.held) if order.counted else ()
        return _Pending(order, stored, tuple(changes), stated)
    before = {use.key: use for use in stored.held} if stored is not None else {}
    if order.mode is Mode.ADD:
        changes = [_after_add(name, use, before.get(use.key)) for use in order.uses]
        return _Pending(order, stored, tuple(changes))
    after = {use.key: use for use in order.uses}
    by_key = {key: _after_set(name, key, before.get(key), after.get(key)) for key in before | after}
    changes = [change for change in by_key.values() if change is not None]
    unchanged = tuple(key for key, change in by_key.items() if change is None)
    return _Pending(order, stored, tuple(changes), unchanged)


def _check_expected(order: ConsumerOrder, stored: ConsumerRecord | None) -> None:
    name = order.consumer
    if order.expect is Expect.ABSENT:
        if stored is not None:
            raise exceptions.AlreadyExists("consumer", name)
        return
    if stored is None and (order.expect is Expect.PRESENT or not order.uses):
        raise exceptions.NotFound("consumer", name)
    present = None if stored is None else stored.generation
    if order.generation is not None and order.generation != present:
        now = "it has no allocations" if stored is None else f"now {present}"
        raise exceptions.Stale("consumer", name, f"read at generation {order.generation}, {now}")
    # a renewal is of one claim: the consumer may have released it and made another since
    renewed = order.uuid if order.mode is Mode.KEEP else None
    if renewed is not None and stored is not None and renewed != stored.uuid:
        raise exceptions.Stale("consumer", name, f"its claim is {stored.uuid}, not {renewed}")


def _after_add(consumer: str, use: Use, present: Use | None) -> Change:
    before, units = (0, ()) if present is None else (present.amount, present.units)
    after = before + use.amount
    if use.released:
        _check_allocated(use.released, units)
        return Change(consumer, use.key, before, after, use.units, use.released)
    if use.amount > 0:
        return Change(consumer, use.key, before, after, allocated_units=use.units)
    _check_allocated(use.units, units)
    if units and after > 0 and not use.units:
        expected = "the units to release, by name"
        raise exceptions.InvalidInput(
            "amount", f"use of {use.resource_class}", use.amount, expected
        )
    released = units if after == 0 else use.units  # a full release need not name units
    return Change(consumer, use.key, before, after, released_units=released)


def _check_allocated(released: Iterable[str], units: Collection[str]) -> None:
    for unit in released:
        if unit not in units:
            raise exceptions.Conflict("unit", unit)


def _after_set(consumer: str, key: Key, present: Use | None, use: Use | None) -> Change | None:
    before, units_before = (0, ()) if present is None else (present.amount, present.units)
    after, units_after = (0, ()) if use is None else (use.amount, use.units)
    allocated_units = tuple(unit for unit in units_after if unit not in units_before)
    released_units = tuple(unit for unit in units_before if unit not in units_after)
    if before == after and not allocated_units and not released_units:
        return None
    return Change(consumer, key, before, after, allocated_units, released_units)


def _nets(pending: Iterable[_Pending], rows: OrderRows) -> dict[Key, int]:
    """Return the net change of ``used`` of each inventory, shares included."""
    nets: dict[Key, int] = {}
    for entry in pending:
        for change in entry.changes:
            key, net = change.key, change.after - change.before
            nets[key] = nets.get(key, 0) + net
            for target, factor in _shares(key, rows):
                nets[target] = nets.get(target, 0) + net * factor
    return nets


# --- rules 1 to 4: amounts ------------------------------------------------------------------------


def _amounts(
    pending: Sequence[_Pending],
    nets: Mapping[Key, int],
    rows: OrderRows,
    limits: UseLimits,
    removed: Mapping[Key, Collection[Unit]],
) -> list[Reason]:
    """Return why amounts cannot be allocated or released: every reason.

    :param removed: the removed units that are free, by inventory
    """
    reasons: dict[tuple[Key, Reason], None] = {}
    decided: set[Key] = set()
    in_use: Counter[tuple[Key, int]] = Counter()
    if len(pending) > 1:  # the amounts that the consumers of the write had before it
        uses_before = (entry.stored.held for entry in pending if entry.stored is not None)
        in_use = Counter((use.key, use.amount) for uses in uses_before for use in uses)
    for entry in pending:
        for change in entry.changes:
            key, net = change.key, change.after - change.before
            has_rules = not entry.order.aggregate
            if in_use and net > 0 and in_use[key, change.after]:
                in_use[key, change.after] -= 1
                has_rules = False
            # unit rules and capacity are decided together for the only change of an inventory;
            # of several changes, the net change is compared with the capacity below
            capacity = None
            if nets[key] == net:
                capacity = limits.get(key), len(removed[key]) if key in removed else 0
                decided.add(key)
            for reason in _refusals(entry.order, change, rows, capacity, has_rules=has_rules):
                reasons[key, reason] = None
    if len(decided) < len(nets):
        bound = [entry for entry in pending if not entry.order.adopts]  # adopted amounts are in use
        for key, net in (nets if len(bound) == len(pending) else _nets(bound, rows)).items():
            inventory = rows.inventory(key)
            if key not in decided and net > 0 and inventory is not None:
                name, record = rows.provider_name(key[0]) or "", inventory.record
                limit, free_removed = limits.get(key), len(removed.get(key, ()))
                over = resource(key[1]).refusals(
                    record, net, name, aggregate=True, limit=limit, free_removed=free_removed
                )
                reasons.update(((key, reason), None) for reason in over)
    full = [key for key, reason in reasons if reason.rule in _TOTALS]
    users = rows.users_of(full) if full else {}
    return [
        held_by(reason, users.get(key, ())) if reason.rule in _TOTALS else reason
        for key, reason in reasons
    ]


def _refusals(
    order: ConsumerOrder,
    change: Change,
    rows: OrderRows,
    capacity: tuple[int | None, int] | None,
    *,
    has_rules: bool,
) -> Iterable[Reason]:
    """Return why one change does not fit.

    :param capacity: if this is the whole net change of the inventory: its limit, and the number of
        its removed units; None: the capacity is not compared
    :param has_rules: whether the unit rules of the inventory bind the consumer
    """
    (uuid, resource_class), net = change.key, change.after - change.before
    name = rows.provider_name(uuid)
    if name is None:
        raise exceptions.NotFound("provider", uuid)
    if change.after < 0:
        return [Reason(Rule.USED_BELOW_ZERO, net, 0, change.before, resource_class, name)]
    inventory = rows.inventory(change.key)
    if inventory is None:
        return [absent(resource_class, net, name)]
    if net <= 0 or order.adopts:
        return ()
    record = inventory.record
    if capacity is not None:
        limit, free_removed = capacity
        return resource(resource_class).refusals(
            record,
            net,
            name,
            change.before,
            aggregate=not has_rules,
            limit=limit,
            free_removed=free_removed,
        )
    if not has_rules:
        return ()
    # an empty inventory has only unit rules
    refusals = resource(resource_class).refusals(record.using(0), change.after, name)
    return [reason for reason in refusals if reason.rule is not Rule.CAPACITY]


#: The rules that are about what all consumers use together.
_TOTALS = frozenset({Rule.CAPACITY, Rule.LIMIT})


# --- rule 5: units --------------------------------------------------------------------------------


def _allocated_units(pending: Iterable[_Pending], rows: OrderRows) -> list[Reason]:
    """Return the units that are allocated to a consumer that does not release them."""
    requested: dict[Unit, Change] = {}
    released: set[Unit] = set()
    reasons: list[Reason] = []
    for entry in pending:
        for change in entry.changes:
            if change.released_units:
                released.update((change.key[0], unit) for unit in change.released_units)
            for unit in change.allocated_units:
                if (change.key[0], unit) in requested:
                    reasons.append(_unit_taken(change, unit, rows, entry.order.consumer))
                requested[change.key[0], unit] = change
    if requested:
        consumers = rows.unit_consumers(requested.keys() - released)
        reasons += [
            _unit_taken(change, unit[1], rows, consumers[unit])
            for unit, change in requested.items()  # in the order of the request
            if unit in consumers
        ]
    return reasons


def _unit_taken(change: Change, unit: str, rows: OrderRows, consumer: str) -> Reason:
    uuid, resource_class = change.key
    return Reason(
        Rule.UNIT_TAKEN,
        change.after - change.before,
        bound=0,
        used=1,
        resource=resource_class,
        where=rows.provider_name(uuid) or "",
        holders=((consumer, 1),),
        unit=unit,
    )


# --- rule 6: disabled providers and removed units -------------------------------------------------


class _Maintenance(NamedTuple):
    """The disabled providers and the removed units among the rows of orders.

    ``providers`` and ``units`` are those of which something is allocated against rule 6. ``free``
    are removed units that are free after all orders, by inventory, where more is allocated of it.
    ``overridden`` are disabled providers of which orders allocate that ignore it.
    """

    providers: Collection[str] = ()
    units: Collection[Unit] = ()
    free: Mapping[Key, Collection[Unit]] = FrozenDict()
    overridden: Collection[str] = ()

    def reasons(
        self, reasons: Iterable[Reason], rows: OrderRows, now: datetime.datetime
    ) -> Iterator[Reason]:
        """Yield a reason for each disabled provider and each removed unit.

        :param reasons: the other reasons: a removed unit counts where capacity is missing
        """
        full = {(entry.where, entry.resource) for entry in reasons if entry.rule is Rule.CAPACITY}
        units = set(self.units)
        for (uuid, resource_class), free in self.free.items():
            if (rows.provider_name(uuid), resource_class) in full:
                units.update(free)
        disabled_at = rows.disabled_at(self.providers, now) if self.providers else {}
        for name, disabled in disabled_at.items():
            yield Reason(Rule.DISABLED, 1, 0, 0, where=name, disabled=disabled)
        for uuid, unit in sorted(units):
            yield unit_removed(unit, rows.provider_name(uuid) or "")


_NO_MAINTENANCE = _Maintenance()


def _maintenance(
    pending: Sequence[_Pending], nets: Mapping[Key, int], rows: OrderRows, now: datetime.datetime
) -> _Maintenance:
    """Return the disabled providers and removed units of a write: nearly always none."""
    restricted: dict[str, Restrictions] = {}
    for uuid, _ in nets:
        restrictions = rows.restrictions(uuid)
        if restrictions is not None:
            restricted[uuid] = restrictions
    if not restricted:
        return _NO_MAINTENANCE
    until = {uuid: entry.disabled_until for uuid, entry in restricted.items()}
    disabled = {uuid for uuid, end in until.items() if end is not None and end > now}
    marked = {uuid for uuid, entry in restricted.items() if entry.removed_units}
    removed = {
        (uuid, unit.unit): unit
        for uuid, units in (rows.removed_units_of(marked) if marked else {}).items()
        for unit in units
    }
    changes = [change for entry in pending for change in entry.changes]
    released = {(change.key[0], unit) for change in changes for unit in change.released_units}
    providers, overridden = dict[str, None](), dict[str, None]()
    allocated, increased = set[Unit](), set[Key]()
    for entry in pending:
        affected = overridden if entry.order.overrides_disabled else providers
        for change in entry.changes if not entry.order.adopts else ():
            units = {(change.key[0], unit) for unit in change.allocated_units} - released
            allocated |= units
            is_increase = change.after > change.before
            keys = _with_targets(change.key, rows) if is_increase else []
            keys = [key for key in keys if nets[key] > 0]
            increased.update(keys)
            for key in (*keys, *([change.key] if units else [])):
                if key[0] in disabled and rows.inventory(key) is not None:
                    affected[key[0]] = None
    claimed = {(change.key[0], unit) for change in changes for unit in change.allocated_units}
    free: dict[Key, list[Unit]] = defaultdict(list)
    for unit, stored in removed.items():
        key = unit[0], stored.resource_class
        if key in increased and unit not in claimed and (stored.is_free or unit in released):
            free[key].append(unit)
    return _Maintenance(providers, allocated & removed.keys(), free, overridden)


# --- rule 7: server groups ------------------------------------------------------------------------


def _group_violations(
    names: Collection[str], pending: Sequence[_Pending], rows: OrderRows
) -> list[Reason]:
    """Return the members of strict server groups that would be against the policy."""
    mine = [entry for entry in pending if {entry.group, entry.group_before} & {*names}]
    uuids = {change.key[0] for entry in mine for change in entry.changes}
    uuids.update(use.provider_uuid for entry in mine if entry.stored for use in entry.stored.held)
    membership = rows.group_members(names, uuids)
    reasons: list[Reason] = []
    if membership is None:
        return reasons
    for name in names:
        if name not in membership.groups:
            raise exceptions.NotFound("server group", name)
        if not membership.groups[name].is_soft:
            reasons += _violations(membership.groups[name], mine, membership)
    return reasons


def _violations(
    group: ServerGroup, mine: Sequence[_Pending], membership: GroupMembers
) -> Iterator[Reason]:
    """Yield the hosts where members are against the policy of a group and were not before."""
    hosts_of = {
        name: frozenset(hosts) for name, hosts in membership.members.get(group.name, {}).items()
    }
    arrivals: dict[str, list[str]] = {}  # the hosts that are new to consumers
    for entry in mine:
        hosts_before, hosts_after = _hosts(entry, membership.host_of)
        hosts_of.pop(entry.order.consumer, None)
        if entry.group != group.name:
            continue
        hosts_of[entry.order.consumer] = hosts_after
        if entry.adds_host and not entry.order.adopts:
            stays = hosts_before if entry.group_before == group.name else frozenset()
            arrivals[entry.order.consumer] = sorted(hosts_after - stays)
    present = frozenset[str]().union(
        *(hosts for name, hosts in hosts_of.items() if name not in arrivals)
    )
    most = group.max_per_host
    for consumer, hosts in arrivals.items():
        present = present or frozenset(hosts)  # the first member chooses the host
        neighbours = {name: its for name, its in hosts_of.items() if name != consumer}
        for host in hosts:
            if group.is_apart:
                members = [name for name, its in neighbours.items() if host in its]
                if len(members) >= most:
                    rule = f"at most {most} of it on a host"
                    yield _violation(group, host, members, rule, "there", most)
            elif host not in present:
                members = [name for name, its in neighbours.items() if not present.isdisjoint(its)]
                place = f"on {', '.join(sorted(present))}"
                yield _violation(group, host, members, "all of it on one host", place, 0)


def _hosts(entry: _Pending, host_of: Mapping[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the hosts of a consumer before and after a write."""
    before = {} if entry.stored is None else {use.key: use.amount for use in entry.stored.held}
    after = {**before, **{change.key: change.after for change in entry.changes}}
    hosts_before, hosts_after = (
        frozenset(host_of[uuid] for (uuid, _), n in amounts.items() if n > 0 and uuid in host_of)
        for amounts in (before, after)
    )
    return hosts_before, hosts_after


#: The number of members that the text of a refusal names.
_SHOWN = 3


def _violation(
    group: ServerGroup, host: str, members: Iterable[str], rule: str, place: str, bound: int
) -> Reason:
    """Return the reason that members of a group are at some place against a rule."""
    names = sorted(members, key=natural_order)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    verb = "are" if len(names) > 1 else "is"
    return Reason(
        Rule.SERVER_GROUP,
        1,
        bound,
        len(names),
        where=host,
        holders=tuple((name, 1) for name in names),
        unit=f"{rule}, {', '.join(names[:_SHOWN])}{more} {verb} {place}",
        group=group.name,
    )


# --- the records of consumers after a write -------------------------------------------------------


def _effect(
    entry: _Pending, rows: OrderRows, now: datetime.datetime, generation: int | None
) -> ConsumerEffect:
    order, stored = entry.order, entry.stored
    if generation is None:
        generation = 0 if stored is None else stored.generation
    if stored is None:
        uses = _uses_after((), entry.changes, rows)
        claim = ConsumerRecord(
            order.uuid or new_id(),
            order.consumer,
            now,
            uses,
            HELD if uses else RELEASED,
            order.request,
            generation,
            order.project,
            order.user,
            order.consumer_type,
            _expiry(order, now),
            1,
            order.group,
        )
    elif order.is_release:  # without ``replace``, which takes twice as long
        claim = ConsumerRecord(
            stored.uuid,
            stored.consumer,
            stored.created_at,
            stored.held,
            RELEASED,
            stored.request,
            generation,
            stored.project,
            stored.user,
            stored.consumer_type,
            stored.expires_at,
            stored.writes,
            stored.group,
        )
    else:
        values: dict[str, Any] = {"generation": generation, "writes": stored.writes + 1}
        if order.mode is Mode.KEEP:
            values |= {"expires_at": _expiry(order, now), "state": order.state or stored.state}
        else:
            uses = _uses_after(stored.held, entry.changes, rows)
            values |= {"held": uses, "state": stored.state if uses else RELEASED}
            values |= _described(order, now)
        claim = dataclasses.replace(stored, **values)
    return ConsumerEffect(stored, claim, entry.changes, entry.stated)


def _expiry(order: ConsumerOrder, now: datetime.datetime) -> datetime.datetime | None:
    """Return the time at which the claim of an order expires, by the clock of ``now``."""
    if order.expires_in is None:
        return order.expires_at
    return later("expires_in", order.expires_in, now)


def _described(order: ConsumerOrder, now: datetime.datetime) -> dict[str, Any]:
    """Return the fields of an existing consumer that an order changes; None changes nothing.

    An order that sets replaces the request too, also by None: it was for what is released.
    """
    values: dict[str, Any] = {
        name: value
        for name in ("request", "project", "user", "consumer_type", "group")
        if (value := getattr(order, name)) is not None
    }
    expires_at = _expiry(order, now)
    if expires_at is not None:
        values["expires_at"] = expires_at
    if order.mode is Mode.SET:
        values["request"] = order.request
    return values


def _uses_after(
    before: Iterable[Use], changes: Iterable[Change], rows: OrderRows
) -> tuple[Use, ...]:
    uses = {use.key: use for use in before}
    for change in changes:
        uuid, resource_class = change.key
        units = uses[change.key].units if uses and change.key in uses else ()
        if change.released_units or change.allocated_units:  # sorted, as rows have no order
            retained = set(units) - set(change.released_units)
            units = tuple(sorted(retained.union(change.allocated_units)))
        name = rows.provider_name(uuid) or ""
        uses[change.key] = Use(uuid, resource_class, change.after, units, name)
    return tuple([use for use in uses.values() if use.amount])
