"""What revisions are made of.

A step can be run again after the process died in the middle of a revision: MySQL commits each
statement that defines something by itself, so what is there already is left alone.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

#: SQLite counts only a column of this very type up by itself.
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: Fewer than six digits of a second is what MySQL keeps unless told.
TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
#: MySQL's TEXT ends at 64 KiB.
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
NAME = sa.String(255)
#: A name that lists are in the order of: PostgreSQL's own order is that of some language.
SORTED_NAME = NAME.with_variant(sa.String(255, collation="C"), "postgresql")
UUID = sa.String(36)


def create_table(
    name: str, *parts: sa.schema.SchemaItem, sqlite_autoincrement: bool = False
) -> None:
    """Create a table, unless it is there."""
    if sa.inspect(op.get_bind()).has_table(name):
        return
    op.create_table(
        name,
        *parts,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        sqlite_autoincrement=sqlite_autoincrement,
    )


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Add a column, nullable or with a default, unless it is there."""
    if column.name not in {found["name"] for found in sa.inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)


def sort_by_code_points(table: str, column: str) -> None:
    """Order a column of names by code points, where the database does not already."""
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column(table, column, type_=SORTED_NAME, existing_nullable=False)


def create_index(table: str, *columns: str) -> None:
    """Create an index named after its table and columns, unless it is there."""
    name = "_".join(("ix", table, *columns))
    if name not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, list(columns))


def unique(table: str, *columns: str) -> sa.UniqueConstraint:
    """Return a unique constraint, named so that oslo.db can tell which columns it is about."""
    return sa.UniqueConstraint(*columns, name="0".join((f"uniq_{table}", *columns)))


def check(table: str, name: str, rule: str) -> sa.CheckConstraint:
    """Return a check, named after its table."""
    return sa.CheckConstraint(rule, name=op.f(f"ck_{table}_{name}"))


def refers(
    table: str, columns: list[str], to: list[str], *, ondelete: str | None = None
) -> sa.ForeignKeyConstraint:
    """Return a foreign key, named after its table and columns."""
    name = "_".join(("fk", table, *columns))
    return sa.ForeignKeyConstraint(columns, to, name=name, ondelete=ondelete)


def primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    """Return a primary key, named after its table."""
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def library_at_least(number: int) -> None:
    """Shut out libraries that know no schema from ``number`` on."""
    info = sa.table("schema_info", sa.column("id"), sa.column("oldest_library"))
    connection = op.get_bind()
    if connection.scalar(sa.select(sa.func.count()).select_from(info)):
        connection.execute(sa.update(info).values(oldest_library=number))
    else:
        connection.execute(sa.insert(info).values(id=1, oldest_library=number))
