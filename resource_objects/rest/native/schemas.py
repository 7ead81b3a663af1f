"""JSON Schemas (2020-12) of the bodies and answers of the native API.

They are the ``components`` of its OpenAPI document, and bodies are validated by them. The library
itself checks everything else, such as whether a trait exists.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

from resource_objects.providers.allocation import STATES
from resource_objects.requests.request import NEAR_POLICIES, POLICIES
from resource_objects.search.answer import Outlook
from resource_objects.search.order import ORDERS

Schema: TypeAlias = dict[str, Any]

#: The limits of one search.
MAX_CANDIDATES, MAX_STEPS, MAX_HOSTS = 10_000, 1_000_000, 1000
#: The limit of the time to wait, which is shorter than a graceful stop of the server.
MAX_SECONDS = 25

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "integer"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
UUID: Schema = {"type": "string", "format": "uuid"}
LABEL: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
_GENERATION: Schema = {
    "type": "integer",
    "minimum": 0,
    "description": "the generation that was read",
}


def ref(name: str) -> Schema:
    """Return a reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def integer_from_1(maximum: int, description: str) -> Schema:
    """Return the schema of an integer from 1 to a maximum."""
    return {"type": "integer", "minimum": 1, "maximum": maximum, "description": description}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _or_null(schema: Schema) -> Schema:
    if "type" in schema and isinstance(schema["type"], str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema, description: str | None = None) -> Schema:
    schema: Schema = {"type": "array", "items": items}
    return schema if description is None else _described(schema, description)


