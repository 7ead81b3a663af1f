"""For those who test what they build on this library. Nothing here is imported by the rest.

===================  ==============================================================================
``canonical``        candidates that differ in names only: what a search lists once
``conformance``      the rules every backend keeps, as tests: subclass them for your own
``checker``          what must hold in the tables of a ledger, read by plain SQL
``drawing``          drawn trees: read, built in a ledger, and drawn again
``enumerator``       every candidate there is, by trying everything
``fleets``           small fleets that anything may be in, with requests, random or as strategies
``joint_reference``  a naive decision of host cells and devices together
``kept``             what columns say, provider by provider, for naive references
``kill``             writers that are killed at random, and a judge of what they leave behind
``laws``             which test proves which published law
``numa_reference``   a naive matcher of NUMA topologies, which tries everything
``numa_strategies``  Hypothesis strategies for hosts with NUMA cells, and what is asked of them
``pci_reference``    a naive matcher of PCI devices, which tries everything
``pci_strategies``   Hypothesis strategies for devices, and what is asked of them
``questions``        requests that a small fleet is asked, about half of them possible
``reference``        naive matchers: obviously right, for small inputs only
``requests``         Hypothesis strategies for requests, and for those a query or flavor can say
``scenario``         files that begin with a drawn tree and say who could hold what there, and why
``strategies``       Hypothesis strategies for amounts, inventories, ratios and names
===================  ==============================================================================

Each is imported by its own name. They need what the extra ``resource_objects[test]`` installs,
such as pytest and Hypothesis.
"""

from __future__ import annotations
