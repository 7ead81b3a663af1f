"""The core of every backend: the rows of a ledger and the rules of a write.

Nothing here reads or writes a database. The backend in memory keeps the rows for as long as it is
open. A database backend loads the rows that a write is about, runs the same rules and writes the
rows that changed.

===============  ==================================================================================
``tables``       tables of rows with indexes, and the journal that undoes changes
``rows``         the row classes, all tables (``Rows``), and a write on them (``Transaction``)
``names``        changes of resource classes, traits and aggregates
``definitions``  changes of providers, their inventories, shares and parents
``write``        :func:`~resource_objects.store.write.carry_out`: everything a write changes
``statistics``   statistics of providers: written, read and deleted
``columns``      rows as columns, and columns as rows
``decide``       :func:`~resource_objects.store.decide.decide`: the rules of orders
``dry_run``      dry runs: writes carried out on rows made of columns
===============  ==================================================================================
"""

from __future__ import annotations
