"""How a compute node, as a view of a host in a ledger, is read from it and saved to it.

A view never writes what it *has*, only what it *changed*. Two sorts of changes go two ways:

* **what is used** goes as deltas of one consumer, through ``ledger.adjust``, which is guarded. Of
  the host itself goes what nothing locates; what a topology locates goes to the providers of its
  cells, and through their shares is used of the host too (D1, D2). What a consumer with a name
  takes goes as it was asked, so that the ledger can tell it again; what the *unattributed* one
  takes, who stands for many, as what it comes to;
* **the definition** (totals, reserved, ratios) is merged, figure by figure, into the host as it is
  now: a figure that was changed here is written, one that was not stays what others made of it, and
  one that both changed is a conflict (``StaleDefinition``). Cells and devices are part of it only
  where the host is made: whoever knows the machine syncs them (``ledger.sync``).

The ledger has no write that does both sorts at once. So a save that has both first decides, purely
and on fresh figures, whether all of it fits, and writes nothing if it does not; then writes the
definition, then the claim. If somebody takes what was free between these two, the claim is refused
and the definition stays: it says what the host has, which is true whoever holds it. (Taking it back
could leave others with more than there is.)
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import uuid as uuids
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, Reason, Rule
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
from resource_objects.providers import (
    Allocation,
    Claim,
    DefinitionChanges,
    Provider,
    decision,
    diff,
)
from resource_objects.providers.attribution import unattributed, with_holders
from resource_objects.providers.columns import Columns, find, own_inventories
from resource_objects.providers.dry_run import with_taken
from resource_objects.providers.located import LocatedView, LocatedViews, Spot
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.providers.plan import Plan
from resource_objects.providers.usage import usage_of
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerAmount,
    IntegerInventory,
    Inventories,
    Inventory,
    resource,
)
from resource_objects.resources.located import Affine, Identified, cell_map_of

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

NO_DRIFT = Drift()
#: What tells that somebody changed what is adopted, so that it is worked out again.
_FASTER = (
    CapacityException,
    exceptions.ConsumerExists,
    exceptions.ProviderNotFound,
    exceptions.StaleConsumer,
)
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


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """What came of a change that was sent: what its consumer holds, None if nothing was to send."""

    claim: Claim | None
    what: Pending


@dataclasses.dataclass(frozen=True)
class Host:
    """A host in its tree, read at one moment; ``inventories`` are its own.

    ``unexplained`` is what a record says is used and nobody holds: it is used in all the rest, as
    if it were held already. ``drift`` is the same of a host that was adopted before; it is not.
    """

    name: str
    uuid: str
    inventories: Inventories
    columns: Columns
    reported_at: datetime.datetime | None = None
    unexplained: tuple[Use, ...] = ()
    drift: Drift = NO_DRIFT

    @classmethod
    def find(cls, columns: Columns, key: str) -> Host | None:
        """Return the host of a name or uuid, None if it is not there."""
        given = columns.providers
        for row, pair in enumerate(zip(given.name, given.uuid, strict=True)):
            if key in pair:
                number = given.provider_id[row]
                own = own_inventories(columns, number)
                return cls(*pair, own, columns, given.reported_at[row])
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
        root = dict(zip(given.uuid, given.provider_id, strict=True)).get(self.uuid)
        if root is None or root not in given.root_id:
            return {}  # a provider within a tree: cells and devices are the whole tree's
        views = LocatedViews(self.columns)
        kinds = [c.resource for c in columns() if resource(c.resource).is_located]
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
    lost meanwhile. ``aggregate`` is whether the consumer stands for many, of whom nothing is known.
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
        return dataclasses.replace(self, provider=name, host=host)

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
        :raises ProviderNotFound: if it was there and is gone
        """
        found = read_host(self.ledger, self.provider, uuid or self.uuid, self.record)
        if found is None and (self.host is not None or uuid is not None):
            raise exceptions.ProviderNotFound(self.provider)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class SaveResult:
    """What a save wrote: the claim of its consumer, the definition of the host. True if anything.

    ``claim`` is all that the consumer holds now, None if nothing was taken or given back.
    ``adopted`` is what the host's unattributed consumer holds since the save, None if nothing was
    adopted (:mod:`resource_objects.host.adoption`).
    """

    claim: Claim | None = None
    definition: DefinitionChanges | None = None
    adopted: Claim | None = None

    def __bool__(self) -> bool:
        return self.claim is not None or self.adopted is not None or bool(self.definition)

    def __str__(self) -> str:
        parts = [str(part) for part in (self.definition, self.adopted, self.claim) if part]
        return "\n".join(parts) or "nothing changed"


