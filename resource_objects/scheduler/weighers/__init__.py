"""Which hosts come first: each weigher in a file of its own.

==================  ===============================================================================
``base``            Weigher: the contract; how weighers become one key of the search's order
``free``            what hosts have free: pack or spread
``devices``         hosts with free devices are kept for who asks for some
``statistics``      what agents tell of their hosts
``traits``          traits that are welcome, or unwelcome
``affinity``        consumers of a group near each other, or apart, where that can be had
``fragmentation``   devices that stay most useful for what is usually asked (FGD)
``fragments``       how much placing a task fragments devices, for many hosts at once
==================  ===============================================================================

A weigher is an object with one method, ``weigh(host, spec)``, which returns a number: the higher,
the better. One that can say it of all hosts at once has ``weights(hosts, spec)`` besides. Each is
multiplied, and below 0 its order is turned round.
"""
