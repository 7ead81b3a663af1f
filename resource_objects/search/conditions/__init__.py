"""The conditions of a request on hosts, each in a module of its own.

A condition (``findings.Condition``) checks all hosts by arrays, and adds the reasons of the hosts
that fail; both are in one class, so that filter and explanation cannot differ.
:mod:`~resource_objects.search.tree_solver` decides. The prefilter, the stages and the explanation
walk one list of conditions, ``problem.Problem.conditions``.

==================  ===============================================================================
``host``            the host itself: traits, aggregates, its tree; disabled providers
``amounts``         one class as a count: by one provider, or by several devices
``shortage``        reasons that take the figures of single inventories
``located``         placed amounts, and devices near host cells
``unnamed``         the unnamed group: required traits, shared inventories, the joint decision
``near``            all of it from few domains of a level, or from one
``groups``          named groups, each provided by one provider
==================  ===============================================================================
"""
