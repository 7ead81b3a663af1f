"""For those who test what they build on this library. Nothing here is imported by the rest.

===================  ==============================================================================
``conformance``      the rules every backend keeps, as tests: subclass them for your own
``checker``          what must hold in the tables of a ledger, read by plain SQL
``joint_reference``  a naive decision of host cells and devices together
``kill``             writers that are killed at random, and a judge of what they leave behind
``laws``             which test proves which published law
``numa_reference``   a naive matcher of NUMA topologies, which tries everything
``numa_strategies``  Hypothesis strategies for hosts with NUMA cells, and what is asked of them
``pci_reference``    a naive matcher of PCI devices, which tries everything
``pci_strategies``   Hypothesis strategies for devices, and what is asked of them
``reference``        naive matchers: obviously right, for small inputs only
``strategies``       Hypothesis strategies for amounts, inventories, ratios and names
===================  ==============================================================================

Each is imported by its own name. They need what the extra ``resource_objects[test]`` installs,
such as pytest and Hypothesis.
"""

from __future__ import annotations