def require_ledger(given: object) -> None:
    """Refuse what is no ledger.

    :raises InvalidInput: if it is something else
    """
    from resource_objects.ledger import Ledger  # whoever has one has loaded it

    if not isinstance(given, Ledger):
        raise exceptions.InvalidInput("ledger", given, "a Ledger, as connect() returns")


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
    seen = Inventories(_there_in(host))
    uses = unexplained(record, host.in_tree[1], host.located, seen, columns)
    if host.reported_at is not None:
        return dataclasses.replace(host, drift=Drift(uses))
    if not uses:
        return host
    then = Host.find(with_taken(columns, uses, unattributed(host.name)), key)
    assert then is not None, "it was there"
    return dataclasses.replace(then, unexplained=uses)


def refuse_other_uuid(found: Host, uuid: str | None) -> None:
    """Refuse a provider of the right name that is another machine.

    :raises ProviderExists: if it has another uuid
    """
    if uuid not in (None, found.uuid):
        raise exceptions.ProviderExists(found.name, f"with the uuid {found.uuid}, not {uuid}")


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
    there = _there(binding, own)
    now = {name: inventory.obj_clone() for name, inventory in there.items()}
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
            raise CapacityException.of(_absent(kind, one, binding) for one in amounts)
        for amount in gives_back_first(amounts):
            if amount.is_negative or isinstance(now[kind], Identified):
                _fit(now[kind], amount, binding)
            now[kind].take(amount)
        now[kind].taken = amounts
    return Inventories(there), Inventories(now)


