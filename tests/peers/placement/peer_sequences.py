"""Random sequences of requests to Placement and to the service, in one process."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import webob
from microversion_parse import extract_version

from benchmarks.peer import Placement
from resource_objects.ledger import Ledger
from resource_objects.requests import Request
from resource_objects.rest import candidates, errors
from resource_objects.rest.request import ClientRequest
from resource_objects.rest.wsgi import Application
from tests.peers.placement import peer_differences, peer_state
from tests.peers.placement.peer_answers import Answer, Unlike
from tests.peers.placement.peer_requests import Asker, Sent, World

_LIMIT = re.compile("&?limit=[0-9]+")
_TABLES = (
    "allocations",
    "inventories",
    "resource_provider_traits",
    "resource_provider_aggregates",
    "placement_aggregates",
    "resource_providers",
    "consumers",
    "consumer_types",
    "projects",
    "users",
)


def empty(placement: Placement) -> None:
    """Remove all that clients made."""
    with placement.engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        for table in _TABLES:
            connection.exec_driver_sql(f"DELETE FROM {table}")
        for table in ("traits", "resource_classes"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE name LIKE 'CUSTOM%'")


@dataclasses.dataclass
class Ran:
    """The result of a sequence."""

    #: since both were empty
    sent: list[Sent] = dataclasses.field(default_factory=list)
    unlike: Unlike | None = None  #: the first difference that nothing explains
    explained: Counter[str] = dataclasses.field(default_factory=Counter)
    answers: Counter[tuple[str, int]] = dataclasses.field(default_factory=Counter)


@dataclasses.dataclass
class Told:
    """The answers of two applications to a request."""

    unlike: Unlike
    names: list[str]  #: of the differences that explain what differs
    is_apart: bool  #: whether both do not hold the same afterwards

    @property
    def unknown(self) -> bool:
        """Whether something differs that nothing explains."""
        return bool(self.unlike.where) and not self.names


def chances(
    make: Callable[[], Application], placement: Placement, seed: int | str, length: int
) -> Ran:
    """Send the random requests of a seed to both, beside those that make a fleet.

    Where a difference that is explained has left both with something else, they begin again, empty.
    """
    asker, ran, left = Asker(random.Random(seed)), Ran(), length
    while left and ran.unlike is None:
        ran.sent.clear()
        empty(placement)
        application = make()
        try:
            left = _run(placement, application, asker, ran, left)
        finally:
            application.close()
    return ran


def _run(placement: Placement, application: Application, asker: Asker, ran: Ran, left: int) -> int:
    """Send requests to both, until they are of different minds; return how many are left."""
    built = asker.build()
    while left:
        asked = next(built, None)
        if asked is None:
            asked = asker.ask(World(application.ledger))
            left -= 1
        told = differs(placement, application, asked)
        ran.sent.append(asked)
        ran.answers[f"{asked.method} {_route(asked)}", told.unlike.theirs.status // 100] += 1
        ran.explained.update(told.names)
        if told.unknown:
            ran.unlike = told.unlike
        if told.unknown or told.is_apart:
            break
    return left


def differs(placement: Placement, application: Application, asked: Sent) -> Told:
    """Ask both, and compare."""
    apps = placement.application, application
    theirs, ours = (Answer.of(asked.answer(app)) for app in apps)
    ours, is_new = _by_their_uuid(asked, theirs, ours)
    if _is_some(theirs, ours, application.ledger):
        every = dataclasses.replace(asked, path=_LIMIT.sub("", asked.path))
        theirs, ours = (Answer.of(every.answer(app)) for app in apps)
    unlike = Unlike(asked, theirs, ours)
    if not is_new and asked.method != "GET" and min(theirs.status, ours.status) < 300:
        state = peer_state.theirs(placement), peer_state.ours(application.ledger)
        unlike = dataclasses.replace(unlike, state=state)
    if not unlike.where:
        return Told(unlike, [], is_new)
    unlike = dataclasses.replace(
        unlike,
        request=_request(application, asked),
        out=peer_state.out_of_service(application.ledger),
        inexact=peer_state.inexact(application.ledger),
    )
    return Told(unlike, peer_differences.explained(unlike), is_new or "kept" in unlike.where)


def shortened(make: Callable[[], Application], placement: Placement, ran: Ran) -> str:
    """Return in words what differs, with the fewest requests before it that still show it."""
    assert ran.unlike is not None
    *before, last = ran.sent
    at = len(before)
    while at:
        at -= 1
        fewer = before[:at] + before[at + 1 :]
        if _still(make, placement, [*fewer, last], ran.unlike):
            before = fewer
    return "\n".join([f"{ran.unlike}", "after", *(f"  {one}" for one in before)])


def _still(
    make: Callable[[], Application], placement: Placement, some: list[Sent], unlike: Unlike
) -> bool:
    """Return whether a sequence ends in the same difference."""
    empty(placement)
    application = make()
    try:
        *before, last = some
        for one in before:
            told = differs(placement, application, one)
            if told.unknown or told.is_apart:
                return False
        told = differs(placement, application, last)
        return told.unknown and told.unlike.where == unlike.where
    finally:
        application.close()


def _request(application: Application, sent: Sent) -> Request | None:
    """Return the request as the service parses it; None if it is refused."""
    if sent.path.partition("?")[0] != "/allocation_candidates":
        return None
    http = webob.Request.blank(sent.path)
    try:
        http.environ[errors.VERSION] = extract_version(
            dict(sent.headers), "placement", errors.VERSIONS
        )
        return candidates.request_of(ClientRequest(http, application.ledger, {}))
    except (errors.Refused, ValueError, UnicodeDecodeError):
        return None


def _by_their_uuid(sent: Sent, theirs: Answer, ours: Answer) -> tuple[Answer, bool]:
    """Return our answer with the uuid that they made up, and whether there is one."""
    places = [one.headers.get("location") or "" for one in (theirs, ours)]
    made = [place.rpartition("/")[2] for place in places]
    if sent.method != "POST" or not all(made) or made[0] == made[1]:
        return ours, False

    def told(value: Any) -> Any:
        return json.loads(json.dumps(value).replace(made[1], made[0]))

    return dataclasses.replace(ours, headers=told(ours.headers), body=told(ours.body)), True


def _is_some(theirs: Answer, ours: Answer, ledger: Ledger) -> bool:
    """Return whether both list as many candidates, but others: a limit does not say which.

    Where providers are out of service there may be fewer here.
    """
    lists = [
        one.body.get("allocation_requests") if one.status == 200 and one.body else None
        for one in (theirs, ours)
    ]
    if lists[0] is None or lists[1] is None or lists[0] == lists[1]:
        return False
    return len(lists[0]) == len(lists[1]) or bool(peer_state.out_of_service(ledger))


def _route(sent: Sent) -> str:
    """Return the part of the path that says what of."""
    parts = f"{sent.path.partition('?')[0]}/".split("/")
    return parts[3] if len(parts) > 4 and parts[1] == "resource_providers" else parts[1]
