"""A remote Placement as a ledger, against the service of this library in this process."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
import threading
import uuid
import wsgiref.simple_server
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from keystoneauth1 import fixture, identity
from keystoneauth1 import session as ksa_session

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.placement.backend import PlacementBackend
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.listing import By, ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape
from resource_objects.rest import application
from resource_objects.testing.refusals import is_one_of, raises_code
from tests.support import remote_fleets
from tests.support.wsgi_transport import WSGITransport, ledger_on, session_for

PAGES = pathlib.Path(__file__).parents[2] / "doc/source/howto"


EVERYBODY = ConsumerFilter()


@pytest.fixture
def transport() -> Iterator[WSGITransport]:
    """A transport to an empty service."""
    service = application("memory://", auth="noauth2", policy="open")
    yield WSGITransport(service)
    service.close()


@pytest.fixture
def ledger(transport: WSGITransport) -> Iterator[ro.Ledger]:
    """A ledger kept there."""
    with ledger_on(transport) as found:
        yield found


def writes(transport: WSGITransport) -> list[tuple[str, str]]:
    return [one for one in transport.asked if one[0] != "GET"]


def two_hosts(ledger: ro.Ledger) -> None:
    for n in range(2):
        host = ro.Provider(f"host{n}", "VCPU=8,MEMORY_MB=4096")
        host.add(f"host{n}/gpu", "PGPU=2", traits=["CUSTOM_H100"])
        ledger.sync(host)


# --- the whole way ---


def test_from_a_sync_by_a_search_to_a_release(ledger: ro.Ledger, transport: WSGITransport) -> None:
    two_hosts(ledger)
    job = ro.Request("VCPU=2,PGPU=2", required=["CUSTOM_H100"])
    for name in ("job-1", "job-2"):
        found = ledger.snapshot().candidates(job)
        del transport.asked[:]
        claim = ledger.claim(name, found)
        assert writes(transport) == transport.asked == [("PUT", f"/allocations/{claim.id}")]
    assert ledger.get_claim("job-2").allocations == claim.allocations
    refused = ledger.snapshot().candidates(job)
    assert not refused
    assert "PGPU requested 2, free 0 of 2 (job-1 holds 2)" in str(refused.explain())
    assert ledger.release("job-1").state == "released"
    assert ledger.snapshot().candidates(job)
    assert [one.name for one in ledger.consumers()] == ["job-2"]
    assert ledger.inventories("host1")["VCPU"].used + ledger.inventories("host0")["VCPU"].used == 2


def test_what_is_synced_again_sends_nothing(ledger: ro.Ledger, transport: WSGITransport) -> None:
    two_hosts(ledger)
    [tree, _] = ledger.trees()
    del transport.asked[:]
    assert not ledger.sync(tree)
    assert writes(transport) == []
    tree.find("host0/gpu").update(traits=["CUSTOM_H100", "CUSTOM_NVLINK"])
    assert ledger.sync(tree).updated == 1
    assert [path.rpartition("/")[2] for _, path in writes(transport)] == ["CUSTOM_NVLINK", "traits"]


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 40), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_a_search_on_what_was_read_is_as_on_a_local_ledger(seeds: range) -> None:
    possible = 0
    for seed in seeds:
        service = application("memory://", auth="noauth2", policy="open")
        transport = WSGITransport(service)
        with (
            ro.connect("memory://") as local,
            ledger_on(transport) as remote,
            ledger_on(transport) as reader,
        ):
            possible += remote_fleets.check(local, remote, reader, seed)
        service.close()
    asked = len(seeds) * remote_fleets.REQUESTS
    assert asked / 10 < possible < asked * 9 / 10


# --- what changed there ---


def test_a_look_is_one_request_and_four_for_each_provider_that_changed(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    first = ledger.snapshot()
    del transport.asked[:]
    assert ledger.snapshot() is first
    assert transport.asked == [("GET", "/resource_providers")]
    with ledger_on(transport) as other:
        other.claim("job", {"host1/gpu": "PGPU=1"})
    del transport.asked[:]
    second = ledger.snapshot()
    assert second.used("PGPU") == 1
    assert len(transport.asked) == 5
    with ledger_on(transport) as other:
        other.change("host1/gpu", name="gpu-1", parent="host0")  # which raises no generation
    del transport.asked[:]
    assert "host1: PGPU requested 9, there is none" in str(
        ledger.snapshot().candidates("PGPU=9").explain()
    )
    assert len(transport.asked) == 5


def test_what_raises_no_generation_is_missed_until_everything_is_read(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    job = str(uuid.uuid4())
    ledger.claim(job, {"host0": "VCPU=3"})
    assert ledger.snapshot().used("VCPU") == 3
    session_for(transport).delete(f"/allocations/{job}")
    assert ledger.snapshot().used("VCPU") == 3  # more than is used, never less
    ledger.backend.reread()  # type: ignore[attr-defined]
    assert ledger.snapshot().used("VCPU") == 0


def meanwhile(transport: WSGITransport, end: str, do: Callable[[], object]) -> None:
    """Let something happen once, after a request was carried out and before it is answered."""

    def before(method: str, path: str) -> Callable[[int], None] | None:
        if method != "GET" or not path.endswith(end):
            return None
        transport.before = lambda method, path: None
        return lambda status: do() and None

    transport.before = before


def test_who_reads_slowly_does_not_put_back_what_others_have_seen(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=3"})
    assert ledger.usage()["host0", "VCPU"].used == 3

    def another() -> None:
        ledger.move("job", {"host1": "VCPU=3"})  # which raises no generation of host0
        assert ledger.usage()["host0", "VCPU"].used == 0

    meanwhile(transport, "/allocations", another)
    ledger.inventories("host0")  # reads it as it was before that
    assert ledger.usage()["host0", "VCPU"].used == 0
    assert ledger.snapshot().used("VCPU") == 3


def test_who_reads_what_others_remove_has_it_as_it_was(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    ledger.snapshot()

    def another() -> None:
        ledger.remove("host1")
        ledger.snapshot()

    [gpu] = ledger.backend.uuids(["host1/gpu"]).values()
    meanwhile(transport, f"{gpu}/allocations", another)
    assert ledger.inventories("host1")["VCPU"].total == 8
    assert [one.name for one in ledger.trees()] == ["host0"]


def test_a_provider_that_is_claimed_of_all_the_time_is_read(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    with ledger_on(transport) as other:
        [place] = other.backend.uuids(["host0"]).values()
        jobs = iter(range(8))

        def before(method: str, path: str) -> None:
            if method == "GET" and f"{place}/" in path:
                transport.before = lambda method, path: None
                other.claim(f"job-{next(jobs)}", {"host0": "VCPU=1"})
                transport.before = before

        transport.before = before
        del transport.asked[:]
        found = ledger.inventories("host0")["VCPU"]
    asked = [path.rpartition("/")[2] for _, path in transport.asked if f"{place}/" in path]
    defines = ["inventories", "traits", "aggregates"]
    assert asked == [*defines, "allocations", *defines]
    assert (found.total, found.used) == (8, 4)
    transport.before = lambda method, path: None
    assert ledger.inventories("host0")["VCPU"].used == 7


@pytest.mark.parametrize("end", ["inventories", "traits", "aggregates", "allocations"])
def test_a_provider_that_is_defined_anew_meanwhile_is_read_as_it_is_then(
    ledger: ro.Ledger, transport: WSGITransport, end: str
) -> None:
    two_hosts(ledger)

    def another() -> None:
        with ledger_on(transport) as other:
            other.change("host1", inventories="VCPU=16,DISK_GB=5", traits=["CUSTOM_B"])

    [place] = ledger.backend.uuids(["host1"]).values()
    meanwhile(transport, f"{place}/{end}", another)
    found = ledger.provider("host1")
    assert (str(found.inventories), found.traits) in (
        ("VCPU=16,DISK_GB=5", frozenset({"CUSTOM_B"})),
        ("VCPU=8,MEMORY_MB=4096", frozenset()),  # it was all read before
    )
    assert end == "allocations" or "VCPU=16" in str(found.inventories)


def test_who_was_given_back_elsewhere_is_seen_when_consumers_are_listed(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    jobs = [str(uuid.uuid4()) for _ in range(3)]
    for job in jobs:
        ledger.claim(job, {"host0": "VCPU=1"})
    ledger.snapshot()
    session_for(transport).delete(f"/allocations/{jobs[0]}")
    assert not list(ledger.consumers(name=jobs, tree="nowhere"))
    assert {one.consumer for one in ledger.backend.list_consumers(EVERYBODY, 2)} <= set(jobs[1:])
    assert len(list(ledger.consumers())) == 2
    assert ledger.snapshot().used("VCPU") == 2


def test_freshness_is_never_claimed(ledger: ro.Ledger) -> None:
    two_hosts(ledger)
    assert not ledger.feed.is_fresh(ledger.snapshot())
    with pytest.raises(exceptions.NotSupported, match="change feed"):
        ledger.feed.cursor()


# --- what is said of consumers ---


def test_what_a_consumer_holds_is_told_in_one_order(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    """Whatever order the service tells it in."""
    two_hosts(ledger)
    app = transport.app

    def turned(environ: dict[str, Any], start_response: Any) -> Any:
        found = app(environ, start_response)
        if environ["REQUEST_METHOD"] != "GET" or "/allocations/" not in environ["PATH_INFO"]:
            return found
        body = json.loads(b"".join(found))
        held = body["allocations"]
        for one in held.values():
            one["resources"] = dict(reversed(one["resources"].items()))
        return [json.dumps(body | {"allocations": dict(reversed(held.items()))}).encode()]

    claim = ledger.claim("job", {"host1": "MEMORY_MB=5,VCPU=1", "host0": "MEMORY_MB=7,VCPU=2"})
    before = ledger.get_claim("job")
    transport.app = turned
    assert ledger.get_claim("job").allocations == before.allocations == claim.allocations


def test_a_consumer_keeps_what_is_said_of_it(ledger: ro.Ledger) -> None:
    two_hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"}, project="p", user="u", consumer_type="JOB")
    ledger.adjust("job", {"host0": "VCPU=1"})
    ledger.move("job", {"host1": "VCPU=2"})
    held = ledger.get_claim("job")
    assert (held.project, held.user, held.consumer_type) == ("p", "u", "JOB")
    ledger.replace("job", {"host1": "VCPU=1"}, project="q", consumer_type="INSTANCE")
    held = ledger.get_claim("job")
    assert (held.project, held.user, held.consumer_type) == ("q", "u", "INSTANCE")


def test_one_write_may_be_about_consumers_with_a_type_and_without(ledger: ro.Ledger) -> None:
    """As after an upgrade: those that were there before have none."""
    two_hosts(ledger)
    ledger.claim("old", {"host0": "VCPU=1"})
    ledger.claim("new", {"host1": "VCPU=2"}, consumer_type="JOB")
    ledger.swap("old", "new")
    assert (str(ledger.get_claim("old")), ledger.get_claim("old").consumer_type) == (
        "old holds VCPU=2 of host1",
        None,
    )
    assert (str(ledger.get_claim("new")), ledger.get_claim("new").consumer_type) == (
        "new holds VCPU=1 of host0",
        "JOB",
    )


def test_who_gets_a_type_beside_one_that_has_none_is_refused(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    ledger.claim("old", {"host0": "VCPU=1"})
    [place] = ledger.backend.uuids(["host0"]).values()
    orders = (
        ConsumerOrder.adjust("old", (Use(place, "VCPU", 1),)),
        ConsumerOrder.claim("new", (Use(place, "VCPU", 1),), consumer_type="JOB"),
    )
    del transport.asked[:]
    with pytest.raises(exceptions.NotSupported, match="consumer types"):
        ledger.backend.commit(Write(Operation(), "claim", "both", orders=orders))
    assert writes(transport) == []


def _renames(ledger: ro.Ledger, names: dict[str, str]) -> Write:
    """Return a write that renames providers, in this order."""
    rows = {row.name: row for row in ledger.backend.list_providers(ProviderFilter(), 10)}
    updates = []
    for name, new in names.items():
        row = rows[name]
        before = ProviderDefinition(row.uuid, name, None, row.records, row.traits)
        after = dataclasses.replace(before, name=new)
        updates.append(ProviderUpdate(after, row.generation, before))
    changes = DefinitionChanges("names", updates=tuple(updates))
    return Write(Operation(), "change", "names", changes)


def test_a_provider_can_get_the_name_that_another_one_leaves(ledger: ro.Ledger) -> None:
    for name in ("a", "b"):
        ledger.sync(ro.Provider(name, "VCPU=8"))
    ledger.backend.commit(_renames(ledger, {"a": "b", "b": "c"}))
    assert sorted(row.name for row in ledger.providers()) == ["b", "c"]


def test_providers_that_exchange_their_names_are_refused_before_a_request(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    for name in ("a", "b"):
        ledger.sync(ro.Provider(name, "VCPU=8"))
    write = _renames(ledger, {"a": "b", "b": "a"})
    del transport.asked[:]
    with raises_code("ProviderExists", match="exchange their names"):
        ledger.backend.commit(write)
    assert writes(transport) == []


# --- answers that are lost ---


def losing(
    transport: WSGITransport, method: str, *, after: bool, times: int = 1, end: str = ""
) -> list[str]:
    """Let requests of a method be lost, before they come or after they are carried out."""
    lost: list[str] = []

    def before(asked: str, path: str) -> Any:
        if asked != method or len(lost) >= times or not path.endswith(end):
            return None
        lost.append(path)
        if not after:
            raise requests.ConnectionError("it broke")

        def answered(status: int) -> None:
            raise requests.ConnectionError("it broke")

        return answered

    transport.before = before
    return lost


@pytest.mark.parametrize("after", [False, True])
def test_a_claim_whose_answer_was_lost_happens_once(
    ledger: ro.Ledger, transport: WSGITransport, after: bool
) -> None:
    two_hosts(ledger)
    lost = losing(transport, "PUT", after=after)
    assert ledger.claim("job", {"host0": "VCPU=3"}).generation == 1
    assert len(lost) == 1
    assert ledger.get_claim("job").generation == 1
    assert ledger.usage()["host0", "VCPU"].used == 3
    lost = losing(transport, "PUT", after=after)
    ledger.adjust("job", {"host0": "VCPU=-1"})
    assert ledger.usage()["host0", "VCPU"].used == 2
    lost = losing(transport, "PUT", after=after)
    ledger.release("job")
    assert (len(lost), list(ledger.consumers())) == (1, [])


def test_a_read_is_asked_again(ledger: ro.Ledger, transport: WSGITransport) -> None:
    losing(transport, "GET", after=True, times=1)
    assert list(ledger.providers()) == []


def test_a_definition_that_broke_off_is_told_and_done_by_a_repetition(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
    losing(transport, "POST", after=True)
    with raises_code("LostConnection", match="CUSTOM_A made"):
        ledger.sync(host)
    losing(transport, "PUT", after=True, end="/inventories")
    with raises_code("LostConnection", match="traits of host0"):
        ledger.sync(host)
    transport.before = lambda method, path: None
    ledger.sync(host)
    [found] = ledger.trees()
    assert (str(found.inventories), found.traits) == ("VCPU=8", frozenset({"CUSTOM_A"}))


def test_what_was_lost_while_others_wrote_is_told_as_unknown(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    job = str(uuid.uuid4())
    ledger.claim(job, {"host0": "VCPU=1"})

    def before(method: str, path: str) -> None:
        if method == "PUT":
            transport.before = lambda method, path: None
            with ledger_on(transport) as other:
                other.adjust(job, {"host0": "VCPU=2"})
            raise requests.ConnectionError("it broke")

    transport.before = before
    with raises_code("LostConnection", match="not known"):
        ledger.adjust(job, {"host0": "VCPU=1"})
    assert ledger.usage()["host0", "VCPU"].used == 3  # and is not done twice


def test_of_a_write_of_several_one_that_is_as_before_tells_that_nothing_was_done(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    [place] = ledger.backend.uuids(["host0"]).values()
    for name in ("a", "b"):
        ledger.claim(name, {"host0": "VCPU=1"})

    def before(method: str, path: str) -> None:
        if method == "POST":
            transport.before = lambda method, path: None
            with ledger_on(transport) as other:
                other.adjust("a", {"host0": "VCPU=1"})
            raise requests.ConnectionError("it broke")

    transport.before = before
    orders = tuple(ConsumerOrder.adjust(name, (Use(place, "VCPU", 1),)) for name in ("a", "b"))
    ledger.backend.commit(Write(Operation(), "adjust", "both", orders=orders))
    assert [str(ledger.get_claim(name)) for name in ("a", "b")] == [
        "a holds VCPU=3 of host0",
        "b holds VCPU=2 of host0",
    ]


def test_what_is_refused_half_way_is_told_by_name_and_done_by_a_repetition(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    app = transport.app

    def forbidding(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith("/inventories"):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"not you"]
        return app(environ, start_response)

    transport.app = forbidding
    host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
    with raises_code("PartlyWritten") as told:
        ledger.sync(host)
    done = "CUSTOM_A made, host0 created, traits of host0"
    assert str(told.value).startswith(
        f"host0 was written in part; repeat it: written before: {done}"
    )
    assert is_one_of(told.value.__cause__, "ReadOnlyDatabase")
    transport.app = app
    assert ledger.sync(host).updated == 1
    assert ledger.inventories("host0")["VCPU"].total == 8


def test_of_two_who_lost_their_answers_the_other_is_not_taken_for_this_one(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    """Who claims as much of the same for the same consumer in between is somebody else."""
    two_hosts(ledger)
    job = str(uuid.uuid4())

    def before(method: str, path: str) -> None:
        if method == "PUT":
            transport.before = lambda method, path: None
            with ledger_on(transport) as other:
                other.claim(job, {"host0": "VCPU=1"}, project="other")
            raise requests.ConnectionError("it broke")

    transport.before = before
    with raises_code("LostConnection", match="whether by this write is not known"):
        ledger.claim(job, {"host0": "VCPU=1"}, project="mine")
    assert ledger.get_claim(job).project == "other"


def test_the_same_operation_of_many_threads_is_done_once(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    [place] = ledger.backend.uuids(["host0"]).values()
    order = ConsumerOrder.adjust("job", (Use(place, "VCPU", 1),))
    operation = Operation()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = {
            one.result().generation
            for one in [pool.submit(ledger.backend.adjust, operation, order) for _ in range(12)]
        }
    assert found == {1}
    assert ledger.usage()["host0", "VCPU"].used == 1


def test_a_reshape_of_what_is_written_meanwhile_is_stale_at_once(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"})
    move = Move("host0", "VCPU", (Part("host0/cpus"),))
    times: list[str] = []

    def before(method: str, path: str) -> None:
        if path == "/reshaper":
            times.append(path)
            if len(times) == 1:
                with ledger_on(transport) as other:
                    other.claim("another", {"host0": "MEMORY_MB=1"})

    transport.before = before
    ledger.reshape(Reshape((move,), (NewProvider("host0/cpus", "host0"),)))
    assert len(times) == 2  # it was worked out again
    assert str(ledger.get_claim("job")) == "job holds VCPU=1 of host0/cpus"


def test_a_reshape_that_is_refused_leaves_nothing(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=8"})
    before = list(map(str, ledger.trees()))
    move = Move(
        "host0",
        "VCPU",
        (Part("host0/a", 7, consumers={"job": 7}), Part("host0/b", 1, consumers={"job": 1})),
    )
    new = (NewProvider("host0/a", "host0", traits=["CUSTOM_A"]), NewProvider("host0/b", "host0/a"))
    app = transport.app

    def full(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/reshaper":
            return app(environ, start_response)
        start_response("409 Conflict", [("Content-Type", "application/json")])
        return [b'{"errors": [{"status": 409, "detail": "it would violate what is not known"}]}']

    transport.app = full
    said = r"written before: CUSTOM_A made; then: .* 409: it would violate"
    with raises_code("PartlyWritten", match=said):
        ledger.reshape(Reshape((move,), new))
    assert list(map(str, ledger.trees())) == before
    transport.app = app
    ledger.reshape(Reshape((move,), new))
    assert str(ledger.get_claim("job")) == "job holds VCPU=7 of host0/a, VCPU=1 of host0/b"


def test_a_definition_of_which_a_generation_is_old_sends_nothing(
    ledger: ro.Ledger, transport: WSGITransport
) -> None:
    two_hosts(ledger)
    [tree, _] = ledger.trees()
    ledger.claim("job", {"host0": "VCPU=1"})  # which raises it
    tree.find("host0/gpu").update(inventories=ro.Inventories("PGPU=4"))
    tree.update(inventories=ro.Inventories("VCPU=16"))
    del transport.asked[:]
    with raises_code("StaleDefinition"):
        ledger.sync(tree)
    assert writes(transport) == []


# --- lists ---


def test_lists_are_what_is_there(ledger: ro.Ledger) -> None:
    rack = str(uuid.uuid4())
    for n in range(3):
        ledger.sync(ro.Provider(f"host{n}", "VCPU=8", aggregates=[rack, f"row-{n % 2}"]))
    ledger.claim("a", {"host0": "VCPU=2"}, project="p")
    ledger.claim("b", {"host0": "VCPU=1", "host1": "VCPU=4"}, project="q")
    listed = [one.name for one in ledger.providers(aggregates=[["row-0"]])]
    assert listed == ["host0", "host2"]
    assert [one.name for one in ledger.providers(room="VCPU=5")] == ["host0", "host2"]
    assert [one.name for one in ledger.consumers(project="q")] == ["b"]
    assert [one.name for one in ledger.consumers(provider="host1")] == ["b"]
    assert [one.name for one in ledger.consumers(limit=1, after="a")] == ["b"]
    assert {one.group: one.used for one in ledger.totals(by="provider")} == {"host0": 3, "host1": 4}
    assert {one.group: one.used for one in ledger.totals(by="project")} == {"p": 2, "q": 5}
    assert ledger.backend.count_consumers(EVERYBODY, By.PROJECT) == {"p": 1, "q": 1}
    assert ledger.backend.count_consumers(ConsumerFilter(provider="host1"), By.USER) == {None: 1}
    assert "CUSTOM_A" not in [one.name for one in ledger.names.traits.list()]
    ledger.names.traits.ensure("CUSTOM_A")
    assert "CUSTOM_A" in [one.name for one in ledger.names.traits.list()]


def test_what_is_used_over_the_capacity_is_listed(ledger: ro.Ledger) -> None:
    two_hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=6"})
    ledger.change("host0", inventories="VCPU=4,MEMORY_MB=4096")
    over = ledger.usage(over_capacity=True)
    assert over["host0", "VCPU"].used == 6
    assert len(list(over)) == 1
    assert [one.name for one in ledger.providers(over_capacity=True)] == ["host0"]


def test_an_older_placement_is_spoken_to_in_its_words(transport: WSGITransport) -> None:
    with ledger_on(transport, "workers=1&microversion=1.30") as ledger:
        two_hosts(ledger)
        ledger.claim("job", {"host0": "VCPU=1"})
        assert ledger.get_claim("job").consumer_type is None
        with pytest.raises(exceptions.NotSupported, match="consumer types"):
            ledger.claim("job-2", {"host0": "VCPU=1"}, consumer_type="JOB")
        with pytest.raises(exceptions.NotSupported, match="moved"):
            ledger.change("host1/gpu", parent="host0")


# --- opening it ---


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_url_over_a_socket_is_enough(transport: WSGITransport) -> None:
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, transport.app, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"placement+http://127.0.0.1:{server.server_port}?token=admin&workers=1"
        with ro.connect(url) as ledger:
            ledger.sync(ro.Provider("host0", "VCPU=2"))
            assert ledger.snapshot().candidates("VCPU=2")
        told = PlacementBackend.database_status(url)
        assert told["database"] == url.partition("?")[0].removeprefix("placement+")
        assert told["status"] == "Placement, by microversion 1.39"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "url",
    [
        "placement://",
        "placement://host",
        "placement+ftp://host",
        "placement+https://",
        "placement+https://host?depth=3",
        "placement+https://host?workers=0",
        "placement+https://host?microversion=1.29",
        "placement+https://host?microversion=2.39",
        "placement+https://host?timeout=0",
        "placement+https://host?timeout=nan",
        "placement+https://host?timeout=inf",
        "placement+https://host?workers=2&workers=3",
        "placement+https://host?region_name=one",
        "placement+https://me:word@host?token=admin",
        "placement+https://host:port",
        "placement+https://host#part",
    ],
)
def test_a_url_that_names_none_is_refused(url: str) -> None:
    with raises_code("InvalidURL"):
        ro.connect(url)


@pytest.mark.parametrize(
    "url",
    [
        "placement+https://host",  # it knows its endpoint
        "placement://?region_name=one",
        "placement://?interface=internal",
        "placement://?token=admin",
    ],
)
def test_a_url_says_nothing_that_an_adapter_says(transport: WSGITransport, url: str) -> None:
    with raises_code("InvalidURL"):
        ro.connect(url, session=session_for(transport))


@pytest.mark.parametrize("said", ["?token=admin", "me:word@host"])
def test_a_session_says_who_asks(transport: WSGITransport, said: str) -> None:
    host, _, query = said.partition("?")
    url = f"placement+https://{host or 'host'}?{query}"
    with raises_code("InvalidURL", match="the session authenticates"):
        ro.connect(url, session=session_for(transport).session)


def catalog_session(transport: WSGITransport) -> Any:
    """Return a session of somebody with a password, whose Keystone has Placement in its catalog."""
    token = fixture.V3Token()
    token.set_project_scope()
    placement = token.add_service("placement", name="placement")
    for region in ("one", "two"):
        for interface in ("public", "internal"):
            placement.add_endpoint(interface, f"http://{interface}.{region}", region=region)
    inner = requests.Session()
    inner.trust_env = False
    inner.mount("http://", transport)
    keystone = WSGITransport(
        lambda environ, start_response: (
            start_response("201 Created", [("X-Subject-Token", "of-somebody")]),
            [json.dumps(token).encode()],
        )[1]
    )
    inner.mount("http://keystone", keystone)
    auth = identity.V3Password("http://keystone/v3", username="me", password="word")
    return ksa_session.Session(auth=auth, session=inner)


@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("", "public.one"),
        ("?interface=internal", "internal.one"),
        ("?region_name=two", "public.two"),
        ("?region_name=two&interface=internal", "internal.two"),
    ],
)
def test_a_session_finds_it_in_its_catalog(transport: WSGITransport, query: str, host: str) -> None:
    found: list[tuple[str, str]] = []
    app = transport.app

    def noted(environ: dict[str, Any], start_response: Any) -> Any:
        found.append((environ["SERVER_NAME"], environ["HTTP_X_AUTH_TOKEN"]))
        return app(environ | {"HTTP_X_ROLES": "admin"}, start_response)

    transport.app = noted
    with ro.connect(f"placement://{query}", session=catalog_session(transport)) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=2"))
        assert ledger.snapshot().candidates("VCPU=2")
    assert set(found) == {(host, "of-somebody")}


def test_what_is_in_no_catalog_cannot_be_ledger_on(transport: WSGITransport) -> None:
    with raises_code("DatabaseUnavailable", match="three"):
        ro.connect("placement://?region_name=three", session=catalog_session(transport))
    assert not transport.asked


def test_a_session_is_one_of_keystoneauth(transport: WSGITransport) -> None:
    with raises_code("InvalidField", match="keystoneauth1"):
        ro.connect("placement://", session=requests.Session())
    with raises_code("InvalidURL"):
        ro.connect("memory://", session=session_for(transport))


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "200 OK"])
def test_what_does_not_answer_as_a_placement_cannot_be_opened(status: str) -> None:
    def other(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response(status, [("Content-Type", "text/html")])
        return [b"<html>welcome</html>"]

    with raises_code("DatabaseUnavailable", match=status[:3]):
        ledger_on(WSGITransport(other))


def test_where_nobody_answers_it_cannot_be_opened() -> None:
    with raises_code("DatabaseUnavailable", match="127"):
        ro.connect("placement+http://me:secret@127.0.0.1:1/placement")