def _there(binding: Binding, own: Inventories) -> dict[str, Any]:
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
        raise CapacityException.of(
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
        found.update({name: sign * count for name, count in amount.of_host.items()})
    return found


def _gives_back_too_much(name: str, change: int, used: int, binding: Binding) -> Reason:
    where = None if binding.host is None else binding.provider
    return Reason(Rule.USED_BELOW_ZERO, change, bound=0, used=used, resource=name, where=where)


def _absent(kind: str, amount: Amount, binding: Binding) -> Reason:
    return Reason(Rule.NO_INVENTORY, amount.pieces, 0, 0, kind, where=binding.provider)


# --- the definition -------------------------------------------------------------------------------
#
# It is not handed to ``ledger.sync``: sync makes the kept tree look like the one it is given, so a
# child that somebody adds between our reading and our writing would go. Instead the tree is read,
# the merge computed, and exactly that one change written at the generation that was read.


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """How a view changed one resource: ``{figure: (before, after)}``, and what it is now."""

    figures: Mapping[str, tuple[Any, Any]]
    now: IntegerInventory | None


def edits_of(kept: Host | None, now: Inventories) -> dict[str, Edit]:
    """Return how the counts of a view differ from the host as it was read. Pure."""
    found: dict[str, Edit] = {}
    for name in COUNTS:
        before, after = None if kept is None else kept.count(name), count_of(now, name)
        figures = {
            figure: pair
            for figure in FIGURES
            if (pair := (getattr(before, figure, None), getattr(after, figure, None)))
            and pair[0] != pair[1]
        }
        if figures:
            found[name] = Edit(figures, after)
    return found


def merge(name: str, own: Inventories, edits: Mapping[str, Edit]) -> Inventories:
    """Return what a host of a name has with the edits of a view. Pure; other classes stay.

    :raises StaleDefinition: if a figure was changed here and by somebody else
    """
    host, merged = name, Inventories(dict(own))
    for name, edit in edits.items():
        current = count_of(own, name)
        for figure, (before, after) in edit.figures.items():
            found = getattr(current, figure, None)
            if found not in (before, after):
                raise exceptions.StaleDefinition(
                    host,
                    f"{name} {figure} was {before}, is {found} now, and was to be {after}",
                )
        if edit.now is None:
            if current is not None:
                del merged[name]
        elif current is None:
            merged[name] = edit.now
            merged[name].update(used=0)
        else:
            figures = {figure: pair[1] for figure, pair in edit.figures.items()}
            merged[name].update(**figures)
    return merged


def save_definition(
    binding: Binding,
    edits: Mapping[str, Edit],
    pending: Pending,
    own: Inventories,
    uuid: str | None,
) -> tuple[DefinitionChanges, str, Claim | None]:
    """Write the edits of a view, making the host if it was not there.

    Return the changes, the host's uuid, and what was adopted with a host that was made.

    :raises ProviderExists: if the host was not there, and its name is another machine's now
    :raises StaleDefinition: if a figure was changed here and by somebody else
    :raises ProviderNotFound: if the host is gone
    :raises CountedTwice: if a pool gives the host a class that would be counted there too
    :raises CapacityException: if what is pending would not fit afterwards; nothing was written
    :raises InvalidInventory: for cells that a ledger cannot keep
    """
    tries = binding.ledger.retries.definitions
    while True:
        plan, host_uuid = _definition_plan(binding, edits, pending, own, uuid)
        changes = plan.definitions
        assert changes is not None, "it was made with some, or none that change anything"
        try:
            adopted = binding.ledger.apply(plan) if changes else ()
            return changes, host_uuid, adopted[0] if adopted else None
        except (exceptions.StaleDefinition, exceptions.ProviderExists):
            tries -= 1
            if tries <= 0:
                raise


def _definition_plan(
    binding: Binding,
    edits: Mapping[str, Edit],
    pending: Pending,
    own: Inventories,
    uuid: str | None,
) -> tuple[Plan, str]:
    found = binding.read()
    if found is None:
        made_uuid = uuid or str(uuids.uuid4())
        made = Provider(binding.provider, {}, uuid=made_uuid)
        made.inventories = merge(made.name, made.inventories, edits)
        parts = _there(binding, own)
        counts = {name: parts.pop(name) for name in _counts(parts)}
        used = {name: count.used for name, count in counts.items()}
        for count in counts.values():
            count.update(used=0)
        made.inventories = Inventories({**counts, **dict(made.inventories.by_name())})
        for kind, inventory in parts.items():
            made.add_parts(kind, inventory)
        changes = diff(None, made)
        orders = _adopting(binding, made, parts, changes)
        for name, count in used.items():
            if name in made.inventories:
                made.inventories[name].update(used=count)
        decide(binding, Host(made.name, made_uuid, made.inventories, Columns()), pending)
        return Plan(changes, orders), made_uuid
    if binding.host is None:
        refuse_other_uuid(found, uuid)
    kept, _ = found.in_tree
    tree = kept.obj_clone()
    host = tree.find(found.name)
    host.inventories = merge(found.name, host.inventories, edits)
    decide(binding, dataclasses.replace(found, inventories=host.inventories), pending)
    for kind, amounts in pending.located.items():
        if isinstance(_inventory(found, kind), Identified):
            decide_located(found, kind, amounts)
    return Plan(diff(kept, tree)), found.uuid


# --- adoption -------------------------------------------------------------------------------------


def _adopting(
    binding: Binding, made: Provider, parts: Mapping[str, Any], changes: DefinitionChanges
) -> tuple[ConsumerOrder, ...]:
    """Return the order that adopts what a record says is used of a host that is made."""
    if binding.record is None:
        return ()
    uuid_of = {created.name: created.uuid for created in changes.creates}
    uses = unexplained(binding.record, made, parts, Inventories(), Columns())
    named = tuple(dataclasses.replace(use, provider_uuid=uuid_of[use.provider]) for use in uses)
    if not named:
        return ()
    holder = unattributed(binding.provider)
    return (ConsumerOrder.adjust(holder, named, aggregate=True, adopts=True),)


def adopt(binding: Binding) -> Claim | None:
    """Let the host's unattributed consumer hold what a record says is used and nobody holds.

    Once: the host has reported then. Return what that consumer holds, None if nothing was adopted.
    Cost: a read of the consumer and of the host, and a write.

    :raises ProviderNotFound: if the host is gone
    """
    backend, tries = binding.ledger.backend, binding.ledger.retries.definitions
    while True:
        holder = unattributed(binding.provider)
        # read first: whoever adopts in between writes it
        kept = backend.held(holder)
        found = binding.read()
        if found is None:
            raise exceptions.ProviderNotFound(binding.provider)
        if found.reported_at is not None:
            return None
        said: dict[str, Any] = {"aggregate": True, "adopts": True}
        orders: tuple[ConsumerOrder, ...] = ()
        if found.unexplained and kept is None:
            orders = (ConsumerOrder.claim(holder, found.unexplained, **said),)
        elif found.unexplained and kept is not None:
            order = ConsumerOrder.adjust(
                holder, found.unexplained, generation=kept.generation, **said
            )
            orders = (order,)
        uuid = found.uuid
        doing = Operation(actor=binding.ledger.actor)
        try:
            backend.commit(Write(doing, "adopt", uuid, orders=orders, reported=(uuid,)))
        except _FASTER:
            if tries <= 0:
                raise
            tries -= 1
        else:
            return binding.ledger.held(holder) if orders else None


def _inventory(host: Host, kind: str) -> Inventory | None:
    located = host.located.get(kind)
    return None if located is None else located.inventory


# --- whether it fits ------------------------------------------------------------------------------


def decide(binding: Binding, host: Host, pending: Pending) -> None:
    """Refuse counts that would not fit once the host looks like this.

    :raises CapacityException: with every reason
    """
    reasons = list(_reasons(binding, host, pending))
    if reasons:
        raise CapacityException.of(reasons)


def _reasons(binding: Binding, host: Host, pending: Pending) -> Iterator[Reason]:
    where = host.name
    in_parts = of_host(amount for some in pending.located.values() for amount in some)
    for name in pending.amounts.names():
        asked, in_cells = units(pending.amounts, name), in_parts[name]
        holders = host.holders(name)
        holds = dict(holders).get(binding.consumer, 0)
        inventory = host.count(name)
        if holds + asked - in_cells < 0:
            yield decision.not_held(name, asked - in_cells, holds, where)
        elif inventory is None:
            yield decision.absent(name, asked, where)
        else:
            (record,) = inventory.to_records()
            # unit rules bind what is held at one place: not what cells give together with the host
            aggregate = binding.aggregate or bool(in_cells)
            for reason in decision.refusals(record, asked, where, holds, aggregate=aggregate):
                yield decision.held_by(reason, holders)


def decide_located(host: Host, kind: str, amounts: Iterable[Amount]) -> None:
    """Refuse what lies over the tree of a host and would not fit there now.

    :raises CapacityException: with who holds what
    :raises ForeignAmount: if something is assigned to what is not there any more
    """
    located = host.located.get(kind)
    for amount in gives_back_first(amounts):
        if located is None:
            raise CapacityException.of([Reason(Rule.NO_INVENTORY, 1, 0, 0, kind, where=host.name)])
        try:
            located.inventory.consume(amount)
        except CapacityException as refusal:
            raise with_holders(refusal, located, host.columns, {kind: amount}) from refusal


def decide_all(binding: Binding, host: Host, pending: Pending) -> None:
    """Refuse what is pending if it would not fit now, as a whole.

    :raises CapacityException: with every reason of the first that refuses
    """
    decide(binding, host, pending)
    for kind, amounts in pending.located.items():
        decide_located(host, kind, amounts)


def decide_near(binding: Binding, host: Host, pending: Pending) -> None:
    """Refuse devices of a consumer with a name that are not near its host cells.

    :raises CapacityException: with ``Rule.AFFINITY``
    """
    if binding.aggregate:
        return  # nobody knows whose cells are whose
    taken = [(kind, one) for kind, some in pending.located.items() for one in some]
    cells = _cells_held(binding.consumer, host)
    for amount in gives_back_first(one for _, one in taken):
        (cells.difference_update if amount.is_negative else cells.update)(amount.host_cells)
    maps = [cell_map_of(located.inventory) for located in host.located.values()]
    found = next((one for one in maps if one is not None), None)
    if not cells or found is None:
        return
    for kind, amount in taken:
        inventory = _inventory(host, kind)
        if amount.is_negative or not isinstance(inventory, Affine):
            continue
        near = inventory.affinity(amount, found)
        if near is not None and not near.is_met(cells):
            reason = Reason(Rule.AFFINITY, amount.pieces, 0, 0, kind, where=host.name)
            raise CapacityException.of([reason])


def _cells_held(consumer: str, host: Host) -> set[int]:
    """Return the host cells that a consumer holds something of, by id."""
    found: set[int] = set()
    for located in host.located.values():
        if cell_map_of(located.inventory) is None:
            continue
        ids = zip(located.spots, located.inventory.part_ids(), strict=True)
        known = {spot.number: cell for spot, cell in ids}
        for number, _, holder, _ in zip(*host.columns.allocations, strict=True):
            if holder == consumer and number in known:
                found.add(known[number])
    return found


# --- what is sent ---------------------------------------------------------------------------------


class _Change(NamedTuple):
    """A change of one class of one provider."""

    amount: int
    taken: frozenset[str]  #: units, by name
    given: frozenset[str]


def changes_of(binding: Binding, what: Pending) -> Mapping[str, Any] | list[Allocation]:
    """Return what ``ledger.adjust`` is to be told; empty if it comes to nothing.

    :raises InvalidAmount: for several topologies of a consumer with a name, which nobody could tell
        apart again
    """
    located = {kind: some for kind, some in what.located.items() if kind in binding.located}
    if not located:
        return {binding.uuid or binding.provider: what.amounts}
    rest = _beside_parts(binding, what)
    found = list(_at_host(binding, rest.by_name()))
    for kind, amounts in located.items():
        # what stands beside an amount here is no part of what is kept of it
        found += _at_parts(binding, kind, [one.with_beside(()) for one in amounts], rest)
    return found


def _beside_parts(binding: Binding, what: Pending) -> Amounts:
    """Return what is left of counts without what parts take of the host: it is sent once."""
    in_parts = of_host(
        one for kind, some in what.located.items() if kind in binding.located for one in some
    )
    left = {name: units(what.amounts, name) for name in (*what.amounts.names(), *in_parts)}
    for name, count in in_parts.items():
        if binding.count(name) is not None:
            left[name] -= count
    return Amounts({name: count for name, count in left.items() if count})


def _at_parts(
    binding: Binding, kind: str, amounts: Sequence[Amount], rest: Amounts
) -> Iterable[Allocation]:
    located = binding.located[kind]
    if binding.aggregate:
        return _of_parts(located, amounts)
    if cell_map_of(located.inventory) is None:
        asked = located.inventory.joined(amounts)
        return _of_parts(located, amounts) if asked is None else _at_host(binding, [(kind, asked)])
    taken = [one for one in amounts if not one.is_negative]
    if len(taken) > 1:
        raise exceptions.InvalidAmount(
            f"topologies of {binding.consumer}",
            [str(one) for one in taken],
            "one: several are held by a consumer for each",
        )
    if set(rest.names()).intersection(*(one.located for one in amounts)):
        return _of_parts(located, amounts)
    return _at_host(binding, ((kind, one) for one in amounts))


def _at_host(binding: Binding, amounts: Iterable[tuple[str, Amount]]) -> Iterator[Allocation]:
    for name, amount in amounts:
        yield Allocation(
            provider=binding.provider,
            provider_uuid=binding.uuid,
            resource_class=name,
            amount=amount,
        )


def _of_parts(located: LocatedView, amounts: Iterable[Amount]) -> Iterator[Allocation]:
    for (spot, name), change in _net(located, amounts).items():
        if change.amount:
            yield Allocation(
                provider=spot.name,
                provider_uuid=spot.uuid,
                resource_class=name,
                amount=IntegerAmount(change.amount),
                units=tuple(sorted(change.taken or change.given)),
            )


def _net(located: LocatedView, given: Iterable[Amount]) -> dict[tuple[Spot, str], _Change]:
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
        key: _Change(amount, frozenset(taken[key] - back[key]), frozenset(back[key] - taken[key]))
        for key, amount in amounts.items()
    }


