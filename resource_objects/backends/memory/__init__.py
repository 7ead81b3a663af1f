"""A ledger in the memory of one process: tables of rows under one lock.

For tests, simulations and programs that store their ledger themselves. It behaves like a database;
its content is lost when it is closed.

=================  ================================================================================
``backend``        :class:`RowsBackend`: the contract on loaded rows;
                   :class:`MemoryBackend`: the lock, the commit, the queue
``feed``           the change feed, read from a cursor, pruned, and summed as use over time
``reading``        pages and totals
=================  ================================================================================
"""

from __future__ import annotations

from resource_objects.backends.memory.backend import URL, MemoryBackend, RowsBackend

__all__ = ["URL", "MemoryBackend", "RowsBackend"]
