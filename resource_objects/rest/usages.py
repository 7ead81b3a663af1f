"""``/usages``, and the usages of a provider."""

from __future__ import annotations

from functools import partial
from typing import Any

import webob

from resource_objects.ledger.store import pages_of
from resource_objects.providers.listing import By, ConsumerFilter
from resource_objects.rest import kept, schemas
from resource_objects.rest.asked import Asked

#: The rule that is about the project that is asked about.
OF_PROJECT = "placement:usages"


def of_provider(asked: Asked) -> webob.Response:
    asked.tells_json()
    one = kept.provider(asked.ledger, asked.path["uuid"])
    return asked.reply(
        json={
            "resource_provider_generation": kept.generation(one),
            "usages": {record.resource_class: record.used for record in one.records},
        }
    )


def totals(asked: Asked) -> webob.Response:
    """What a project uses, or a user of it; from 1.38 on by the type of consumers."""
    asked.needs(9)
    asked.tells_json()
    asked.query(schemas.usages_query(asked.version.minor))
    given = asked.http.GET
    if not all(given[name].isprintable() for name in ("project_id", "user_id") if name in given):
        return asked.reply(json={"usages": {}})  # no project or user is called so
    wanted = ConsumerFilter(
        projects=frozenset([given["project_id"]]),
        users=frozenset([given["user_id"]]) if "user_id" in given else None,
    )
    backend = asked.ledger.backend
    if not asked.since(38):
        found = backend.totals(wanted, By.RESOURCE_CLASS)
        return asked.reply(json={"usages": {one.resource_class: one.used for one in found}})
    return asked.reply(json={"usages": _by_type(asked, wanted, given.get("consumer_type"))})


def _by_type(asked: Asked, wanted: ConsumerFilter, only: str | None) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for kind in _types(asked, wanted):
        counts[kind] = counts.get(kind, 0) + 1
    if only is not None and only != "all":
        counts = {kind: count for kind, count in counts.items() if kind == only}
    by_type: dict[str, Any] = {}
    if only == "all":
        if counts:
            found = asked.ledger.backend.totals(wanted, By.RESOURCE_CLASS)
            by_type["all"] = {one.resource_class: one.used for one in found}
            by_type["all"]["consumer_count"] = sum(counts.values())
        return by_type
    for one in asked.ledger.backend.totals(wanted, By.CONSUMER_TYPE):
        kind = one.group or kept.UNKNOWN_TYPE
        if kind in counts:
            told = by_type.setdefault(kind, {"consumer_count": counts[kind]})
            told[one.resource_class] = told.get(one.resource_class, 0) + one.used
    return by_type


def _types(asked: Asked, wanted: ConsumerFilter) -> list[str]:
    """Return the type of each consumer. Cost: linear in them."""
    read = partial(asked.ledger.backend.list_consumers, wanted)
    pages = pages_of(read, lambda one: one.consumer, 1000)
    return [one.consumer_type or kept.UNKNOWN_TYPE for page in pages for one in page]


ROUTES = (
    ("/usages", {"GET": (OF_PROJECT, totals)}),
    (
        "/resource_providers/{uuid}/usages",
        {"GET": ("placement:resource_providers:usages", of_provider)},
    ),
)
