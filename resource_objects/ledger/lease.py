"""A lease: a claim that expires, renewed as long as somebody is there to renew it.

Whoever runs a job holds its claim by a lease, so that a job whose machine or whose starter is gone
does not hold what it held for ever. A third of the time is left for two renewals that fail
(Gray and Cheriton, *Leases*, SOSP 1989, on choosing the term).
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Self

from resource_objects import exceptions
from resource_objects.ledger.ledger import Ledger
from resource_objects.providers import Claim

__all__ = ["Lease"]

#: Renewed after this part of the time.
_PART = 3
#: Seconds: whether a claim is lost is looked up at least so often.
_LOOK = 5.0

Told = Callable[[exceptions.ResourceObjectsError], object]


def _ignore(error: exceptions.ResourceObjectsError) -> None:
    """Do nothing with what was told."""


class Lease:
    """Renews a claim from a thread, from when it is entered until it is left.

    It is renewed each third of the time, and looked up at least each five seconds. Leaving it
    releases nothing. Cost: a thread; a small write for a renewal, a small read for a look.

    :param claim: what ``ledger.claim`` returned; only that claim is renewed, not a later one of
        the same consumer
    :param expires_in: for how long it is renewed each time
    :param lost: called once, from the thread, when the claim is not there any more (released,
        or made anew by somebody), with ``ConsumerNotFound`` or ``StaleConsumer``
    :param failed: called when a renewal failed for another reason, as an unreachable database; it
        is tried again. Until the time is over nobody may take what is held
    :raises InvalidInput: if the time is not above 0

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(ro.Provider("host0", "VCPU=4"))
    ...     hour = datetime.timedelta(hours=1)
    ...     claim = ledger.claim("job-1", {"host0": "VCPU=1"}, expires_in=hour)
    ...     with Lease(ledger, claim, expires_in=hour) as lease:
    ...         lease.is_lost
    False
    """

    def __init__(
        self,
        ledger: Ledger,
        claim: Claim,
        *,
        expires_in: datetime.timedelta,
        lost: Told = _ignore,
        failed: Told = _ignore,
    ) -> None:
        if not isinstance(expires_in, datetime.timedelta) or expires_in <= datetime.timedelta():
            raise exceptions.InvalidInput("field", "expires_in", expires_in, "a time above 0")
        self._ledger = ledger
        self._claim = claim
        self._expires_in = expires_in
        self._lost = lost
        self._failed = failed
        self._end = threading.Event()
        self._is_lost = False
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    @property
    def is_lost(self) -> bool:
        """Whether the claim was found not to be there any more."""
        return self._is_lost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _keep(self) -> None:
        part = self._expires_in.total_seconds() / _PART
        renewed = time.monotonic()
        while not self._end.wait(min(part, _LOOK, max(0.0, renewed + part - time.monotonic()))):
            try:
                if time.monotonic() >= renewed + part:
                    self._renew()
                    renewed = time.monotonic()
                else:
                    self._look()
            except exceptions.ResourceObjectsError as error:
                if error.matches("ConsumerNotFound", "StaleConsumer"):
                    self._is_lost = True
                    self._lost(error)
                    return
                self._failed(error)
                if self._end.wait(min(part, _LOOK)):
                    return

    def _renew(self) -> None:
        claim = self._claim
        try:
            self._ledger.renew(claim.consumer, expires_in=self._expires_in, claim=claim.id)
        except exceptions.Stale as error:
            if not error.is_about("consumer"):
                raise
            self._look()  # or others only wrote it meanwhile, again and again

    def _look(self) -> None:
        """Raise if the claim is not there any more."""
        held = self._ledger.held(self._claim.consumer)
        if held.id != self._claim.id:
            raise exceptions.Stale("consumer", held.consumer, f"it has another claim, {held.id}")
