"""Dry runs: writes carried out on rows made of columns."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from resource_objects import exceptions
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.orders import ConsumerRecord, Operation
from resource_objects.providers.plan import Plan, check_plan
from resource_objects.store.columns import columns_of, roots_of_all, rows_of
from resource_objects.store.definitions import DefinitionWork
from resource_objects.store.rows import Rows, Transaction
from resource_objects.store.write import carry_out


def rehearse(
    plan: Plan, columns: Columns, claims: Mapping[str, ConsumerRecord], now: datetime.datetime
) -> Rows:
    """Return the rows after a plan, or raise the error that the write would raise.

    Policies of server groups are not checked: groups are not among the columns.

    :param columns: the trees of all :attr:`Plan.places`, of the allocations of its consumers, and
        of providers that have a name to create
    :param claims: the records of :attr:`Plan.consumers`, by name
    :param now: the time of the ledger
    :raises InvalidPlan: as :func:`check_definitions`
    :raises ResourceObjectsError: as :meth:`~resource_objects.providers.backend.Backend.commit`
    """
    if plan.definitions is not None:
        check_definitions(plan.definitions, columns)
    write = plan.write(Operation(), "dry run", "dry run")
    rows = rows_of(columns, claims)
    try:
        carry_out(rows, write, now, _next_generation(columns))
    except exceptions.InUse as error:
        consumers = _consumers(rows_of(columns, claims), error.name, error.detail)
        raise exceptions.InUse(error.subject, error.name, error.detail, consumers) from error
    return rows


def _consumers(rows: Rows, provider: str, resource_class: str) -> tuple[str, ...]:
    """Return the consumers that use inventories of a provider, also through shares."""
    keys = [
        (row.uuid, name)
        for row in rows.providers.rows.values()
        if row.name == provider
        for name in row.classes
        if resource_class in ("", name)
    ]
    return tuple(sorted({user for users in rows.users_of(keys).values() for user, _ in users}))


def check_definitions(changes: DefinitionChanges, columns: Columns) -> None:
    """Raise unless changes are possible and lead to the definitions that they state.

    :param columns: as for :func:`rehearse`; allocations are not read
    :raises Stale: if a provider is not at the generation of the changes
    :raises AlreadyExists: if a name or uuid to create exists
    :raises InvalidPlan: if the result is not a set of trees, a share breaks a rule of shares, or
        it differs from the definitions that the changes state
    """
    moment = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    transaction = Transaction(rows_of(columns), moment, _next_generation(columns))
    DefinitionWork(transaction, changes).check()
    before = {uuid: row.definition for uuid, row in stored_definitions(columns).items()}
    after = {**before, **{definition.uuid: definition for definition in changes.definitions}}
    for removal in changes.removals:
        after.pop(removal.uuid, None)
    for definition in after.values():
        if definition.parent_uuid is not None and definition.parent_uuid not in after:
            raise exceptions.Stale("provider", definition.name, "its parent does not exist")
    check_plan(changes, before, after)


def redefined(columns: Columns, plan: Plan, now: datetime.datetime) -> Columns:
    """Return columns after a plan without orders, or raise the error that the write would raise.

    :param now: the time of the ledger
    :returns: parents before children. Cost: linear in the rows
    """
    rows = rehearse(plan, columns, {}, now)
    return columns_of(rows, roots_of_all(rows), None, now=columns.now or now)


def _next_generation(columns: Columns) -> int:
    return max(columns.providers.generation, default=0) + 1
