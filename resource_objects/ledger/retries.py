"""How often a write is tried again."""

from __future__ import annotations

import dataclasses

from resource_objects import exceptions


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a write is tried again after somebody else was faster.

    ``searches``: how many times ``claim`` looks for candidates afresh after all it was given are
    gone. ``definitions``: how many times anything that reads and then writes is done again after
    somebody wrote in between: ``sync`` and all that changes definitions compare again, ``reshape``
    is worked out again, ``move``, ``swap`` and ``renew`` read the consumer again. ``apply`` is not
    tried again: its plan holds for what it was made from.
    """

    searches: int = 3
    definitions: int = 5

    def __post_init__(self) -> None:
        for name in ("searches", "definitions"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise exceptions.InvalidField(f"RetryPolicy.{name}", value, "an integer from 0")
