"""A fleet and a request for each row of the compatibility table, with the answers of both columns.

``ours`` and ``placement`` are all candidates by either reading, each told as
``host: VCPU=1@host0 DISK_GB=1@pool _1:host0``, in Placement's without the host: what is taken of
whom, and who is matched by each named group. Where the real Placement answers otherwise, which is
a bug, ``theirs`` is what it says.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from resource_objects.providers import Provider
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import IntegerInventory
from tests.support.columns import SHARING
from tests.support.fleets import uuid_of

ERROR = "an error"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is asked of whom, and all candidates."""

    row: str
    fleet: list[Provider]
    request: Request
    ours: list[str]
    placement: list[str]
    theirs: list[str] | str | None = None  #: None for the same as ``placement``


def told(columns: Any, found: Any, *, host: bool) -> list[str]:
    """Return candidates as they are told in this file, in order."""
    name = dict(zip(columns.providers.uuid, columns.providers.name, strict=True))
    lines = []
    for one in found:
        parts = sorted(f"{kind}={count}@{name[uuid]}" for uuid, kind, count in one.allocations)
        parts += sorted(
            f"{suffix}:{name[next(iter(uuids))]}" for suffix, uuids in one.mappings if suffix
        )
        lines.append(" ".join([f"{one.host}:"] * host + parts))
    return sorted(lines)


def tree(name: str, inventories: Any = None, *children: Provider, **more: Any) -> Provider:
    return Provider(name, inventories, children=children, uuid=uuid_of(name), **more)


def pool(name: str, inventories: Any = "DISK_GB=9", *children: Provider, **more: Any) -> Provider:
    traits = [SHARING, *more.pop("traits", ())]
    return tree(name, inventories, *children, traits=traits, **{"aggregates": ["r"], **more})


def gpus(host: str, count: int, **more: Any) -> list[Provider]:
    return [tree(f"{host}/{number}", "PGPU=1", **more) for number in range(count)]


def named(suffix: str, resources: str = "", **conditions: Any) -> RequestGroup:
    return RequestGroup(resources, suffix=suffix, **conditions)


H, RACK = ["CUSTOM_H100"], ["r"]

