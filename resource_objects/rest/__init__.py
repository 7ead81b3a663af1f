"""Placement's API over a ledger: a WSGI application (extra ``[rest]``).

    application = resource_objects.rest.application("sqlite:///lab.db", auth="noauth2")

Nothing below knows this room. A request is parsed into the ledger's own orders, and what is kept is
told in Placement's words; ``kept`` is the one place where the two differ. WebOb reads and writes
HTTP: microversion-parse and oslo.middleware, which this room needs anyway, bring it, and a table of
30 paths needs no framework (``doc/source/explanation/placement_api.rst`` says why which library).

======================  ===========================================================================
``wsgi``                the WSGI application: routes, and what is around all of them
``versions``            the microversion of a request
``asked``               one request: version, body, query, who asks; and replies to it
``errors``              refusals, in Placement's form and with its codes
``auth``                who asks; ``policy``: whether they may; ``reread``: files that these look at
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
``metrics``             a hook for what counts requests
``native``              ``/ro``: what that API cannot say (a room of its own)
``serving``             it under a server with several processes: ``resource-objects serve``;
                        ``worker``: one of these, in which nobody waits for a slow client
======================  ===========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazily

if TYPE_CHECKING:
    from resource_objects.rest.wsgi import application as application

__all__ = ["application"]

__getattr__, __dir__ = lazily(globals(), {"application": "wsgi"})
