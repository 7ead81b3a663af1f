"""Plans of a ledger: diffs, their application, reshapes and audits."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.ledger.context import LedgerContext, claim_of
from resource_objects.ledger.definitions import CONCURRENT_ERRORS, Definitions, check_roots
from resource_objects.providers import Claim, Provider
from resource_objects.providers.arguments import ago
from resource_objects.providers.audit import Audit, audit, consumers_of_several_trees
from resource_objects.providers.backend import Capability
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.definition import StoredDefinitions, merge_changes
from resource_objects.providers.listing import MOST_ROWS, ConsumerFilter
from resource_objects.providers.orders import ConsumerRecord, Operation
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, Reshape
from resource_objects.providers.reshape_plan import ReshapePlanner
from resource_objects.store.columns import check_definitions, rehearse


class Plans:
    """The plans of a ledger; :class:`~resource_objects.ledger.Ledger` documents each method."""

    def __init__(self, context: LedgerContext, definitions: Definitions) -> None:
        self._context = context
        self._definitions = definitions

    def diff(self, roots: Sequence[Provider], moves: Sequence[Move]) -> Plan:
        check_roots(roots)
        difference = self._definitions.compare(roots, moves)
        changed = [changes for changes in difference.changes if changes]
        root = changed[0].root if len(changed) == 1 else f"{len(changed)} trees"
        changes = merge_changes(root, changed)
        plan = Plan(changes or None, difference.orders)
        if changes:
            plan = self._with_renumbering(plan, difference.stored)
            self._definitions.check_allowed(difference.stored, changes, plan.orders)
        return plan.naming(difference.stored, difference.names)

    def apply(self, plan: Plan, dry_run: bool, operation: str | None) -> tuple[Claim, ...]:
        if not isinstance(plan, Plan):
            raise exceptions.InvalidInput("field", "apply", plan, "a Plan")
        self._check_ledger(plan)
        stored: StoredDefinitions = {}
        if dry_run:
            claims = self._context.backend.held_by(plan.consumers)
            plan = plan.as_held(claims)
            columns = self._read(plan, _providers_of(claims))
            stored = stored_definitions(columns)
            plan = plan.compared_with(stored)
            order_count = len(plan.orders)
            plan = self._with_renumbering(plan, stored)
            if len(plan.orders) > order_count:
                claims = self._context.backend.held_by(plan.consumers)
                columns = self._read(plan, _providers_of(claims))
            self._rehearse(plan, columns, claims)
            return ()
        recorded = self._context.recorded(operation, "apply", plan.subject)
        if recorded is not None:
            return tuple(map(claim_of, recorded.claims))
        if not plan:
            return ()
        subject, order_count = plan.subject, len(plan.orders)
        if plan.held:
            plan = plan.as_held(self._context.backend.held_by(plan.held))
        if plan.definitions is not None:
            columns = self._read(plan, (), allocations=False)
            check_definitions(plan.definitions, columns)
            stored = stored_definitions(columns)
            plan = self._with_renumbering(plan.compared_with(stored), stored)
        started = self._context.operation(operation)
        records = self._commit(plan, stored, started, "apply", subject)
        return tuple(map(claim_of, records[:order_count]))

    def reshape(self, reshape: Reshape, dry_run: bool, operation: str | None) -> Plan:
        if not isinstance(reshape, Reshape):
            raise exceptions.InvalidInput("field", "reshape", reshape, "a Reshape")
        retries, subject, keys = self._context.retries, reshape.subject, reshape.providers
        if not dry_run and self._context.recorded(operation, "reshape", subject) is not None:
            return Plan()
        started = self._context.operation(operation)

        def attempt() -> Plan:
            columns = self._context.backend.read(*keys) if keys else Columns()
            planner = ReshapePlanner(reshape, columns)
            claims = self._context.backend.held_by(planner.consumers)
            plan = planner.plan(claims)
            if dry_run:
                if not set(plan.places).issubset(columns.providers.uuid):
                    columns = self._read(plan, keys)
                self._rehearse(plan, columns, claims)
            elif plan:
                stored = {} if plan.definitions is None else stored_definitions(columns)
                self._commit(plan, stored, started, "reshape", subject)
            return plan

        # claims of moved inventories conflict too, and may be frequent
        tries = max(retries.definitions, retries.assignments)
        return retries.retry(attempt, *CONCURRENT_ERRORS, tries=tries)

    def audit(self, now: datetime.datetime | None, older_than: datetime.timedelta | None) -> Audit:
        at = self._context.now_or(now)
        if older_than is not None:
            ago("older_than", older_than, at)  # an invalid age is refused before the reads
        expired = ConsumerFilter(expires_before=at)
        pages = self._context.consumers(expired, page=MOST_ROWS)
        claims = [record for records in pages for record in records]
        columns = self._context.backend.read()
        consumers = consumers_of_several_trees(columns)
        claims += self._context.backend.held_by(consumers).values() if consumers else ()
        return audit(columns, claims, now=at, older_than=older_than)

    # --- steps ---

    def _with_renumbering(self, plan: Plan, stored: StoredDefinitions) -> Plan:
        """Return a plan with the orders by which allocations follow CPUs to other cells."""
        if plan.definitions is None:
            return plan
        orders = self._definitions.renumbered(stored, plan.definitions, plan.orders)
        return dataclasses.replace(plan, orders=(*plan.orders, *orders)) if orders else plan

    def _check_ledger(self, plan: Plan) -> None:
        """Refuse a plan of snapshots of another ledger, if both ledgers are known."""
        backend = self._context.backend
        if not plan.ledger or Capability.FEED in backend.unsupported:
            return
        if backend.cursor().epoch not in (plan.ledger, 0):
            raise exceptions.InvalidPlan("plan", "it was made of snapshots of another ledger")

    def _read(self, plan: Plan, uuids: Iterable[str], *, allocations: bool = True) -> Columns:
        """Read the trees of a plan, also those of the names that it states.

        :param uuids: further providers to read
        """
        keys = dict.fromkeys((*plan.places, *uuids))
        if plan.definitions is not None:
            keys |= dict.fromkeys(definition.name for definition in plan.definitions.definitions)
        return self._context.backend.read(*keys, allocations=allocations) if keys else Columns()

    def _rehearse(self, plan: Plan, columns: Columns, claims: Mapping[str, ConsumerRecord]) -> None:
        self._context.backend.check(plan.write(Operation()))
        rehearse(plan, columns, claims, self._context.backend.now())
        if plan.definitions is not None:
            stored = stored_definitions(columns)
            self._definitions.check_allowed(stored, plan.definitions, plan.orders)

    def _commit(
        self, plan: Plan, stored: StoredDefinitions, started: Operation, kind: str, subject: str
    ) -> tuple[ConsumerRecord, ...]:
        """Commit a plan; ``stored`` are the definitions of the trees that it changes."""
        relied_on: tuple[tuple[str, int], ...] = ()
        if plan.definitions is not None:
            relied_on = self._definitions.check_allowed(stored, plan.definitions, plan.orders)
        return self._definitions.commit(plan.write(started, kind, subject, unchanged=relied_on))


def _providers_of(claims: Mapping[str, ConsumerRecord]) -> list[str]:
    return [use.provider_uuid for claim in claims.values() for use in claim.held]
