"""The conditions of a request on hosts, each in a module of its own.

A condition (``findings.Condition``) excludes hosts over the whole fleet by a mask, and adds the
reasons of the hosts that fail; both are in one class, so that filter and explanation cannot differ.
:mod:`~resource_objects.search.tree_solver` decides. The prefilter, the stages and the explanation
walk one list of conditions, ``problem.Problem.conditions``.

==================  ===============================================================================
``host``            the host itself: traits, aggregates, its tree, that it provides something
``disabled``        disabled providers provide nothing
``amounts``         one class as a count: by one provider, or by several devices
``shortage``        reasons that take the figures of single inventories
``located``         placed amounts, and devices near host cells
``traits``          required traits, for each of which some class answers
``together``        inventories that several classes use; all of the unnamed group at once
``near``            all of it from few domains of a level, or from one
``groups``          named groups, each provided by one provider
==================  ===============================================================================
"""
