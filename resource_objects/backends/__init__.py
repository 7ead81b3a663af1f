"""The storage of ledgers: the backends that come with the library.

==================  ===============================================================================
``memory``          dicts under one lock, deleted when closed
``sql``             SQLite files, PostgreSQL, MariaDB, Galera and MySQL
``placement``       a remote Placement, by its HTTP API; it refuses what it cannot store
``retries``         the policy by which transactions and requests are tried again
==================  ===============================================================================

They keep the contract of :class:`resource_objects.providers.Backend`; others come from plug-ins of
the namespace ``resource_objects.backends``, and pass the same suite,
:mod:`resource_objects.testing.conformance`.
"""
