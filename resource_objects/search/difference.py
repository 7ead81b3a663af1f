"""What turns one picture into another: a plan, which a ledger carries out or refuses.

Pictures know what is held, not at which generation who holds it is. So a plan of them says what
each consumer held (``Plan.held``), and is carried out only if that is so still; definitions have
generations in a picture, too.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Collection, Iterator, Mapping

from resource_objects.fields import FrozenDict
from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import Disabled, DisableOrder, ServiceState
from resource_objects.providers.orders import ConsumerOrder, StoredRequest
from resource_objects.providers.plan import Plan, diff_rows, holdings
from resource_objects.search.fleet import Fleet
from resource_objects.search.fleet_columns import columns_of


def difference(
    before: Fleet,
    after: Fleet,
    hosts: Collection[str] | None = None,
    requests: Mapping[str, StoredRequest] = FrozenDict(),
    *,
    ledger: int = 0,
) -> Plan:
    """Return the plan that turns what one fleet shows into what another one shows.

    :param hosts: the names of all those whose trees may differ, or where somebody holds something
        whose holdings do; None: anybody's
    :param requests: what consumers were made for that hold something else then, as far as known
    :param ledger: which one these are of; 0: nobody knows

    Cost: linear in these trees.
    """
    was, now = (columns_of(fleet, _trees(fleet, hosts)) for fleet in (before, after))
    plan = diff_rows(was, now)
    held = holdings(was)
    names, called = (dict(zip(p.uuid, p.name, strict=True)) for p in (was.providers, now.providers))
    out = _out(now)
    disabling = tuple(_disabling(_out(was), out, set(now.providers.uuid)))
    closed = _below(now, out)
    return dataclasses.replace(
        plan,
        orders=tuple(_order(one, requests, closed) for one in plan.orders),
        disabling=disabling,
        held={
            order.consumer: tuple(
                dataclasses.replace(use, provider=names[use.provider_uuid])
                for use in held[order.consumer].values()
            )
            for order in plan.orders
            if order.consumer in held
        },
        ledger=ledger,
        names={**plan.names, **{one.provider_uuid: called[one.provider_uuid] for one in disabling}},
    )


def _trees(fleet: Fleet, hosts: Collection[str] | None) -> set[int] | None:
    if hosts is None or fleet.within is not None:
        return None
    found = set()
    for host in hosts:
        tree = bisect.bisect_left(fleet.hosts, host)
        if tree < len(fleet.hosts) and fleet.hosts[tree] == host:
            found.add(tree)
    return found


#: The disabled providers, by uuid.
_Out = dict[str, Disabled]


def _out(columns: Columns) -> _Out:
    uuid_of = columns.index.uuids
    return {uuid_of[number]: one for number, one in columns.disabled.items()}


def _disabling(was: _Out, now: _Out, there: Collection[str]) -> Iterator[DisableOrder]:
    for uuid in sorted({*was, *now}):
        # the ledger records who did it, and since when
        had, has = ServiceState.of(was.get(uuid)), ServiceState.of(now.get(uuid))
        if uuid in there and had != has:
            yield DisableOrder(uuid, has.reason, has.until, had)


def _below(columns: Columns, disabled: Collection[str]) -> set[str]:
    """Return the uuids of providers that are disabled, or below one that is."""
    if not disabled:
        return set()
    parent = columns.index.parents
    uuid_of = columns.index.uuids
    found: set[str] = set()
    for number in parent:
        at: int | None = number
        while at is not None and uuid_of[at] not in disabled:
            at = parent[at]
        if at is not None:
            found.add(uuid_of[number])
    return found


def _order(
    order: ConsumerOrder,
    requests: Mapping[str, StoredRequest],
    closed: Collection[str],
) -> ConsumerOrder:
    """Return an order with what is known of the request, past what goes out of service with it."""
    is_over = not order.is_release and any(use.provider_uuid in closed for use in order.uses)
    return dataclasses.replace(
        order,
        request=None if order.is_release else requests.get(order.consumer, order.request),
        overrides_disabled=is_over,
    )
