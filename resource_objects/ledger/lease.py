"""A lease: a claim that expires, renewed while the program that made it runs.

The claim of a job whose machine or parent process ended then expires. A lease is renewed after a
third of its time, so two renewals may fail (Gray and Cheriton, *Leases*, SOSP 1989, on the term).
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

#: A lease is renewed after this part of its time.
_PART = 3
#: Seconds: the longest pause between two checks that the claim exists.
_CHECK_INTERVAL = 5.0

ErrorHook = Callable[[exceptions.ResourceObjectsError], object]


def _ignore(error: exceptions.ResourceObjectsError) -> None:
    """Ignore an error."""


class Lease:
    """A thread that renews a claim, from the start of a ``with`` block to its end.

    The thread renews the claim after each third of the time, and checks at least every five seconds
    that it still exists. The end of the block releases nothing. Cost: a thread, a small write for
    each renewal and a small read for each check.

    :param claim: what ``ledger.claim`` returned; a later claim of the consumer is not renewed
    :param expires_in: the time after each renewal
    :param lost: called once, from the thread, with the error when the claim no longer exists
        (``NotFound`` after a release, ``Stale`` for another claim of the consumer)
    :param failed: called with the error of each renewal that failed for another reason, such as an
        unreachable database. The thread tries again; the claim stays valid until its time is over
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
        lost: ErrorHook = _ignore,
        failed: ErrorHook = _ignore,
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
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def is_lost(self) -> bool:
        """Whether a renewal or a check found that the claim was released or replaced."""
        return self._is_lost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        part = self._expires_in.total_seconds() / _PART
        renewed = time.monotonic()
        while not self._end.wait(
            min(part, _CHECK_INTERVAL, max(0.0, renewed + part - time.monotonic()))
        ):
            try:
                if time.monotonic() >= renewed + part:
                    self._renew()
                    renewed = time.monotonic()
                else:
                    self._check()
            except exceptions.ResourceObjectsError as error:
                if error.matches("ConsumerNotFound", "StaleConsumer"):
                    self._is_lost = True
                    self._lost(error)
                    return
                self._failed(error)
                if self._end.wait(min(part, _CHECK_INTERVAL)):
                    return

    def _renew(self) -> None:
        claim = self._claim
        try:
            self._ledger.renew(claim.consumer, expires_in=self._expires_in, claim=claim.id)
        except exceptions.Stale as error:
            if not error.is_about("consumer"):
                raise
            self._check()  # if it does not raise, others changed the consumer and not its claim

    def _check(self) -> None:
        """Raise if the claim no longer exists."""
        claim = self._ledger.get_claim(self._claim.consumer)
        if claim.id != self._claim.id:
            raise exceptions.Stale("consumer", claim.consumer, f"it has another claim, {claim.id}")
