"""How a compute node, as a view of a host in a ledger, is saved.

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

:meth:`ComputeNode.save` and :meth:`ComputeNode.check_save` say what a caller has to know; what
comes first here is what they do.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from resource_objects import exceptions, names
from resource_objects.exceptions import CapacityException
from resource_objects.host.adoption import unexplained
from resource_objects.host.binding import (
    FIGURES,
    Binding,
    Host,
    Pending,
    Sent,
    gives_back_first,
    of_host,
    refuse_other_uuid,
    there,
)
from resource_objects.host.columns import COUNTS, count_of, members, units
from resource_objects.providers import Allocation, Claim, DefinitionChanges, Provider, diff
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import LocatedView
from resource_objects.providers.holders import absent, held_by, not_held, unattributed, with_holders
from resource_objects.providers.orders import ConsumerOrder, Operation, Write
from resource_objects.providers.plan import Plan
from resource_objects.providers.tree_shape import PartProvider
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerAmount,
    IntegerInventory,
    Inventories,
    Inventory,
    resource,
)
from resource_objects.resources.placed import HasAffinity, HasNamedUnits, cell_map_of

#: What tells that somebody changed what is adopted, so that it is worked out again.
_FASTER = (
    CapacityException,
    "ConsumerExists",
    "ProviderNotFound",
    "StaleConsumer",
)


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


class NodeView(Protocol):
    """What a save needs of the compute node that is saved."""

    _binding: Binding | None
    inventories: Inventories
    saved: Inventories

    @property
    def _bound(self) -> Binding:
        """The binding; raises ``NotBound`` if there is none."""

    @property
    def _pending(self) -> Pending:
        """What is used and not saved."""

    def _provider_uuid(self) -> str | None:
        """Return the uuid that the record says."""

    def _count_anew(self, pending: Pending, uuid: str | None = None) -> None:
        """Count from the host as it is now, with what is pending on top."""

    def _keep_saved(self, saved: Inventories) -> None:
        """Have these as what was saved."""

    def check(self) -> None:
        """Raise if an inventory says what cannot be written back."""

    def reload(self) -> None:
        """Read the host again; nothing is pending afterwards."""


def check_save(view: NodeView) -> None:
    """Raise what :func:`save` would refuse now (see :meth:`ComputeNode.check_save`)."""
    binding, pending = view._bound, view._pending
    view.check()
    found = binding.read()
    if found is None or not pending:
        return
    edits = edits_of(found, view.inventories)
    then = merge(found.name, found.inventories, edits)
    decide_all(binding, dataclasses.replace(found, inventories=then), pending)
    decide_near(binding, found, pending)


def save(view: NodeView, operation: str | None) -> SaveResult:
    """Write what is pending of a view to its ledger (see :meth:`ComputeNode.save`)."""
    view.check()
    doing = None if operation is None else names.uuid_text(operation)
    claim = _send_again(view, doing)
    definition, adopted = _save_definition(view)
    adopted = _adopt_record(view) or adopted
    sent = _send_pending(view, doing or Operation().id)
    if sent.claim is None and claim is None and adopted is None and not definition:
        _forget(view, sent.what)
        return SaveResult()
    try:
        view.reload()
    except BaseException:
        _forget(view, sent.what)  # it was done, whatever is known of the host
        raise
    return SaveResult(sent.claim or claim, definition, adopted)


def _forget(view: NodeView, done: Pending) -> None:
    """Count as saved what was sent; it is pending no more."""
    if not done:
        return
    now = members(view.inventories)
    saved: dict[str, Any] = {n: one.obj_clone() for n, one in members(view.saved).items()}
    for name in done.amounts.names():
        if name in saved:
            saved[name].update(used=saved[name].used + units(done.amounts, name))
    for kind, amounts in done.located.items():
        for amount in gives_back_first(amounts):
            saved[kind].apply(amount)  # alone: what it draws is in the counts
            now[kind].record_allocation(-amount)
    view._keep_saved(Inventories(saved))


# --- the definition -------------------------------------------------------------------------------
#
# It is not handed to ``ledger.sync``: sync makes the kept tree look like the one it is given, so a
# child that somebody adds between our reading and our writing would go. Instead the tree is read,
# the merge computed, and exactly that one change written at the generation that was read.


def _save_definition(view: NodeView) -> tuple[DefinitionChanges | None, Claim | None]:
    """Write what a view changed of its host; return the changes, and what was adopted with it."""
    binding, pending = view._bound, view._pending
    kept = binding.host
    edits = edits_of(kept, view.inventories)
    if not edits and kept is not None:
        return None, None
    own, given = view.inventories, view._provider_uuid()
    changes, uuid, adopted = _write_definition(binding, edits, pending, own, given)
    view._count_anew(pending, uuid)
    return changes, adopted


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

    :raises Stale: if a figure was changed here and by somebody else
    """
    host, merged = name, Inventories(dict(own))
    for name, edit in edits.items():
        current = count_of(own, name)
        for figure, (before, after) in edit.figures.items():
            found = getattr(current, figure, None)
            if found not in (before, after):
                raise exceptions.Stale(
                    "provider",
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


def _write_definition(
    binding: Binding,
    edits: Mapping[str, Edit],
    pending: Pending,
    own: Inventories,
    uuid: str | None,
) -> tuple[DefinitionChanges, str, Claim | None]:
    """Write the edits of a view, making the host if it was not there.

    Return the changes, the host's uuid, and what was adopted with a host that was made.

    :raises AlreadyExists: if the host was not there, and its name is another machine's now
    :raises Stale: if a figure was changed here and by somebody else
    :raises NotFound: if the host is gone
    :raises Conflict: if a pool gives the host a class that would be counted there too
    :raises CapacityException: if what is pending would not fit afterwards; nothing was written
    :raises InvalidInventory: for cells that a ledger cannot keep
    """

    def plan() -> tuple[Plan, str]:
        return _definition_plan(binding, edits, pending, own, uuid)

    def write(planned: tuple[Plan, str]) -> tuple[DefinitionChanges, str, Claim | None]:
        plan, host_uuid = planned
        changes = plan.definitions
        assert changes is not None, "it was made with some, or none that change anything"
        adopted = binding.ledger.apply(plan) if changes else ()
        return changes, host_uuid, adopted[0] if adopted else None

    faster = "StaleDefinition", "ProviderExists"
    return binding.ledger.retries.write(plan, write, *faster)


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
        has = there(binding, own)
        counts = {n: one for n, one in has.items() if isinstance(one, IntegerInventory)}
        parts = {name: one for name, one in has.items() if name not in counts}
        used = {name: count.used for name, count in counts.items()}
        for count in counts.values():
            count.update(used=0)
        made.inventories = Inventories({**counts, **dict(made.inventories.by_name())})
        for kind, inventory in parts.items():
            made.add_parts(kind, inventory)
        changes = diff(None, made)
        orders = _adopting(binding, made, parts, changes)
        for name, figure in used.items():
            if name in made.inventories:
                made.inventories[name].update(used=figure)
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
        if isinstance(_inventory(found, kind), HasNamedUnits):
            decide_located(found, kind, amounts)
    return Plan(diff(kept, tree)), found.uuid


# --- adoption -------------------------------------------------------------------------------------


def _adopt_record(view: NodeView) -> Claim | None:
    """Adopt what the record says is used, if nobody did yet."""
    binding = view._bound
    if binding.record is None:
        return None
    adopted = _adopt(binding)
    view._binding = dataclasses.replace(binding, record=None)
    view._count_anew(view._pending)
    return adopted


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


def _adopt(binding: Binding) -> Claim | None:
    """Let the host's unattributed consumer hold what a record says is used and nobody holds.

    Once: that is noted at the host. Return what that consumer holds, None if nothing was adopted.
    Cost: a read of the consumer and of the host, and a write.

    :raises NotFound: if the host is gone
    :raises InvalidInput: if the record says of devices what nobody can read
    """
    backend, holder = binding.ledger.backend, unattributed(binding.provider)

    def adopting() -> Write | None:
        # read first: whoever adopts in between writes it
        kept = backend.held(holder)
        found = binding.read()
        if found is None:
            raise exceptions.NotFound("provider", binding.provider)
        if found.adopted_at is not None:
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
        return Write(doing, "adopt", uuid, orders=orders, adopted=(uuid,))

    def write(adopting: Write | None) -> Claim | None:
        if adopting is None:
            return None
        backend.commit(adopting)
        return binding.ledger.get_claim(holder) if adopting.orders else None

    return binding.ledger.retries.write(adopting, write, *_FASTER)


# --- whether it fits ------------------------------------------------------------------------------


def decide(binding: Binding, host: Host, pending: Pending) -> None:
    """Refuse counts that would not fit once the host looks like this.

    :raises CapacityException: if more would be taken of a host that is out of service; with every
        reason
    """
    _refuse_disabled(host, pending)
    reasons = list(_reasons(binding, host, pending))
    if reasons:
        raise CapacityException(reasons)


def _refuse_disabled(host: Host, pending: Pending) -> None:
    """Refuse to take more of a host that is out of service, before its definition is written."""
    disabled = host.columns.disabled
    if not disabled or all(units(pending.amounts, name) <= 0 for name in pending.amounts.names()):
        return
    facts = disabled.get(host.columns.index.numbers.get(host.uuid, -1))
    if facts is not None:
        reason = Reason(Rule.DISABLED, 1, 0, 0, where=host.name, disabled=facts)
        raise CapacityException([reason])


def _reasons(binding: Binding, host: Host, pending: Pending) -> Iterator[Reason]:
    where = host.name
    in_parts = of_host(amount for some in pending.located.values() for amount in some)
    for name in pending.amounts.names():
        requested, in_cells = units(pending.amounts, name), in_parts[name]
        holders = host.holders(name)
        holds = dict(holders).get(binding.consumer, 0)
        inventory = host.count(name)
        if holds + requested - in_cells < 0:
            yield not_held(name, requested - in_cells, holds, where)
        elif inventory is None:
            yield absent(name, requested, where)
        else:
            (record,) = inventory.to_records()
            # unit rules bind what is held at one place: not what cells give together with the host
            aggregate = binding.aggregate or bool(in_cells)
            for reason in resource(name).refusals(
                record, requested, where, holds, aggregate=aggregate
            ):
                yield held_by(reason, holders)


def decide_located(host: Host, kind: str, amounts: Iterable[Amount]) -> None:
    """Refuse what lies over the tree of a host and would not fit there now.

    :raises CapacityException: with who holds what
    :raises ForeignAmount: if something is assigned to what is not there any more
    """
    located = host.located.get(kind)
    for amount in gives_back_first(amounts):
        if located is None:
            raise CapacityException([Reason(Rule.NO_INVENTORY, 1, 0, 0, kind, where=host.name)])
        try:
            located.inventory.consume(amount)
        except CapacityException as refusal:
            raise with_holders(refusal, [located], host.columns, {kind: amount}) from refusal


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
        if amount.is_negative or not isinstance(inventory, HasAffinity):
            continue
        near = inventory.affinity(amount, found)
        if near is not None and not near.is_met(cells):
            reason = Reason(Rule.AFFINITY, amount.item_count, 0, 0, kind, where=host.name)
            raise CapacityException([reason])


def _inventory(host: Host, kind: str) -> Inventory | None:
    located = host.located.get(kind)
    return None if located is None else located.inventory


def _cells_held(consumer: str, host: Host) -> set[int]:
    """Return the host cells that a consumer holds something of, by id."""
    found: set[int] = set()
    for located in host.located.values():
        if cell_map_of(located.inventory) is None:
            continue
        ids = zip(located.parts, located.inventory.part_ids(), strict=True)
        known = {spot.number: cell for spot, cell in ids}
        for number, _, holder, _ in zip(*host.columns.allocations, strict=True):
            if holder == consumer and number in known:
                found.add(known[number])
    return found


# --- what is sent ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """What came of a change that was sent: what its consumer holds, None if nothing was to send."""

    claim: Claim | None
    what: Pending


def _send_again(view: NodeView, doing: str | None) -> Claim | None:
    """Ask for the outcome of what was sent when the connection was lost."""
    sent = view._bound.sent
    if sent is None:
        return None
    if doing == sent.operation and sent.what != view._pending:
        raise exceptions.Conflict("operation", doing, "it was sent for a smaller change")
    claim = _send(view, sent)
    _forget(view, sent.what)
    return claim


def _send_pending(view: NodeView, operation: str) -> Done:
    """Send what is pending, if anything is; the last of it is still to be forgotten."""
    binding, pending = view._bound, view._pending
    if not pending:
        return Done(None, pending)
    steps = steps_of(binding, Sent(operation, pending))
    is_begun = len(steps) > 1 and binding.ledger.backend.outcome(Operation(steps[0].operation))
    if len(steps) > 1 and is_begun is None:  # of two writes the second must not be refused
        found = binding.read()
        if found is None:
            raise exceptions.NotFound("provider", binding.provider)
        decide_all(binding, found, pending)
    claim: Claim | None = None
    for step in steps:
        claim = _send(view, step) or claim
        if step is not steps[-1]:
            _forget(view, step.what)
    return Done(claim, steps[-1].what)


def _send(view: NodeView, sent: Sent) -> Claim | None:
    """Adjust what the consumer holds; remember what was sent until the outcome is known.

    What is given back and taken again is nothing to send.
    """
    binding = view._bound
    changes = changes_of(binding, sent.what)
    claim = None
    if changes:
        view._binding = dataclasses.replace(binding, sent=sent)
        try:
            claim = binding.ledger.adjust(
                binding.consumer,
                changes,
                aggregate=binding.aggregate,
                operation=sent.operation,
            )
        except exceptions.ResourceObjectsError as error:
            if error.matches("LostConnection"):  # it may have been written
                raise
            view._binding = dataclasses.replace(binding, sent=None)
            if error.matches("ProviderNotFound"):  # the error has the uuid, users know the name
                raise exceptions.NotFound("provider", binding.provider) from error
            raise
    view._binding = dataclasses.replace(binding, sent=None)
    return claim


class _ClassChange(NamedTuple):
    """A change of one class of one provider."""

    amount: int
    taken: frozenset[str]  #: units, by name
    given: frozenset[str]


def changes_of(binding: Binding, what: Pending) -> Mapping[str, Any] | list[Allocation]:
    """Return what ``ledger.adjust`` is to be told; empty if it comes to nothing.

    :raises InvalidInput: for several topologies of a consumer with a name, which nobody could tell
        apart again
    """
    located = {kind: some for kind, some in what.located.items() if kind in binding.located}
    if not located:
        return {binding.uuid or binding.provider: what.amounts}
    rest = _beside_parts(binding, what)
    found = list(_at_host(binding, rest.by_name()))
    for kind, amounts in located.items():
        # what stands beside an amount here is no part of what is kept of it
        found += _at_parts(binding, kind, [one.counting_separately(()) for one in amounts], rest)
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
        joined = located.inventory.merged(amounts)
        return (
            _of_parts(located, amounts) if joined is None else _at_host(binding, [(kind, joined)])
        )
    taken = [one for one in amounts if not one.is_negative]
    if len(taken) > 1:
        raise exceptions.InvalidInput(
            "amount",
            f"topologies of {binding.consumer}",
            [str(one) for one in taken],
            "one: several are held by a consumer for each",
        )
    if set(rest.names()).intersection(*(one.placed_counts for one in amounts)):
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


def _net(
    located: LocatedView, given: Iterable[Amount]
) -> dict[tuple[PartProvider, str], _ClassChange]:
    """Return what amounts come to, by provider and class."""
    amounts: dict[tuple[PartProvider, str], int] = defaultdict(int)
    taken: dict[tuple[PartProvider, str], set[str]] = defaultdict(set)
    back: dict[tuple[PartProvider, str], set[str]] = defaultdict(set)
    for amount in given:
        for spot, record in located.records(amount):
            key = spot, record.resource_class
            amounts[key] += record.amount
            (taken if record.amount > 0 else back)[key].update(record.units)
    return {
        key: _ClassChange(
            amount, frozenset(taken[key] - back[key]), frozenset(back[key] - taken[key])
        )
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
    if not binding.aggregate and (has_cells or not _is_exchange(amounts)):
        return True
    return any(change.taken and change.given for change in _net(located, amounts).values())


def _is_exchange(amounts: Iterable[Amount]) -> bool:
    """Return whether as much of each kind comes as goes."""
    counts: Counter[Amount] = Counter()
    for amount in amounts:
        counts[amount.unassigned()] += -1 if amount.is_negative else 1
    return not any(counts.values())
