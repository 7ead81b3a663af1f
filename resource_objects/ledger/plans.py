"""Plans: what a change would do, doing it, and looking for what is not as it should be."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping

from resource_objects import exceptions
from resource_objects.ledger.base import claim_of
from resource_objects.ledger.declare import DeclareMethods, check_roots
from resource_objects.ledger.records import pages_of
from resource_objects.ledger.taking import patiently
from resource_objects.providers import Claim, Provider
from resource_objects.providers.audit import Audit, audit, spread
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import together
from resource_objects.providers.given import ago, now_or
from resource_objects.providers.listing import MOST_ROWS, ConsumerFilter
from resource_objects.providers.orders import ClaimRecord, Operation
from resource_objects.providers.plan import Plan
from resource_objects.providers.rehearsal import check_definitions, rehearse
from resource_objects.providers.reshape import Reshape
from resource_objects.providers.reshaping import compile_reshape, concerned

#: What tells that somebody was faster, so that a reshape is worked out again.
_FASTER = (
    exceptions.StaleDefinition,
    exceptions.StaleConsumer,
    exceptions.InventoryInUse,
    exceptions.ProviderInUse,
)


class PlanMethods(DeclareMethods):
    """The methods of a ledger that plan, reshape and audit."""

    def diff(self, *roots: Provider) -> Plan:
        """Return what :meth:`sync` of these trees would do now; nothing is written.

        The plan holds for the definitions it was made from: :meth:`apply` refuses it if somebody
        changed them since. Cost: one read of these trees.

        Errors are those of :meth:`sync`, as far as they show without writing.
        """
        check_roots(roots)
        found = self._compared(roots)
        changed = [one for one in found.changes if one]
        root = changed[0].root if len(changed) == 1 else f"{len(changed)} trees"
        plan = Plan(together(root, changed) if changed else None)
        if plan.definitions is not None:
            self._allowed(found.kept, plan.definitions)
        known = {one.uuid or "": one.name for root in found.kept for one in root.walk()}
        names = {uuid: known[uuid] for uuid in plan.places if uuid in known}
        return dataclasses.replace(plan, names=names)

    def apply(
        self, plan: Plan, *, dry_run: bool = False, operation: str | None = None
    ) -> tuple[Claim, ...]:
        """Carry out a plan, in one transaction; return the claims of its orders, in their order.

        Cost: one write; a dry run, and a plan with definitions, also read the trees concerned.

        :param dry_run: only look whether it could be carried out now, and return nothing
        :raises InvalidPlan: if it says what cannot be, as a file may that somebody edited: shares
            across trees or of themselves, providers below themselves, changes that do not lead to
            the definitions beside them
        :raises StaleDefinition: if a provider was changed since the plan was made
        :raises StaleConsumer: if a consumer was, whose generation the plan says
        :raises CapacityException: if what a consumer is to hold does not fit
        :raises ProviderExists, ProviderInUse, InventoryInUse, CountedTwice: as :meth:`sync`
        :raises ConsumerExists, ConsumerNotFound: if one to claim holds something, or one to release
            nothing
        """
        if not isinstance(plan, Plan):
            raise exceptions.InvalidField("apply", plan, "a Plan")
        if dry_run:
            claims = self.backend.held_by(plan.consumers)
            held = (one.provider_uuid for claim in claims.values() for one in claim.held)
            self._rehearse(plan, self._places(plan, held), claims)
            return ()
        doing, done = self._begin(operation, "apply", plan.subject)
        if done is not None:
            return tuple(map(claim_of, done.claims))
        if not plan:
            return ()
        columns = Columns()
        if plan.definitions is not None:
            columns = self._places(plan, (), allocations=False)
            check_definitions(plan.definitions, columns)
        return tuple(map(claim_of, self._carry_out(plan, columns, doing, "apply", plan.subject)))

    def reshape(
        self, reshape: Reshape, *, dry_run: bool = False, operation: str | None = None
    ) -> Plan:
        """Move inventories and allocations between providers, in one transaction.

        Everybody holds as much afterwards as before; see :mod:`resource_objects.providers.reshape`
        for what may be said. Returned is the plan that was carried out (of an operation that was
        done before: an empty one). Cost: one read of the trees, one of the consumers concerned, one
        write; the number of statements grows with none of them.

        What somebody claims between the read and the write stays: a source that shrinks may then be
        over-full, as after any shrink, and :meth:`over_capacity` lists it.

        :param dry_run: only work out the plan, and look whether it could be carried out now
        :raises InvalidPlan: if an allocation or some of an inventory would be lost or invented, it
            is not said where one goes, or one fits nowhere
        :raises ProviderNotFound: if a provider is neither kept nor created
        :raises ProviderExists: if one to create is there already
        :raises CapacityException: if what is told to go somewhere does not fit there
        :raises InvalidTree: if the providers would form no tree any more, or a share lead nowhere
        :raises StaleDefinition, StaleConsumer: if somebody was faster, again and again
        """
        if not isinstance(reshape, Reshape):
            raise exceptions.InvalidField("reshape", reshape, "a Reshape")
        if dry_run:
            return patiently(lambda: self._tried(reshape), self.retries.definitions, *_FASTER)
        subject = reshape.subject
        doing, done = self._begin(operation, "reshape", subject)
        if done is not None:
            return Plan()

        def attempt() -> Plan:
            plan, columns, _ = self._compiled(reshape)
            if plan:
                self._carry_out(plan, columns, doing, "reshape", subject)
            return plan

        return patiently(attempt, self.retries.definitions, *_FASTER)

    def audit(
        self,
        *,
        now: datetime.datetime | None = None,
        stale_after: datetime.timedelta | None = None,
    ) -> Audit:
        """Return what is not as it should be. Nothing is changed.

        Cost: one read of everything, of the expired claims a page at a time, and of the claims
        that are spread over several trees.

        :param now: the moment to judge by, with its time zone; None: this one
        :param stale_after: how long the owner of a pool may be silent; None: for ever
        :raises InvalidField: if these are no moment and no age
        """
        at = now_or("now", now)
        if stale_after is not None:
            ago("stale_after", stale_after, at)  # refused before everything is read
        pages = pages_of(self.backend, ConsumerFilter(expires_before=at), MOST_ROWS)
        claims = [record for records in pages for record in records]
        columns = self.backend.read()
        consumers = spread(columns)
        claims += self.backend.held_by(consumers).values() if consumers else ()
        return audit(columns, claims, now=at, stale_after=stale_after)

    # --- how they are done ---

    def _places(self, plan: Plan, held: Iterable[str], *, allocations: bool = True) -> Columns:
        """Return the trees that a plan is about, with those of providers of the names it wants.

        :param held: uuids of providers that are to be in it too
        """
        keys = dict.fromkeys((*plan.places, *held))
        if plan.definitions is not None:
            keys |= dict.fromkeys(created.name for created in plan.definitions.creates)
            keys |= dict.fromkeys(one.definition.name for one in plan.definitions.updates)
        return self.backend.read(*keys, allocations=allocations) if keys else Columns()

    def _rehearse(self, plan: Plan, columns: Columns, claims: Mapping[str, ClaimRecord]) -> None:
        rehearse(plan, columns, claims)
        if plan.definitions is not None:
            self._allowed(trees(columns), plan.definitions, plan.orders)

    def _carry_out(
        self, plan: Plan, columns: Columns, doing: Operation, kind: str, subject: str
    ) -> tuple[ClaimRecord, ...]:
        """Commit a plan, given the trees it changes as they are."""
        changes = plan.definitions
        relied = () if changes is None else self._allowed(trees(columns), changes, plan.orders)
        return self.backend.commit(plan.write(doing, kind, subject, unchanged=relied))

    def _tried(self, reshape: Reshape) -> Plan:
        plan, columns, claims = self._compiled(reshape)
        self._rehearse(plan, columns, claims)
        return plan

    def _compiled(self, reshape: Reshape) -> tuple[Plan, Columns, Mapping[str, ClaimRecord]]:
        """Return the plan of a reshape, and what it was made from, of what is kept now."""
        keys = reshape.providers
        columns = self.backend.read(*keys) if keys else Columns()
        claims = self.backend.held_by(concerned(reshape, columns))
        return compile_reshape(reshape, columns, claims), columns, claims
