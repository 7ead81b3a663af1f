"""first tables: providers, inventories, traits, consumers, claims, allocations, operations"""

from __future__ import annotations

import sqlalchemy as sa

from resource_objects.backends.sql.migrations.steps import (
    LONG_TEXT,
    NAME,
    NUMBER,
    TIME,
    UUID,
    check,
    create_index,
    create_table,
    library_at_least,
    primary,
    refers,
    unique,
)

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    _names()
    _providers()
    _inventories()
    _consumers()
    _allocations()
    _operations()
    library_at_least(1)


def _names() -> None:
    create_table(
        "schema_info",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("oldest_library", sa.Integer, nullable=False),
        primary("schema_info", "id"),
        check("schema_info", "one_row", "id = 1"),
    )
    for name in ("resource_classes", "traits"):
        create_table(
            name,
            sa.Column("id", NUMBER, nullable=False, autoincrement=True),
            sa.Column("name", NAME, nullable=False),
            primary(name, "id"),
            unique(name, "name"),
        )


def _providers() -> None:
    create_table(
        "resource_providers",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("root_id", NUMBER, nullable=True),
        sa.Column("parent_id", NUMBER, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        primary("resource_providers", "id"),
        unique("resource_providers", "uuid"),
        unique("resource_providers", "name"),
        refers("resource_providers", ["root_id"], ["resource_providers.id"]),
        refers("resource_providers", ["parent_id"], ["resource_providers.id"]),
    )
    create_index("resource_providers", "root_id")
    create_index("resource_providers", "parent_id")
    create_table(
        "resource_provider_traits",
        sa.Column("provider_id", NUMBER, nullable=False),
        sa.Column("trait_id", NUMBER, nullable=False),
        primary("resource_provider_traits", "provider_id", "trait_id"),
        refers("resource_provider_traits", ["provider_id"], ["resource_providers.id"]),
        refers("resource_provider_traits", ["trait_id"], ["traits.id"]),
    )


def _inventories() -> None:
    def rule(name: str, text: str) -> sa.CheckConstraint:
        return check("inventories", name, text)

    create_table(
        "inventories",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("provider_id", NUMBER, nullable=False),
        sa.Column("class_id", NUMBER, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("reserved", sa.Integer, nullable=False),
        sa.Column("min_unit", sa.Integer, nullable=False),
        sa.Column("max_unit", sa.Integer, nullable=True),
        sa.Column("step_size", sa.Integer, nullable=False),
        sa.Column("ratio_millionths", sa.BigInteger, nullable=False),
        sa.Column("capacity", sa.BigInteger, nullable=False),
        sa.Column("used", sa.BigInteger, nullable=False),
        primary("inventories", "id"),
        unique("inventories", "provider_id", "class_id"),
        refers("inventories", ["provider_id"], ["resource_providers.id"]),
        refers("inventories", ["class_id"], ["resource_classes.id"]),
        rule("total", "total BETWEEN 1 AND 2147483647"),
        rule("reserved", "reserved BETWEEN 0 AND total"),
        rule("min_unit", "min_unit BETWEEN 1 AND 2147483647"),
        rule("max_unit", "max_unit IS NULL OR max_unit BETWEEN min_unit AND total"),
        rule("step_size", "step_size BETWEEN 1 AND 2147483647"),
        rule("ratio_millionths", "ratio_millionths BETWEEN 1 AND 4000000000"),
        rule(
            "capacity",
            "(total - reserved) * ratio_millionths - capacity * 1000000 BETWEEN 0 AND 999999",
        ),
        rule("used", "used BETWEEN 0 AND 9223372036854775807"),
    )


def _consumers() -> None:
    create_table(
        "consumers",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("project_id", NAME, nullable=True),
        sa.Column("user_id", NAME, nullable=True),
        sa.Column("consumer_type", NAME, nullable=True),
        sa.Column("request", LONG_TEXT, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        primary("consumers", "id"),
        unique("consumers", "uuid"),
        unique("consumers", "name"),
    )
    create_table(
        "claims",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("consumer_id", NUMBER, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        primary("claims", "id"),
        unique("claims", "uuid"),
        refers("claims", ["consumer_id"], ["consumers.id"]),
    )
    create_index("claims", "consumer_id")


def _allocations() -> None:
    create_table(
        "allocations",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("consumer_id", NUMBER, nullable=False),
        sa.Column("provider_id", NUMBER, nullable=False),
        sa.Column("class_id", NUMBER, nullable=False),
        sa.Column("used", sa.BigInteger, nullable=False),
        primary("allocations", "id"),
        unique("allocations", "consumer_id", "provider_id", "class_id"),
        refers("allocations", ["consumer_id"], ["consumers.id"]),
        refers(
            "allocations",
            ["provider_id", "class_id"],
            ["inventories.provider_id", "inventories.class_id"],
        ),
        check("allocations", "used", "used BETWEEN 1 AND 9223372036854775807"),
    )
    create_index("allocations", "provider_id", "class_id", "used")


def _operations() -> None:
    create_table(
        "operations",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("subject", NAME, nullable=False),
        sa.Column("outcome", LONG_TEXT, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        primary("operations", "id"),
        unique("operations", "uuid"),
        sqlite_autoincrement=True,
    )
