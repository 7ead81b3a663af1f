"""The interface of the library: :func:`connect` and the :class:`Ledger` that it returns.

    >>> import resource_objects as ro
    >>> ledger = ro.connect("memory://")
    >>> ledger.sync(ro.Provider("host0", "VCPU=8,MEMORY_MB=16384"))
    SyncResult(created=1, updated=0, removed=0, disabled=0, enabled=0, moved_consumers=())
    >>> print(ledger.claim("job-1", ledger.snapshot().candidates(ro.Request("VCPU=6"))))
    job-1 holds VCPU=6 of host0
    >>> print(ledger.snapshot().candidates(ro.Request("VCPU=3")).explain())
    host0: VCPU requested 3, free 2 of 8 (job-1 holds 6)
    >>> print(ledger.release("job-1"))
    job-1 released VCPU=6 of host0

==================  ===============================================================================
``ledger``          Ledger, with all its methods, and ``connect``
``context``         what every part uses: the backend, operations, the retry policy
``claims``          allocating, moving, releasing; ``gang_claim``: several consumers at once;
                    ``lease``: renewals
``queue``           claims that wait, first come, first served; claims whose time is over
``demand``          candidates and amounts in one form, and options; ``assign``: placed amounts and
                    named units
``definitions``     ``sync`` and other changes of providers, plans and the audit; ``names``:
                    classes, traits, aggregates; ``pools``
``server_groups``   consumers that must be on one host, or on different ones
``maintenance``     disabling, enabling and draining providers
``statistics``      figures that agents report of their hosts
``queries``         lists, figures and usage between two moments; ``feed``: the change feed, and
                    fresh snapshots
==================  ===============================================================================

A ledger is safe for use by several threads. It blocks while it talks to its database; from asyncio
call it through ``asyncio.to_thread``. Reading never writes.
"""

from __future__ import annotations

from resource_objects.backends.retries import RetryPolicy
from resource_objects.ledger.context import new_operation
from resource_objects.ledger.definitions import SyncResult
from resource_objects.ledger.ledger import BACKEND_NAMESPACE, Ledger, backend_for, connect

__all__ = [
    "BACKEND_NAMESPACE",
    "Ledger",
    "RetryPolicy",
    "SyncResult",
    "backend_for",
    "connect",
    "new_operation",
]
