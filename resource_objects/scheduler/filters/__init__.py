"""What hosts have to meet: each filter in a file of its own.

==================  ===============================================================================
``base``            Filter: the contract; how a filter becomes a condition of the search
``hosts``           the hosts that the request names: only, forced, ignored, tried already
``aggregates``      what aggregates say: zones, tenants, what hosts are kept for, ratios
``capabilities``    what hosts can do, in the words of extra specs; ``operators``: these words
``affinity``        consumers of a group on one host, or apart
``statistics``      what agents tell of their hosts, and when they were heard of
==================  ===============================================================================

A filter is an object with one method, ``refuses(host, spec)``, which returns why a host is refused,
as text, or None. One that can say it of all hosts at once has ``passing(hosts, spec)`` besides.
What a host has room for no filter asks: counts, NUMA topologies, devices and every resource of a
plug-in are what the search itself decides, and cannot be left out.
"""
