"""Placement's API over a ledger: a WSGI application (extra ``[rest]``).

    application = resource_objects.rest.application("sqlite:///lab.db", policy="secure")

Nothing below knows this room. A request is parsed into the ledger's own orders, and what is kept is
told in Placement's words; ``kept`` is the one place where the two differ. WebOb reads and writes
HTTP: microversion-parse and oslo.middleware, which this room needs anyway, bring it, and a table of
24 paths needs no framework.

======================  ===========================================================================
``wsgi``                the WSGI application: routes, and what is around all of them
``asked``               one request: version, body, query, who asks; and replies to it
``errors``              refusals, in Placement's form and with its codes
``auth``                who asks; ``policy``: whether they may
``schemas``             what bodies and queries look like, by microversion
``kept``                what is kept as Placement shows it: generations, consumers, names
``words``               the query words that lists and candidates share: resources, traits
``root``                ``/``, the versions, and ``/health``
``resource_classes``    ``/resource_classes``
``traits``              ``/traits``, and those of a provider
``providers``           ``/resource_providers``
``inventories``         ``/resource_providers/{uuid}/inventories``
``aggregates``          ``/resource_providers/{uuid}/aggregates``
``usages``              ``/usages``, and those of a provider
``allocations``         ``/allocations``, and those of a provider
``reshaper``            ``/reshaper``
``candidates``          ``/allocation_candidates``; ``exchanged``: those that only exchange
                        what is equal
``serving``             it under a server with several processes: ``resource-objects serve``
======================  ===========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazily

if TYPE_CHECKING:
    from resource_objects.rest.wsgi import application as application

__all__ = ["application"]

__getattr__, __dir__ = lazily(globals(), {"application": "wsgi"})
