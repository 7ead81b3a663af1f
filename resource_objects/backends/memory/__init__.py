"""A ledger in the memory of one process: dicts under one lock.

For tests, simulations and programs that keep their own persistence. Same behaviour as the
databases; gone when it is closed.

=====================  ============================================================================
``backend``            :class:`MemoryBackend`: the lock, the assignment that makes a write happen;
                       orders carried out
``state``              what is kept, what a write makes of it until then, and the change feed
``definitions``        definitions in, with shares and moves to other trees; names
``reading``            columns, pages and totals out
``server_groups``      consumers that are to be on one host, or on different ones
``statistics``         what agents tell of providers
``use_over_time``      who used how much from when until when
=====================  ============================================================================
"""

from __future__ import annotations

from resource_objects.backends.memory.backend import URL, MemoryBackend

__all__ = ["URL", "MemoryBackend"]