def steps_of(binding: Binding, sent: Sent) -> tuple[Sent, ...]:
    """Return the writes that a change takes: one, or two if something goes and something comes.

    An adjustment gives back or takes units of a provider, not both, and a consumer with a name has
    one topology. So where CPUs of one cell are given back and others taken, or functions of one
    device, or such a consumer exchanges its topology or what it asked of devices, what is given
    back goes first, as an operation of its own whose id follows from the other's. A device for
    another one of that kind is one write.
    """
    if not any(_needs_two(binding, *one) for one in sent.what.located.items()):
        return (sent,)
    back, rest = sent.what.split()
    counts = of_host(one for some in back.located.values() for one in some)
    known = Amounts({k: v for k, v in counts.items() if binding.count(k) is not None and v})
    first = str(uuids.uuid5(uuids.UUID(sent.operation), "what is given back"))
    return (
        Sent(first, dataclasses.replace(back, amounts=known)),
        Sent(sent.operation, dataclasses.replace(rest, amounts=sent.what.amounts - known)),
    )


def _needs_two(binding: Binding, kind: str, amounts: Sequence[Amount]) -> bool:
    back = [amount for amount in amounts if amount.is_negative]
    located = binding.located.get(kind)
    if located is None or len(back) in (0, len(amounts)):
        return False
    has_cells = cell_map_of(located.inventory) is not None
    if not binding.aggregate and (has_cells or not _stays_asked(amounts)):
        return True
    return any(change.taken and change.given for change in _net(located, amounts).values())


def _stays_asked(amounts: Iterable[Amount]) -> bool:
    """Return whether as much of each kind comes as goes."""
    counts: Counter[Amount] = Counter()
    for amount in amounts:
        counts[amount.unassigned()] += -1 if amount.is_negative else 1
    return not any(counts.values())
