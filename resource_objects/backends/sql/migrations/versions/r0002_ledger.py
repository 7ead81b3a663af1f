"""the whole ledger: aggregates, shares, units, kinds, the change feed, and lists of consumers"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from resource_objects.backends.sql.migrations.steps import (
    LONG_TEXT,
    NAME,
    NUMBER,
    SORTED_NAME,
    TIME,
    UUID,
    add_column,
    check,
    create_index,
    create_table,
    library_at_least,
    primary,
    refers,
    sort_by_code_points,
    unique,
)

revision = "0002"
down_revision = "0001"

SHARDS = 64


def upgrade() -> None:
    """Create and widen tables.

    A library that knows only the first schema is shut out: it would write without telling the
    change feed, and claim without what is shared.
    """
    _widen()
    _aggregates()
    _shares()
    _units()
    _feed()
    library_at_least(2)


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


def _widen() -> None:
    add_column("resource_providers", _counter("allocation_writes"))
    add_column("resource_providers", sa.Column("reported_at", TIME, nullable=True))
    add_column("inventories", _counter("writes"))
    add_column("inventories", _counter("shares"))
    for table in ("resource_classes", "traits", "consumers"):
        sort_by_code_points(table, "name")
    create_index("inventories", "class_id")
    create_index("resource_provider_traits", "trait_id", "provider_id")
    create_index("consumers", "project_id", "name")
    create_index("consumers", "user_id", "name")
    create_index("consumers", "consumer_type", "name")
    create_index("claims", "expires_at")
    create_index("claims", "created_at")
    create_index("operations", "created_at")


def _aggregates() -> None:
    create_table(
        "aggregates",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("name", SORTED_NAME, nullable=False),
        sa.Column("level", NAME, nullable=True),
        primary("aggregates", "id"),
        unique("aggregates", "name"),
    )
    create_table(
        "resource_provider_aggregates",
        sa.Column("provider_id", NUMBER, nullable=False),
        sa.Column("aggregate_id", NUMBER, nullable=False),
        primary("resource_provider_aggregates", "provider_id", "aggregate_id"),
        refers("resource_provider_aggregates", ["provider_id"], ["resource_providers.id"]),
        refers("resource_provider_aggregates", ["aggregate_id"], ["aggregates.id"]),
    )
    create_index("resource_provider_aggregates", "aggregate_id", "provider_id")
    create_table(
        "kind_records",
        sa.Column("provider_id", NUMBER, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("classes", LONG_TEXT, nullable=False),
        sa.Column("body", LONG_TEXT, nullable=False),
        primary("kind_records", "provider_id", "name"),
        refers("kind_records", ["provider_id"], ["resource_providers.id"]),
    )


def _shares() -> None:
    inventory = ["inventories.provider_id", "inventories.class_id"]
    create_table(
        "shares",
        sa.Column("provider_id", NUMBER, nullable=False, autoincrement=False),
        sa.Column("class_id", NUMBER, nullable=False, autoincrement=False),
        sa.Column("of_provider_id", NUMBER, nullable=False, autoincrement=False),
        sa.Column("of_class_id", NUMBER, nullable=False, autoincrement=False),
        sa.Column("factor", sa.Integer, nullable=False),
        primary("shares", "provider_id", "class_id", "of_provider_id", "of_class_id"),
        refers("shares", ["provider_id", "class_id"], inventory),
        refers("shares", ["of_provider_id", "of_class_id"], inventory),
        check("shares", "factor", "factor BETWEEN 1 AND 2147483647"),
    )
    create_index("shares", "of_provider_id", "of_class_id")


def _units() -> None:
    create_table(
        "allocation_units",
        sa.Column("provider_id", NUMBER, nullable=False, autoincrement=False),
        sa.Column("unit", NAME, nullable=False),
        sa.Column("allocation_id", NUMBER, nullable=False),
        primary("allocation_units", "provider_id", "unit"),
        refers("allocation_units", ["allocation_id"], ["allocations.id"], ondelete="CASCADE"),
    )
    create_index("allocation_units", "allocation_id")


def _feed() -> None:
    create_table(
        "change_heads",
        sa.Column("shard", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("oldest", sa.BigInteger, nullable=False),
        primary("change_heads", "shard"),
    )
    create_table(
        "changes",
        sa.Column("shard", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("operation", UUID, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("subject", NAME, nullable=False),
        sa.Column("actor", NAME, nullable=True),
        sa.Column("touched", LONG_TEXT, nullable=False),
        primary("changes", "shard", "number"),
    )
    create_index("changes", "created_at")
    _begin_feed()


def _begin_feed() -> None:
    """Make the heads of the feed: where something was written before, that is forgotten."""
    heads = sa.table("change_heads", *(sa.column(name) for name in ("shard", "head", "oldest")))
    operations = sa.table("operations", sa.column("id"))
    connection = op.get_bind()
    before = int(connection.scalar(sa.select(operations.c.id).limit(1)) is not None)
    there = set(connection.scalars(sa.select(heads.c.shard)))
    missing = [shard for shard in range(SHARDS) if shard not in there]
    if missing:
        rows = [{"shard": shard, "head": before, "oldest": before} for shard in missing]
        connection.execute(sa.insert(heads), rows)
