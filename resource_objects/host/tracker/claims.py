"""Claims on a host: decided, held, confirmed or reverted."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from resource_objects.exceptions import ConsumerNotFound
from resource_objects.providers import Claim
from resource_objects.resources import Amounts

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


class State(enum.StrEnum):
    """Where a claim on a host stands; only what is held or confirmed is in the ledger."""

    PLANNED = "planned"
    HELD = "held"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"


@dataclasses.dataclass
class HostClaim:
    """What a consumer holds of a host, in the words of a tracker over what the ledger has.

    In a ``with`` statement it is given back if the block raises. It is the same claim in every
    process that reads it (:meth:`~resource_objects.host.tracker.ResourceTracker.claim` of the same
    consumer for the same): what it is, is in the ledger.
    """

    _ledger: Ledger
    host: str
    consumer: str
    amounts: Amounts
    state: State
    claim: Claim | None = None

    def __str__(self) -> str:
        return f"{self.consumer} on {self.host}: {self.state}, {self.amounts}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.revert()

    def confirm(self) -> None:
        """Say that the consumer runs: the claim is no more on trial. Once is enough."""
        self.claim = self._ledger.confirm(self.consumer)
        self.state = State.CONFIRMED

    def revert(self) -> None:
        """Give back what is held. Once is enough."""
        with contextlib.suppress(ConsumerNotFound):  # given back already: that is what was wanted
            self._ledger.release(self.consumer)
        self.claim, self.state = None, State.REVERTED
