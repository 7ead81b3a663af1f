"""What a request asks of those who give: each condition in a file of its own.

A condition rules hosts out over the whole fleet at once (a mask), is decided exactly on one host,
and tells with figures why it fails. The three stand together, so that filter, decision and
explanation cannot differ (D13a).

==================  ===============================================================================
``base``            by whose rules a request is read; traits, aggregates and trees of who gives
``amounts``         one class as a count: by one provider, or by devices that share it
``contention``      what several sources draw on together
``located``         amounts that say where they go
``groups``          named groups, each given by one provider
==================  ===============================================================================
"""
