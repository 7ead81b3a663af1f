"""A remote Placement as a ledger (extra ``[placement]``, which is keystoneauth1).

    ledger = resource_objects.connect("placement+https://placement.example", session=session)

Reads are GET requests; writes are PUT, POST and DELETE requests that expect Placement's
generations. Placement cannot express some parts of a ledger; the backend refuses them by name
(``Capability``).

======================  ===========================================================================
``backend``             :class:`~resource_objects.backends.placement.backend.PlacementBackend`: the
                        methods of the backend contract
``client``              one request and its answer; sessions, URLs and errors
``codec``               the values of Placement and of a ledger: inventories, consumers, traits
``cache``               the states of providers, and which of them have to be read again
``allocations``         orders of consumers as requests, and the recovery from a lost answer
``definitions``         changes of providers as a repeatable sequence of requests
``unsupported``         what Placement cannot store; refused before the first request
======================  ===========================================================================
"""
