"""A remote Placement as a ledger (extra ``[placement]``, which is keystoneauth1).

    ledger = resource_objects.connect("placement+https://placement.example", session=session)

Reads become its GET requests, writes its PUT, POST and DELETE, with its generations. It has no
words for some of what a ledger keeps; that is refused by name (``Capability``).

======================  ===========================================================================
``backend``             :class:`~resource_objects.backends.placement.backend.PlacementBackend`: the
                        contract, method by method
``client``              one request and its answer; sessions and URLs; errors
``words``               Placement's words and ours: inventories, consumers, traits
``picture``             what was read of the providers, and what of it has to be read again
``allocations``         orders of consumers as requests; what becomes of one that was lost
``definitions``         changes of providers as requests, in an order that can be repeated
``absent``              what it cannot keep, and the refusal of it before anything is sent
======================  ===========================================================================
"""
