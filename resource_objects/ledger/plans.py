"""Plans: what a change would do, doing it, and looking for what is not as it should be."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.ledger.context import Store, claim_of
from resource_objects.ledger.definitions import FASTER, Definitions, check_roots
from resource_objects.providers import Claim, Provider
from resource_objects.providers.arguments import ago
from resource_objects.providers.audit import Audit, audit, consumers_of_several_trees
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import merge_changes
from resource_objects.providers.listing import MOST_ROWS, ConsumerFilter
from resource_objects.providers.orders import ConsumerRecord, Operation
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, Reshape
from resource_objects.providers.reshape_plan import ReshapePlanner
from resource_objects.providers.row_diff import stored_definitions
from resource_objects.store.dry_run import check_definitions, rehearse


class Plans:
    """The plans of a ledger; :class:`~resource_objects.ledger.Ledger` says what each does."""

    def __init__(self, store: Store, definitions: Definitions) -> None:
        self._store = store
        self._definitions = definitions

    def diff(self, roots: Sequence[Provider], moves: Sequence[Move]) -> Plan:
        check_roots(roots)
        found = self._definitions.compared(roots, moves)
        changed = [one for one in found.changes if one]
        root = changed[0].root if len(changed) == 1 else f"{len(changed)} trees"
        plan = Plan(merge_changes(root, changed) if changed else None, found.orders)
        if plan.definitions is not None:
            definitions = plan.definitions
            followed = self._definitions.renumbered(found.kept, definitions, found.orders)
            plan = dataclasses.replace(plan, orders=(*plan.orders, *followed))
            self._definitions.allowed(found.kept, definitions, plan.orders)
        known = {uuid: one.definition.name for uuid, one in found.kept.items()}
        known.update(found.names)
        names = {uuid: known[uuid] for uuid in plan.places if uuid in known}
        return dataclasses.replace(plan, names=names)

    def apply(self, plan: Plan, dry_run: bool, operation: str | None) -> tuple[Claim, ...]:
        if not isinstance(plan, Plan):
            raise exceptions.InvalidInput("field", "apply", plan, "a Plan")
        self._check_ledger(plan)
        if dry_run:
            claims = self._store.backend.held_by(plan.consumers)
            plan = plan.as_held(claims)
            held = [one.provider_uuid for claim in claims.values() for one in claim.held]
            columns = self._places(plan, held)
            plan = plan.compared_with(stored_definitions(columns))
            followed = self._with_followers(plan, columns)
            if followed is not plan:
                claims = self._store.backend.held_by(followed.consumers)
                held = [one.provider_uuid for claim in claims.values() for one in claim.held]
                columns = self._places(followed, held)
            self._rehearse(followed, columns, claims)
            return ()
        doing, done = self._store.begin(operation, "apply", plan.subject)
        if done is not None:
            return tuple(map(claim_of, done.claims))
        if not plan:
            return ()
        columns, subject = Columns(), plan.subject
        if plan.held:
            plan = plan.as_held(self._store.backend.held_by(plan.held))
        if plan.definitions is not None:
            columns = self._places(plan, (), allocations=False)
            check_definitions(plan.definitions, columns)
            plan = plan.compared_with(stored_definitions(columns))
        count = len(plan.orders)
        plan = self._with_followers(plan, columns)
        written = self._carry_out(plan, columns, doing, "apply", subject)
        return tuple(map(claim_of, written[:count]))

    def reshape(self, reshape: Reshape, dry_run: bool, operation: str | None) -> Plan:
        if not isinstance(reshape, Reshape):
            raise exceptions.InvalidInput("field", "reshape", reshape, "a Reshape")
        if dry_run:
            return self._store.retries.retry(lambda: self._tried(reshape), *FASTER)
        subject = reshape.subject
        doing, done = self._store.begin(operation, "reshape", subject)
        if done is not None:
            return Plan()

        def attempt() -> Plan:
            plan, columns, _ = self._compiled(reshape)
            if plan:
                self._carry_out(plan, columns, doing, "reshape", subject)
            return plan

        # who claims of what moves is faster, too, and may do so all the time
        retries = self._store.retries
        return retries.retry(attempt, *FASTER, tries=max(retries.definitions, retries.assignments))

    def audit(self, now: datetime.datetime | None, older_than: datetime.timedelta | None) -> Audit:
        at = self._store.now_or(now)
        if older_than is not None:
            ago("older_than", older_than, at)  # refused before everything is read
        over = ConsumerFilter(expires_before=at)
        pages = self._store.consumers(over, page=MOST_ROWS)
        claims = [record for records in pages for record in records]
        columns = self._store.backend.read()
        consumers = consumers_of_several_trees(columns)
        claims += self._store.backend.held_by(consumers).values() if consumers else ()
        return audit(columns, claims, now=at, older_than=older_than)

    # --- how they are done ---

    def _with_followers(self, plan: Plan, columns: Columns) -> Plan:
        """Return a plan with orders by which allocations follow CPUs that change their cells."""
        if plan.definitions is None:
            return plan
        kept = stored_definitions(columns)
        followed = self._definitions.renumbered(kept, plan.definitions, plan.orders)
        return dataclasses.replace(plan, orders=(*plan.orders, *followed)) if followed else plan

    def _check_ledger(self, plan: Plan) -> None:
        """Refuse a plan that was made of pictures of another ledger, as far as that is known."""
        backend = self._store.backend
        if not plan.ledger or Capability.FEED in backend.unsupported:
            return
        if backend.cursor().epoch not in (plan.ledger, 0):
            raise exceptions.InvalidPlan("plan", "it was made of pictures of another ledger")

    def _places(self, plan: Plan, held: Iterable[str], *, allocations: bool = True) -> Columns:
        """Return the trees that a plan is about, with those of providers of the names it wants.

        :param held: uuids of providers that are to be in it too
        """
        keys = dict.fromkeys((*plan.places, *held))
        if plan.definitions is not None:
            keys |= dict.fromkeys(created.name for created in plan.definitions.creates)
            keys |= dict.fromkeys(one.definition.name for one in plan.definitions.updates)
        return self._store.backend.read(*keys, allocations=allocations) if keys else Columns()

    def _rehearse(self, plan: Plan, columns: Columns, claims: Mapping[str, ConsumerRecord]) -> None:
        self._store.backend.check(plan.write(Operation()))
        rehearse(plan, columns, claims, self._store.backend.now())
        if plan.definitions is not None:
            self._definitions.allowed(stored_definitions(columns), plan.definitions, plan.orders)

    def _carry_out(
        self, plan: Plan, columns: Columns, doing: Operation, kind: str, subject: str
    ) -> tuple[ConsumerRecord, ...]:
        """Commit a plan, given the trees it changes as they are."""
        relied: tuple[tuple[str, int], ...] = ()
        if plan.definitions is not None:
            kept = stored_definitions(columns)
            relied = self._definitions.allowed(kept, plan.definitions, plan.orders)
        return self._definitions.commit(plan.write(doing, kind, subject, unchanged=relied))

    def _tried(self, reshape: Reshape) -> Plan:
        plan, columns, claims = self._compiled(reshape)
        if not set(plan.places).issubset(columns.providers.uuid):
            columns = self._places(plan, reshape.providers)
        self._rehearse(plan, columns, claims)
        return plan

    def _compiled(self, reshape: Reshape) -> tuple[Plan, Columns, Mapping[str, ConsumerRecord]]:
        """Return the plan of a reshape, and what it was made from, of what is kept now."""
        keys = reshape.providers
        columns = self._store.backend.read(*keys) if keys else Columns()
        planner = ReshapePlanner(reshape, columns)
        claims = self._store.backend.held_by(planner.consumers)
        return planner.plan(claims), columns, claims
