"""A small backend: rows in one dict, and the rules of ``resource_objects.store``."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any, Self

from resource_objects import exceptions
from resource_objects.backends.memory import RowsBackend
from resource_objects.providers.backend import Capability
from resource_objects.store.rows import Rows, Table, changes

URL = "dict://"


class DictBackend(RowsBackend):
    """A ledger in one dict, ``{(table, key): row}``, as a key-value store would have it.

    Each method loads all rows, so its cost is linear in the ledger.
    """

    unsupported = frozenset({Capability.WAITING})

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._stored: dict[tuple[str, Any], Any] = {}
        # numbers are never used twice, so they are drawn outside of the rows of one write
        self._numbers = {
            name: itertools.count(1)
            for name in ("provider_numbers", "name_numbers", "operation_numbers")
        }
        with self.writing() as rows:
            rows.add_standard_names()

    @classmethod
    def open(cls, url: str) -> Self:
        """Return a new, empty ledger."""
        if url != URL:
            raise exceptions.InvalidInput("URL", "ledger URL", url, URL)
        return cls()

    def close(self) -> None:
        """Close nothing: the rows are removed with this object."""

    # --- rows: a database backend does the same within a transaction ---

    @contextlib.contextmanager
    def reading(self) -> Iterator[Rows]:
        """Lock the ledger and load its rows."""
        with self._lock:
            rows = Rows()
            for name, numbers in self._numbers.items():
                setattr(rows, name, numbers)
            tables = _tables(rows)
            for (name, key), row in self._stored.items():
                tables[name].put_unjournaled(key, None, row)
            yield rows

    @contextlib.contextmanager
    def writing(self) -> Iterator[Rows]:
        """Lock the ledger, load its rows, and store those that changed; after an error, none."""
        with self.reading() as rows:
            yield rows
            names = {id(table): name for name, table in _tables(rows).items()}
            stored = dict(self._stored)
            for table, key, _, row in changes(rows.journal):
                if row is None:
                    del stored[names[id(table)], key]
                else:
                    stored[names[id(table)], key] = row
            self._stored = stored  # one assignment: an interrupt finds all changes or none


def _tables(rows: Rows) -> dict[str, Table[Any, Any]]:
    return {name: table for name, table in vars(rows).items() if isinstance(table, Table)}
