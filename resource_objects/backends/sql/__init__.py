"""A ledger in a SQL database: a SQLite file, PostgreSQL, MariaDB, Galera or MySQL.

==================  ===============================================================================
``backend``         SQLBackend: the contract, put together from what follows
``urls``            which URLs are served, and by which driver
``engine``          Database: connections and transactions; ``sqlite`` and ``server`` make one
``schema``          the tables
``migrations``      how a database gets them, and which library may use it
``errors``          what drivers raise, in the words of the library
``retry``           the one policy by which a whole transaction is tried again
``classes``         numbers of resource classes and traits
``read``            columns out
``define``          definitions in; ``figures``: of inventories
``claim``           claims, adjustments, releases: the hot path, made of
``places``          the inventories of a change: found, locked, changed
``decide``          yes or no, and the words for no
``consumers``       consumers with their claims and allocations
``operations``      what makes a retry harmless
``statements``      compiled once, run on the driver; ``chunks``: lists in parts
==================  ===============================================================================

Statements are built once, when a module is imported, and run through SQLAlchemy's cache of
compiled SQL; there is no ORM.
"""
