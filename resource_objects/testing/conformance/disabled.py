"""Tests of disabled providers: no write allocates more there, and other writes are not affected."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from resource_objects.exceptions import CapacityException
from resource_objects.providers import Backend, Provider
from resource_objects.providers.disabled import (
    TRAIT,
    Disabled,
    DisabledChange,
    DisableOrder,
    ServiceState,
)
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.pci import DeviceUse, PCIInventory
from resource_objects.testing.conformance.located import (
    CARD,
    CARD_AT,
    DEVICES,
    FUNCTION,
    PARTS,
    WHOLE,
    card,
    claim_one,
)
from resource_objects.testing.conformance.races import ConcurrentKit, unless_refused
from resource_objects.testing.conformance.suite import (
    Kit,
    claim,
    define,
    law,
    ledger_state,
    listed_provider,
    order,
    release,
)
from resource_objects.testing.refusals import is_one_of, raises_code

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
        if unless_refused("ProviderDisabled", claim, backend, f"{consumer}-{won}", amounts):
            won += 1
        else:
            refused += 1
    return won


def _disabled(backend: Backend, name: str) -> Disabled | None:
    """Return the disabled state of a provider; check that both ways to read it agree."""
    listed = listed_provider(backend, name)
    assert ledger_state(backend).providers[name].disabled == listed.disabled
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
        return define(backend, first, Provider("host1", "VCPU=8"))

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
        define(backend, host)
        host.add("host0/gpu1", "PGPU=1")
        define(backend, host)
        assert _disabled(backend, "host0/gpu1") == disabled is not None

    def test_disabling_with_a_time_limit_expires(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        here = names["host0"]
        disable(backend, here, until=backend.now() + _SHORT)
        with raises_code("ProviderDisabled"):
            claim(backend, "job-1", {names["host0/gpu0"]: "PGPU=1"})
        assert _named(backend, required=frozenset([TRAIT])) == {"host0"}
        again = DisableOrder(here, "disk", was=ServiceState())
        with raises_code("StaleDefinition", match="was in service, now disabled until"):
            _set_state(backend, again)
        time.sleep(_SHORT.total_seconds() + 0.1)
        assert _disabled(backend, "host0") is None
        assert _named(backend, required=frozenset([TRAIT])) == set()
        claim(backend, "job-1", {names["host0/gpu0"]: "PGPU=1"})
        _set_state(backend, again)
        disabled = _disabled(backend, "host0")
        assert disabled is not None and disabled.since > backend.now() - _SHORT

    @law(2)
    def test_a_write_can_demand_the_service_state(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        here, fan = names["host0"], ServiceState("fan")
        late = DisableOrder(here, "disk", was=fan), DisableOrder(names["host1"], "fan")
        before = ledger_state(backend)
        with raises_code("StaleDefinition", match="was disabled: fan, now in service") as refused:
            _set_state(backend, *late)
        assert refused.value.name == "host0"
        assert ledger_state(backend) == before
        disable(backend, here)
        _set_state(backend, *late)
        disabled = _disabled(backend, "host0")
        assert disabled is not None and disabled.reason == "disk"
        for was in (fan, ServiceState()):
            with raises_code("StaleDefinition", match="now disabled: disk"):
                _set_state(backend, DisableOrder(here, was=was))
        _set_state(backend, DisableOrder(here, was=ServiceState("disk")))
        assert _disabled(backend, "host0") is None

    def test_lists_filter_disabled_providers_by_a_trait(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        disable(backend, names["host0"])
        trait = frozenset([TRAIT])
        assert _named(backend, required=trait) == {"host0"}
        assert _named(backend, any_of=(trait | {"CUSTOM_A"},)) == {"host0"}
        assert _named(backend, forbidden=trait) == {"host1", "host0/gpu0", "host0/gpu1"}
        assert listed_provider(backend, "host0").traits == frozenset()  # the trait is not stored

    def test_no_claim_succeeds_after_disable_returned(
        self, backend: Backend, at_once: Callable[..., list[int]]
    ) -> None:
        uuid = define(backend, Provider("host0", "VCPU=1000000"))["host0"]
        with ThreadPoolExecutor(1) as pool:
            claiming = pool.submit(at_once, claim_until_refused, *((uuid, name) for name in "ab"))
            while ledger_state(backend).used("host0", "VCPU") < 10:
                assert not claiming.done()
            disable(backend, uuid)
            then = ledger_state(backend)
            assert then.used("host0", "VCPU") == sum(claiming.result())
        assert ledger_state(backend) == then


# --- devices that are removed ---


def _host_with_card(removed: str | None = None) -> Provider:
    """Return a host with a card of three functions, one of which can be removed."""
    usage = [] if removed is None else [DeviceUse(removed, "allocated", gone=True)]
    host = Provider("host0", "VCPU=8")
    host.add_parts(DEVICES, PCIInventory(card(1), usage=usage))
    return host


def _functions(uuid: str, *units: str) -> Use:
    return Use(uuid, FUNCTION, len(units), units)


class RemovedUnitRules(Kit):
    """Devices that are removed, disabled or allocated, and cards that return."""

    @pytest.fixture
    def card(self, backend: Backend) -> str:
        """Return the uuid of a card of three functions; the one of job-1 was removed."""
        uuid = define(backend, _host_with_card())[CARD_AT]
        claim_one(backend, "job-1", _functions(uuid, PARTS[1]))
        define(backend, _host_with_card(removed=PARTS[1]))
        return uuid

    @law(4)
    def test_a_removed_unit_counts_as_used_until_it_is_released(
        self, backend: Backend, card: str
    ) -> None:
        claim_one(backend, "job-2", _functions(card, PARTS[0], PARTS[2]))
        order(backend, ConsumerOrder.renew("job-1"))
        assert ledger_state(backend).used(CARD_AT, FUNCTION) == 3
        assert ledger_state(backend).units[CARD_AT, PARTS[1]] == (FUNCTION, "job-1")

    @law(4)
    @pytest.mark.parametrize("overrides", [False, True])
    def test_a_removed_unit_is_not_allocated_again(
        self, backend: Backend, card: str, overrides: bool
    ) -> None:
        release(backend, "job-1")
        before = ledger_state(backend)
        for use in (
            _functions(card, PARTS[1]),
            _functions(card, *PARTS),
            Use(card, CARD, 1, (WHOLE, *PARTS)),
        ):
            item = ConsumerOrder.claim("job-2", (use,), overrides_disabled=overrides)
            text = f"{CARD_AT}: {PARTS[1]} was removed from the host"
            with raises_code("ProviderDisabled", match=text) as refused:
                order(backend, item)
            reason = refused.value.reasons[-1]
            assert (reason.rule, reason.where, reason.unit) == (Rule.DISABLED, CARD_AT, PARTS[1])
        for use in (Use(card, FUNCTION, 3), Use(card, CARD, 1)):  # by amount, and through a share
            short, removed = _refusal(backend, use)
            assert (short.requested, short.bound, short.used, short.holders) == (3, 2, 0, ())
            assert removed.unit == PARTS[1]
        assert ledger_state(backend) == before
        enable(backend, card)
        _refusal(backend, Use(card, FUNCTION, 3))

    @law(6)
    def test_a_refusal_names_the_consumers_next_to_the_removed_unit(
        self, backend: Backend, card: str
    ) -> None:
        release(backend, "job-1")
        claim_one(backend, "job-1", _functions(card, PARTS[0]))
        claim_one(backend, "job-2", _functions(card, PARTS[2]))
        short, removed = _refusal(backend, Use(card, FUNCTION, 1))
        assert (short.requested, short.bound, short.used) == (1, 2, 2)
        assert short.holders == (("job-1", 1), ("job-2", 1))
        assert (removed.where, removed.unit) == (CARD_AT, PARTS[1])
        with pytest.raises(CapacityException) as named:  # also with allocations of others
            claim_one(backend, "job-3", _functions(card, *PARTS[:2]))
        short, taken, removed = named.value.reasons
        assert (short.rule, short.holders) == (Rule.CAPACITY, (("job-1", 1), ("job-2", 1)))
        assert (taken.rule, taken.holders) == (Rule.UNIT_TAKEN, (("job-1", 1),))
        assert (removed.rule, taken.unit, removed.unit) == (Rule.DISABLED, *PARTS[:2])
        release(backend, "job-1")
        claim_one(backend, "job-3", Use(card, FUNCTION, 1))

    @law(6)
    def test_the_tighter_of_a_limit_and_the_capacity_is_reported(
        self, backend: Backend, card: str
    ) -> None:
        release(backend, "job-1")
        item = ConsumerOrder.claim("job-2", (Use(card, FUNCTION, 3),))
        for limit, rules in ((1, [Rule.LIMIT]), (3, [Rule.CAPACITY, Rule.DISABLED])):
            with pytest.raises(CapacityException) as refused:
                order(backend, item, limits={(card, FUNCTION): limit})
            assert [reason.rule for reason in refused.value.reasons] == rules
            assert refused.value.reasons[0].bound == min(limit, 2)

    def test_consumers_may_exchange_a_removed_unit(self, backend: Backend, card: str) -> None:
        first, removed, last = ((_functions(card, unit),) for unit in PARTS)
        order(backend, ConsumerOrder.claim("job-2", first))
        order(
            backend, ConsumerOrder.replace("job-1", first), ConsumerOrder.replace("job-2", removed)
        )
        assert ledger_state(backend).units[CARD_AT, PARTS[1]] == (FUNCTION, "job-2")
        order(backend, ConsumerOrder.replace("job-2", last))
        with raises_code("ProviderDisabled"):
            order(backend, ConsumerOrder.replace("job-2", removed))


def _refusal(backend: Backend, use: Use) -> list[Reason]:
    """Return the two reasons of a refused amount: the missing capacity and the removed unit."""
    with pytest.raises(CapacityException) as refused:
        claim_one(backend, "refused", use)
    assert not is_one_of(refused.value, "ProviderDisabled")
    assert [reason.rule for reason in refused.value.reasons] == [Rule.CAPACITY, Rule.DISABLED]
    return list(refused.value.reasons)
