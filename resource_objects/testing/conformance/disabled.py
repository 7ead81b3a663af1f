"""Tests of disabled providers: no write allocates more there, and other writes are not affected."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from resource_objects.providers import Backend, Provider
from resource_objects.providers.disabled import (
    TRAIT,
    Disabled,
    DisabledChange,
    DisableOrder,
    ServiceState,
)
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import Operation, Write
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.races import ConcurrentKit, unless_refused
from resource_objects.testing.refusals import raises_code

#: longer than a write, and short enough to wait for
_SHORT = datetime.timedelta(seconds=2)


def disable(
    backend: Backend,
    uuid: str,
    reason: str = "fan",
    until: datetime.datetime | None = None,
    by: str | None = "admin",
) -> None:
    """Disable a provider."""
    _set_state(backend, DisableOrder(uuid, reason, until), actor=by)


def enable(backend: Backend, uuid: str) -> None:
    """Enable a provider."""
    _set_state(backend, DisableOrder(uuid))


def _set_state(backend: Backend, *disabling: DisableOrder, actor: str | None = None) -> None:
    operation, uuid = Operation(actor=actor), disabling[0].provider_uuid
    kind = "enable" if disabling[0].reason is None else "disable"
    backend.commit(Write(operation, kind, uuid, disabling=disabling))


def claim_until_refused(backend: Backend, uuid: str, consumer: str) -> int:
    """Claim until ten claims were refused; return the number of claims that succeeded."""
    won = refused = 0
    while refused < 10:
        amounts = {uuid: "VCPU=1"}
        if unless_refused("ProviderDisabled", kit.claim, backend, f"{consumer}-{won}", amounts):
            won += 1
        else:
            refused += 1
    return won


def _disabled(backend: Backend, name: str) -> Disabled | None:
    """Return the disabled state of a provider; check that both ways to read it agree."""
    listed = kit.listed_provider(backend, name)
    assert kit.ledger_state(backend).providers[name].disabled == listed.disabled
    return listed.disabled


def _named(backend: Backend, **request: Any) -> set[str]:
    return {listed.name for listed in backend.list_providers(ProviderFilter(**request), 100)}


class DisabledRules(ConcurrentKit):
    """Writes at disabled providers."""

    @pytest.fixture
    def names(self, backend: Backend) -> dict[str, str]:
        """Define two hosts, the first with two devices; return the uuids by name."""
        first = Provider("host0", "VCPU=8")
        for number in range(2):
            first.add(f"host0/gpu{number}", "PGPU=1")
        return kit.define(backend, first, Provider("host1", "VCPU=8"))

    def test_the_actor_time_and_reason_of_disabling_are_stored(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        assert _disabled(backend, "host0") is None
        first, cursor = backend.now(), backend.cursor()
        disable(backend, names["host0"])
        disabled = _disabled(backend, "host0")
        assert disabled is not None and first <= disabled.since <= backend.now()
        assert (disabled.reason, disabled.by, disabled.until) == ("fan", "admin", None)
        [entry] = backend.changes(cursor, 10)
        assert (entry.kind, entry.actor) == ("disable", "admin")
        assert entry.disabled == (DisabledChange(names["host0"], disabled),)
        with raises_code("InvalidField", match="until"):
            disable(backend, names["host0"], until=backend.now() - _SHORT)
        until = backend.now().replace(microsecond=0) + datetime.timedelta(days=1)
        disable(backend, names["host0"], "disk", until, by=None)
        again = _disabled(backend, "host0")
        assert again == Disabled(reason="disk", by=None, since=disabled.since, until=until)
        cursor = backend.cursor()
        enable(backend, names["host0"])
        enable(backend, names["host0"])
        assert _disabled(backend, "host0") is None
        entry, _ = backend.changes(cursor, 10)
        assert entry.disabled == (DisabledChange(names["host0"], None),)
        disable(backend, names["host0/gpu1"], "xid 79")
        disabled, host = _disabled(backend, "host0/gpu1"), Provider("host0", "VCPU=8")
        kit.define(backend, host)
        host.add("host0/gpu1", "PGPU=1")
        kit.define(backend, host)
        assert _disabled(backend, "host0/gpu1") == disabled is not None

    def test_disabling_with_a_time_limit_expires(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        here = names["host0"]
        disable(backend, here, until=backend.now() + _SHORT)
        with raises_code("ProviderDisabled"):
            kit.claim(backend, "job-1", {names["host0/gpu0"]: "PGPU=1"})
        assert _named(backend, required=frozenset([TRAIT])) == {"host0"}
        again = DisableOrder(here, "disk", was=ServiceState())
        with raises_code("StaleDefinition", match="was in service, now disabled until"):
            _set_state(backend, again)
        time.sleep(_SHORT.total_seconds() + 0.1)
        assert _disabled(backend, "host0") is None
        assert _named(backend, required=frozenset([TRAIT])) == set()
        kit.claim(backend, "job-1", {names["host0/gpu0"]: "PGPU=1"})
        _set_state(backend, again)
        disabled = _disabled(backend, "host0")
        assert disabled is not None and disabled.since > backend.now() - _SHORT

    def test_lists_filter_disabled_providers_by_a_trait(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        disable(backend, names["host0"])
        trait = frozenset([TRAIT])
        assert _named(backend, required=trait) == {"host0"}
        assert _named(backend, any_of=(trait | {"CUSTOM_A"},)) == {"host0"}
        assert _named(backend, forbidden=trait) == {"host1", "host0/gpu0", "host0/gpu1"}
        assert not kit.listed_provider(backend, "host0").traits  # the trait is not stored

    def test_no_claim_succeeds_after_disable_returned(
        self, backend: Backend, at_once: Callable[..., list[int]]
    ) -> None:
        uuid = kit.define(backend, Provider("host0", "VCPU=1000000"))["host0"]
        with ThreadPoolExecutor(1) as pool:
            claiming = pool.submit(at_once, claim_until_refused, *((uuid, name) for name in "ab"))
            while kit.ledger_state(backend).used("host0", "VCPU") < 10:
                assert not claiming.done()
            disable(backend, uuid)
            then = kit.ledger_state(backend)
            assert then.used("host0", "VCPU") == sum(claiming.result())
        assert kit.ledger_state(backend) == then