def _mapping(values: Schema, description: str | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    return schema if description is None else _described(schema, description)


def _body(description: str, required: list[str], /, **properties: Schema) -> Schema:
    return {**_answer(description, required, **properties), "additionalProperties": False}


def _answer(description: str, required: list[str], /, **properties: Schema) -> Schema:
    """Return the schema of an answer, to which a later version may add keys."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
    }


def _full_answer(description: str, /, **properties: Schema) -> Schema:
    """Return the schema of an answer that always has all its keys."""
    return _answer(description, list(properties), **properties)


# --- bodies ---------------------------------------------------------------------------------------

_CONDITIONS: dict[str, Schema] = {
    "required": _described(ref("Names"), "traits that the providers must have"),
    "forbidden": _described(ref("Names"), "traits that the providers must not have"),
    "any_of": _list(ref("Names"), "sets of traits: one of each is enough"),
    "member_of": _list({"anyOf": [TEXT, ref("Names")]}, "aggregates, or lists of alternatives"),
    "not_member_of": _described(ref("Names"), "aggregates that the providers must not be in"),
    "in_tree": _described(TEXT, "a provider, by name or uuid: all providers are in its tree"),
    "traits_of": _mapping(
        ref("Names"),
        "traits of the providers of one class: {DISK_GB: [CUSTOM_SSD, '!CUSTOM_SLOW']}",
    ),
}
_NAME_OF_GROUP: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}\Z"}

_REQUEST: dict[str, Schema] = {
    "resources": ref("Amounts"),
    **_CONDITIONS,
    "groups": _list(ref("Group")),
    "group_policy": {
        "enum": list(POLICIES),
        "description": "isolate: no two groups on one provider",
    },
    "same_subtree": _list(_list(_NAME_OF_GROUP), "one of their providers is above the others"),
    "root_required": _described(ref("Names"), "traits of the host itself"),
    "root_forbidden": _described(ref("Names"), "traits that the host itself must not have"),
    "near": _described(TEXT, "a level, numa or a trait: as few of its domains as possible"),
    "near_policy": {
        "enum": list(NEAR_POLICIES),
        "description": "required: from one of them; preferred: the fewest first",
    },
    "compatibility": {"enum": ["placement"], "description": "the rules by which it is searched"},
}

_BODIES: dict[str, Schema] = {
    "Names": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}},
    "Amounts": {
        "description": "Amounts by resource class: a text such as VCPU=2,MEMORY_MB=4096, or a "
        "mapping. A placed amount is a text: NUMA_TOPOLOGY=2:shared=4",
        "anyOf": [TEXT, _mapping({"anyOf": [NUMBER, TEXT]})],
        "examples": ["VCPU=2,MEMORY_MB=4096", {"VCPU": 2, "NUMA_TOPOLOGY": "2:dedicated=4"}],
    },
    "Group": _body(
        "The requirements of one provider.",
        ["suffix"],
        suffix=_NAME_OF_GROUP,
        resources=ref("Amounts"),
        **_CONDITIONS,
    ),
    "Request": {
        **_body(
            "A request: a text of amounts; or amounts, conditions on their providers, and groups.",
            [],
            **_REQUEST,
        ),
        "type": ["string", "object"],
    },
    "Order": {
        **_body(
            f"The order of hosts: {', '.join(ORDERS)}; or one of these, with weights.",
            [],
            by={"enum": list(ORDERS)},
            weights=_mapping({"type": "number"}, "the weight of the fullness of a class"),
            preferred=_mapping({"type": "number"}, "the weight of a trait of a host"),
            among=integer_from_1(2**31, "with a seed: the number of shuffled hosts"),
        ),
        "type": ["string", "object"],
    },
}
#: The options of a search.
_OPTIONS: dict[str, Schema] = {
    "at": _described(TEXT, "a provider, by name or uuid: only it and its descendants"),
    "limit": integer_from_1(MAX_CANDIDATES, "the maximum number of candidates (10)"),
    "per_host": integer_from_1(MAX_CANDIDATES, "the maximum number of candidates of one host (1)"),
    "order": ref("Order"),
    "seed": _described(COUNT, "the same seed gives the same order"),
    "budget": integer_from_1(MAX_STEPS, "the maximum number of steps (30000)"),
    "limits": _mapping({"anyOf": [TEXT, _mapping(COUNT)]}, "by provider, the maximum total usage"),
}
_BODIES["Search"] = _body(
    "A search.",
    ["request"],
    request=ref("Request"),
    **_OPTIONS,
    explain=_described(FLAG, "explain the refused hosts even if there are candidates"),
    hosts={
        "type": "integer",
        "minimum": 0,
        "maximum": MAX_HOSTS,
        "description": "the maximum number of hosts with reasons (20); the others are counted",
    },
)

_CLAIM: dict[str, Schema] = {
    "request": ref("Request"),
    **_OPTIONS,
    "candidate": _described(ref("Candidate"), "of a search; with the request that was searched"),
    "allocations": {
        "type": "array",
        "minItems": 1,
        "items": ref("NewAllocation"),
        "description": "allocations that were chosen elsewhere; units may be named",
    },
    **{name: _or_null(LABEL) for name in ("project", "user", "consumer_type", "group")},
    "unchanged": _described(FLAG, "refuse if the definitions changed since the search"),
    "release_expired": _described(FLAG, "first release expired claims of these hosts"),
    "override_disabled": _described(FLAG, "allocate from disabled providers too"),
    "wait": {
        "type": "integer",
        "minimum": 0,
        "maximum": MAX_SECONDS,
        "description": "the seconds to wait if other consumers use the resources",
    },
    "operation": _described(UUID, "an id: a repeated call with the same id happens once"),
}
_EXPIRY: dict[str, Schema] = {
    "expires_in": {
        "type": "integer",
        "minimum": 1,
        "maximum": 10**9,
        "description": "the seconds after which the claim may be released",
    },
    "expires_at": _described(MOMENT, "the time after which the claim may be released"),
}
#: A body has one of these keys.
_ONE_OF: Schema = {
    "oneOf": [
        {"required": ["request"], "not": {"required": ["candidate"]}},
        {"required": ["candidate"], "not": {"required": ["at"]}},
        {"required": ["allocations"]},
    ]
}
_BODIES |= {
    "NewAllocation": _body(
        "An allocation from one provider, of one class; CPUs and devices by name.",
        ["provider", "resource_class", "amount"],
        provider=NAME,
        uuid=_or_null(UUID),
        resource_class=TEXT,
        amount=NUMBER,
        units=_list(TEXT),
    ),
    "NewClaim": {
        **_body("A new claim of a consumer.", ["consumer"], consumer=NAME, **_CLAIM, **_EXPIRY),
        **_ONE_OF,
    },
    "Replacement": {
        **_body("The new allocations of a consumer.", [], **_CLAIM, generation=_GENERATION),
        **_ONE_OF,
    },
    "Change": {
        **_body(
            "A change of a claim: its confirmation, or another expiry.",
            [],
            state=_described({"enum": ["confirmed"]}, "the claim does not expire any more"),
            **_EXPIRY,
            claim=_described(UUID, "the id of the claim; default: the consumer's present claim"),
            generation=_GENERATION,
            operation=_described(UUID, "an id: a repeated call with the same id happens once"),
        ),
        "oneOf": [
            {"required": ["state"]},
            {"required": ["expires_in"], "not": {"required": ["generation"]}},
            {"required": ["expires_at"], "not": {"required": ["generation"]}},
        ],
    },
    "Disable": _body(
        "The reason and end of a disabled state.",
        ["reason"],
        reason=LABEL,
        until=_described(MOMENT, "the end; default: when the provider is enabled"),
        operation=_described(UUID, "an id: a repeated call with the same id happens once"),
    ),
    "Definition": {
        "type": "object",
        "description": "A provider and its descendants, with the keys of a site file. Whatever it "
        "does not name does not exist.",
        "properties": {
            "inventories": {
                "description": "a text such as VCPU=64:reserved=2, or a mapping of classes",
                "anyOf": [TEXT, _mapping({"anyOf": [NUMBER, TEXT, {"type": "object"}]})],
            },
            "traits": ref("Names"),
            "aggregates": ref("Names"),
            "split": _described(TEXT, "the partitioning of a device, such as halves"),
            "shares": _list(TEXT, "such as VCPU uses 1 VCPU of /"),
            "structured": _mapping({"type": "object"}, "devices and NUMA cells"),
            "disabled": {
                "description": "the reason of a disabled provider; false: it is enabled",
                "anyOf": [FLAG, TEXT, {"type": "object"}],
            },
            "children": _mapping(ref("Definition"), "by name; /NAME is appended to the parent's"),
        },
        "additionalProperties": False,
    },
    "NewTree": _body(
        "The new definition of a tree.",
        ["definition"],
        definition=ref("Definition"),
        generations=_mapping(COUNT, "by provider, the generations that were read"),
        pool=_described(FLAG, "whether its inventories are shared with linked providers"),
        prune=_described(FLAG, "whether everything that is not named is removed (true)"),
        dry_run=_described(FLAG, "only return the plan"),
    ),
}

# not an enumeration: a later version may have further rules
_RULE_OF_REFUSAL: Schema = {
    "type": "string",
    "description": "the rule, such as capacity; later versions may have further rules",
}

# --- answers --------------------------------------------------------------------------------------

_ANSWERS: dict[str, Schema] = {
    "RequestObject": _answer("A parsed request.", [], **_REQUEST),
    "Disabled": _full_answer(
        "The reason of a disabled state, its actor, its beginning and its end.",
        reason=TEXT,
        by=_or_null(TEXT),
        since=MOMENT,
        until=_or_null(MOMENT),
    ),
    "Reason": _answer(
        "A failed constraint with its figures. text is a sentence for people.",
        ["rule", "requested", "bound", "used", "text"],
        rule=_RULE_OF_REFUSAL,
        requested=NUMBER,
        bound=NUMBER,
        used=NUMBER,
        resource=_or_null(TEXT),
        where=_described(_or_null(TEXT), "the provider"),
        holders=_list(_list({"type": ["string", "integer"]}), "the consumers: [name, amount]"),
        trait=_or_null(TEXT),
        unit=_or_null(TEXT),
        cell=_or_null(NUMBER),
        guest=_or_null(NUMBER),
        group=_or_null(TEXT),
        parts=_list(
            _list({"type": ["string", "integer"]}),
            "allocated parts of devices: [consumer, provider, parts, parts of the device]",
        ),
        filter=_or_null(TEXT),
        demands=_list(TEXT, "the groups whose amounts are summed; empty: the unnamed group"),
        disabled=ref("Disabled"),
        text=TEXT,
    ),
    "Stage": _full_answer(
        "The hosts before and after one condition of a request.",
        group=_or_null(TEXT),
        rule=_RULE_OF_REFUSAL,
        before=COUNT,
        after=COUNT,
        resource=_or_null(TEXT),
        label=_or_null(TEXT),
        requested=_or_null(NUMBER),
        most=_described(_or_null(NUMBER), "the largest amount of one of the hosts before"),
    ),
    "Explanation": _full_answer(
        "The reasons of refused hosts: of the nearest ones.",
        answer=_described(TEXT, "a summary in one line"),
        nearest=_described(ref("Names"), "the hosts that lack least"),
        refused=_mapping(_list(ref("Reason")), "by host"),
        outlooks=_mapping({"enum": sorted(Outlook)}, "by host, whether an empty host would fit"),
        undecided=_described(ref("Names"), "the hosts with an exhausted budget: unknown"),
        stages=_list(ref("Stage"), "the conditions in order"),
        more=_described(COUNT, "the number of refused hosts without reasons"),
    ),
    "ExplainedCandidates": _answer(
        "The answer of Placement's API to a search, with an explanation if it is empty.",
        ["allocation_requests", "provider_summaries"],
        allocation_requests=_list({"type": "object"}),
        provider_summaries=_mapping({"type": "object"}),
        explanation=_described(_or_null(ref("Explanation")), "null: no provider ever fits"),
    ),
    "Allocation": _full_answer(
        "An allocation from one provider, of one class; CPUs and devices by name.",
        provider=TEXT,
        uuid=_or_null(UUID),
        resource_class=TEXT,
        amount=NUMBER,
        units=_list(TEXT),
    ),
    "Candidate": _answer(
        "A complete placement of a request. It can be claimed unchanged.",
        ["host", "allocations", "mappings", "located", "generations"],
        host=TEXT,
        allocations=_list(ref("Allocation")),
        mappings=_mapping(ref("Names"), "by group, its providers"),
        located=_mapping(TEXT, "placed amounts as text"),
        assigned={"type": "object", "description": "the same, as a versioned object"},
        generations=_list(
            {
                "type": "array",
                "prefixItems": [UUID, NUMBER],
                "items": False,
                "minItems": 2,
            },
            "the definitions of the search: [uuid, generation]",
        ),
    ),
    "Found": _full_answer(
        "The result of a search. Nothing is allocated.",
        request=ref("RequestObject"),
        candidates=_list(ref("Candidate")),
        cut_short=_described(FLAG, "the budget was exhausted: further candidates may exist"),
        steps=COUNT,
        explanation=_or_null(ref("Explanation")),
        cursor=_described(_or_null(TEXT), "the cursor of the change feed at the snapshot"),
    ),
    "Claim": _full_answer(
        "The present or former allocations of a consumer, with providers and units.",
        id=UUID,
        consumer=TEXT,
        consumer_uuid=UUID,
        state={"enum": list(STATES)},
        allocations=_list(ref("Allocation")),
        request=_or_null(ref("RequestObject")),
        generation=_or_null(NUMBER),
        project=_or_null(TEXT),
        user=_or_null(TEXT),
        consumer_type=_or_null(TEXT),
        group=_or_null(TEXT),
        created_at=MOMENT,
        expires_at=_or_null(MOMENT),
    ),
    "Consumers": _full_answer(
        "A page of consumers.",
        consumers=_list(ref("Claim")),
        after=_described(_or_null(TEXT), "the key of the next page; null: this is the last page"),
    ),
    "Provider": _full_answer(
        "A provider without its descendants. Traits and aggregates are its own.",
        name=TEXT,
        uuid=UUID,
        root=TEXT,
        parent=_or_null(TEXT),
        generation=NUMBER,
        inventories=_mapping(_full_answer("An inventory.", used=NUMBER, capacity=NUMBER)),
        traits=ref("Names"),
        aggregates=ref("Names"),
        disabled=_or_null(ref("Disabled")),
    ),
    "Providers": _full_answer(
        "A page of providers.",
        providers=_list(ref("Provider")),
        after=_described(_or_null(TEXT), "the key of the next page; null: this is the last page"),
    ),
    "Tree": _full_answer(
        "A whole tree.",
        name=TEXT,
        uuid=_or_null(UUID),
        pool=FLAG,
        definition=ref("Definition"),
        generations=_mapping(COUNT, "by provider"),
        usage=_list(
            _full_answer(
                "The usage of one inventory.",
                provider=TEXT,
                depth=COUNT,
                resource_class=TEXT,
                total=NUMBER,
                reserved=NUMBER,
                capacity=NUMBER,
                used=NUMBER,
                free=NUMBER,
                elsewhere=_described(_or_null(NUMBER), "units free in the inventories it shares"),
                holders=_mapping(NUMBER, "by consumer"),
                disabled=_or_null(ref("Disabled")),
            )
        ),
        units=_list(
            _full_answer(
                "An allocated unit: a CPU of a cell, or a device.",
                provider=TEXT,
                resource_class=TEXT,
                unit=TEXT,
                consumer=TEXT,
            )
        ),
        plan=_described(_or_null(TEXT), "the plan of a dry run"),
    ),
    "Removed": _full_answer(
        "The result of a removal.", removed=_described(COUNT, "the number of providers")
    ),
    "DisabledList": _full_answer(
        "The disabled providers.",
        disabled=_list(
            _full_answer(
                "A disabled provider.",
                provider=TEXT,
                root=TEXT,
                reason=TEXT,
                by=_or_null(TEXT),
                since=MOMENT,
                until=_or_null(MOMENT),
            )
        ),
    ),
    "Drained": _answer(
        "A disabled provider and the consumers of its remaining allocations.",
        ["provider", "disabled", "consumers"],
        provider=TEXT,
        disabled=_or_null(ref("Disabled")),
        consumers=_list(TEXT),
    ),
    "Changes": _full_answer(
        "Changes, in the order of each shard.",
        changes=_list(
            _full_answer(
                "The part of a write in one shard.",
                shard=COUNT,
                number=COUNT,
                at=MOMENT,
                operation=TEXT,
                kind=TEXT,
                subject=TEXT,
                actor=_or_null(TEXT),
                generation=NUMBER,
                uses=_list(
                    _full_answer(
                        "The change of one allocation.",
                        consumer=TEXT,
                        key=_described(_list(TEXT), "the uuid of the provider, and the class"),
                        before=NUMBER,
                        after=NUMBER,
                        taken=_described(_list(TEXT), "allocated units"),
                        given=_described(_list(TEXT), "released units"),
                    )
                ),
                definitions=_described(_list(UUID), "the providers whose definition changed"),
                reports=_list(UUID),
                claims=_described(_list(TEXT), "the consumers whose claim changed"),
                disabled=_list(
                    _answer(
                        "A provider that was disabled or enabled.",
                        ["provider_uuid", "disabled"],
                        provider_uuid=UUID,
                        disabled=_or_null(ref("Disabled")),
                        unit=TEXT,
                    )
                ),
                overrides=_list(UUID),
                providers=_list(UUID),
                consumers=_list(TEXT),
            )
        ),
        cursor=_described(TEXT, "the cursor to continue from"),
    ),
    "Version": _full_answer(
        "The versions of this API, and a link to its document.",
        id=TEXT,
        min_version=TEXT,
        max_version=TEXT,
        links=_list(_full_answer("A link.", rel=TEXT, href=TEXT)),
    ),
    "Document": {"type": "object", "description": "An OpenAPI document: this one."},
    "Errors": _full_answer(
        "An error.",
        errors=_list(
            _answer(
                "The cause, for people and as data.",
                ["status", "title", "detail", "code", "request_id"],
                status=NUMBER,
                title=TEXT,
                detail=TEXT,
                code=_described(TEXT, "the code of the exception, or the name of the status"),
                request_id=TEXT,
                reasons=_list(ref("Reason")),
                more_reasons=COUNT,
                cursor=_described(TEXT, "the cursor to continue from"),
            )
        ),
    ),
}

SCHEMAS: dict[str, Schema] = _BODIES | _ANSWERS


@functools.cache
def schema(name: str) -> Schema:
    """Return a schema with all schemas that it refers to."""
    return {**ref(name), "components": {"schemas": SCHEMAS}}
