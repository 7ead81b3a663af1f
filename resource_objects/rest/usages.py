"""``/usages``, and the usages of a provider."""

from __future__ import annotations

from collections import Counter
from typing import Any

import webob

from resource_objects.providers.listing import By, ConsumerFilter
from resource_objects.rest import schemas, translation
from resource_objects.rest.request import ClientRequest

#: The rule whose target is the project in the query.
RULE_OF_PROJECT = "placement:usages"


def of_provider(request: ClientRequest) -> webob.Response:
    request.require_json_accepted()
    message = f"{translation.NOT_FOUND}: {translation.NOT_FOUND}"
    provider = translation.get_provider(request.ledger, request.path["uuid"], message)
    return request.reply(
        json={
            "resource_provider_generation": translation.generation(provider),
            "usages": {record.resource_class: record.used for record in provider.records},
        }
    )


def totals(request: ClientRequest) -> webob.Response:
    """Return the usage of a project or a user of it; from 1.38 on by consumer type."""
    request.require_version(9)
    request.require_json_accepted()
    request.check_query(schemas.usages_query(request.version.minor))
    query = request.http.GET
    if not all(query[name].isprintable() for name in ("project_id", "user_id") if name in query):
        return request.reply(json={"usages": {}})  # no project or user has such a name
    conditions = ConsumerFilter(
        projects=frozenset([query["project_id"]]),
        users=frozenset([query["user_id"]]) if "user_id" in query else None,
    )
    if request.since(38):
        usages = _by_type(request, conditions, query.get("consumer_type"))
        return request.reply(json={"usages": usages})
    totals = request.ledger.backend.totals(conditions, By.RESOURCE_CLASS)
    return request.reply(json={"usages": {total.resource_class: total.used for total in totals}})


def _by_type(
    request: ClientRequest, conditions: ConsumerFilter, selected: str | None
) -> dict[str, Any]:
    backend = request.ledger.backend
    counts: Counter[str] = Counter()
    by_stored_type = backend.count_consumers(conditions, By.CONSUMER_TYPE)
    for stored_type, count in by_stored_type.items():
        consumer_type = stored_type or translation.UNKNOWN_TYPE
        if selected in (None, "all", consumer_type):
            counts[consumer_type] += count
    by_type: dict[str, Any] = {}
    if selected == "all":
        if counts:
            totals = backend.totals(conditions, By.RESOURCE_CLASS)
            by_type["all"] = {total.resource_class: total.used for total in totals}
            by_type["all"]["consumer_count"] = counts.total()
        return by_type
    for total in backend.totals(conditions, By.CONSUMER_TYPE):
        consumer_type = total.group or translation.UNKNOWN_TYPE
        if consumer_type in counts:
            usages = by_type.setdefault(consumer_type, {"consumer_count": counts[consumer_type]})
            usages[total.resource_class] = usages.get(total.resource_class, 0) + total.used
    return by_type


ROUTES = (
    ("/usages", {"GET": (RULE_OF_PROJECT, totals)}),
    (
        "/resource_providers/{uuid}/usages",
        {"GET": ("placement:resource_providers:usages", of_provider)},
    ),
)
