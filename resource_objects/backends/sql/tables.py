"""The tables after the newest migration, as metadata of SQLAlchemy Core.

Names follow the field (Placement) where it has the table. Rules that hold on all databases alike:

* names compare by their code points: upper and lower case differ, accents differ;
* figures are integers, ratios are millionths: nothing is a DECIMAL or a FLOAT;
* times are UTC without a zone, to the microsecond;
* the library numbers operations and consumers by time and chance (``statements.draw_number``). No
  number is used twice, even if a database was promoted or restored without its last writes. So the
  number of an operation is the generation of all that it wrote.

A comment names the query of each index, except for primary keys and unique constraints.

Rejected alternatives, measured on PostgreSQL with 4,000 claims of two classes, with indexes:

* projects, users and types as numbers of a table: 1,120 bytes a claim in place of 1,270 where they
  are 32 characters long. A claim would have one more statement, which waits for other writers of
  the same name. Lists by them need no join now.
* rows of removed providers, as of removed consumers: a provider is removed only without
  allocations, and a repetition and the feed refer to its uuid. Nothing would read the row.
* columns for future features. All these databases add a nullable column or a table without
  rewriting rows (see ``migrations``).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE
from resource_objects.providers.server_groups import MOST as MAX_MEMBERS
from resource_objects.providers.statistics import MAX_STORED
from resource_objects.ratio import MAX_RATIO, MILLION

#: SQLite increments only a column of exactly this type.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: By default MySQL stores fewer than six digits of a second.
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_JSON = sa.JSON()
_NAME = sa.String(255)
#: A name by which lists are ordered, or that is searched by its beginning: the default collation
#: of PostgreSQL is that of a language.
_SORTED_NAME = _NAME.with_variant(sa.String(255, collation="C"), "postgresql")
#: On PostgreSQL its own type: a claim of two classes then took 1,270 bytes there, with indexes,
#: where 36 characters took 1,403, and was as fast. MariaDB's type is not used: oslo.db has
#: one dialect for both, MySQL has no such type, and so a dump of either can be loaded in the other.
_UUID = sa.String(36).with_variant(sa.Uuid(as_uuid=False), "postgresql")

#: SQLite stores such rows in the tree of the primary key: a claim writes one tree less.
_BY_PRIMARY_KEY = {"sqlite_with_rowid": False}

#: oslo.db reads the columns of a duplicate from the name ``uniq_<table>0<column>...``.
metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table(name: str, *parts: sa.schema.SchemaItem, **options: Any) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        *parts,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        **options,
    )


def _id() -> sa.Column[int]:
    return sa.Column("id", _NUMBER, primary_key=True, autoincrement=True)


def _unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name="0".join((f"uniq_{table}", *columns)))


def _index_of_not_null(column: str, *more: str) -> sa.Index:
    """Return an index of the rows in which a column is not null, on databases with such indexes.

    For PostgreSQL the revision creates it: here it would load the dialect in every program.
    """
    return sa.Index(None, column, *more, sqlite_where=sa.text(f"{column} IS NOT NULL"))


def _drawn(name: str, *, primary_key: bool = False) -> sa.Column[int]:
    """Return a column of numbers that the library draws (see above)."""
    return sa.Column(name, _NUMBER, primary_key=primary_key, autoincrement=False, nullable=False)


def _columns(type_: Any, *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, type_, nullable=nullable) for name in names]


def _keys(type_: Any, *names: str) -> list[sa.Column[Any]]:
    """Return columns of a primary key, with values that the library assigns."""
    return [sa.Column(name, type_, primary_key=True, autoincrement=False) for name in names]


def _part_of(name: str, column: str) -> sa.Column[int]:
    """Return a key column that refers to a row, with which the row is deleted."""
    reference = sa.ForeignKey(column, ondelete="CASCADE")
    return sa.Column(name, _NUMBER, reference, primary_key=True, autoincrement=False)


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


#: One row: which libraries may use the database (see ``migrations``), which ledger it is (a number
#: drawn when it was made: cursors of another one are not good here), for how many seconds
#: operations and changes are retained, and, if changes were deleted that were younger than that,
#: since when the feed is complete.
ledger_info = _table(
    "ledger_info",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("oldest_library", sa.Integer, nullable=False),
    *_columns(sa.BigInteger, "epoch", "retention"),
    sa.Column("complete_since", _TIME, nullable=True),
    sa.CheckConstraint("id = 1", name="one_row"),
)

#: One row: the fingerprint of the tables (see ``migrations``).
ledger_schema = _table(
    "ledger_schema",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.CheckConstraint("id = 1", name="one_row"),
)

resource_classes = _table(
    "resource_classes",
    _id(),
    sa.Column("name", _SORTED_NAME, nullable=False),
    _unique("resource_classes", "name"),
    # or SQLite would reuse the number of a deleted class for the next one
    sqlite_autoincrement=True,
)

traits = _table(
    "traits", _id(), sa.Column("name", _SORTED_NAME, nullable=False), _unique("traits", "name")
)

#: The prefix of a name that another provider gets in the same transaction: no stored name begins
#: with it, for names have no space at either end.
GIVEN_UP = " "

#: The columns of a provider that state why it is disabled itself: all null if it is not.
DISABLED = ("disabled_reason", "disabled_by", "disabled_since", "disabled_until")
#: The columns of an inventory with its figures, in the order of ``InventoryRecord``.
FIGURES = (
    *("total", "reserved", "min_unit", "max_unit", "step_size", "ratio_millionths"),
    *("capacity", "used"),
)

resource_providers = _table(
    "resource_providers",
    _id(),
    sa.Column("uuid", _UUID, nullable=False),
    sa.Column("name", _SORTED_NAME, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    # null only inside the transaction that inserts a root, until its number is known
    sa.Column("root_id", _NUMBER, sa.ForeignKey("resource_providers.id"), nullable=True),
    sa.Column("parent_id", _NUMBER, sa.ForeignKey("resource_providers.id"), nullable=True),
    *_columns(_TIME, "created_at", "updated_at"),
    # writes of allocations counted at inventories that were removed (see inventories.writes)
    _counter("allocation_writes"),
    # writes of the definition, as Placement counts them
    _counter("definition_writes"),
    sa.Column("reported_at", _TIME, nullable=True),
    # when the allocations that a host had before it was defined were adopted
    sa.Column("adopted_at", _TIME, nullable=True),
    # no end: until it is enabled
    *_columns(_NAME, *DISABLED[:2], nullable=True),
    *_columns(_TIME, *DISABLED[2:], nullable=True),
    _unique("resource_providers", "uuid"),
    _unique("resource_providers", "name"),
    # read one tree
    sa.Index(None, "root_id"),
    # the children of a provider that is deleted (by the foreign key)
    sa.Index(None, "parent_id"),
)

inventories = _table(
    "inventories",
    _id(),
    sa.Column("provider_id", _NUMBER, sa.ForeignKey("resource_providers.id"), nullable=False),
    sa.Column("class_id", _NUMBER, sa.ForeignKey("resource_classes.id"), nullable=False),
    *_columns(sa.Integer, "total", "reserved", "min_unit"),
    sa.Column("max_unit", sa.Integer, nullable=True),
    sa.Column("step_size", sa.Integer, nullable=False),
    *_columns(sa.BigInteger, "ratio_millionths", "capacity", "used"),
    # how often allocations were written, each time counted at one inventory of the provider: a
    # part of its generation in Placement
    _counter("writes"),
    # how many shares an allocation here has: if 0, a claim does not read them
    _counter("shares"),
    # until when its provider, or one above it, is disabled; null: it is not. A disable writes it
    # here too: a claim locks these rows anyway, and reads it under the lock
    sa.Column("disabled_until", _TIME, nullable=True),
    # how many units of its provider were removed while allocated: if 0, a claim does not read them
    _counter("removed_units"),
    _unique("inventories", "provider_id", "class_id"),
    sa.CheckConstraint(f"total BETWEEN 1 AND {MAX_FIGURE}", name="total"),
    sa.CheckConstraint("reserved BETWEEN 0 AND total", name="reserved"),
    sa.CheckConstraint(f"min_unit BETWEEN 1 AND {MAX_FIGURE}", name="min_unit"),
    sa.CheckConstraint("max_unit IS NULL OR max_unit BETWEEN min_unit AND total", name="max_unit"),
    sa.CheckConstraint(f"step_size BETWEEN 1 AND {MAX_FIGURE}", name="step_size"),
    sa.CheckConstraint(
        f"ratio_millionths BETWEEN 1 AND {int(MAX_RATIO * MILLION)}", name="ratio_millionths"
    ),
    # capacity = floor((total - reserved) * ratio), without a division, in which the databases
    # differ; within the ranges above no product leaves 64 bits
    sa.CheckConstraint(
        f"(total - reserved) * ratio_millionths - capacity * {MILLION} BETWEEN 0 AND {MILLION - 1}",
        name="capacity",
    ),
    # above the capacity is allowed: shrinking below what is used is
    sa.CheckConstraint(f"used BETWEEN 0 AND {MAX_AMOUNT}", name="used"),
    # the inventories of a class that is deleted; and its foreign key
    sa.Index(None, "class_id"),
)

#: Providers that were disabled when they were removed, by name. A provider that is created again
#: below the same host is disabled again; the rows are deleted with the host.
removed_disabled_providers = _table(
    "removed_disabled_providers",
    sa.Column("root_id", _NUMBER, sa.ForeignKey("resource_providers.id"), primary_key=True),
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("reason", _NAME, nullable=False),
    sa.Column("disabled_by", _NAME, nullable=True),
    sa.Column("since", _TIME, nullable=False),
    sa.Column("until", _TIME, nullable=True),
)

resource_provider_traits = _table(
    "resource_provider_traits",
    sa.Column("provider_id", _NUMBER, sa.ForeignKey("resource_providers.id"), primary_key=True),
    sa.Column("trait_id", _NUMBER, sa.ForeignKey("traits.id"), primary_key=True),
    # the providers with a trait; and its foreign key
    sa.Index(None, "trait_id", "provider_id"),
)

#: Sets of providers, by name; ``level`` is the level of the set, such as ``rack``.
aggregates = _table(
    "aggregates",
    _id(),
    sa.Column("name", _SORTED_NAME, nullable=False),
    sa.Column("level", _NAME, nullable=True),
    _unique("aggregates", "name"),
)

resource_provider_aggregates = _table(
    "resource_provider_aggregates",
    sa.Column("provider_id", _NUMBER, sa.ForeignKey("resource_providers.id"), primary_key=True),
    sa.Column("aggregate_id", _NUMBER, sa.ForeignKey("aggregates.id"), primary_key=True),
    # the members of an aggregate; and its foreign key
    sa.Index(None, "aggregate_id", "provider_id"),
)

#: An allocation of (provider, class) also uses ``factor`` times as much of (of_provider, of_class).
shares = _table(
    "shares",
    *_keys(_NUMBER, "provider_id", "class_id", "of_provider_id", "of_class_id"),
    sa.Column("factor", sa.Integer, nullable=False),
    sa.ForeignKeyConstraint(
        ["provider_id", "class_id"], ["inventories.provider_id", "inventories.class_id"]
    ),
    sa.ForeignKeyConstraint(
        ["of_provider_id", "of_class_id"], ["inventories.provider_id", "inventories.class_id"]
    ),
    sa.CheckConstraint(f"factor BETWEEN 1 AND {MAX_FIGURE}", name="factor"),
    # the sharers of an inventory (for refusals and sums of use); and its foreign key
    sa.Index(None, "of_provider_id", "of_class_id"),
)

#: The descriptions of structured inventories; ``classes`` is a list of names.
structures = _table(
    "structures",
    sa.Column("provider_id", _NUMBER, sa.ForeignKey("resource_providers.id"), primary_key=True),
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("classes", _JSON, nullable=False),
    sa.Column("body", _JSON, nullable=True),
)

#: Consumers that must be on one host, or on different ones. A write of a member on another host
#: locks the row, after inventories and before anything is written, and changes its generation. So
#: the second of two such writes sees the first, also on Galera, which compares only writes.
server_groups = _table(
    "server_groups",
    _id(),
    sa.Column("uuid", _UUID, nullable=False),
    sa.Column("name", _SORTED_NAME, nullable=False),
    sa.Column("policy", sa.String(32), nullable=False),
    sa.Column("max_per_host", sa.Integer, nullable=False),
    _drawn("generation"),
    _unique("server_groups", "uuid"),
    _unique("server_groups", "name"),
    sa.CheckConstraint(f"max_per_host BETWEEN 1 AND {MAX_MEMBERS}", name="max_per_host"),
)

#: Consumers with their claims. ``gone`` is 0, or the number of the operation that removed it. The
#: row is stored as long as that operation: a repetition and the feed refer to it.
consumers = _table(
    "consumers",
    _drawn("id", primary_key=True),
    sa.Column("uuid", _UUID, nullable=False),
    sa.Column("name", _SORTED_NAME, nullable=False),
    _drawn("gone"),
    sa.Column("state", sa.String(16), nullable=False),
    # the number of the operation that wrote last: never twice the same
    _drawn("generation"),
    *_columns(_NAME, "project_id", "user_id", "consumer_type", nullable=True),
    sa.Column("request", _JSON, nullable=True),
    sa.Column("created_at", _TIME, nullable=False),
    sa.Column("expires_at", _TIME, nullable=True),
    # how often it was written since it was created
    _counter("writes"),
    # by name: a claim is read without another table. A removed consumer may name a deleted group
    sa.Column("server_group", _NAME, nullable=True),
    _unique("consumers", "uuid"),
    _unique("consumers", "name", "gone"),
    # pages of the consumers of a project, of a user, of a type
    _index_of_not_null("project_id", "name"),
    _index_of_not_null("user_id", "name"),
    _index_of_not_null("consumer_type", "name"),
    # the members of a server group
    _index_of_not_null("server_group", "name"),
    # which claims have expired
    _index_of_not_null("expires_at"),
)

allocations = _table(
    "allocations",
    sa.Column("consumer_id", _NUMBER, sa.ForeignKey("consumers.id"), primary_key=True),
    *_keys(_NUMBER, "provider_id", "class_id"),
    sa.Column("used", sa.BigInteger, nullable=False),
    # the order in which they were allocated
    sa.Column("position", sa.Integer, nullable=False),
    sa.ForeignKeyConstraint(
        ["provider_id", "class_id"], ["inventories.provider_id", "inventories.class_id"]
    ),
    sa.CheckConstraint(f"used BETWEEN 1 AND {MAX_AMOUNT}", name="used"),
    # the largest consumers of an inventory; and its foreign key
    sa.Index(None, "provider_id", "class_id", "used"),
    **_BY_PRIMARY_KEY,
)

#: Allocated CPUs and devices, by name. They are deleted with their allocation.
allocation_units = _table(
    "allocation_units",
    # that of the allocation, so it exists. No foreign key of its own: its check would lock the
    # provider, which definitions lock before inventories, and claims would lock after them
    sa.Column("provider_id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("unit", _NAME, primary_key=True),
    _drawn("consumer_id"),
    sa.Column("class_id", _NUMBER, nullable=False),
    sa.ForeignKeyConstraint(
        ["consumer_id", "provider_id", "class_id"],
        ["allocations.consumer_id", "allocations.provider_id", "allocations.class_id"],
        ondelete="CASCADE",
    ),
    # the units of an allocation; and its foreign key
    sa.Index(None, "consumer_id", "provider_id", "class_id"),
    **_BY_PRIMARY_KEY,
)

#: The recorded operations: a repetition is recognised, and its outcome is read from the changes.
operations = _table(
    "operations",
    _drawn("id", primary_key=True),
    sa.Column("uuid", _UUID, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("subject", _NAME, nullable=False),
    sa.Column("actor", _NAME, nullable=True),
    sa.Column("created_at", _TIME, nullable=False),
    _unique("operations", "uuid"),
)

#: The last number of each shard of the change feed, and the operation that wrote it: another
#: operation at that number means another history.
change_heads = _table(
    "change_heads",
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("head", sa.BigInteger, nullable=False),
    _drawn("operation_id"),
)

#: The change feed: each write has one number in each shard it touches, and there a row for each
#: change of what a consumer uses, and for each provider whose definition changed. ``what`` is
#: the mode of the consumer's order, or ``definition``, ``report``, ``names``, ``disabled``,
#: ``enabled`` or ``override``. Names are stored as they were, also if providers and classes
#: are renamed or removed.
changes = _table(
    "changes",
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    _drawn("operation_id"),
    sa.Column("what", sa.String(16), nullable=False),
    sa.Column("consumer_id", sa.BigInteger, nullable=True),
    sa.Column("provider_uuid", _UUID, nullable=True),
    sa.Column("resource_class", _NAME, nullable=True),
    *_columns(sa.BigInteger, "used_before", "used_after", nullable=True),
    *_columns(_JSON, "taken", "given", nullable=True),
    # the changes of an operation
    sa.Index(None, "operation_id"),
    **_BY_PRIMARY_KEY,
)

#: Consumers that wait for a release, in the order of ``id``, which the database assigns. Nothing
#: else refers to these rows. ``entry`` identifies the call that deletes the row again.
waiters = _table(
    "waiters",
    _id(),
    sa.Column("consumer", _NAME, nullable=False),
    sa.Column("entry", _UUID, nullable=False),
    sa.Column("actor", _NAME, nullable=True),
    *_columns(_TIME, "since", "lease_until"),
    _unique("waiters", "consumer"),
    _unique("waiters", "entry"),
    # expired leases
    sa.Index(None, "lease_until"),
)

#: The amounts that they wait for. Classes by name: no provider has a renamed class by its old name.
waiter_amounts = _table(
    "waiter_amounts",
    _part_of("waiter_id", "waiters.id"),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("resource_class", _NAME, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    # the root of the tree to allocate from; null: any
    sa.Column("root_uuid", _UUID, nullable=True),
)

#: Values that agents report of a provider. They are deleted with the provider, and nothing that a
#: claim locks is locked. ``value`` is JSON text in which a number is exact.
statistics = _table(
    "statistics",
    _part_of("provider_id", "resource_providers.id"),
    sa.Column("name", _SORTED_NAME, primary_key=True),
    sa.Column("value", sa.String(MAX_STORED), nullable=False),
    # the agent that reports it, and deletes it
    sa.Column("source", _NAME, nullable=False),
    # since when it has this value
    sa.Column("since", _TIME, nullable=False),
    # one statistic of all providers
    sa.Index(None, "name", "provider_id"),
)
