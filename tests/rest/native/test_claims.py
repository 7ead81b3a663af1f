"""``/ro/claims`` and ``/ro/consumers``: claims over HTTP are those of the ledger."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy
from resource_objects.search.findings import Findings
from tests.rest.native.conftest import Native, serving
from tests.search import device_fleets

OPERATION = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"


@given(st.integers(0, 2**32), st.booleans())
def test_devices_and_topologies_are_claimed_as_in_process(seed: int, by_candidate: bool) -> None:
    there, asked = device_fleets.fleet(seed)
    here, _ = device_fleets.fleet(seed)
    native = Native(serving(there))
    with there, here:
        found = native.do("POST", "/search", {"request": asked.to_dict()})["candidates"]
        body = {"consumer": "it", "request": asked.to_dict()}
        if by_candidate and found:
            body["candidate"] = found[0]
        try:
            expected = here.claim("it", here.snapshot().candidates(asked))
        except exceptions.NoCandidates as error:
            [told] = native.ask("POST", "/claims", body).json["errors"]
            assert (told["status"], told["code"]) == (409, "NoCandidates")
            assert len(told["reasons"]) == len(error.reasons)
            return
        made = native.do("POST", "/claims", body)
        assert _places(made) == _places(expected.to_dict())
        assert native.do("GET", "/consumers/it") == made == there.get_claim("it").to_dict()
        assert {k: str(v) for k, v in there.assigned_amounts("it").items()} == {
            k: str(v) for k, v in here.assigned_amounts("it").items()
        }
        assert _places(native.do("DELETE", "/consumers/it")) == _places(made)
        assert native.refused("GET", "/consumers/it") == (404, "ConsumerNotFound")


def _places(claim: dict[str, object]) -> object:
    allocations = claim["allocations"]
    assert isinstance(allocations, list)
    keys = ("provider", "resource_class", "amount", "units")
    return [[one[key] for key in keys] for one in allocations]


def test_allocations_that_name_units_are_taken_as_they_are(native: Native) -> None:
    host = ro.Provider("lab/0", "VCPU=8")
    devices = [
        ro.Device(f"0000:{n}0:00.0", "10de", "2330", resource_class="PGPU") for n in range(2)
    ]
    host.add_parts("DEVICES", ro.PCIInventory(devices))
    native.ledger.sync(host)
    taken = {"provider": "lab/0/0000:10:00.0", "resource_class": "PGPU", "amount": 1}
    taken["units"] = ["0000:10:00.0"]
    made = native.do("POST", "/claims", {"consumer": "a/b", "allocations": [taken]})
    assert made["allocations"][0]["units"] == ["0000:10:00.0"]
    body = {"consumer": "other", "allocations": [taken]}
    [told] = native.ask("POST", "/claims", body).json["errors"]
    assert (told["status"], told["reasons"][0]["holders"]) == (409, [["a/b", 1]])
    assert native.do("GET", "/consumers/a%2Fb") == native.do("GET", "/consumers/a/b") == made
    assert native.ledger.get_claim("a/b").to_dict() == made


def test_an_operation_that_is_sent_again_happens_once(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    body = {"consumer": "job", "request": "VCPU=6", "operation": OPERATION}
    made = native.do("POST", "/claims", body)
    assert native.do("POST", "/claims", body) == made
    assert native.ask("POST", "/claims", body).status_int == 201
    body["operation"] = str(uuid.uuid4())
    assert native.refused("POST", "/claims", body) == (409, "NoCandidates")
    body["request"] = "VCPU=1"
    assert native.refused("POST", "/claims", body) == (409, "ConsumerExists")


def test_a_claim_is_confirmed_renewed_replaced_and_listed(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=8"))
    body = {"request": "VCPU=2", "project": "lab", "user": "ann", "expires_in": 3600}
    made = native.do("POST", "/claims", {"consumer": "job-1", **body})
    assert (made["state"], made["project"]) == ("held", "lab")
    assert made["request"] == {"resources": "VCPU=2"}
    later = "2099-01-01T00:00:00+00:00"
    assert native.do("PATCH", "/consumers/job-1", {"expires_at": later})["expires_at"] == later
    stale = {"state": "confirmed", "generation": 0}
    assert native.refused("PATCH", "/consumers/job-1", stale) == (409, "StaleConsumer")
    confirmed = native.do("PATCH", "/consumers/job-1", {"state": "confirmed"})
    assert (confirmed["state"], confirmed["expires_at"]) == ("confirmed", None)
    # it would not fit beside itself
    whole = {"request": "VCPU=8", "at": "host0", "generation": confirmed["generation"]}
    grown = native.do("PUT", "/consumers/job-1", whole)
    assert _places(grown) == [["host0", "VCPU", 8, []]]
    assert native.refused("PUT", "/consumers/job-1", whole) == (409, "StaleConsumer")
    for number in (2, 3, 4):
        native.do("POST", "/claims", {"consumer": f"job-{number}", "request": "VCPU=1"})
    page = native.do("GET", "/consumers?limit=3")
    assert [one["consumer"] for one in page["consumers"]] == ["job-1", "job-2", "job-3"]
    rest = native.do("GET", f"/consumers?limit=3&after={page['after']}")
    assert ([one["consumer"] for one in rest["consumers"]], rest["after"]) == (["job-4"], None)
    mine = native.do("GET", "/consumers?project=lab&state=confirmed&tree=host0")["consumers"]
    assert mine == [grown]


def test_who_claims_is_told_by_the_feed(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    cursor = native.ledger.feed.cursor()
    headers = {"x-auth-token": "ann:lab", "x-roles": "admin"}
    native.ask("POST", "/claims", {"consumer": "job", "request": "VCPU=1"}, headers=headers)
    assert [one.actor for one in native.ledger.feed.changes(cursor)] == ["ann"]


def test_limits_bind_a_claim(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    body = {"consumer": "job", "request": "VCPU=3", "limits": {"host0": {"VCPU": 2}}}
    assert native.refused("POST", "/claims", body) == (409, "NoCandidates")
    body = {"consumer": "job", "request": "VCPU=3", "limits": {"host0": {"VCPU": 3}}}
    native.do("POST", "/claims", body)
    assert native.ledger.get_claim("job").allocations[0].amount == ro.IntegerAmount(3)


def test_what_was_out_of_service_is_taken_by_who_says_so(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    native.ledger.disable("host0", reason="fan")
    taken = [{"provider": "host0", "resource_class": "VCPU", "amount": 1}]
    body = {"consumer": "job", "allocations": taken}
    assert native.refused("POST", "/claims", body) == (409, "ProviderDisabled")
    native.do("POST", "/claims", {**body, "override_disabled": True})


def test_a_claim_waits_for_its_turn_if_there_is_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]
    ledger = ro.connect("memory://", retries=_by_hand(passed, lambda: None))
    with ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        ledger.claim("before", {"host0": "VCPU=8"})
        body = {"consumer": "job", "request": "VCPU=2", "wait": 20}
        nobody = Native(serving(ledger))
        assert nobody.refused("POST", "/claims", body) == (503, "NoPlaceToWait")
        assert nobody.ask("POST", "/claims", body).headers["retry-after"] == "1"
        native = Native(serving(ledger, threads=2))
        assert native.refused("POST", "/claims", body) == (409, "WaitTimedOut")
        assert passed[0] >= 20

        def give_back() -> None:
            if passed[0] > 30 and next(ledger.consumers(name="before"), None):
                ledger.release("before")

        again = Native(
            serving(ro.Ledger(ledger.backend, retries=_by_hand(passed, give_back)), threads=2)
        )
        assert again.do("POST", "/claims", body)["consumer"] == "job"
        assert passed[0] < 40


def _by_hand(passed: list[float], meanwhile: object) -> RetryPolicy:
    """Return a policy by which a pause takes no time, and something happens in it."""

    def sleep(seconds: float) -> None:
        passed[0] += seconds
        assert callable(meanwhile)
        meanwhile()

    return RetryPolicy(clock=lambda: passed[0], sleep=sleep)


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "request": st.sampled_from(["VCPU=1", "VCPU", {}, None]),
            "candidate": st.sampled_from([{}, {"host": "host0"}, None]),
            "allocations": st.sampled_from([[], [{}], None]),
            "wait": st.sampled_from([-1, 26, "1", True]),
            "expires_at": st.sampled_from(["soon", "2030-01-01", 7]),
            "operation": st.sampled_from(["x", 1]),
        },
    )
)
def test_what_cannot_be_claimed_is_refused(native: Native, body: dict[str, object]) -> None:
    if set(body) - {"request"} or body.get("request") != "VCPU=1":
        status, _ = native.refused("POST", "/claims", {"consumer": "job", **body})
        assert status == 400
    assert native.ask("POST", "/claims", body).status_int == 400  # for nobody


def test_a_past_expiry_or_two_are_refused(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    now = datetime.datetime.now(datetime.UTC).isoformat()
    body = {"consumer": "job", "request": "VCPU=1", "expires_at": now, "expires_in": 5}
    assert native.refused("POST", "/claims", body) == (400, "InvalidField")
    assert native.refused("PATCH", "/consumers/job", {}) == (400, "BadRequest")


def test_of_many_reasons_only_those_in_the_answer_are_computed(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    compute = Findings.by_tree

    def counted(self: Findings) -> Any:
        found = compute(self)
        computed.append(len(found))
        return found

    monkeypatch.setattr(Findings, "by_tree", counted)
    native.ledger.sync(*(ro.Provider(f"host{number:03}", "VCPU=8") for number in range(130)))
    body = {"consumer": "job", "request": "VCPU=9"}
    answer = native.ask("POST", "/claims", body)
    (error,) = answer.json["errors"]
    assert len(error["reasons"]) == 100 and error["more_reasons"] == 30
    assert [one["where"] for one in error["reasons"][:2]] == ["host000", "host001"]
    assert computed == [100]
