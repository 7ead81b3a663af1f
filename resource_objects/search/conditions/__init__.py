"""What a request asks of a host: each condition in a file of its own.

A condition (``base.Condition``) rules hosts out over the whole fleet at once by a mask, and tells
the figures by which one host does not meet it. Both stand together, so that filter and explanation
cannot differ; :mod:`~resource_objects.search.tree_solver` decides.
``problem.Problem.conditions`` is the list of them that the prefilter, the stages and the
explanation walk.

==================  ===============================================================================
``base``            by whose rules a request is read; what a condition is; who qualifies to give
``host``            the host itself: traits, aggregates, its tree, that it gives something
``disabled``        what is out of service gives nothing
``amounts``         one class as a count: by one provider, or by devices that share it
``located``         amounts that say where they go, and what has to be near what
``traits``          required traits, for each of which some class answers
``together``        what several sources draw on together; all of the unnamed group at once
``near``            all of it from few places of a level, or from one
``groups``          named groups, each given by one provider
``overdrawn``       reasons of classes that fit one by one, and not together
==================  ===============================================================================
"""
