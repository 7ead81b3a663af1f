"""What bodies and answers of the native API look like (JSON Schema 2020-12).

These are the ``components`` of its OpenAPI document, and what bodies are checked by: there is no
second account. What only the library can judge (whether a trait is known, whether amounts agree)
it judges, as for every other caller.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

from resource_objects.providers.allocation import STATES
from resource_objects.requests.request import NEAR_POLICIES, POLICIES
from resource_objects.search.feasibility import Outlook
from resource_objects.search.order import ORDERS

Schema: TypeAlias = dict[str, Any]

#: The most that may be asked of one search.
MOST_CANDIDATES, MOST_STEPS, MOST_HOSTS = 10_000, 1_000_000, 1000
#: For so many seconds one may wait: fewer than a server has to end gracefully.
MOST_SECONDS = 25

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "integer"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
UUID: Schema = {"type": "string", "format": "uuid"}
LABEL: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
_GENERATION: Schema = {"type": "integer", "minimum": 0, "description": "the one it was read at"}


def ref(name: str) -> Schema:
    """Return the schema that has a name."""
    return {"$ref": f"#/components/schemas/{name}"}


def one_to(most: int, told: str) -> Schema:
    """Return the schema of a count from 1."""
    return {"type": "integer", "minimum": 1, "maximum": most, "description": told}


def _said(schema: Schema, told: str) -> Schema:
    return {**schema, "description": told}


def _or_null(schema: Schema) -> Schema:
    if "type" in schema and isinstance(schema["type"], str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _list(of: Schema, told: str | None = None) -> Schema:
    found: Schema = {"type": "array", "items": of}
    return found if told is None else _said(found, told)


def _mapping(of: Schema, told: str | None = None) -> Schema:
    found: Schema = {"type": "object", "additionalProperties": of}
    return found if told is None else _said(found, told)


def _body(told: str, required: list[str], /, **properties: Schema) -> Schema:
    return {**_answer(told, required, **properties), "additionalProperties": False}


def _answer(told: str, required: list[str], /, **properties: Schema) -> Schema:
    """Return the schema of what is answered: a later version may say more."""
    return {
        "type": "object",
        "description": told,
        "properties": properties,
        "required": required,
    }


def _told(told: str, /, **properties: Schema) -> Schema:
    """Return the schema of an answer that always says all it may."""
    return _answer(told, list(properties), **properties)


# --- what is asked --------------------------------------------------------------------------------

_CONDITIONS: dict[str, Schema] = {
    "required": _said(ref("Names"), "traits that who gives must have"),
    "forbidden": _said(ref("Names"), "traits that who gives must not have"),
    "any_of": _list(ref("Names"), "sets of traits, of each of which one is enough"),
    "member_of": _list(
        {"anyOf": [TEXT, ref("Names")]}, "aggregates, or lists of which one is enough"
    ),
    "not_member_of": _said(ref("Names"), "aggregates that who gives must not be in"),
    "in_tree": _said(TEXT, "a provider, by name or uuid: all comes from its tree"),
    "traits_of": _mapping(
        ref("Names"), "traits of who gives one class: {DISK_GB: [CUSTOM_SSD, '!CUSTOM_SLOW']}"
    ),
}
_NAME_OF_GROUP: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}\Z"}

_REQUEST: dict[str, Schema] = {
    "resources": ref("Amounts"),
    **_CONDITIONS,
    "groups": _list(ref("Group")),
    "group_policy": {"enum": list(POLICIES), "description": "isolate: no two by one provider"},
    "same_subtree": _list(
        _list(_NAME_OF_GROUP), "one of the providers of these groups is above the others"
    ),
    "root_required": _said(ref("Names"), "traits of the host itself"),
    "root_forbidden": _said(ref("Names"), "traits that the host itself must not have"),
    "near": _said(TEXT, "from as few NUMA cells (numa) as possible, or as few with this trait"),
    "near_policy": {
        "enum": list(NEAR_POLICIES),
        "description": "required: from one of them; preferred: the fewest first",
    },
    "compatibility": {"enum": ["placement"], "description": "whose rules it is read by"},
}

_ASKED: dict[str, Schema] = {
    "Names": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}},
    "Amounts": {
        "description": "How much of what: text such as VCPU=2,MEMORY_MB=4096, or a mapping. A "
        "value that says more than a count is text: NUMA_TOPOLOGY=2:shared=4",
        "anyOf": [TEXT, _mapping({"anyOf": [NUMBER, TEXT]})],
        "examples": ["VCPU=2,MEMORY_MB=4096", {"VCPU": 2, "NUMA_TOPOLOGY": "2:dedicated=4"}],
    },
    "Group": _body(
        "What one provider has to give.",
        ["suffix"],
        suffix=_NAME_OF_GROUP,
        resources=ref("Amounts"),
        **_CONDITIONS,
    ),
    "Request": {
        **_body(
            "What is asked: text of amounts; or amounts, conditions on who gives them, and groups.",
            [],
            **_REQUEST,
        ),
        "type": ["string", "object"],
    },
    "Order": {
        **_body(
            f"Which hosts come first: {', '.join(ORDERS)}; or one of these, with weights.",
            [],
            by={"enum": list(ORDERS)},
            weights=_mapping({"type": "number"}, "how much the fullness of a class counts"),
            preferred=_mapping({"type": "number"}, "what a trait of a host is worth"),
            among=one_to(2**31, "with a seed: so many of the best are shuffled"),
        ),
        "type": ["string", "object"],
    },
}
#: How a search is made.
_OPTIONS: dict[str, Schema] = {
    "at": _said(TEXT, "a provider, by name or uuid: only that one and what is below it"),
    "limit": one_to(MOST_CANDIDATES, "at most so many candidates (10)"),
    "per_host": one_to(MOST_CANDIDATES, "at most so many of one host (1)"),
    "order": ref("Order"),
    "seed": _said(COUNT, "the same seed gives the same order"),
    "budget": one_to(MOST_STEPS, "the search is cut short after so many steps (30000)"),
    "limits": _mapping(
        {"anyOf": [TEXT, _mapping(COUNT)]},
        "by provider, the most that may be used of it in all, whatever it has",
    ),
}
_ASKED["Search"] = _body(
    "A search.",
    ["request"],
    request=ref("Request"),
    **_OPTIONS,
    explain=_said(FLAG, "say why the others cannot, even if some can"),
    hosts={
        "type": "integer",
        "minimum": 0,
        "maximum": MOST_HOSTS,
        "description": "reasons of at most so many hosts (20); the others are counted",
    },
)

_TAKING: dict[str, Schema] = {
    "request": ref("Request"),
    **_OPTIONS,
    "candidate": _said(ref("Candidate"), "what a search found; with the request that it was for"),
    "allocations": {
        "type": "array",
        "minItems": 1,
        "items": ref("NewAllocation"),
        "description": "what was decided elsewhere; units may be named",
    },
    **{name: _or_null(LABEL) for name in ("project", "user", "consumer_type", "group")},
    "unchanged": _said(FLAG, "only if the definitions it was found at are as they were"),
    "release_expired": _said(FLAG, "first release the expired claims of the hosts in question"),
    "override_disabled": _said(FLAG, "take also of what is out of service"),
    "wait": {
        "type": "integer",
        "minimum": 0,
        "maximum": MOST_SECONDS,
        "description": "for how many seconds to wait if others hold it",
    },
    "operation": _said(UUID, "sent again with the same one, it happens once"),
}
_EXPIRY: dict[str, Schema] = {
    "expires_in": {
        "type": "integer",
        "minimum": 1,
        "maximum": 10**9,
        "description": "seconds after which it may be released",
    },
    "expires_at": _said(MOMENT, "when it may be released"),
}
#: What is taken is said in one of these ways.
_ONE_WAY: Schema = {
    "oneOf": [
        {"required": ["request"], "not": {"required": ["candidate"]}},
        {"required": ["candidate"], "not": {"required": ["at"]}},
        {"required": ["allocations"]},
    ]
}
_ASKED |= {
    "NewAllocation": _body(
        "What to take of one provider, of one class; of CPUs and devices with their names.",
        ["provider", "resource_class", "amount"],
        provider=NAME,
        uuid=_or_null(UUID),
        resource_class=TEXT,
        amount=NUMBER,
        units=_list(TEXT),
    ),
    "NewClaim": {
        **_body("What to take, and for whom.", ["consumer"], consumer=NAME, **_TAKING, **_EXPIRY),
        **_ONE_WAY,
    },
    "Replacement": {
        **_body("What a consumer is to hold.", [], **_TAKING, generation=_GENERATION),
        **_ONE_WAY,
    },
    "Change": {
        **_body(
            "What becomes of a claim: it is confirmed, or gets another expiry.",
            [],
            state=_said({"enum": ["confirmed"]}, "it is in use, and expires no more"),
            **_EXPIRY,
            claim=_said(UUID, "the claim that is meant; else whichever the consumer has"),
            generation=_GENERATION,
            operation=_said(UUID, "sent again with the same one, it happens once"),
        ),
        "oneOf": [
            {"required": ["state"]},
            {"required": ["expires_in"], "not": {"required": ["generation"]}},
            {"required": ["expires_at"], "not": {"required": ["generation"]}},
        ],
    },
    "Disable": _body(
        "Why something is taken out of service.",
        ["reason"],
        reason=LABEL,
        until=_said(MOMENT, "when it ends by itself; else when it is enabled"),
        operation=_said(UUID, "sent again with the same one, it happens once"),
    ),
    "Definition": {
        "type": "object",
        "description": "A provider and all below it, as a site's file says it. What it does not "
        "name is not there.",
        "properties": {
            "inventories": {
                "description": "text such as VCPU=64:reserved=2, or a mapping of classes",
                "anyOf": [TEXT, _mapping({"anyOf": [NUMBER, TEXT, {"type": "object"}]})],
            },
            "traits": ref("Names"),
            "aggregates": ref("Names"),
            "split": _said(TEXT, "how a device is had in parts, such as halves"),
            "shares": _list(TEXT, "such as VCPU uses 1 VCPU of /"),
            "structured": _mapping(
                {"type": "object"}, "inventories with a structure: devices, cells"
            ),
            "disabled": {
                "description": "why it is out of service; false: it is not",
                "anyOf": [FLAG, TEXT, {"type": "object"}],
            },
            "children": _mapping(
                ref("Definition"), "by name; one that begins with / goes on after this one's"
            ),
        },
        "additionalProperties": False,
    },
    "NewTree": _body(
        "A tree as it is to be.",
        ["definition"],
        definition=ref("Definition"),
        generations=_mapping(COUNT, "by provider, those it was read at"),
        pool=_said(FLAG, "whether others that it is linked to may take of it"),
        prune=_said(FLAG, "whether what is not said goes (true)"),
        dry_run=_said(FLAG, "only tell what would be done"),
    ),
}

# no enumeration: a later version may know more
_RULE_OF_REFUSAL: Schema = {
    "type": "string",
    "description": "which constraint it is, such as capacity; there may be new ones",
}

# --- what is answered -----------------------------------------------------------------------------

_TOLD: dict[str, Schema] = {
    "RequestObject": _answer("A request, as it was read.", [], **_REQUEST),
    "Disabled": _told(
        "Why something is out of service, by whom, since when and until when.",
        reason=TEXT,
        by=_or_null(TEXT),
        since=MOMENT,
        until=_or_null(MOMENT),
    ),
    "Reason": _answer(
        "One constraint that failed, with its figures. text is the sentence for people.",
        ["rule", "requested", "bound", "used", "text"],
        rule=_RULE_OF_REFUSAL,
        requested=NUMBER,
        bound=NUMBER,
        used=NUMBER,
        resource=_or_null(TEXT),
        where=_said(_or_null(TEXT), "the provider"),
        holders=_list(_list({"type": ["string", "integer"]}), "who holds how much: [name, amount]"),
        trait=_or_null(TEXT),
        unit=_or_null(TEXT),
        cell=_or_null(NUMBER),
        guest=_or_null(NUMBER),
        group=_or_null(TEXT),
        parts=_list(
            _list({"type": ["string", "integer"]}),
            "of what is had in parts: [consumer, provider, parts, of how many]",
        ),
        filter=_or_null(TEXT),
        demands=_list(
            TEXT,
            "of an amount that several groups need together: their names, empty for the request",
        ),
        disabled=ref("Disabled"),
        text=TEXT,
    ),
    "Stage": _told(
        "How many hosts one part of a request leaves.",
        group=_or_null(TEXT),
        rule=_RULE_OF_REFUSAL,
        before=COUNT,
        after=COUNT,
        resource=_or_null(TEXT),
        label=_or_null(TEXT),
        requested=_or_null(NUMBER),
        most=_said(_or_null(NUMBER), "the most that one of the hosts before can be given"),
    ),
    "Explanation": _told(
        "Why hosts cannot hold a request. Reasons are told of those that come nearest to it.",
        answer=_said(TEXT, "in one line"),
        nearest=_said(ref("Names"), "hosts that come nearest"),
        refused=_mapping(_list(ref("Reason")), "by host"),
        outlooks=_mapping(
            {"enum": sorted(Outlook)}, "by host, whether it could if nobody held anything"
        ),
        undecided=_said(ref("Names"), "hosts on which the budget ran out: neither yes nor no"),
        stages=_list(ref("Stage"), "what each part of the request left, in order"),
        more=_said(COUNT, "hosts of which no reasons are told"),
    ),
    "ExplainedCandidates": _answer(
        "What Placement's API answers to a search and, where it finds nothing, why.",
        ["allocation_requests", "provider_summaries"],
        allocation_requests=_list({"type": "object"}),
        provider_summaries=_mapping({"type": "object"}),
        explanation=_said(
            _or_null(ref("Explanation")), "null: nobody could be so, whatever there is"
        ),
    ),
    "Allocation": _told(
        "What is taken of one provider, by class; of CPUs and devices with their names.",
        provider=TEXT,
        uuid=_or_null(UUID),
        resource_class=TEXT,
        amount=NUMBER,
        units=_list(TEXT),
    ),
    "Candidate": _answer(
        "One complete way to hold a request. It is claimed as it is.",
        ["host", "allocations", "mappings", "located", "generations"],
        host=TEXT,
        allocations=_list(ref("Allocation")),
        mappings=_mapping(ref("Names"), "by group, the providers that give it"),
        located=_mapping(TEXT, "amounts that say where they go, as text"),
        assigned={"type": "object", "description": "the same, as a versioned object"},
        generations=_list(
            {
                "type": "array",
                "prefixItems": [UUID, NUMBER],
                "items": False,
                "minItems": 2,
            },
            "definitions it was decided on: [uuid, generation]",
        ),
    ),
    "Found": _told(
        "What a search found. Nothing is taken.",
        request=ref("RequestObject"),
        candidates=_list(ref("Candidate")),
        cut_short=_said(FLAG, "the budget ran out: there may be more"),
        steps=COUNT,
        explanation=_or_null(ref("Explanation")),
        cursor=_said(_or_null(TEXT), "the place in the feed behind all that the search saw"),
    ),
    "Claim": _told(
        "What a consumer holds, or held: where, and which units.",
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
    "Consumers": _told(
        "A page of consumers.",
        consumers=_list(ref("Claim")),
        after=_said(_or_null(TEXT), "where the next page begins; null: there is none"),
    ),
    "Provider": _told(
        "A provider, without those below it. Traits and aggregates are its own.",
        name=TEXT,
        uuid=UUID,
        root=TEXT,
        parent=_or_null(TEXT),
        generation=NUMBER,
        inventories=_mapping(_told("An inventory.", used=NUMBER, capacity=NUMBER)),
        traits=ref("Names"),
        aggregates=ref("Names"),
        disabled=_or_null(ref("Disabled")),
    ),
    "Providers": _told(
        "A page of providers.",
        providers=_list(ref("Provider")),
        after=_said(_or_null(TEXT), "where the next page begins; null: there is none"),
    ),
    "Tree": _told(
        "A whole tree.",
        name=TEXT,
        uuid=_or_null(UUID),
        pool=FLAG,
        definition=ref("Definition"),
        generations=_mapping(COUNT, "by provider"),
        usage=_list(
            _told(
                "What is used of one inventory.",
                provider=TEXT,
                depth=COUNT,
                resource_class=TEXT,
                total=NUMBER,
                reserved=NUMBER,
                capacity=NUMBER,
                used=NUMBER,
                free=NUMBER,
                elsewhere=_said(_or_null(NUMBER), "room where it is used too"),
                holders=_mapping(NUMBER, "by consumer"),
                disabled=_or_null(ref("Disabled")),
            )
        ),
        units=_list(
            _told(
                "A unit that is taken: a CPU of a cell, or a device.",
                provider=TEXT,
                resource_class=TEXT,
                unit=TEXT,
                consumer=TEXT,
            )
        ),
        plan=_said(_or_null(TEXT), "of a dry run: what would be done"),
    ),
    "Removed": _told("What was removed.", removed=_said(COUNT, "so many providers")),
    "DisabledList": _told(
        "What is out of service.",
        disabled=_list(
            _told(
                "One provider.",
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
        "What was taken out of service, and who still holds something there.",
        ["provider", "disabled", "consumers"],
        provider=TEXT,
        disabled=_or_null(ref("Disabled")),
        consumers=_list(TEXT),
    ),
    "Changes": _told(
        "What was written, in the order of each shard.",
        changes=_list(
            _told(
                "One write, as one shard saw it.",
                shard=COUNT,
                number=COUNT,
                at=MOMENT,
                operation=TEXT,
                kind=TEXT,
                subject=TEXT,
                actor=_or_null(TEXT),
                generation=NUMBER,
                uses=_list(
                    _told(
                        "What changed for a consumer at one place.",
                        consumer=TEXT,
                        key=_said(_list(TEXT), "the uuid of the provider, and the class"),
                        before=NUMBER,
                        after=NUMBER,
                        taken=_said(_list(TEXT), "units"),
                        given=_said(_list(TEXT), "units given back"),
                    )
                ),
                definitions=_said(_list(UUID), "providers whose definition changed"),
                reports=_list(UUID),
                claims=_said(_list(TEXT), "consumers whose claim changed"),
                disabled=_list(
                    _answer(
                        "What was put out of service, or into it.",
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
        cursor=_said(TEXT, "where to read on"),
    ),
    "Version": _told(
        "Which versions of this API there are, and where its document is.",
        id=TEXT,
        min_version=TEXT,
        max_version=TEXT,
        links=_list(_told("A link.", rel=TEXT, href=TEXT)),
    ),
    "Document": {"type": "object", "description": "An OpenAPI document: this one."},
    "Errors": _told(
        "A refusal.",
        errors=_list(
            _answer(
                "Why, for people and as data.",
                ["status", "title", "detail", "code", "request_id"],
                status=NUMBER,
                title=TEXT,
                detail=TEXT,
                code=_said(TEXT, "the name of the exception of the library, or of the status"),
                request_id=TEXT,
                reasons=_list(ref("Reason")),
                more_reasons=COUNT,
                cursor=_said(TEXT, "where to begin anew"),
            )
        ),
    ),
}

SCHEMAS: dict[str, Schema] = _ASKED | _TOLD


@functools.cache
def schema(name: str) -> Schema:
    """Return a schema with all those that it refers to."""
    return {**ref(name), "components": {"schemas": SCHEMAS}}
