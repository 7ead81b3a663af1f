"""the tables of a ledger"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

from resource_objects.backends.sql import migrations, tables
from resource_objects.providers.backend import RETENTION

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables of ``tables``, which are copied here when 0.1.0 is tagged.

    A revision that was interrupted can be run again, because MySQL commits each definition
    individually: existing tables and indexes stay.
    """
    connection = op.get_bind()
    indexes = [index for table in tables.metadata.sorted_tables for index in table.indexes]
    if connection.dialect.name == "postgresql":  # here its dialect is loaded (see tables)
        for index in indexes:
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    tables.metadata.create_all(connection, checkfirst=True)
    for index in indexes:
        index.create(connection, checkfirst=True)
    info = tables.ledger_info
    if not connection.scalar(sa.select(sa.func.count()).select_from(info)):
        connection.execute(
            sa.insert(info).values(
                id=1,
                oldest_library=1,
                epoch=secrets.randbits(62) + 1,
                retention=int(RETENTION.total_seconds()),
            )
        )
    migrations.store_fingerprint(connection)


def downgrade() -> None:
    """Drop the tables with their rows."""
    tables.metadata.drop_all(op.get_bind())
