"""A ledger in the memory of one process: dicts under one lock.

For tests, simulations and programs that keep their own persistence. Same behaviour as the
databases; gone when it is closed.

=====================  ============================================================================
``backend``            :class:`MemoryBackend`: the lock, the assignment that makes a write happen
``state``              what is kept
``draft``, ``tables``  what a write makes of it, laid over it until then
``names``, ``rename``  resource classes, traits and aggregates: made, renamed, removed
``define``             definitions in, with ``shares`` and ``moves`` to other trees
``orders``             orders carried out
``feed``               the change feed told, read and forgotten
``read``, ``lists``    columns, pages and totals out
=====================  ============================================================================
"""

from __future__ import annotations

from resource_objects.backends.memory.backend import URL, MemoryBackend

__all__ = ["URL", "MemoryBackend"]
