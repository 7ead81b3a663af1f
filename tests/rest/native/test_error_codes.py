"""The error codes of the native API: clients compare them, so none may change.

:data:`REQUESTS` sends real requests to one service. :data:`CODES` has the answer to every exception
of the library, as a call answers it that raises one.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import webob

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.rest import application
from tests.ledger import device_hosts
from tests.rest.native.conftest import Native
from tests.test_exceptions import TYPES, examples

OPERATION = str(uuid.UUID(int=7))
GPU = "0000:10:00.0"
_DEVICE = {"provider": f"lab/{GPU}", "resource_class": "PGPU", "amount": 1}


def _function(number: int) -> dict[str, Any]:
    """Return an allocation of a virtual function by its address."""
    amount = {"resource_class": "SRIOV_NET_VF", "amount": 1}
    return {"provider": "lab/0000:20:00.0", **amount, "units": [f"0000:20:02.{number}"]}


def build(ledger: Ledger) -> None:
    """Define hosts, and let consumers use them, so that each request has its answer."""
    lab = ro.Provider("lab", "VCPU=8")
    devices = [ro.Device(GPU, "10de", "2330", resource_class="PGPU")]
    devices += device_hosts.card(0x20)
    lab.add_parts("DEVICES", ro.PCIInventory(devices))
    unit = ro.Provider("unit", "MEMORY_MB=64:min_unit=8:step_size=8", traits=["CUSTOM_A"])
    unit.add("unit/child", "CUSTOM_FPGA=1")
    ledger.sync(lab, ro.Provider("off", "DISK_GB=10"), ro.Provider("small", "VCPU=1"), unit)
    ledger.sync(ro.Provider("more", "VCPU=4"))
    ledger.disable("off", reason="fan")
    ledger.groups.ensure("apart", "anti-affinity")
    ledger.claim("whole", {"lab": "VCPU=8"})
    ledger.claim("gpu", [ro.Allocation.from_dict({**_DEVICE, "units": [GPU]})])
    ledger.claim("held", {"small": "VCPU=1"}, expires_in=datetime.timedelta(hours=1))
    ledger.claim("vf", [ro.Allocation.from_dict(_function(0))])
    ledger.claim("confirmed", {"more": "VCPU=1"}, operation=OPERATION, group="apart")
    ledger.claim("moving", {"unit": "MEMORY_MB=8"})
    ledger.claim("child", {"unit/child": "CUSTOM_FPGA=1"})
    ledger.move("moving", {"unit": "MEMORY_MB=16"}, source_consumer="left")


@pytest.fixture(scope="module")
def served() -> Iterator[Native]:
    app = application("memory://", auth="noauth2", policy="legacy", threads=2)
    build(app.ledger)
    yield Native(app)
    app.close()


def _claim(**body: Any) -> tuple[str, str, Any]:
    return "POST", "/claims", {"consumer": "new", **body}


def _at(provider: str, amount: int, resource_class: str = "VCPU", **more: Any) -> Any:
    return [{"provider": provider, "resource_class": resource_class, "amount": amount, **more}]


_ALL = {"inventories": "VCPU=8"}
#: Method, path and body of a request; the status and the code of its refusal.
REQUESTS = [
    # a request that is none
    (*("GET", "/nothing", None), 404, "NotFound"),
    (*("PATCH", "/search", {}), 405, "MethodNotAllowed"),
    (*("POST", "/search", b"{"), 400, "BadRequest"),
    (*("POST", "/search", {}), 400, "BadRequest"),
    (*("POST", "/search", {"request": "VCPU=1", "limit": 0}), 400, "BadRequest"),
    (*("POST", "/search?x=1", {"request": "VCPU=1"}), 400, "UnknownField"),
    (*("GET", "/consumers?user=a&user=b", None), 400, "DuplicateKey"),
    (*("GET", "/consumers?limit=0", None), 400, "BadRequest"),
    (*("GET", "/consumers?limit=%ff", None), 400, "BadRequest"),
    # values that cannot be
    (*("POST", "/search", {"request": "VCPU"}), 400, "InvalidText"),
    (*("POST", "/search", {"request": ""}), 400, "InvalidRequest"),
    (*("POST", "/search", {"request": "VCPU=-1"}), 400, "InvalidRequest"),
    (*("POST", "/search", {"request": "VCPU=1,VCPU=2"}), 400, "DuplicateKey"),
    (*("POST", "/search", {"request": "NOTHING=1"}), 400, "UnknownResourceClass"),
    (*("POST", "/search", {"request": "CUSTOM-A=1"}), 400, "InvalidResourceClass"),
    (*("POST", "/search", {"request": {"required": ["HW"]}}), 400, "UnknownTrait"),
    (*("POST", "/search", {"request": {"required": ["a b"]}}), 400, "InvalidTrait"),
    (*("POST", "/search", {"request": "DEVICES=1*"}), 400, "InvalidText"),
    (*("POST", "/search", {"request": "VCPU=1", "limits": {"lab": "X"}}), 400, "InvalidText"),
    (*("PATCH", "/consumers/held", {"expires_at": "soon"}), 400, "InvalidField"),
    (*("PUT", "/disabled/lab", {"reason": "x", "until": "soon"}), 400, "InvalidField"),
    (*("GET", "/providers?required=a%20b", None), 400, "InvalidTrait"),
    (*("GET", "/providers?room=VCPU", None), 400, "InvalidText"),
    (*("GET", "/feed?after=x", None), 400, "InvalidText"),
    (*("PUT", "/trees/lab", {"definition": {"inventories": "VCPU"}}), 400, "InvalidSite"),
    (*("PUT", "/trees/lab", {"definition": {"split": "thirds"}}), 400, "InvalidSite"),
    (*("PUT", "/trees/unit%2Fchild", {"definition": _ALL}), 400, "InvalidTree"),
    (*_claim(allocations=_at("lab", 1, units=["a", "a"])), 400, "DuplicateKey"),
    # what is not there
    (*("GET", "/consumers/nobody", None), 404, "ConsumerNotFound"),
    (*("DELETE", "/consumers/nobody", None), 404, "ConsumerNotFound"),
    (*("PATCH", "/consumers/nobody", {"state": "confirmed"}), 404, "ConsumerNotFound"),
    (*("GET", "/trees/nothing", None), 404, "ProviderNotFound"),
    (*("DELETE", "/trees/nothing", None), 404, "ProviderNotFound"),
    (*("PUT", "/disabled/nothing", {"reason": "x"}), 404, "ProviderNotFound"),
    (*("DELETE", "/disabled/nothing", None), 404, "ProviderNotFound"),
    (*("POST", "/search", {"request": "VCPU=1", "at": "nothing"}), 404, "ProviderNotFound"),
    (*_claim(allocations=[{**_DEVICE, "units": ["0000:99:00.0"]}]), 404, "UnitNotFound"),
    (*_claim(allocations=_at("nothing", 1)), 404, "ProviderNotFound"),
    (*_claim(allocations=_at("more", 1), group="nothing"), 404, "ServerGroupNotFound"),
    # no capacity
    (*_claim(request="VCPU=9"), 409, "NoCandidates"),
    (*("PUT", "/consumers/held", {"request": "VCPU=9"}), 409, "NoCandidates"),
    (*_claim(allocations=_at("lab", 1)), 409, "CapacityException"),
    (*_claim(allocations=_at("off", 1, "MEMORY_MB")), 409, "InventoryNotFound"),
    (*_claim(allocations=_at("unit", 4, "MEMORY_MB")), 409, "UnitRuleViolated"),
    (*_claim(allocations=_at("off", 1, "DISK_GB")), 409, "ProviderDisabled"),
    (*_claim(allocations=[_function(0)]), 409, "UnitTaken"),
    (*_claim(allocations=_at("more", 1), group="apart"), 409, "ServerGroupViolated"),
    (*_claim(request="VCPU=8", wait=1), 409, "WaitTimedOut"),
    # what is stored does not allow it
    (*("POST", "/claims", {"consumer": "held", "request": "VCPU=2"}), 409, "ConsumerExists"),
    (*("POST", "/claims", {"consumer": "moving", "request": "VCPU=2"}), 409, "ConsumerExists"),
    (*("PATCH", "/consumers/held", {"state": "confirmed", "generation": 9}), 409, "StaleConsumer"),
    (*("PUT", "/consumers/held", {"request": "VCPU=1", "generation": 9}), 409, "StaleConsumer"),
    (*("DELETE", f"/consumers/gpu?operation={OPERATION}", None), 409, "OperationConflict"),
    (*("DELETE", "/trees/lab", None), 409, "ProviderInUse"),
    (*("PUT", "/trees/small", {"definition": {"inventories": "DISK_GB=1"}}), 409, "InventoryInUse"),
    (
        *("PUT", "/trees/small", {"definition": _ALL, "generations": {"small": 9}}),
        409,
        "StaleDefinition",
    ),
    (*("GET", "/feed?after=7:0=1@5", None), 410, "CursorExpired"),
]


@pytest.mark.parametrize("method, path, body, status, code", REQUESTS)
def test_a_request_is_refused_with_its_code(
    served: Native, method: str, path: str, body: Any, status: int, code: str
) -> None:
    assert served.refused(method, path, body) == (status, code)


@pytest.mark.parametrize(
    "headers, body, status, code",
    [
        ({"x-auth-token": ""}, {"request": "VCPU=1"}, 401, "Unauthorized"),
        ({"x-auth-token": "bob:lab"}, {"request": "VCPU=1"}, 403, "Forbidden"),
        ({"openstack-api-version": "resource-objects 9.0"}, {"request": "VCPU=1"}, 406, None),
        ({"content-type": "text/plain"}, {"request": "VCPU=1"}, 415, "UnsupportedMediaType"),
        ({}, b"{" + b" " * (17 * 2**20) + b"}", 413, "RequestEntityTooLarge"),
    ],
)
def test_headers_and_sizes_are_refused_with_their_codes(
    served: Native, headers: dict[str, str], body: Any, status: int, code: str | None
) -> None:
    response = served.ask("POST", "/search", body, headers)
    [refusal] = response.json["errors"]
    assert (response.status_int, refusal["code"]) == (status, code or "NotAcceptable")


def test_a_wait_without_a_place_to_wait_is_refused_with_its_code() -> None:
    app = application("memory://", auth="noauth2", policy="legacy", threads=1)
    build(app.ledger)
    request = _claim(request="VCPU=8", wait=1)
    assert Native(app).refused(*request) == (503, "NoPlaceToWait")
    app.close()


def answer_to(served: Native, error: exceptions.ResourceObjectsError) -> tuple[int, str]:
    """Return the status and the code of the answer if a call raises an error."""
    request = webob.Request.blank("/ro/consumers/held", headers={"x-auth-token": "admin"})
    with mock.patch.object(Ledger, "get_claim", side_effect=error):
        response = request.get_response(served.app)
    return response.status_int, response.json["errors"][0]["code"]


#: The codes of the errors of the library, by the status of the answer. An error that only a fault
#: of the service raises is answered with 500 and another code.
CODES = {
    400: """
        InvalidInput InvalidField UnknownField InvalidPrimitive InvalidAmount WrongAmountKind
        NotAssigned ForeignAmount NegativeAmount InvalidInventory InvalidRatio InvalidResourceClass
        UnknownResourceClass InvalidTrait UnknownTrait InvalidName InvalidText DuplicateKey
        InvalidTree InvalidRequest InvalidMove InvalidURL InvalidRow InvalidRule InvalidSite
        InvalidTrace InvalidConfiguration InvalidAddress InvalidDevice
        """,
    404: """
        ProviderNotFound ConsumerNotFound UnitNotFound DeviceUnknown ClassNotFound TraitNotFound
        AggregateNotFound ServerGroupNotFound
        """,
    409: """
        CapacityException UnitRuleViolated InventoryNotFound UnitTaken ServerGroupViolated
        ProviderDisabled HostRefused NoCandidates WaitTimedOut LedgerError ProviderExists
        ProviderInUse InventoryInUse StaleDefinition ConsumerExists StaleConsumer MoveInProgress
        MoveNotFound MoveConfirmed MoveReverted UnitNotHeld ClassInUse TraitInUse AggregateInUse
        ServerGroupExists ServerGroupInUse NameExists StandardName CountedTwice InvalidPlan
        OperationConflict OperationExpired NotBound RequestRefused
        PartlyWritten BackendNotFound DiscoveryError
        """,
    410: "CursorExpired",
    500: """
        ResourceObjectsError FieldNotSet FrozenValue CannotDowngrade UnsupportedVersion PluginError
        PluginNotFound FilterFailed IncompatibleVersion ReadOnlyField
        """,
    501: "NotSupported",
    503: """
        SearchLimitReached LedgerClosed DatabaseUnavailable DatabaseReplaced DatabaseFull
        DatabaseDamaged ReadOnlyDatabase DatabaseBusy LostConnection SchemaTooNew SchemaTooOld
        """,
}


def test_every_error_is_answered_with_its_status_and_its_code(served: Native) -> None:
    every = {error.code: error for kind in TYPES for error in examples(kind)}
    wanted = {
        code: (status, "InternalServerError" if status == 500 else code)
        for status, codes in CODES.items()
        for code in codes.split()
    }
    assert {code: answer_to(served, every[code]) for code in sorted(every)} == wanted
