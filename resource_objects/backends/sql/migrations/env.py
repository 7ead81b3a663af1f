"""The script of the ``alembic`` command, for operators who upgrade databases with Alembic.

``alembic -x url=postgresql+psycopg://... upgrade head`` with ``script_location`` set to this
directory (``resource_objects:backends/sql/migrations``); or ``sqlalchemy.url`` of the ini file. The
library itself upgrades without it (``resource-objects db upgrade``).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context

from resource_objects.backends.sql import migrations, tables


def run() -> None:
    """Run the requested revisions."""
    url = context.get_x_argument(as_dictionary=True).get("url") or context.config.get_main_option(
        "sqlalchemy.url"
    )
    options: dict[str, Any] = {
        "target_metadata": tables.metadata,
        "version_table": migrations.VERSION_TABLE,
    }
    if context.is_offline_mode():
        context.configure(url=url, literal_binds=True, **options)
        with context.begin_transaction():
            context.run_migrations()
        return
    with sa.create_engine(url or "", poolclass=sa.NullPool).connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()


if __name__ == "env_py":  # the name that Alembic gives this file when it runs it
    run()
