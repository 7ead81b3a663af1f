"""A ledger in a SQL database: a SQLite file, PostgreSQL, MariaDB, Galera or MySQL.

==================  ===============================================================================
``backend``         SQLBackend: the contract, and a write from its first lock to its last row
``urls``            which URLs are served, and the options that each driver takes
``engine``          connections and transactions of each database; ``psycopg_connection``: waits
``errors``          what drivers raise, in the words of the library
``tables``          the tables; ``migrations``: how a database gets them, and who may use it
``statements``      compiled once, run on the driver; many rows or several changes in one
``claims``          orders: ``places``: inventories locked and changed; ``consumers``: who holds
``operations``      what was done, and what came of it
``rows``            provider trees: locked and loaded for a write, and the differences written back
``disabled``        providers that are out of service, and the inventories that are so with them
``waiters``         who waits for something to be given back; ``statistics``: what agents tell
``server_groups``   consumers that are to be on one host, or on different ones
``names``           resource classes, traits and aggregates, by name and number
``reading``         columns out; ``lists``: pages and sums
``beginnings``      names by their beginning, in a hurry
``feed``            the change feed, written, read and forgotten
``use_over_time``   who used how much from when until when, and the switch that has it recorded
==================  ===============================================================================

Statements are built once, when a module is imported, and run through SQLAlchemy's cache of
compiled SQL; there is no ORM.
"""
