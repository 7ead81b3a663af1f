"""Names by their beginning, for completion in a shell: read at each press of the tab key.

The driver alone reads a SQLite file, without SQLAlchemy and the other modules of the backend, which
take half a second to import. Nothing is created, not even the files next to a database, no schema
is upgraded, and every wait is short.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import urllib.parse
from typing import Final

#: The most names that are read.
MOST = 200
#: Seconds that a server may take to answer, and to wait for the lock of a file.
_PATIENCE: Final = {"connect_timeout": 2, "read_timeout": 2}
_PATIENCE_OF_FILE = 0.2

#: The table of each kind, with a further condition on its rows.
_TABLES = {
    "provider": ("resource_providers", ""),
    "host": ("resource_providers", " AND parent_id IS NULL"),
    "consumer": ("consumers", " AND gone = 0"),
    "class": ("resource_classes", ""),
    "trait": ("traits", ""),
    "aggregate": ("aggregates", ""),
    "statistic": ("statistics", ""),
}
_LAST = "\U0010ffff"


def names_beginning(url: str, kind: str, prefix: str) -> list[str]:
    """Return the first names of a kind that begin with a prefix, in order, at most :data:`MOST`.

    Cost: one range of an index of names.

    :param kind: ``provider``, ``host``, ``consumer``, ``class``, ``trait``, ``aggregate`` or
        ``statistic``
    :raises Exception: if there is no such database, no table or no driver

    >>> names_beginning("memory://", "provider", "lab-")
    []
    """
    scheme = url.partition(":")[0].partition("+")[0]
    table, condition = _TABLES[kind]
    query = (
        f"SELECT DISTINCT name FROM {table} WHERE name >= :first AND name < :last{condition} "
        f"ORDER BY name LIMIT {MOST}"
    )
    between = {"first": prefix, "last": prefix + _LAST}
    if scheme == "sqlite":
        path = os.path.abspath(url.partition("?")[0].partition(":///")[2])
        # without a log the file is complete; opening it would create a log and leave it there
        options = "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"
        uri = f"file:{urllib.parse.quote(path)}?{options}"
        opened = sqlite3.connect(uri, uri=True, timeout=_PATIENCE_OF_FILE)
        with contextlib.closing(opened) as file:
            return [name for (name,) in file.execute(query, between)]
    if scheme not in ("postgresql", "mysql", "mariadb"):
        return []
    import sqlalchemy as sa

    from resource_objects.backends.sql import engine, urls

    database = engine.connect_server(urls.parse(url, **_PATIENCE))
    with contextlib.closing(database), database.reading() as connection:
        return list(connection.scalars(sa.text(query), between))
