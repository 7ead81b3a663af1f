"""Which hosts come first: each weigher in a file of its own.

==================  ===============================================================================
``base``            Weigher: the contract; how weighers become one key of the search's order
``free``            what hosts have free: pack or spread
==================  ===============================================================================

A weigher is an object with one method, ``weigh(host, spec)``, which returns a number: the higher,
the better. One that can say it of all hosts at once has ``weights(hosts, spec)`` besides. Each is
multiplied, and below 0 its order is turned round.
"""
