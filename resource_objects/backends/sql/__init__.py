"""A ledger in a SQL database: a SQLite file, PostgreSQL, MariaDB, Galera or MySQL.

==================  ===============================================================================
``backend``         SQLBackend: the contract, and a write from its first lock to its last row
``urls``            the URLs of databases, and the options of each driver
``engine``          connections and transactions of each database; ``psycopg_connection``: timeouts
``errors``          errors of drivers as exceptions of this library
``tables``          the schema; ``migrations``: its revisions, and which databases are accepted
``statements``      SQL as text with named marks; many rows in one statement; pipelines
``orders``          consumers and inventories: read, locked and written; recorded operations
``rows``            provider trees: locked and loaded for a write, and the differences written back
``waiters``         the queue; ``statistics``: figures that agents report
``names``           resource classes, traits, aggregates and server groups
``read``            bulk reads as columns; ``listing``: pages and totals
``completion``      names by their beginning, for shells
``feed``            the change feed, written, read and pruned
``use_over_time``   usage between two moments, computed from the change feed
==================  ===============================================================================

The statements of writes and bulk reads are text and go to the driver's cursor; SQLAlchemy Core has
the engines, pools, the schema and the filters. There is no ORM.
"""
