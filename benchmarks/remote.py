"""A remote Placement as a ledger: what the first read of it takes, and the looks after that.

Over HTTP, of our own service and, where it is installed, of the real Placement beside it: both as
in the part *service*, each on a file of SQLite with the same providers. Requests are counted where
they are sent. The service, the client and whatever else runs share the processors of one machine,
and no network is between them: over one add a round trip for each request, divided by as many as
are under way at once (8, unless the URL says another number).

Run by ``python -m benchmarks --only remote``, some minutes.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import requests.adapters
from keystoneauth1 import session as sessions
from keystoneauth1 import token_endpoint

import resource_objects as ro
from benchmarks import peer, service, service_sides
from benchmarks.measure import Row

TOUCHED = 10
WORKERS = 2
PEER = peer.NAME


class Taken(NamedTuple):
    """What something took: requests, seconds, and those of the processor on both sides."""

    what: str
    requests: int
    seconds: float
    here: float
    there: float


def rows() -> Iterator[Row]:
    """Yield what each service takes."""
    is_beside = importlib.util.find_spec("placement") is not None
    fleet = service.on_both if is_beside else service.on_ours
    with fleet("sqlite", "flat", service.HOSTS) as kept:
        with service_sides.ours(kept.mine, WORKERS) as served:
            mine = list(_measured(served))
        theirs: list[Taken | None] = [None] * len(mine)
        if is_beside:
            with service_sides.theirs(kept.other, WORKERS) as served:
                theirs = [*_measured(served)]
    for ours, other in zip(mine, theirs, strict=True):
        for name, unit in (("requests", ""), ("seconds", "s"), ("there", "s"), ("here", "s")):
            yield _row(ours, other, name, unit)


_SAID = {
    "requests": "requests",
    "seconds": "time",
    "there": "CPU of the service",
    "here": "CPU of the client",
}


def _row(ours: Taken, other: Taken | None, name: str, unit: str) -> Row:
    said = f"{ours.what}: {_SAID[name]}"
    if other is None:
        return Row(said, unit, getattr(ours, name))
    mine, theirs = getattr(ours, name), getattr(other, name)
    return Row(said, unit, mine, theirs, PEER, mine / theirs if theirs else None)


class _Counting(requests.adapters.HTTPAdapter):
    """Counts what is sent."""

    count = 0

    def send(self, *args: Any, **said: Any) -> requests.Response:
        self.count += 1
        return super().send(*args, **said)


def _opened(served: service_sides.Service) -> tuple[ro.Ledger, _Counting]:
    url, counting = f"http://127.0.0.1:{served.port}", _Counting()
    inner = requests.Session()
    inner.trust_env = False  # no proxies
    inner.mount("http://", counting)
    session = sessions.Session(auth=token_endpoint.Token(url, "admin"), session=inner)
    return ro.connect(f"placement+{url}", session=session), counting


def _measured(served: service_sides.Service) -> Iterator[Taken]:
    ledger, counting = _opened(served)

    def taken(what: str, once: Callable[[], object]) -> Taken:
        sent, there = counting.count, served.seconds()
        began, here = time.perf_counter(), time.process_time()
        once()
        return Taken(
            what,
            counting.count - sent,
            time.perf_counter() - began,
            time.process_time() - here,
            served.seconds() - there,
        )

    with ledger:
        yield taken(f"first read of {service.HOSTS:,} providers", ledger.snapshot)
        yield taken("a look, nothing changed", ledger.snapshot)
        names = [one.name for one in ledger.providers(limit=TOUCHED)]
        with _opened(served)[0] as other:
            for number, name in enumerate(names):
                other.claim(f"job-{number}", {name: service.PUT})
        yield taken(f"a look, {TOUCHED} providers changed", ledger.snapshot)
        found = ledger.snapshot().candidates(service.PUT, limit=3)
        yield taken("a claim", lambda: ledger.claim("job", found))
