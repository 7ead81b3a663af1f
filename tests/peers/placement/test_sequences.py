"""Random sequences of requests to Placement and to the service, in one process: the same answers.

Status, headers and bodies, and after each write all that both hold, are the same but for the
published table (:mod:`tests.peers.placement.peer_differences`), each row of which is met in its
smallest case. Where that leaves them with something else they begin again, empty.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jsonschema
import pytest

from benchmarks.peer import Placement
from resource_objects.rest import application
from resource_objects.rest.wsgi import Application
from tests.peers.placement import peer_differences, peer_sequences
from tests.peers.placement.peer_requests import (
    AGGREGATES,
    CONSUMERS,
    DISABLED,
    PROVIDERS,
    Asker,
    Sent,
    World,
    sent,
)
from tests.support.lengths import some

# other libraries' own, at import and at the first request
pytestmark = pytest.mark.filterwarnings("ignore")

SEQUENCES, LENGTH = 25, 50


def make() -> Application:
    return application("memory://", auth="noauth2", policy="secure")


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """Let Placement check no schema of its own again at each request: a third of its time."""
    with mock.patch.object(jsonschema.Draft202012Validator, "check_schema"):
        yield


@pytest.mark.parametrize("block", some(range(100), fast=4))
def test_random_sequences_are_answered_alike(
    placement: Placement, block: int, pytestconfig: pytest.Config
) -> None:
    answers: Counter[tuple[str, int]] = Counter()
    drawn = pytestconfig.getoption("--hypothesis-seed") or ""  # others with each
    for number in range(block * SEQUENCES, (block + 1) * SEQUENCES):
        seed = f"{drawn} {number}" if drawn else number
        ran = peer_sequences.chances(make, placement, seed, LENGTH)
        assert ran.unlike is None, peer_sequences.shortened(make, placement, ran)
        answers += ran.answers
    total = sum(answers.values())
    good = sum(count for (_, status), count in answers.items() if status == 2)
    assert total > 10 * SEQUENCES and 0.4 < good / total < 0.9


def test_all_routes_and_versions_are_asked() -> None:
    """Of the random requests, none of which is sent but those that make the fleet."""
    from placement import handler

    routes = {
        (method, path): re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        for path, methods in handler.ROUTE_DECLARATIONS.items()
        for method in methods
    }
    app = make()
    for one in Asker(random.Random(1)).build():
        one.answer(app)
    world = World(app.ledger)
    app.close()
    found, versions = set(), set()
    for seed in range(200):
        asker = Asker(random.Random(seed))
        for one in (asker.ask(world) for _ in range(LENGTH)):
            path = one.path.partition("?")[0]
            found |= {
                (method, route)
                for (method, route), pattern in routes.items()
                if method == one.method and pattern.fullmatch(path)
            }
            versions.add((f"{path}/".split("/")[1], one.headers.get("openstack-api-version")))
    assert found == set(routes)
    rooms = {route.split("/")[1] for _, route in routes if route.strip("/")}
    assert not {(one, f"placement 1.{n}") for one in rooms for n in range(40)} - versions


# --- the differences, each in its smallest case ---

HOST, JOB, RACK = PROVIDERS[0], CONSUMERS[0], AGGREGATES[0]
POOL = {"name": "pool", "uuid": PROVIDERS[2], "parent_provider_uuid": PROVIDERS[1]}
PATH = f"/resource_providers/{HOST}"


def put(what: str, generation: int | None = None, minor: int = 39, **said: Any) -> Sent:
    """Return a PUT at the host."""
    if generation is not None:
        said["resource_provider_generation"] = generation
    return sent("PUT", f"{PATH}{what}", said, minor)


def at_pool(what: str, generation: int, **said: Any) -> Sent:
    """Return a PUT at the pool."""
    said["resource_provider_generation"] = generation
    return sent("PUT", f"/resource_providers/{POOL['uuid']}{what}", said)


def claim(generation: int | None, **held: int) -> Sent:
    """Return what lets the job hold some of the host."""
    body = {
        "allocations": {HOST: {"resources": held}} if held else {},
        "consumer_generation": generation,
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "JOB",
    }
    return sent("PUT", f"/allocations/{JOB}", body)


def by(one: Sent, **headers: str | None) -> Sent:
    """Return a request with other headers."""
    made = dict(one.headers)
    for name, said in headers.items():
        made[name.replace("_", "-")] = said or ""
        if said is None:
            del made[name.replace("_", "-")]
    return Sent(one.method, one.path, one.body, made)


MADE = sent("POST", "/resource_providers", {"name": "host0", "uuid": HOST})
FULL = put("/inventories", 0, inventories={"VCPU": {"total": 8}})
HALF = {"total": 1, "reserved": 2, "allocation_ratio": 0.5}
CASES: dict[str, list[Sent]] = {
    "vary": [sent("GET", PATH)],
    "unauthorized": [by(sent("GET", PATH), x_auth_token=None)],
    "discovery": [by(sent("GET", ""), x_auth_token=None)],
    "html": [MADE, by(put("", name=7), accept="text/html,*/*;q=0.1")],
    "last_modified": [MADE, sent("GET", f"{PATH}/inventories")],
    "hidden": [sent("GET", f"/resource_providers?member_of={RACK}&resources=CUSTOM_Z:1")],
    "stuck": [MADE, FULL, claim(None), claim(None, VCPU=1)],
    "crash": [MADE, put("/inventories", 0, inventories={"": 1})],
    "nameless": [MADE, put("", name="")],
    "allow": [MADE, sent("DELETE", f"{PATH}/inventories", minor=4)],
    "unchecked": [MADE, put("/inventories", 0, inventories={"VCPU": HALF})],
    "policy": [
        MADE,
        by(put("", name="x"), x_auth_token="p:u", x_roles="reader", content_type="text/plain"),
    ],
    "spelling": [MADE, sent("GET", PATH.replace(HOST, HOST.upper()))],
    "in_use": [MADE, FULL, claim(None, VCPU=1), sent("DELETE", f"{PATH}/inventories/VCPU")],
    "empties": [
        MADE,
        FULL,
        sent(
            "GET",
            "/allocation_candidates?resources1=VCPU:1&required2=!HW_CPU_X86_AVX&group_policy=none"
            "&same_subtree=1,2",
        ),
    ],
    "forgets": [
        MADE,
        FULL,
        put("/traits", 1, traits=["HW_CPU_X86_AVX"]),
        sent("POST", "/resource_providers", {"name": "host1", "uuid": PROVIDERS[1]}),
        sent(
            "GET",
            "/allocation_candidates?resources1=VCPU:1&required2=HW_CPU_X86_AVX&group_policy=none"
            f"&in_tree2={PROVIDERS[1]}&same_subtree=1,2",
        ),
    ],
    "max_unit": [MADE, put("/inventories", 0, inventories={"VCPU": {"total": 8, "max_unit": 9}})],
    "huge": [sent("GET", f"/resource_providers?resources=VCPU:{2**63}")],
    "below": [
        MADE,
        FULL,
        put("/aggregates", 1, aggregates=[RACK]),
        sent("POST", "/resource_providers", {"name": "host1", "uuid": PROVIDERS[1]}),
        sent("POST", "/resource_providers", POOL),
        at_pool("/inventories", 0, inventories={"DISK_GB": {"total": 8}}),
        at_pool("/traits", 1, traits=["MISC_SHARES_VIA_AGGREGATE"]),
        at_pool("/aggregates", 2, aggregates=[RACK]),
        sent("GET", "/allocation_candidates?resources=VCPU:1,DISK_GB:1"),
    ],
    "length": [MADE, sent("DELETE", PATH)],
    "link": [sent("GET", "/")],
    "prefix": [sent("PUT", "/traits/CUSTOM_T1"), sent("GET", "/traits?name=startswith:CUSTOM%25")],
    "twice": [
        sent("GET", "/allocation_candidates?resources=VCPU:1&group_policy=x&group_policy=none")
    ],
    "newline": [sent("PUT", "/traits/CUSTOM_T1%0A")],
    "unprintable": [sent("POST", "/resource_providers", {"name": " host0"})],
    "disabled": [
        MADE,
        FULL,
        put("/traits", 1, traits=[DISABLED]),
        sent("GET", "/allocation_candidates?resources=VCPU:1"),
    ],
    "float": [
        MADE,
        put("/inventories", 0, inventories={"VCPU": {"total": 100, "allocation_ratio": 0.57}}),
        claim(None, VCPU=57),
    ],
}


def test_each_difference_has_a_case_or_a_test_of_its_own() -> None:
    here = {one.name for one in peer_differences.DIFFERENCES if one.file == "test_sequences.py"}
    assert here == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_difference_in_its_smallest_case(placement: Placement, name: str) -> None:
    peer_sequences.empty(placement)
    app = make()
    *before, last = CASES[name]
    for one in before:
        assert not peer_sequences.differs(placement, app, one).unknown
    told = peer_sequences.differs(placement, app, last)
    assert name in told.names and not told.unknown, told.unlike
    app.close()


def test_a_difference_that_is_not_published_is_found(placement: Placement) -> None:
    """An application that is wrong in one thing is noticed, and told by the requests it takes."""

    class Wrong(Application):
        def __call__(self, environ: Any, start_response: Any) -> Any:
            if environ["PATH_INFO"].endswith("/usages") and environ["REQUEST_METHOD"] == "GET":
                environ["PATH_INFO"] = "/resource_classes"
            return super().__call__(environ, start_response)

    def broken() -> Application:
        made = make()
        made.__class__ = Wrong
        return made

    found = [peer_sequences.chances(broken, placement, seed, LENGTH) for seed in range(10)]
    wrong = next(one for one in found if one.unlike is not None)
    told = peer_sequences.shortened(broken, placement, wrong)
    assert "usages" in told and told.count("\n") < 12
