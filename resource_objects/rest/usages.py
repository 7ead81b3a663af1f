"""``/usages``, and the usages of a provider."""

from __future__ import annotations

from collections import Counter
from typing import Any

import webob

from resource_objects.providers.listing import By, ConsumerFilter
from resource_objects.rest import kept, schemas
from resource_objects.rest.asked import Asked

#: The rule that is about the project that is asked about.
OF_PROJECT = "placement:usages"


def of_provider(asked: Asked) -> webob.Response:
    asked.tells_json()
    one = kept.provider(asked.ledger, asked.path["uuid"], f"{kept.NOT_FOUND}: {kept.NOT_FOUND}")
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
    backend = asked.ledger.backend
    counts: Counter[str] = Counter()
    for said, count in backend.count_consumers(wanted, By.CONSUMER_TYPE).items():
        kind = said or kept.UNKNOWN_TYPE
        if only in (None, "all", kind):
            counts[kind] += count
    by_type: dict[str, Any] = {}
    if only == "all":
        if counts:
            found = backend.totals(wanted, By.RESOURCE_CLASS)
            by_type["all"] = {one.resource_class: one.used for one in found}
            by_type["all"]["consumer_count"] = counts.total()
        return by_type
    for one in backend.totals(wanted, By.CONSUMER_TYPE):
        kind = one.group or kept.UNKNOWN_TYPE
        if kind in counts:
            told = by_type.setdefault(kind, {"consumer_count": counts[kind]})
            told[one.resource_class] = told.get(one.resource_class, 0) + one.used
    return by_type


ROUTES = (
    ("/usages", {"GET": (OF_PROJECT, totals)}),
    (
        "/resource_providers/{uuid}/usages",
        {"GET": ("placement:resource_providers:usages", of_provider)},
    ),
)
