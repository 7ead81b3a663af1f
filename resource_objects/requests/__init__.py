"""What is asked: requests and their groups. Pure: no I/O.

==================  ===============================================================================
``request``         Request: the whole question, ``request.resources`` over all groups
``group``           RequestGroup: amounts that share their conditions
``conditions``      traits, aggregates and trees of a group: how they are read
``query``           a request in Placement's query string, both ways
``query_words``     its keys; ``query_values``: their values
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.requests.group import RequestGroup
from resource_objects.requests.request import Request

__all__ = ["Request", "RequestGroup"]