CASES = [
    Case(
        "1: a class is split over devices",
        [tree("h", "VCPU=4", *gpus("h", 3))],
        Request("PGPU=2"),
        [f"h: PGPU=1@h/{one} PGPU=1@h/{other}" for one, other in ("01", "02", "12")],
        [],
    ),
    Case(
        "1: a class is not split over what is no device",
        [tree("h", "VCPU=4", tree("h/0", "VCPU=4"), tree("h/1", "VCPU=4"))],
        Request("VCPU=6"),
        [],
        [],
    ),
    Case(
        "1: a named group is given by one provider",
        [tree("h", "VCPU=4", *gpus("h", 3))],
        Request(groups=[named("_1", "PGPU=2")]),
        [],
        [],
    ),
    Case(
        "2: a device has the traits of its host",
        [tree("h", "VCPU=4", *gpus("h", 1), traits=H)],
        Request("PGPU=1", required=H),
        ["h: PGPU=1@h/0"],
        [],
    ),
    Case(
        "2: and the forbidden ones",
        [tree("h", "VCPU=4", *gpus("h", 1), traits=H)],
        Request("PGPU=1", forbidden=H),
        [],
        ["PGPU=1@h/0"],
    ),
    Case(
        "2: required traits are of those who give, together",
        [tree("h", "VCPU=4", tree("h/0", "PGPU=1", traits=["CUSTOM_B"]), traits=["CUSTOM_A"])],
        Request("VCPU=1,PGPU=1", required=["CUSTOM_A", "CUSTOM_B"]),
        ["h: PGPU=1@h/0 VCPU=1@h"],
        ["PGPU=1@h/0 VCPU=1@h"],
    ),
    Case(
        "2: all who give a class have it",
        [tree("h", None, *gpus("h", 1), tree("h/1", "PGPU=1", traits=H))],
        Request("PGPU=2", required=H),
        [],
        [],
    ),
    Case(
        "2: of a pool only its own traits count",
        [tree("h", "VCPU=4", traits=["CUSTOM_A"], aggregates=RACK), pool("p", traits=["CUSTOM_B"])],
        Request("VCPU=1,DISK_GB=1", required=["CUSTOM_B"], forbidden=["CUSTOM_C"]),
        ["h: DISK_GB=1@p VCPU=1@h"],
        ["DISK_GB=1@p VCPU=1@h"],
    ),
    Case(
        "3: membership of the root spans the tree in the unnamed group",
        [tree("h", None, *gpus("h", 1), aggregates=RACK)],
        Request("PGPU=1", member_of=RACK),
        ["h: PGPU=1@h/0"],
        ["PGPU=1@h/0"],
    ),
    Case(
        "3: and in a named group by ours",
        [tree("h", None, *gpus("h", 1), aggregates=RACK)],
        Request(groups=[named("_1", "PGPU=1", member_of=RACK)]),
        ["h: PGPU=1@h/0 _1:h/0"],
        [],
    ),
    Case(
        "3: and is excluded with it",
        [tree("h", None, *gpus("h", 1), aggregates=RACK)],
        Request(groups=[named("_1", "PGPU=1", not_member_of=RACK)]),
        [],
        ["PGPU=1@h/0 _1:h/0"],
    ),
    Case(
        "3: what is between root and device spans what is below it by ours",
        [tree("h", None, tree("h/c", None, *gpus("h/c", 1), aggregates=RACK))],
        Request("PGPU=1", member_of=RACK),
        ["h: PGPU=1@h/c/0"],
        [],
    ),
    Case(
        "3: one of the provider and its root is in all of several aggregates",
        [tree("h", None, tree("h/0", "PGPU=1", aggregates=["s"]), aggregates=RACK)],
        Request("PGPU=1", member_of=["r", "s"]),
        ["h: PGPU=1@h/0"],
        [],
    ),
    Case(
        "3: a pool is a member by itself",
        [
            tree("h", "VCPU=4", aggregates=["r", "s"]),
            pool("p"),
            pool("q", aggregates=["r", "s"]),
        ],
        Request("VCPU=1,DISK_GB=1", member_of=["s"]),
        ["h: DISK_GB=1@q VCPU=1@h"],
        ["DISK_GB=1@q VCPU=1@h"],
    ),
    Case(
        "3: the root above a pool does not help it",
        [
            tree("h", "VCPU=4", aggregates=RACK),
            tree("s", None, pool("s/0"), aggregates=["t"]),
        ],
        Request("VCPU=1", groups=[named("_1", "DISK_GB=1", member_of=["t"])]),
        ["h: DISK_GB=1@s/0 VCPU=1@h _1:s/0"],
        [],
    ),
    Case(
        "3: a pool is excluded with the root of the host",
        [tree("h", "VCPU=4", aggregates=["r", "s"]), pool("p")],
        Request("DISK_GB=1", not_member_of=["s"], groups=[named("_1", "VCPU=1")]),
        ["h: DISK_GB=1@p VCPU=1@h _1:h"],
        [],
    ),
    Case(
        "3: to be in an unknown aggregate is impossible, not to be in one is said of all",
        [tree("h", "VCPU=4")],
        Request("VCPU=1", not_member_of=["nowhere"], groups=[named("_1", "VCPU=1")]),
        ["h: VCPU=2@h _1:h"],
        ["VCPU=2@h _1:h"],
    ),
    Case(
        "3: in an unknown aggregate is nobody",
        [tree("h", "VCPU=4")],
        Request("VCPU=1", member_of=["nowhere"]),
        [],
        [],
    ),
    Case(
        "4: two pools are no host",
        [
            tree("h", "VCPU=4", aggregates=RACK),
            pool("p"),
            pool("q", "IPV4_ADDRESS=9"),
        ],
        Request("DISK_GB=1,IPV4_ADDRESS=1"),
        [],
        ["DISK_GB=1@p IPV4_ADDRESS=1@q"],
    ),
    Case(
        "4: a pool that has all of it is",
        [tree("h", "VCPU=4", aggregates=RACK), pool("p")],
        Request("DISK_GB=1"),
        ["p: DISK_GB=1@p"],
        ["DISK_GB=1@p"],
    ),
    Case(
        "4: every host that shares one pool is listed",
        [*(tree(f"h{n}", "VCPU=4", aggregates=RACK) for n in range(3)), pool("p")],
        Request("DISK_GB=1", groups=[named("_1", "VCPU=1")]),
        [f"h{n}: DISK_GB=1@p VCPU=1@h{n} _1:h{n}" for n in range(3)],
        [f"DISK_GB=1@p VCPU=1@h{n} _1:h{n}" for n in range(3)],
        theirs="none or one",
    ),
    Case(
        "5: a pool gives what the host has itself too",
        [tree("h", "VCPU=4,DISK_GB=9", aggregates=RACK), pool("p")],
        Request("VCPU=1,DISK_GB=1"),
        ["h: DISK_GB=1@h VCPU=1@h", "h: DISK_GB=1@p VCPU=1@h"],
        ["DISK_GB=1@h VCPU=1@h", "DISK_GB=1@p VCPU=1@h"],
    ),
    Case(
        "6: in_tree keeps pools from the group that says it",
        [tree("h", "VCPU=4", aggregates=RACK), pool("p")],
        Request("VCPU=1,DISK_GB=1", in_tree=uuid_of("h")),
        [],
        [],
    ),
    Case(
        "6: and from no other",
        [tree("h", "VCPU=4", aggregates=RACK), pool("p")],
        Request("VCPU=1", in_tree=uuid_of("h"), groups=[named("_1", "DISK_GB=1")]),
        ["h: DISK_GB=1@p VCPU=1@h _1:p"],
        ["DISK_GB=1@p VCPU=1@h _1:p"],
    ),
    Case(
        "6: a named group may be in the tree of a pool",
        [tree("h", "VCPU=4", aggregates=RACK), pool("p"), pool("q")],
        Request("VCPU=1", groups=[named("_1", "DISK_GB=1", in_tree=uuid_of("p"))]),
        ["h: DISK_GB=1@p VCPU=1@h _1:p"],
        ["DISK_GB=1@p VCPU=1@h _1:p"],
    ),
    Case(
        "6: the unnamed group may be by ours; by theirs that tree is the host then",
        [tree("h", "VCPU=4", aggregates=RACK), pool("p"), pool("q")],
        Request("DISK_GB=1", in_tree=uuid_of("p"), groups=[named("_1", "VCPU=1")]),
        ["h: DISK_GB=1@p VCPU=1@h _1:h"],
        [],
    ),
    Case(
        "7: one of the providers is above the others",
        [tree("h", "VCPU=4", tree("h/c", None, *gpus("h/c", 1)), *gpus("h", 1))],
        Request(
            "VCPU=1",
            groups=[named("_1", "PGPU=1"), named("_2", "PGPU=1")],
            same_subtree=[["_1", "_2"]],
        ),
        [],
        [],
    ),
    Case(
        "7: it may be of a group that asks for nothing",
        [
            tree(
                "h",
                "VCPU=4",
                tree("h/c", None, *gpus("h/c", 1), traits=["HW_NUMA_ROOT"]),
                *gpus("h", 1),
            )
        ],
        Request(
            "VCPU=1",
            groups=[named("_1", "PGPU=1"), named("_2", required=["HW_NUMA_ROOT"])],
            same_subtree=[["_1", "_2"]],
        ),
        ["h: PGPU=1@h/c/0 VCPU=1@h _1:h/c/0 _2:h/c"],
        ["PGPU=1@h/c/0 VCPU=1@h _1:h/c/0 _2:h/c"],
    ),
    Case(
        "7: a pool is below no host",
        [tree("h", "VCPU=4", aggregates=RACK), pool("p")],
        Request(
            groups=[named("_1", "VCPU=1"), named("_2", "DISK_GB=1")], same_subtree=[["_1", "_2"]]
        ),
        [],
        [],
    ),
    Case(
        "7: but with itself",
        [tree("h", "VCPU=4", aggregates=RACK), pool("p"), pool("q")],
        Request(
            "VCPU=1",
            groups=[named("_1", "DISK_GB=1"), named("_2", "DISK_GB=2")],
            same_subtree=[["_1", "_2"]],
        ),
        [f"h: DISK_GB=3@{name} VCPU=1@h _1:{name} _2:{name}" for name in "pq"],
        [f"DISK_GB=3@{name} VCPU=1@h _1:{name} _2:{name}" for name in "pq"],
    ),
    Case(
        "8: isolate counts groups that ask for nothing",
        [tree("h", "VCPU=4", tree("h/0", "PGPU=1", traits=H))],
        Request(
            groups=[named("_1", "VCPU=1"), named("_2", required=H), named("_3", "PGPU=1")],
            same_subtree=[["_1", "_2"]],
            group_policy="isolate",
        ),
        [],
        [],
    ),
    Case(
        "8: and not the unnamed one",
        [tree("h", "VCPU=4")],
        Request("VCPU=1", groups=[named("_1", "VCPU=1")], group_policy="isolate"),
        ["h: VCPU=2@h _1:h"],
        ["VCPU=2@h _1:h"],
    ),
    Case(
        "9: interchangeable devices and groups are listed once",
        [tree("h", None, *gpus("h", 3))],
        Request(groups=[named("_1", "PGPU=1"), named("_2", "PGPU=1")], group_policy="isolate"),
        [
            f"h: PGPU=1@h/{min(a, b)} PGPU=1@h/{max(a, b)} _1:h/{a} _2:h/{b}"
            for a in "012"
            for b in "012"
            if a != b
        ],
        [
            f"PGPU=1@h/{min(a, b)} PGPU=1@h/{max(a, b)} _1:h/{a} _2:h/{b}"
            for a in "012"
            for b in "012"
            if a != b
        ],
    ),
    Case(
        "10: amounts on one inventory are summed and keep max_unit together",
        [tree("h", {"VCPU": IntegerInventory(8, max_unit=3)})],
        Request("VCPU=2", groups=[named("_1", "VCPU=2")]),
        [],
        [],
    ),
    Case(
        "10: and min_unit and step_size each by itself",
        [tree("h", {"VCPU": IntegerInventory(8, min_unit=2)})],
        Request("VCPU=3", groups=[named("_1", "VCPU=1")]),
        [],
        [],
    ),
    Case(
        "11: root traits are of the root itself",
        [
            tree("h", "VCPU=4", *gpus("h", 1, traits=H)),
            tree("i", "VCPU=4", *gpus("i", 1), traits=H),
        ],
        Request("PGPU=1", root_required=H),
        ["i: PGPU=1@i/0"],
        ["PGPU=1@i/0"],
    ),
    Case(
        "11: and of a pool that is the host",
        [tree("h", "VCPU=4", traits=H, aggregates=RACK), pool("p")],
        Request("DISK_GB=1", root_forbidden=H),
        ["p: DISK_GB=1@p"],
        ["DISK_GB=1@p"],
    ),
    Case(
        "12: capacity is decimal",
        [tree("h", {"VCPU": IntegerInventory(100, allocation_ratio="1.15")})],
        Request("VCPU=115"),
        ["h: VCPU=115@h"],
        ["VCPU=115@h"],
        theirs=[],
    ),
    Case(
        "a group that asks for nothing may have negative conditions only",
        [tree("h", "VCPU=4", tree("h/0", "PGPU=1"), traits=H)],
        Request(
            groups=[named("_1", "PGPU=1"), named("_2", forbidden=["CUSTOM_A"])],
            same_subtree=[["_1", "_2"]],
        ),
        ["h: PGPU=1@h/0 _1:h/0 _2:h", "h: PGPU=1@h/0 _1:h/0 _2:h/0"],
        ["PGPU=1@h/0 _1:h/0 _2:h", "PGPU=1@h/0 _1:h/0 _2:h/0"],
        theirs=[],
    ),
    Case(
        "a group that asks for nothing is in_tree too",
        [tree("h", "VCPU=4", traits=H, aggregates=RACK), pool("p", traits=H)],
        Request(
            "VCPU=1",
            groups=[named("_1", required=H, in_tree=uuid_of("p"))],
            same_subtree=[["_1"]],
        ),
        ["h: VCPU=1@h _1:p"],
        ["VCPU=1@h _1:p"],
        theirs=["VCPU=1@h _1:h", "VCPU=1@h _1:p"],
    ),
    Case(
        "a pool may be below the root of a tree",
        [tree("h", "VCPU=4", aggregates=RACK), tree("s", "MEMORY_MB=4", pool("s/0"))],
        Request("VCPU=1,DISK_GB=1"),
        ["h: DISK_GB=1@s/0 VCPU=1@h"],
        ["DISK_GB=1@s/0 VCPU=1@h"],
        theirs=ERROR,
    ),
    Case(
        "amounts of groups stay where they are",
        [tree("h", None, tree("h/0", "VCPU=4"), tree("h/1", "VCPU=4"))],
        Request("VCPU=1", groups=[named("_1", "VCPU=1")], group_policy="isolate"),
        [
            "h: VCPU=1@h/0 VCPU=1@h/1 _1:h/0",
            "h: VCPU=1@h/0 VCPU=1@h/1 _1:h/1",
            "h: VCPU=2@h/0 _1:h/0",
            "h: VCPU=2@h/1 _1:h/1",
        ],
        [
            "VCPU=1@h/0 VCPU=1@h/1 _1:h/0",
            "VCPU=1@h/0 VCPU=1@h/1 _1:h/1",
            "VCPU=2@h/0 _1:h/0",
            "VCPU=2@h/1 _1:h/1",
        ],
        theirs="amounts leak",
    ),
]
