"""What is used of each class, summed up by project, user, type, provider, or only by class."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import filters, schema
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.providers.listing import By, ConsumerFilter, Total, sorted_totals

_providers = schema.resource_providers.c
_consumers = schema.consumers.c
_allocations = schema.allocations.c

#: What is summed up by, None where it is only the class.
_GROUPS = {
    By.RESOURCE_CLASS: None,
    By.PROVIDER: _providers.name,
    By.PROJECT: _consumers.project_id,
    By.USER: _consumers.user_id,
    By.CONSUMER_TYPE: _consumers.consumer_type,
}


def totals(
    connection: Connection, catalogue: Catalogue, wanted: ConsumerFilter, by: By
) -> tuple[Total, ...]:
    """Return what the consumers of a filter use (see the contract).

    Cost: one query, which looks at every allocation that the filter wants, and one for classes
    that are not standard.
    """
    if filters.is_empty(wanted):
        return ()
    rows = connection.execute(_query(wanted, by)).all()
    classes = catalogue.classes.names(connection, {row[1] for row in rows})
    return sorted_totals(
        [Total(group, classes[class_], int(used), count) for group, class_, used, count in rows]
    )


def _query(wanted: ConsumerFilter, by: By) -> sa.Select[*tuple[Any, ...]]:
    group = _GROUPS[by]
    query: sa.Select[*tuple[Any, ...]] = sa.select(
        sa.null() if group is None else group,
        _allocations.class_id,
        sa.func.sum(_allocations.used),
        sa.func.count(_allocations.consumer_id.distinct()),
    )
    query = query.join_from(schema.allocations, schema.consumers)
    if filters.asks_claims(wanted):
        query = query.join(schema.claims, schema.claims.c.consumer_id == _consumers.id)
    if by is By.PROVIDER:
        query = query.join(schema.resource_providers, _providers.id == _allocations.provider_id)
    query = query.where(*filters.of_consumers(wanted), *filters.of_places(wanted))
    return query.group_by(_allocations.class_id, *(() if group is None else (group,)))
