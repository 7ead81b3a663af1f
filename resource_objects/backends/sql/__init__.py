"""A ledger in a SQL database: a SQLite file, PostgreSQL, MariaDB, Galera or MySQL.

==================  ===============================================================================
``backend``         SQLBackend: the contract, put together from what follows
``urls``            which URLs are served, and by which driver
``engine``          Database: connections and transactions; ``sqlite`` and ``server`` make one
``schema``          the tables
``migrations``      how a database gets them, and which library may use it
``errors``          what drivers raise, in the words of the library
``retry``           the one policy by which a whole transaction is tried again
``classes``         numbers of resource classes, traits and aggregates; ``names``: their changes
``read``            columns out; ``listing``, ``filters``, ``totals``: lists and sums
``commit``          a write, from its first lock to its last row, made of
``standing``        providers that must be unchanged, or report
``define``          definitions in: ``providers``, ``figures``, ``shares``, ``members``, ``kinds``
``places``          the inventories of orders: found, locked, changed
``decide``          yes or no, and the words for no
``consumers``       consumers with their claims; ``allocations``, ``units``: what they hold
``operations``      what makes a retry harmless
``feed``            the change feed, written and read; ``history``: what is forgotten
``statements``      compiled once, run on the driver; ``rows``: many rows in one statement
``chunks``          lists in parts that every database takes
==================  ===============================================================================

Statements are built once, when a module is imported, and run through SQLAlchemy's cache of
compiled SQL; there is no ORM.
"""
