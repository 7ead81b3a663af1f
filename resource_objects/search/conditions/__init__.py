"""What a request asks of a host: each condition in a file of its own.

A condition (``base.Condition``) rules hosts out over the whole fleet at once by a mask, says
whether one host meets it, and tells the figures by which it does not. The three stand together, so
that filter, decision and explanation cannot differ (D13a). ``problem.Problem.conditions`` is the
list of them that the prefilter, the stages and the explanation walk.

==================  ===============================================================================
``base``            by whose rules a request is read; what a condition is; who qualifies to give
``host``            the host itself: traits, aggregates, its tree, that it gives something
``disabled``        what is out of service gives nothing
``amounts``         one class as a count: by one provider, or by devices that share it
``units``           units that are asked for by name
``located``         amounts that say where they go, and what has to be near what
``traits``          required traits, for each of which some class answers
``contention``      what several sources draw on together
``together``        all of the unnamed group at once
``near``            all of it from few places of a level, or from one
``groups``          named groups, each given by one provider
==================  ===============================================================================
"""
