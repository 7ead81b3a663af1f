"""Requests for resources: amounts with conditions on their providers. Pure: no I/O.

==================  ===============================================================================
``request``         Request and RequestGroup, and the table of their conditions
``query``           a request as a query string of Placement
``gang``            Gang and Member: several requests that are placed at once or not at all
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.requests.gang import Gang, Member
from resource_objects.requests.request import (
    Request,
    RequestedCount,
    RequestGroup,
    RequestLike,
)

__all__ = ["Gang", "Member", "Request", "RequestGroup", "RequestLike", "RequestedCount"]
