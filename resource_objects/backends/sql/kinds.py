"""Kind records: what structured inventories are beside their figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import rows, schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.resources.records import KindRecord

_kinds = schema.kind_records.c
_DROP = sa.delete(schema.kind_records).where(
    _kinds.provider_id.in_(sa.bindparam("providers", expanding=True))
)


def insert(connection: Connection, kept: Mapping[int, Iterable[KindRecord]]) -> None:
    """Insert the kind records of some providers, by number."""
    found = [
        {
            "provider_id": number,
            "name": record.resource_class,
            "classes": ",".join(record.classes),
            "body": record.body,
        }
        for number, records in kept.items()
        for record in records
    ]
    rows.insert(connection, schema.kind_records, found)


def drop(connection: Connection, providers: Sequence[int]) -> None:
    """Delete the kind records of some providers, by number."""
    for part in chunks(providers):
        connection.execute(_DROP, {"providers": part})


def record(name: str, classes: str, body: str) -> KindRecord:
    """Return a kind record as it was kept."""
    return KindRecord(name, tuple(classes.split(",")) if classes else (), body)


def rename(connection: Connection, names: Mapping[str, str]) -> set[int]:
    """Call classes by other names; return the numbers of the providers whose records say them.

    Cost: three statements, and a look at each kind record.
    """
    wanted = [_kinds.classes.contains(name, autoescape=True) for name in names]
    query = sa.select(schema.kind_records).where(sa.or_(_kinds.name.in_(list(names)), *wanted))
    before, after = [], []
    for number, name, classes, body in connection.execute(query):
        if name not in names and not names.keys() & set(classes.split(",")):
            continue  # a longer name, that only contains one of them
        now = ",".join(names.get(one, one) for one in classes.split(","))
        before.append({"provider_id": number, "name": name})
        after.append({**before[-1], "name": names.get(name, name), "classes": now, "body": body})
    rows.delete(connection, schema.kind_records, before)
    rows.insert(connection, schema.kind_records, after)
    return {row["provider_id"] for row in before}
