"""Placement's API over a ledger: a WSGI application (extra ``[rest]``).

    application = resource_objects.rest.application("sqlite:///lab.db", auth="noauth2")

The service is a client of the ledger; no other package imports this one. WebOb reads and writes
HTTP messages. The routes are a table of 30 paths, which needs no framework
(``doc/source/explanation/placement_api.rst`` gives the reason for each library).

======================  ===========================================================================
``wsgi``                the WSGI application: routes, log, errors
``request``             one request: version, body, query; and the response
``errors``              errors in Placement's form, with its codes
``auth``                authentication; ``policy``: authorization; ``watched_file``: files that both
                        read again after a change
``schemas``             schemas of bodies and queries, by microversion
``translation``         providers, consumers and names in Placement's terms
``query_values``        query values of lists and candidates: resources, traits, aggregates
``root``                ``/``: the versions; ``/health``
``resource_classes``    ``/resource_classes``
``traits``              ``/traits``, and the traits of a provider
``providers``           ``/resource_providers``
``inventories``         ``/resource_providers/{uuid}/inventories``
``aggregates``          ``/resource_providers/{uuid}/aggregates``
``usages``              ``/usages``, and the usages of a provider
``allocations``         ``/allocations``, and the allocations of a provider
``reshaper``            ``/reshaper``
``candidates``          ``/allocation_candidates``; ``exchanges``: candidates that differ from
                        another one by an exchange of equal providers or groups
``metrics``             a hook that counts requests
``native``              ``/ro``: calls that Placement's API lacks
``serving``             several processes under gunicorn: ``resource-objects serve``; ``worker``:
                        one process, in which a slow client does not occupy a thread
======================  ===========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazy_attributes

if TYPE_CHECKING:
    from resource_objects.rest.wsgi import application as application

__all__ = ["application"]

__getattr__, __dir__ = lazy_attributes(globals(), {"application": "wsgi"})
