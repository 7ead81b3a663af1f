"""Tests of disabled providers: no write allocates more there, and other writes are not affected."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
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
from resource_objects.resources.pci import Device, DeviceUse, PCIInventory
from resource_objects.testing.conformance.races import processes
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    Kit,
    claim,
    define,
    deltas,
    law,
    ledger_state,
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
    disable_order = DisableOrder(uuid, reason, until)
    backend.commit(Write(Operation(actor=by), "disable", uuid, disabling=(disable_order,)))


def enable(backend: Backend, uuid: str) -> None:
    """Enable a provider."""
    disable_order = DisableOrder(uuid)
    backend.commit(Write(Operation(), "enable", uuid, disabling=(disable_order,)))


def claim_until_refused(backend: Backend, uuid: str, consumer: str) -> int:
    """Claim until ten claims were refused; return the number of claims that succeeded."""
    won = refused = 0
    while refused < 10:
        try:
            claim(backend, f"{consumer}-{won}", {uuid: "VCPU=1"})
            won += 1
        except CapacityException as error:
            if error.code != "ProviderDisabled":
                raise
            refused += 1
    return won


def claim_elsewhere(backend_class: type[Backend], url: str, uuid: str, consumer: str) -> int:
    """Open a ledger and run :func:`claim_until_refused` in another process."""
    backend = backend_class.open(url)
    try:
        return claim_until_refused(backend, uuid, consumer)
    finally:
        backend.close()


def _of(backend: Backend, name: str) -> Disabled | None:
    """Return the disabled state of a provider; check that both ways to read it agree."""
    [listed] = backend.list_providers(ProviderFilter(names=frozenset([name])), 2)
    assert ledger_state(backend).providers[name].disabled == listed.disabled
    return listed.disabled


def _named(backend: Backend, **request: Any) -> set[str]:
    return {listed.name for listed in backend.list_providers(ProviderFilter(**request), 100)}


class DisabledRules(Kit):
    """Writes at disabled providers."""

    @pytest.fixture
    def names(self, backend: Backend) -> dict[str, str]:
        """Define two hosts, the first with two devices; return the uuids by name."""
        item, two = Provider("host0", "VCPU=8"), Provider("host1", "VCPU=8")
        for number in range(2):
            item.add(f"host0/gpu{number}", "PGPU=1")
        return define(backend, item, two)

    def test_an_order_can_override_a_disabled_provider_and_the_feed_records_it(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        disable(backend, names["host0"])
        cursor = backend.cursor()
        expected = {names["host0"]: "VCPU=1", names["host1"]: "VCPU=1"}
        consumer_order = ConsumerOrder.claim("job-1", deltas(expected), overrides_disabled=True)
        backend.claim(Operation(actor="root"), consumer_order)
        entries = backend.changes(cursor, 10)
        assert {entry.actor for entry in entries} == {"root"}
        assert {uuid for entry in entries for uuid in entry.overrides} == {names["host0"]}
        cursor = backend.cursor()
        order(backend, ConsumerOrder.adjust("job-1", deltas({names["host1"]: "VCPU=1"})))
        assert [entry.overrides for entry in backend.changes(cursor, 10)] == [()]

    def test_the_actor_time_and_reason_of_disabling_are_stored(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        assert _of(backend, "host0") is None
        first = backend.now()
        disable(backend, names["host0"])
        disabled = _of(backend, "host0")
        assert disabled is not None and first <= disabled.since <= backend.now()
        assert (disabled.reason, disabled.by, disabled.until) == ("fan", "admin", None)
        until = backend.now().replace(microsecond=0) + datetime.timedelta(days=1)
        disable(backend, names["host0"], "disk", until, by=None)
        again = _of(backend, "host0")
        assert again == Disabled(reason="disk", by=None, since=disabled.since, until=until)
        enable(backend, names["host0"])
        enable(backend, names["host0"])
        assert _of(backend, "host0") is None
        claim(backend, "job-1", {names["host0"]: "VCPU=1", names["host0/gpu0"]: "PGPU=1"})

    def test_disabling_counts_as_a_write_of_the_definition(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        """Count each change between enabled and disabled once, as Placement counts a trait."""
        uuid = names["host0"]

        def writes() -> int:
            provider_filter = ProviderFilter(uuids=frozenset([uuid]))
            [result] = backend.list_providers(provider_filter, 1)
            return result.definition_writes

        before = writes()
        disable(backend, uuid)
        disable(backend, uuid, "another reason")
        assert writes() == before + 1
        enable(backend, uuid)
        enable(backend, uuid)
        assert writes() == before + 2

    def test_disabling_with_a_time_limit_expires(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        here, until = names["host0"], backend.now() + _SHORT
        disable(backend, here, until=until)
        with raises_code("ProviderDisabled"):
            claim(backend, "job-1", {names["host0/gpu0"]: "PGPU=1"})
        assert _named(backend, required=frozenset([TRAIT])) == {"host0"}
        again = DisableOrder(here, "disk", was=ServiceState())
        with raises_code("StaleDefinition", match="was in service, now disabled until"):
            backend.commit(Write(Operation(), "disable", here, disabling=(again,)))
        time.sleep(_SHORT.total_seconds() + 0.1)
        assert _of(backend, "host0") is None
        assert _named(backend, required=frozenset([TRAIT])) == set()
        claim(backend, "job-1", {names["host0/gpu0"]: "PGPU=1"})
        backend.commit(Write(Operation(), "disable", here, disabling=(again,)))
        disabled = _of(backend, "host0")
        assert disabled is not None and disabled.since > backend.now() - _SHORT

    def test_disabling_until_a_past_moment_or_at_an_unknown_provider_is_refused(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        before = ledger_state(backend)
        with raises_code("InvalidField", match="until"):
            disable(backend, names["host0"], until=backend.now() - _SHORT)
        removed = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
        with raises_code("ProviderNotFound"):
            disable(backend, removed)
        assert ledger_state(backend) == before

    def test_the_feed_records_disabling_and_enabling(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        cursor = backend.cursor()
        disable(backend, names["host0"])
        enable(backend, names["host0"])
        put_out, put_in = backend.changes(cursor, 10)
        assert (put_out.kind, put_out.actor) == ("disable", "admin")
        [reported] = put_out.disabled
        assert reported.provider_uuid == names["host0"] and reported.disabled is not None
        assert (reported.disabled.reason, reported.disabled.by) == ("fan", "admin")
        assert put_in.disabled == (DisabledChange(names["host0"], None),)
        assert put_out.providers == put_in.providers == (names["host0"],)

    @law(2)
    def test_a_write_can_demand_the_service_state(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        here, fan = names["host0"], ServiceState("fan")
        late = DisableOrder(here, "disk", was=fan), DisableOrder(names["host1"], "fan")
        before = ledger_state(backend)
        with raises_code("StaleDefinition") as refused:
            backend.commit(Write(Operation(), "disable", here, disabling=late))
        assert refused.value.name == "host0"
        assert "was disabled: fan, now in service" in str(refused.value)
        assert ledger_state(backend) == before
        disable(backend, here)
        backend.commit(Write(Operation(), "disable", here, disabling=late))
        disabled = _of(backend, "host0")
        assert disabled is not None and disabled.reason == "disk"
        for was in (fan, ServiceState()):
            order = DisableOrder(here, was=was)
            with raises_code("StaleDefinition", match="now disabled: disk"):
                backend.commit(Write(Operation(), "enable", here, disabling=(order,)))
        order = DisableOrder(here, was=ServiceState("disk"))
        backend.commit(Write(Operation(), "enable", here, disabling=(order,)))
        assert _of(backend, "host0") is None

    def test_lists_filter_disabled_providers_by_a_trait(
        self, backend: Backend, names: dict[str, str]
    ) -> None:
        disable(backend, names["host0"])
        trait = frozenset([TRAIT])
        assert _named(backend, required=trait) == {"host0"}
        assert _named(backend, any_of=(trait | {"CUSTOM_A"},)) == {"host0"}
        assert _named(backend, forbidden=trait) == {"host1", "host0/gpu0", "host0/gpu1"}
        [listed] = backend.list_providers(ProviderFilter(names=frozenset(["host0"])), 1)
        assert listed.traits == frozenset()  # the trait is not stored

    def test_no_thread_claims_after_it_was_disabled(self, backend: Backend) -> None:
        here = define(backend, Provider("host0", "VCPU=1000000"))["host0"]
        with ThreadPoolExecutor(2) as threads:
            claiming = [
                threads.submit(claim_until_refused, backend, here, consumer) for consumer in "ab"
            ]
            _disable_beside(backend, here, claiming)

    @requires(Requirement.PROCESSES)
    def test_no_process_claims_after_it_was_disabled(self, backend: Backend, url: str) -> None:
        here = define(backend, Provider("host0", "VCPU=1000000"))["host0"]
        with ProcessPoolExecutor(2, mp_context=processes()) as pool:
            claiming = [
                pool.submit(claim_elsewhere, self.backend_class, url, here, consumer)
                for consumer in "ab"
            ]
            _disable_beside(backend, here, claiming)


class RemovedProviderRules(Kit):
    """A disabled provider that is removed is disabled again when it is created again."""

    def test_a_disabled_card_that_returns_is_still_disabled(self, backend: Backend) -> None:
        card = define(backend, _card_host())
        disable(backend, card[_AT], "link")
        facts = _of(backend, _AT)
        host = define(backend, Provider("host0", "VCPU=8"))["host0"]
        order(backend, ConsumerOrder.claim("job-1", (Use(host, "VCPU", 8),)))
        card = define(backend, _card_host())
        assert _of(backend, "host0") is None and _of(backend, _AT) == facts
        with raises_code("ProviderDisabled"):
            _take_units(backend, "job-2", card[_AT], _PARTS[0])
        enable(backend, card[_AT])
        _take_units(backend, "job-2", card[_AT], _PARTS[0])
        release(backend, "job-2")
        define(backend, Provider("host0", "VCPU=8"))
        define(backend, _card_host())
        assert _of(backend, _AT) is None  # enabled before the removal


class RemovedUnitRules(Kit):
    """A device that was removed while it was allocated is not allocated again."""

    @pytest.fixture
    def card(self, backend: Backend) -> str:
        """Return the uuid of a card of three functions; the one of job-1 was removed."""
        card = define(backend, _card_host())[_AT]
        _take_units(backend, "job-1", card, _PARTS[1])
        define(backend, _card_host(removed=_PARTS[1]))
        return card

    @law(4)
    def test_a_removed_unit_counts_as_used_until_it_is_released(
        self, backend: Backend, card: str
    ) -> None:
        _take_units(backend, "job-2", card, _PARTS[0], _PARTS[2])
        order(backend, ConsumerOrder.renew("job-1"))
        assert ledger_state(backend).used(_AT, FUNCTION) == 3
        assert ledger_state(backend).units[_AT, _PARTS[1]] == (FUNCTION, "job-1")

    @law(4)
    @pytest.mark.parametrize("overrides", [False, True])
    def test_a_removed_unit_is_not_allocated_again(
        self, backend: Backend, card: str, overrides: bool
    ) -> None:
        release(backend, "job-1")
        before = ledger_state(backend)
        for use in (
            Use(card, FUNCTION, 1, _PARTS[1:2]),
            Use(card, FUNCTION, 3, _PARTS),
            Use(card, CARD, 1, (_WHOLE, *_PARTS)),
        ):
            with raises_code("ProviderDisabled") as refused:
                claimed = ConsumerOrder.claim("job-2", (use,), overrides_disabled=overrides)
                order(backend, claimed)
            reason = refused.value.reasons[-1]
            assert (reason.rule, reason.where, reason.unit) == (Rule.DISABLED, _AT, _PARTS[1])
            assert f"{_AT}: {_PARTS[1]} was removed from the host" in str(refused.value)
        for use in (Use(card, FUNCTION, 3), Use(card, CARD, 1)):  # by amount, and through a share
            short, removed = _lacking(backend, use)
            assert (short.requested, short.bound, short.used, short.holders) == (3, 2, 0, ())
            assert removed.unit == _PARTS[1]
        assert ledger_state(backend) == before
        enable(backend, card)
        _lacking(backend, Use(card, FUNCTION, 3))

    @law(6)
    def test_a_refusal_names_the_consumers_next_to_the_removed_unit(
        self, backend: Backend, card: str
    ) -> None:
        order(backend, ConsumerOrder.release("job-1"))
        _take_units(backend, "job-1", card, _PARTS[0])
        _take_units(backend, "job-2", card, _PARTS[2])
        short, removed = _lacking(backend, Use(card, FUNCTION, 1))
        assert (short.requested, short.bound, short.used) == (1, 2, 2)
        assert short.holders == (("job-1", 1), ("job-2", 1))
        assert (removed.where, removed.unit) == (_AT, _PARTS[1])
        with pytest.raises(CapacityException) as named:  # also with allocations of others
            order(backend, _claim_of("job-3", Use(card, FUNCTION, 2, _PARTS[:2])))
        short, taken, removed = named.value.reasons
        assert (short.rule, short.holders) == (Rule.CAPACITY, (("job-1", 1), ("job-2", 1)))
        assert (taken.rule, taken.holders) == (Rule.UNIT_TAKEN, (("job-1", 1),))
        assert (removed.rule, taken.unit, removed.unit) == (Rule.DISABLED, *_PARTS[:2])
        order(backend, ConsumerOrder.release("job-1"), _claim_of("job-3", Use(card, FUNCTION, 1)))

    @law(6)
    def test_the_tighter_of_a_limit_and_the_capacity_is_reported(
        self, backend: Backend, card: str
    ) -> None:
        release(backend, "job-1")
        request = _claim_of("job-2", Use(card, FUNCTION, 3))
        for limit, rules in ((1, [Rule.LIMIT]), (3, [Rule.CAPACITY, Rule.DISABLED])):
            write = Write(
                Operation(), "claim", "job-2", orders=(request,), limits={(card, FUNCTION): limit}
            )
            with pytest.raises(CapacityException) as refused:
                backend.commit(write)
            assert [reason.rule for reason in refused.value.reasons] == rules
            assert refused.value.reasons[0].bound == min(limit, 2)

    def test_consumers_may_exchange_a_removed_unit(self, backend: Backend, card: str) -> None:
        _take_units(backend, "job-2", card, _PARTS[0])
        order(
            backend,
            ConsumerOrder.replace("job-1", (Use(card, FUNCTION, 1, _PARTS[:1]),)),
            ConsumerOrder.replace("job-2", (Use(card, FUNCTION, 1, _PARTS[1:2]),)),
        )
        assert ledger_state(backend).units[_AT, _PARTS[1]] == (FUNCTION, "job-2")
        order(backend, ConsumerOrder.replace("job-2", (Use(card, FUNCTION, 1, _PARTS[2:]),)))
        with raises_code("ProviderDisabled"):
            order(backend, ConsumerOrder.replace("job-2", (Use(card, FUNCTION, 1, _PARTS[1:2]),)))


#: a card and its virtual functions
_WHOLE = "0000:01:00.0"
_PARTS = tuple(f"0000:01:02.{number}" for number in range(3))
_AT = f"host0/{_WHOLE}"
CARD, FUNCTION = "CUSTOM_CARD", "CUSTOM_FUNCTION"


def _card_host(removed: str | None = None) -> Provider:
    """Return a host with a card of three functions, one of which can be removed."""
    card = Device(_WHOLE, "8086", "1572", "type-PF", resource_class=CARD)
    parts = [
        Device(unit, "8086", "154c", "type-VF", resource_class=FUNCTION, parent=_WHOLE)
        for unit in _PARTS
    ]
    usage = [] if removed is None else [DeviceUse(removed, "allocated", gone=True)]
    host = Provider("host0", "VCPU=8")
    host.add_parts("DEVICES", PCIInventory([card, *parts], usage=usage))
    return host


def _claim_of(consumer: str, use: Use) -> ConsumerOrder:
    return ConsumerOrder.claim(consumer, (use,))


def _lacking(backend: Backend, use: Use) -> list[Reason]:
    """Return the two reasons of a refused amount: the missing capacity and the removed unit."""
    with pytest.raises(CapacityException) as refused:
        order(backend, _claim_of("lacking", use))
    assert not is_one_of(refused.value, "ProviderDisabled")
    assert [reason.rule for reason in refused.value.reasons] == [Rule.CAPACITY, Rule.DISABLED]
    return list(refused.value.reasons)


def _take_units(backend: Backend, consumer: str, uuid: str, *units: str) -> None:
    claimed = (Use(uuid, FUNCTION, len(units), units),)
    order(backend, ConsumerOrder.claim(consumer, claimed))


def _disable_beside(backend: Backend, uuid: str, claiming: Sequence[Future[int]]) -> None:
    """Disable a host during claims; check that no claim succeeds after ``disable`` returned."""
    while ledger_state(backend).used("host0", "VCPU") < 10:
        assert not any(item.done() for item in claiming)
    disable(backend, uuid)
    then = ledger_state(backend)
    won = sum(item.result() for item in claiming)
    assert then.used("host0", "VCPU") == won
    assert ledger_state(backend) == then
