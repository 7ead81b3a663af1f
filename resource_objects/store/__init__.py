"""The core of every backend: the rows of a ledger and the rules of a write.

Nothing here reads or writes a database. The backend in memory keeps the rows for as long as it is
open. A database backend loads the rows that a write is about, runs the same rules and writes the
rows that changed.

============  =====================================================================================
``rows``      the row classes, all tables with their indexes and journal (``Rows``), and a write on
              them (``Transaction``); the rules for names
``decide``    :func:`~resource_objects.store.decide.decide`: the rules of orders
``write``     :func:`~resource_objects.store.write.carry_out`: everything a write changes: names,
              definitions, the service of providers, orders; statistics
``pages``     pages and totals of rows, by filters
``columns``   rows as columns, and columns as rows; dry runs on these
============  =====================================================================================
"""

from __future__ import annotations
