"""What is asked: requests and their groups. Pure: no I/O.

==================  ===============================================================================
``request``         Request and RequestGroup: the whole question, its groups and their conditions
``gang``            Gang and Member: many at once, all or nothing, near or far from each other
``query``           a request in Placement's query string, both ways
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.requests.gang import Gang, Member
from resource_objects.requests.request import Request, RequestGroup, RequestLike

__all__ = ["Gang", "Member", "Request", "RequestGroup", "RequestLike"]
