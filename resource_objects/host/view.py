"""A host of a ledger as inventories that one consumer allocates from, and how it is saved.

A :class:`HostView` reads a host, and its ``inventories`` are allocated from like any others.
:meth:`HostView.save` writes the difference between these and the stored ones, as one plan:

* **usage** is an order of one consumer, by amounts, that the ledger checks. Amounts in cells and
  devices are allocated at their providers, and through shares at the host. The request of
  a named consumer is stored with them. The *unattributed* consumer stands for many: it has none;
* **the definition** (total, reserved, ratio of each count) is merged into the stored one, figure
  by figure. A figure that was changed here and by another process is a conflict. Cells and devices
  are written only with a new host: otherwise ``ledger.sync`` changes them;
* **adoption** of the usage that a record reports, once (:mod:`resource_objects.host.adoption`).
  Its counts can be released by a later save, or if the definition does not change.

Capacity does not bind a write that adopts usage, so adoption and usage are two writes. Both are
rehearsed before the first one. If another process writes in between, the second may be refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid as uuids
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, names
from resource_objects.exceptions import CapacityException
from resource_objects.fields import FrozenDict
from resource_objects.host.adoption import (
    Drift,
    HostState,
    RecordedUsage,
    adoption_order,
    unattributed_usage,
)
from resource_objects.host.columns import (
    COUNTS,
    FIGURES,
    NOTHING,
    check_expressible,
    column_of,
    count_of,
    members,
    reserved_by_others,
    unused,
)
from resource_objects.host.columns import units as units_of
from resource_objects.providers import Claim, DefinitionChanges, Provider, diff
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.composite import LocatedView, ShapeCache, fit_together
from resource_objects.providers.definition import edited, to_records
from resource_objects.providers.holders import unattributed
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Key,
    Operation,
    StoredRequest,
    Use,
    new_id,
)
from resource_objects.providers.plan import Plan
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerAmount,
    IntegerInventory,
    Inventories,
    Inventory,
)
from resource_objects.resources.placed import HasNamedUnits, cell_map_of
from resource_objects.resources.records import AmountRecord
from resource_objects.store.columns import redefined, rehearse
from resource_objects.store.write import carry_out

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: Codes of the errors by which a write reports that another process wrote first.
_CONCURRENT = (
    "StaleDefinition",
    "StaleConsumer",
    "ConsumerExists",
    "ProviderExists",
    "ProviderNotFound",
)


@dataclasses.dataclass(frozen=True, slots=True)
class SaveResult:
    """The result of a save: claim of its consumer, changed definition, adopted usage. True if any.

    ``claim`` has all allocations of the consumer after the save, None if its usage is unchanged.
    ``adopted`` has those of the host's unattributed consumer, None if nothing was adopted
    (:mod:`resource_objects.host.adoption`).
    """

    claim: Claim | None = None
    definition: DefinitionChanges | None = None
    adopted: Claim | None = None

    def __bool__(self) -> bool:
        return self.claim is not None or self.adopted is not None or bool(self.definition)

    def __str__(self) -> str:
        parts = [str(part) for part in (self.definition, self.adopted, self.claim) if part]
        return "\n".join(parts) or "nothing changed"

    def after(self, earlier: SaveResult) -> SaveResult:
        """Return the result of this write and an earlier one."""
        return SaveResult(
            self.claim or earlier.claim,
            self.definition or earlier.definition,
            self.adopted or earlier.adopted,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Pending:
    """The usage of a view that is not saved: counts, and assigned amounts of placed resources.

    The counts include what the placed amounts use of the host as a whole.
    """

    amounts: Amounts = NOTHING
    placed: Mapping[str, tuple[Amount, ...]] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.amounts or self.placed)

    @classmethod
    def between(cls, stored: Inventories, now: Inventories) -> Pending:
        """Return the difference in usage of inventories from the stored ones."""
        counts: dict[str, int] = {}
        placed: dict[str, tuple[Amount, ...]] = {}
        before = members(stored)
        for name, inventory in members(now).items():
            if not isinstance(inventory, IntegerInventory):
                if inventory.taken:
                    placed[name] = inventory.taken
            elif change := inventory.used - (before[name].used if name in before else 0):
                counts[name] = change
        return cls(Amounts(counts), placed)

    def counts_outside_placed(self, host: HostState) -> dict[str, int]:
        """Return the counts without the part that placed amounts use of a host."""
        counts = {name: units_of(self.amounts, name) for name in self.amounts.names()}
        for amount in (amount for amounts in self.placed.values() for amount in amounts):
            sign = -1 if amount.is_negative else 1
            for name, count in amount.host_usage.items():
                if host.count(name) is not None:
                    counts[name] = counts.get(name, 0) - sign * count
        return {name: count for name, count in counts.items() if count}


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    """A plan of a save, made on the rows ``before`` it: of one host, none of which may exist.

    ``required`` are the definitions of the cells and devices of its usage. ``later`` is the order
    for usage if the plan adopts usage. It follows in a write of its own: capacity does not bind the
    inventories of which a write adopts usage.
    """

    before: Columns
    plan: Plan
    has_usage: bool = False
    required: tuple[tuple[str, int], ...] = ()
    later: ConsumerOrder | None = None

    def check(self, ledger: Ledger) -> None:
        """Raise the error that the writes would raise."""
        if self.later is None:
            ledger.apply(self.plan, dry_run=True)
            return
        claims = ledger.backend.held_by([*self.plan.consumers, self.later.consumer])
        rows = rehearse(self.plan, self.before, claims, ledger.now())
        write = Plan(orders=(self.later,)).write(Operation(), "dry run", "dry run")
        number = max(self.before.providers.generation, default=0) + 2
        carry_out(rows, write, ledger.now(), number)


class HostView:
    """A host of a ledger as inventories that one consumer allocates from; see the module.

    ``stored`` are the inventories as they were read, ``inventories`` those to allocate from: their
    difference is what :meth:`save` writes. Inventories that a caller has in hand stay those of the
    view after :meth:`save` and :meth:`reload`. ``host`` is the name at the last read; the view
    identifies the host by its uuid. Not for several threads at once.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(ro.Provider("host0", "VCPU=8"))
    ...     view = HostView(ledger, "host0", "vm-1")
    ...     _ = view.inventories["VCPU"].consume(ro.IntegerAmount(2))
    ...     print(view.plan())
    ...     print(view.save())
    ~ vm-1 changes by VCPU=2 of host0
    vm-1 holds VCPU=2 of host0
    """

    def __init__(
        self,
        ledger: Ledger,
        host: str,
        consumer: str | None = None,
        *,
        record: RecordedUsage | None = None,
        uuid: str | None = None,
        inventories: Inventories | None = None,
        figures: Mapping[str, Mapping[str, Any]] = FrozenDict(),
        ratios: Mapping[str, Any] = FrozenDict(),
        pending: Pending | None = None,
        continues: HostView | None = None,
    ) -> None:
        """Read a host. Cost: one read of its tree.

        :param consumer: the consumer of new usage; None: the host's *unattributed* consumer
        :param record: the usage that a record of the host reports, until it is adopted
        :param uuid: the uuid that the host has, or gets when it is created; None: any
        :param inventories: those of a host that the ledger may not have: the first save creates it.
            They become the inventories of the view
        :param figures: ``{count: {figure: value}}`` that differ from the stored ones; ``reserved``
            without the amounts that cells set aside
        :param ratios: allocation ratios of counts that the stored host lacks
        :param pending: usage that is not saved
        :param continues: an earlier view, whose write may have an unknown outcome
        :raises InvalidInput: if the ledger is none, or a name cannot be one
        :raises NotFound: if the host does not exist, unless ``inventories`` are passed
        :raises AlreadyExists: if the host has another uuid
        :raises CapacityException: if more is pending to be released than is used
        """
        _require_ledger(ledger)
        self.inventories: Inventories
        self.ledger = ledger
        self.host = names.provider_name(host)
        self._consumer = None if consumer is None else names.consumer_name(consumer)
        self.record = record
        self.drift = Drift()  #: the recorded usage beyond an adopted host, at the first read
        self._wanted_uuid = uuid
        self._shapes = ShapeCache()
        self._uuid: str | None = None  #: of the host, once it is known
        self._in_flight: tuple[str, Pending] | None = None  #: a write whose outcome is not known
        state = self._read()
        if state is None and inventories is None:
            raise exceptions.NotFound("provider", host)
        if state is not None and record is not None and state.adopted_at is not None:
            self.drift, self.record = Drift(unattributed_usage(state, record)), None
        if inventories is not None:
            self.inventories = inventories
        self._set_state(state, pending or Pending(), figures, ratios)
        if continues is not None and self._is_of(continues):
            self._in_flight = continues._in_flight

    def _is_of(self, other: HostView) -> bool:
        """Return whether another view writes to the same host as the same consumer."""
        key, others_key = self._uuid or self.host, other._uuid or other.host
        same_consumer = (self.ledger, self.consumer) == (other.ledger, other.consumer)
        return same_consumer and key == others_key

    @property
    def consumer(self) -> str:
        """The consumer of the usage that this view saves."""
        return unattributed(self.host) if self._consumer is None else self._consumer

    @property
    def is_aggregate(self) -> bool:
        """Whether the consumer is the *unattributed* one, which stands for many."""
        return self._consumer is None

    @property
    def uuid(self) -> str | None:
        """The uuid of the host, None if it is not known yet."""
        return self._uuid

    @property
    def is_stored(self) -> bool:
        """Whether the ledger had the host when it was read."""
        return self._state is not None

    @property
    def pending(self) -> Pending:
        """The usage of the view that is not saved."""
        return Pending.between(self.stored, self.inventories)

    def count(self, name: str) -> IntegerInventory | None:
        """Return the stored inventory of a count, None if the host had none."""
        return None if self._state is None else self._state.count(name)

    def copy(self, inventories: Inventories, stored: Inventories) -> HostView:
        """Return a view of the same host with other inventories."""
        twin = HostView.__new__(HostView)
        twin.__dict__.update(self.__dict__, inventories=inventories, stored=stored)
        return twin

    # --- reading ---

    def _read(self) -> HostState | None:
        """Return the host as it is now, None if the ledger does not have it yet.

        :raises NotFound: if it was removed
        :raises AlreadyExists: if a provider of its name has another uuid than the record
        """
        key = self._uuid or self.host
        state = HostState.find(self.ledger.backend.read(key), key, self._shapes)
        if state is None:
            if self._uuid is not None:
                raise exceptions.NotFound("provider", self.host)
        elif self._uuid is None and self._wanted_uuid not in (None, state.uuid):
            raise exceptions.AlreadyExists(
                "provider", state.name, f"with the uuid {state.uuid}, not {self._wanted_uuid}"
            )
        return state

    def _set_state(
        self,
        state: HostState | None,
        pending: Pending,
        figures: Mapping[str, Mapping[str, Any]] = FrozenDict(),
        ratios: Mapping[str, Any] = FrozenDict(),
    ) -> None:
        """Set ``stored`` and ``inventories`` from a host that was read, plus differences."""
        if state is None:
            stored = self._of_new_host()
        else:
            if self.record is not None:
                state = state.allocating(unattributed_usage(state, self.record))
            stored = state.inventories
        host = None if state is None else state.name
        now = {name: inventory.obj_clone() for name, inventory in stored.items()}
        _set_figures(now, figures, ratios)
        _allocate(now, pending, self.host if host is None else host, is_stored=host is not None)
        self._state, self.stored = state, Inventories.from_owned(stored)
        if state is not None:
            self.host, self._uuid = state.name, state.uuid
        if hasattr(self, "inventories"):
            update_in_place(self.inventories, now)
        else:
            self.inventories = Inventories.from_owned(now)
            update_in_place(self.inventories)

    def _of_new_host(self) -> dict[str, Inventory]:
        """Return the inventories of a host that the first save creates."""
        record, created = self.record, dict[str, Inventory]()
        for name, inventory in members(
            self.inventories if record is None else record.inventories
        ).items():
            column = column_of(name)
            new = None if column is None else column.new(inventory, used=record is not None)
            if column is not None and new is not None:
                created.update(column.accept(new, {}))
        return created

    def reload(self) -> None:
        """Read the host again; a difference that is not saved is dropped.

        :raises NotFound: if the host was removed
        """
        state = self._read()
        if state is None:
            raise exceptions.NotFound("provider", self.host)
        self._set_state(state, Pending())
        self._in_flight = None

    # --- saving ---

    def plan(self) -> Plan:
        """Return the plan of the first write of a save, errors as :meth:`save`.

        If the save adopts usage, the plan lacks the pending usage: a second write has it.
        Cost: a read of the tree, or of two consumers.
        """
        return self._change(self.pending).plan

    def check_save(self) -> None:
        """Raise the error that :meth:`save` would raise now; nothing is written.

        Cost: :meth:`plan`, and a read of its consumers and their trees.
        """
        self.check()
        change = self._change(self.pending)
        if change.plan:
            change.check(self.ledger)

    def save(self, operation: str | None = None) -> SaveResult:
        """Write the difference to the ledger, and read the host again.

        It is one transaction; adoption comes before usage in a transaction of its own. If the save
        is refused, nothing changed here, and in the ledger at most the adoption was written.
        Without a difference nothing is read or written. After a lost connection call it again: a
        write is not repeated.

        :param operation: the id of the write of usage, for a caller that may have to repeat it in
            another process; for one change only
        :raises CapacityException: if it does not fit, or releases more than the consumer has
        :raises Conflict: if the operation was sent for another difference
        :raises Stale: if a figure was changed here and by another process
        :raises NotFound: if the host was removed
        :raises AlreadyExists: if a new host has the name of another one
        :raises InvalidInventory: as :meth:`check`
        :raises DatabaseError: if the outcome is not known
        """
        self.check()
        requested = None if operation is None else names.uuid_text(operation)
        result = SaveResult()
        if self._in_flight is not None:
            id, pending = self._in_flight
            if requested == id and pending != self.pending:
                raise exceptions.Conflict("operation", id, "it was sent for a smaller change")
            result = self._write(id, pending, is_new=False)
            self._settle(pending)
        pending = self.pending
        if pending or self._state is None or self.record is not None or self._edits():
            result = self._write(requested or new_id(), pending, is_new=requested is None).after(
                result
            )
        if not result and not self._edits():
            self._settle(pending)  # it cancels out
            return result
        try:
            self.reload()
        except BaseException:
            self._settle(pending)  # it was written
            raise
        return result

    def _write(self, operation: str, pending: Pending, *, is_new: bool) -> SaveResult:
        """Write the definition, adoption and some usage.

        :param is_new: whether the operation cannot have been carried out before
        """
        if pending and not is_new:
            outcome = self.ledger.backend.outcome(Operation(operation))
            if outcome is not None:
                outcome.require(operation, "adjust", self.consumer)
                self._in_flight = None
                return SaveResult(_claims(outcome.claims).get(self.consumer))
        concurrent: tuple[Any, ...] = _CONCURRENT
        if self.record is not None and not pending:
            concurrent = (*concurrent, CapacityException)
        result = SaveResult()
        while True:
            change, written = self.ledger.retries.write(
                lambda: self._change(pending),
                lambda change: (change, self._commit(change, operation, pending)),
                *concurrent,
            )
            result = written.after(result)
            if change.later is None:
                return result

    def _commit(self, change: _Change, operation: str, pending: Pending) -> SaveResult:
        plan, ledger, has_usage = change.plan, self.ledger, change.has_usage
        if change.later is not None:
            change.check(ledger)
        if not plan:
            return SaveResult()
        started = Operation(operation if has_usage else None, ledger.actor)
        kind = "adjust" if has_usage else "adopt" if plan.adopted else "define"
        subject = self.consumer if has_usage else self.host
        if has_usage:
            self._in_flight = operation, pending
        try:
            if change.before.providers.uuid:
                stored = stored_definitions(change.before) if plan.definitions else {}
                records = ledger.definitions.commit_plan(
                    plan, stored, started, kind, subject, change.required
                )
            else:  # the parts of a new host are those of one inventory, so they are consistent
                records = ledger.definitions.commit(plan.write(started, kind, subject))
        except exceptions.ResourceObjectsError as error:
            if not error.matches("LostConnection"):  # after that it may have been written
                self._in_flight = None
            if error.matches("ProviderNotFound"):  # users know its name, the error has the uuid
                raise exceptions.NotFound("provider", self.host) from error
            raise
        ((self._uuid, name),) = plan.names.items()
        self._in_flight, claims = None, _claims(records)
        if plan.adopted:
            self.record = None
        return SaveResult(
            claims.get(self.consumer) if has_usage else None,
            plan.definitions,
            None if has_usage else claims.get(unattributed(name)),
        )

    def _settle(self, pending: Pending) -> None:
        """Count usage as stored."""
        stored = {name: inventory.obj_clone() for name, inventory in members(self.stored).items()}
        now = members(self.inventories)
        for name in pending.amounts.names():
            if name in stored:
                stored[name].update(used=stored[name].used + units_of(pending.amounts, name))
        for kind, amounts in pending.placed.items():
            for amount in releases_first(amounts):
                stored[kind].apply(amount)  # it is linked to no counts, which are settled already
                now[kind].record_allocation(-amount)
        self.stored = Inventories(stored)

    # --- the plan ---

    def creation(self) -> DefinitionChanges:
        """Return the changes that create the host, which the ledger does not have."""
        return diff(None, self._new_provider())

    def _change(self, pending: Pending) -> _Change:
        """Return the plan of some usage, with the definition and adoption, on a fresh read."""
        stored = self._read_consumers(pending)
        if pending.placed or self._state is None or self.record is not None or self._edits():
            host = self._read()
        else:  # amounts of the host itself depend on nothing that was read
            host = self._state
        before = Columns() if host is None else host.columns
        definitions = self._definition_changes(host)
        record = None if host is not None and host.adopted_at is not None else self.record
        if host is not None:
            uuid, name = host.uuid, host.name
        else:
            assert definitions is not None, "a host that is not stored is created"
            uuid, name = definitions.creates[0].uuid, self.host
        if definitions and (pending or (record is not None and record.is_in_use)):
            columns = redefined(before, Plan(definitions), self.ledger.now())
            host = HostState.find(columns, uuid)
        plan = Plan(
            definitions or None, names={uuid: name}, adopted=() if record is None else (uuid,)
        )
        if host is None:
            return _Change(before, plan)
        adoption = (
            None if record is None else adoption_order(host, record, stored.get(unattributed(name)))
        )
        orders = () if adoption is None else (adoption,)
        plan = dataclasses.replace(plan, orders=orders)
        if not pending:
            return _Change(before, plan)
        if adoption is not None:
            if definitions:
                self._require_allocated(host, pending)
            host = host.allocating(adoption.uses)
        usage, required = self._usage(host, pending, stored.get(self.consumer))
        if usage is None or adoption is not None:
            return _Change(before, plan, later=usage)
        required = tuple({pair for pair in required if pair[0] in before.index.numbers})
        return _Change(before, dataclasses.replace(plan, orders=(usage,)), True, required)

    def _read_consumers(self, pending: Pending) -> Mapping[str, ConsumerRecord]:
        """Return the consumers that the plan depends on, by name.

        They are read before the host: the write is refused if one changes after that.
        """
        consumers = []
        if self.record is not None and self._state is not None:
            consumers.append(unattributed(self.host))
        if pending.placed and not self.is_aggregate:
            consumers.append(self.consumer)
        return self.ledger.backend.held_by(consumers) if consumers else {}

    def _edits(self) -> dict[str, dict[str, tuple[Any, Any]]]:
        """Return the changed figures of counts, ``{count: {figure: (before, after)}}``."""
        edits: dict[str, dict[str, tuple[Any, Any]]] = {}
        for name in COUNTS:
            before, after = self.count(name), count_of(self.inventories, name)
            figures = {
                figure: pair
                for figure in FIGURES
                if (pair := (getattr(before, figure, None), getattr(after, figure, None)))
                and pair[0] != pair[1]
            }
            if figures:
                edits[name] = figures
        return edits

    def _definition_changes(self, host: HostState | None) -> DefinitionChanges | None:
        """Return the changes that create the host, or merge the edits of this view into it.

        :raises Stale: if a figure was changed here and by another process
        """
        if host is None:
            return self.creation()
        edits = self._edits()
        if not edits:
            return None
        merged = Inventories(dict(host.counts))
        for name, figures in edits.items():
            current, now = host.count(name), count_of(self.inventories, name)
            for figure, (before, after) in figures.items():
                value = getattr(current, figure, None)
                if value not in (before, after):
                    raise exceptions.Stale(
                        "provider",
                        host.name,
                        f"{name} {figure} was {before}, is {value} now, and was to be {after}",
                    )
            if now is None:
                if current is not None:
                    del merged[name]
            elif current is None:
                merged[name] = unused(now)
            else:
                merged[name].update(**{figure: pair[1] for figure, pair in figures.items()})
        records, _ = to_records(merged)
        stored = stored_definitions(host.columns)
        return edited(stored, {host.uuid: {"inventories": tuple(records)}})[0]

    def _new_provider(self) -> Provider:
        """Return the tree of a new host, which has no usage."""
        created = self._of_new_host()
        now = {name: count for name in COUNTS if (count := count_of(self.inventories, name))}
        counts = {
            n: count for n, count in created.items() if isinstance(count, IntegerInventory)
        } | now
        host = Provider(
            self.host,
            Inventories({name: unused(count) for name, count in counts.items()}),
            uuid=self._wanted_uuid or str(uuids.uuid4()),
        )
        for name, inventory in created.items():
            if name not in counts:
                host.add_parts(name, inventory)
        return host

    def _usage(
        self, host: HostState, pending: Pending, stored: ConsumerRecord | None
    ) -> tuple[ConsumerOrder | None, tuple[tuple[str, int], ...]]:
        """Return the order for usage, None if it cancels out, and the definitions it depends on.

        :param stored: the consumer, if it is a named one that has allocations
        :raises CapacityException: for a placed amount that breaks a rule the write does not check
        """
        counts = pending.counts_outside_placed(host)
        changes: dict[Key, _UseChange] = defaultdict(_UseChange)
        for name, count in counts.items():
            changes[host.uuid, name].amount += count
        fields: dict[str, Any] = {"aggregate": self.is_aggregate}
        together: Mapping[str, Amount] = {}
        retained: Mapping[str, Amount] = {}
        if pending.placed and not self.is_aggregate:
            together, released = self._requested(host, pending, counts)
            retained = self._retained(host, together, released, stored) if together else {}
            counted = Counter({name: count for name, count in counts.items() if count > 0})
            for kind in pending.placed.keys() & host.placed.keys() - together.keys():
                counted += _allocated_counts(host.placed[kind], pending.placed[kind])
            fields["request"] = _merged_request(together, counted, released, stored)
            fields["generation"] = None if stored is None else stored.generation
        required = tuple(_add_placed(changes, host, pending, together, retained))
        uses = tuple([change.use(*key) for key, change in changes.items() if change])
        if uses and all(change.is_expressible for change in changes.values()):
            return ConsumerOrder.adjust(self.consumer, uses, **fields), required
        if not uses and fields.get("request") is None:
            return None, ()
        return self._replacement(changes, fields), required

    def _replacement(
        self, changes: Mapping[Key, _UseChange], fields: dict[str, Any]
    ) -> ConsumerOrder:
        """Return the order that sets all allocations of the consumer to those after changes."""
        stored = self.ledger.backend.consumer(self.consumer)
        if stored is None:
            raise exceptions.NotFound("consumer", self.consumer)
        uses = {use.key: use for use in stored.held}
        for key, change in changes.items():
            before = uses.pop(key, Use(*key, 0))
            units = tuple(sorted({*before.units, *change.allocated} - change.released))
            if amount := before.amount + change.amount:
                uses[key] = Use(*key, amount, units)
        fields |= {"generation": stored.generation}
        fields["request"] = fields.get("request") or stored.request
        return ConsumerOrder.replace(self.consumer, tuple(uses.values()), **fields)

    def _require_allocated(self, host: HostState, pending: Pending) -> None:
        """Raise if counts release more than the consumer has before an adoption.

        A save that changes the definition releases none of the counts that it adopts.
        """
        reasons = [
            Reason(Rule.USED_BELOW_ZERO, count, bound=0, used=used, resource=name, where=host.name)
            for name, count in pending.counts_outside_placed(host).items()
            if count + (used := host.holdings.of(host.uuid, name).get(self.consumer, 0)) < 0
        ]
        if reasons:
            raise CapacityException(reasons)

    def _requested(
        self, host: HostState, pending: Pending, counts: Mapping[str, int]
    ) -> tuple[dict[str, Amount], set[str]]:
        """Return the placed amounts that a named consumer requests, and the released resources.

        An exchange for equal devices leaves the request as it is. So do cells next to counts of the
        same classes, which could not be told apart later.

        :raises InvalidInput: if the consumer would have two topologies
        """
        requested: dict[str, Amount] = {}
        released: set[str] = set()
        for kind, amounts in pending.placed.items():
            if kind not in host.placed:
                continue
            inventory = host.placed[kind].inventory
            new = [amount for amount in amounts if not amount.is_negative]
            if cell_map_of(inventory) is None:
                is_unchanged = _is_exchange(amounts)
            else:
                located = set(counts).intersection(*(amount.placed_counts for amount in amounts))
                is_unchanged = bool(located)
                if len(new) > 1:
                    raise exceptions.InvalidInput(
                        "amount",
                        f"topologies of {self.consumer}",
                        [str(amount) for amount in new],
                        "one: several are allocated to a consumer for each",
                    )
            if is_unchanged:
                continue
            if len(new) < len(amounts):
                released.add(kind)
            merged = inventory.merged(new) if new else None
            if merged is not None:
                requested[kind] = merged
        return requested, released

    def _retained(
        self,
        host: HostState,
        requested: Mapping[str, Amount],
        released: set[str],
        stored: ConsumerRecord | None,
    ) -> dict[str, Amount]:
        """Return the placed amounts that the consumer has on the host and does not release.

        :raises InvalidInput: if the consumer would have two amounts of a placed resource
        """
        if stored is None or stored.request is None:
            return {}
        assigned = self.ledger.assigned_amounts(self.consumer)
        present = {name for amounts in assigned.values() for name in amounts.names()} - released
        for kind in requested.keys() & present:
            raise exceptions.InvalidInput(
                "amount",
                f"adjust: {kind}",
                requested[kind],
                f"none: {self.consumer} has one already, which replace() exchanges",
            )
        here = assigned.get(host.name, NOTHING).by_name()
        return {n: amount for n, amount in here if n in host.placed and n not in released}

    # --- checks of inventories that a caller edited ---

    def check(self) -> None:
        """Raise if an inventory was edited in a way that the view cannot write.

        :raises InvalidInventory: for a resource without a column, other dedicated CPUs than the
            cells have, or edited cells or devices
        """
        check_expressible(self.inventories, self.stored)
        check_placed(self.inventories, self.stored)


def check_placed(inventories: Inventories, stored: Inventories) -> None:
    """Raise if cells or devices are not those that are stored, with the pending amounts.

    :raises InvalidInventory: with the resource
    """
    before = members(stored)
    for name, inventory in members(inventories).items():
        column = column_of(name)
        if column is None or isinstance(inventory, IntegerInventory):
            continue
        expected = before[name].obj_clone() if name in before else None
        for amount in releases_first(inventory.taken or ()):
            if expected is not None:
                expected.apply(amount)
        if expected is None or not column.is_same(inventory, expected):
            raise exceptions.InvalidInventory(
                name, inventory, "what the ledger has: a sync of the host changes them"
            )


def update_in_place(inventories: Inventories, now: Mapping[str, Inventory] | None = None) -> None:
    """Change inventories to others in place, and start the journal (``taken``) of placed ones.

    A removed inventory that a caller has in hand provides nothing from now on.

    :param now: None for the same
    """
    before = members(inventories)
    if now is not None:
        inventories.replace_contents(Inventories.from_owned(now))
    for name, inventory in members(inventories).items():
        before.pop(name, None)
        if not isinstance(inventory, IntegerInventory) and inventory.taken is None:
            inventory.taken = ()
    for name, inventory in before.items():
        column = column_of(name)
        if column is not None:
            column.close(inventory)
        elif isinstance(inventory, IntegerInventory):
            inventory.usage_limit = 0


@dataclasses.dataclass(slots=True)
class _UseChange:
    """The change of the allocations of one class at one provider."""

    amount: int = 0
    allocated: set[str] = dataclasses.field(default_factory=set)  #: units
    released: set[str] = dataclasses.field(default_factory=set)

    def add(self, record: AmountRecord) -> None:
        """Add an allocation, or a release, which has a negative amount."""
        self.amount += record.amount
        same, opposite, units = self.allocated, self.released, set(record.units)
        if record.amount < 0:
            same, opposite = opposite, same
        same |= units - opposite
        opposite -= units

    def __bool__(self) -> bool:
        return bool(self.amount or self.allocated or self.released)

    @property
    def is_expressible(self) -> bool:
        """Whether an order by amounts can state it: exchanged units are as many as the amount."""
        difference = len(self.allocated) - len(self.released)
        is_exchange = bool(self.allocated and self.released) or not self.amount
        return not is_exchange or self.amount == difference

    def use(self, provider: str, resource_class: str) -> Use:
        """Return the use of an order that adds."""
        units, released = tuple(sorted(self.allocated)), tuple(sorted(self.released))
        if units and released:
            return Use(provider, resource_class, self.amount, units, released=released)
        return Use(provider, resource_class, self.amount, units or released)


def _set_figures(
    inventories: dict[str, Any],
    figures: Mapping[str, Mapping[str, Any]],
    ratios: Mapping[str, Any],
) -> None:
    """Set the figures of counts; a count whose total is 0 is removed."""
    for name, specified in figures.items():
        count = inventories.get(name)
        total = specified.get("total", 0 if count is None else count.total)
        if not total:
            inventories.pop(name, None)
            continue
        values = dict(specified)
        if "reserved" in values:
            by_others = reserved_by_others(name, inventories)
            values["reserved"] += min(by_others, max(0, total - values["reserved"]))
        if count is not None:
            count.update(**values)
            continue
        if name in ratios:
            values.setdefault("allocation_ratio", ratios[name])
        values = {"max_unit": total, **values, "total": total}
        inventories[name] = IntegerInventory(resource_class=name, **values)


def _allocate(
    inventories: Mapping[str, Any], pending: Pending, host: str, *, is_stored: bool
) -> None:
    """Allocate pending usage of inventories, whatever their capacity.

    :raises CapacityException: if more is released than is used; for devices that are not free
    """
    counts = {n for n, inventory in inventories.items() if isinstance(inventory, IntegerInventory)}
    for name in counts.union(pending.amounts.names()):
        change = units_of(pending.amounts, name)
        used = inventories[name].used if name in inventories else 0
        if used + change < 0:
            place = host if is_stored else None
            reason = Reason(
                Rule.USED_BELOW_ZERO, change, bound=0, used=used, resource=name, where=place
            )
            raise CapacityException([reason])
        if name in inventories and change:
            inventories[name].update(used=used + change)
    for kind, amounts in pending.placed.items():
        if kind not in inventories:
            raise CapacityException(
                Reason(Rule.NO_INVENTORY, amount.item_count, 0, 0, kind, where=host)
                for amount in amounts
            )
        for amount in releases_first(amounts):
            if amount.is_negative or isinstance(inventories[kind], HasNamedUnits):
                try:
                    inventories[kind].fit(amount)
                except CapacityException as refusal:
                    raise CapacityException(
                        dataclasses.replace(reason, where=reason.where or host)
                        for reason in refusal.reasons
                    ) from refusal
            inventories[kind].apply(amount)
        inventories[kind].taken = amounts


def _allocated_counts(view: LocatedView, amounts: Iterable[Amount]) -> Counter[str]:
    """Return the counts that placed amounts allocate of their parts, less those they release."""
    changes: Counter[Key] = Counter()
    for amount in amounts:
        for part, record in view.records(amount.counting_separately(())):
            changes[part.uuid, record.resource_class] += record.amount
    counts: Counter[str] = Counter()
    for (_, name), count in changes.items():
        counts[name] += max(0, count)
    return counts


def _merged_request(
    requested: Mapping[str, Amount],
    counts: Mapping[str, int],
    released: set[str],
    stored: ConsumerRecord | None,
) -> StoredRequest | None:
    """Return the request to store with requested amounts and counts; None: it stays as it is."""
    from resource_objects.ledger.demand import merged_request

    if not requested:
        return None
    located = {name for amount in requested.values() for name in amount.placed_counts}
    further = {n: IntegerAmount(count) for n, count in counts.items() if n not in located}
    before = None if stored is None or stored.request is None else stored.request.request
    return StoredRequest(merged_request(before, Request({**requested, **further}), released))


def _add_placed(
    changes: Mapping[Key, _UseChange],
    host: HostState,
    pending: Pending,
    together: Mapping[str, Amount],
    retained: Mapping[str, Amount],
) -> Iterator[tuple[str, int]]:
    """Add the uses of placed amounts to changes; yield the definitions that they depend on.

    :param together: the amounts of one consumer, which have to be near each other
    :param retained: the amounts that it has already
    :raises CapacityException: if an amount breaks a rule that the write does not check
    """
    from resource_objects.ledger.assign import check_units_free

    missing = pending.placed.keys() - host.placed.keys()
    if missing:
        raise CapacityException(
            Reason(Rule.NO_INVENTORY, pending.placed[kind][0].item_count, 0, 0, kind, host.name)
            for kind in sorted(missing)
        )
    uses: list[Use] = []
    for is_release in (True, False):
        if not is_release:
            _check_together(host, together, retained)
        for kind, amounts in pending.placed.items():
            view = host.placed[kind]
            for amount in amounts:
                if amount.is_negative is not is_release:
                    continue
                for part, record in view.records(amount.counting_separately(())):
                    changes[part.uuid, record.resource_class].add(record)
                    uses.append(Use(part.uuid, record.resource_class, record.amount, record.units))
                    yield part.uuid, view.shape.generations[part.uuid]
                with _explaining(host, {kind: amount}):
                    view.inventory.consume(amount)
    if any(use.units for use in uses):
        parts = {part.number: part.uuid for view in host.placed.values() for part in view.parts}
        check_units_free(uses, host.columns, parts, host.name)


def _check_together(
    host: HostState, requested: Mapping[str, Amount], retained: Mapping[str, Amount]
) -> None:
    """Raise if the amounts of a consumer are not near each other."""
    present = {}
    for kind, amount in retained.items():
        with contextlib.suppress(CapacityException, exceptions.InvalidInput):
            host.placed[kind].inventory.fit(-amount)  # else it was released since
            present[kind] = amount
    if requested and len(requested) + len(present) > 1:
        with contextlib.suppress(exceptions.ForeignAmount), _explaining(host, requested):
            fit_together(requested, host.placed, retained=present)


@contextlib.contextmanager
def _explaining(host: HostState, amounts: Mapping[str, Amount]) -> Iterator[None]:
    """Raise refusals of amounts with the consumers, unless the write will refuse the same."""
    from resource_objects.ledger.assign import raise_before_write

    try:
        yield
    except CapacityException as refusal:
        raise_before_write(refusal, host.placed, host.columns, amounts)


def releases_first(amounts: Iterable[Amount]) -> list[Amount]:
    """Return amounts in an order in which released units can be allocated again."""
    return sorted(amounts, key=lambda amount: not amount.is_negative)


def _is_exchange(amounts: Iterable[Amount]) -> bool:
    """Return True if some amounts are released and others of the same kind allocated."""
    counts: Counter[Amount] = Counter()
    for amount in amounts:
        counts[amount.unassigned()] += -1 if amount.is_negative else 1
    return not any(counts.values())


def _require_ledger(value: object) -> None:
    from resource_objects.ledger import Ledger  # it is loaded if the caller has one

    if not isinstance(value, Ledger):
        expected = "a Ledger, as connect() returns"
        raise exceptions.InvalidInput("value", "ledger", value, expected)


def _claims(records: Iterable[ConsumerRecord]) -> dict[str, Claim]:
    from resource_objects.ledger.context import written_claim_of

    return {record.consumer: written_claim_of(record) for record in records}
