"""Groups of a request: what may be said, what contradicts, and how older versions read it."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given

from resource_objects.base import ResourceObject
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import IntegerAmount
from resource_objects.testing.refusals import raises_code
from tests.support import strategies

FULL = Request(
    "VCPU=2,DISK_GB=10",
    required=["CUSTOM_A"],
    forbidden=["CUSTOM_B"],
    any_of=[["CUSTOM_C", "CUSTOM_D"]],
    member_of=["rack1", ["fast", "large"]],
    not_member_of=["old"],
    in_tree="host0",
    traits_of={"DISK_GB": ["CUSTOM_SSD", "!CUSTOM_SLOW"]},
    groups=[
        RequestGroup("SRIOV_NET_VF=1", suffix="_NIC"),
        RequestGroup(suffix="_NUMA", required=["HW_NUMA_ROOT"]),
    ],
    group_policy="isolate",
    same_subtree=[["_NIC", "_NUMA"]],
    root_required=["CUSTOM_E"],
    root_forbidden=["CUSTOM_F"],
)


def test_everything_is_said_in_one_line():
    assert str(FULL) == (
        "VCPU=2,DISK_GB=10 required=CUSTOM_A forbidden=CUSTOM_B any_of=CUSTOM_C|CUSTOM_D "
        "member_of=fast|large,rack1 not_member_of=old in_tree=host0 "
        "DISK_GB with=CUSTOM_SSD,!CUSTOM_SLOW; _NIC: SRIOV_NET_VF=1; "
        "_NUMA: nothing required=HW_NUMA_ROOT; group_policy=isolate; same_subtree=_NIC,_NUMA; "
        "root_required=CUSTOM_E; root_forbidden=CUSTOM_F"
    )


@given(strategies.requests())
def test_a_request_says_how_to_make_it_again(request):
    assert eval(repr(request), {"Request": Request, "RequestGroup": RequestGroup}) == request


@given(strategies.requests())
def test_there_and_back(request):
    assert ResourceObject.obj_from_primitive(request.obj_to_primitive()) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_the_loop_of_the_specification_runs_over_all_groups():
    request = Request("VCPU=2").with_group("1", "VCPU=1,PGPU=1").with_group("2", "PGPU=2")
    assert {kind.name: amount for kind, amount in request.resources.items()} == {
        "VCPU": IntegerAmount(3),
        "PGPU": IntegerAmount(3),
    }


def test_groups_of_a_request():
    assert FULL.unnamed.suffix == ""
    assert [group.suffix for group in FULL.named] == ["_NIC", "_NUMA"]
    assert FULL.with_group("1", "PGPU=1").named[-1] == RequestGroup("PGPU=1", suffix="1")
    assert FULL.with_unnamed(RequestGroup("VCPU=1")).unnamed == RequestGroup("VCPU=1")
    assert FULL.isolates and not Request("VCPU=1").isolates


def test_only_named_groups_may_ask():
    assert str(Request(groups=[RequestGroup("PGPU=1", suffix="1")])) == "1: PGPU=1"


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ({"any_of": [["CUSTOM_B", "CUSTOM_A"], ["CUSTOM_A", "CUSTOM_B"]]}, "any_of"),
        ({"member_of": ["b", "a", ["b"]]}, "member_of"),
    ],
    ids=["any_of", "member_of"],
)
def test_the_order_in_which_conditions_are_given_does_not_matter(conditions, told):
    (given,) = conditions.values()
    assert Request("VCPU=1", **conditions) == Request("VCPU=1", **{told: given[::-1]})


# As many characters as a request may say, 2**20: 4112 names of 255, and one of 16.
LONG = [f"CUSTOM_{n:0248d}" for n in range(4112)] + [f"CUSTOM_{0:09d}"]

BAD = {
    "suffix": (lambda: RequestGroup("VCPU=1", suffix="a b"), "suffix: got 'a b'"),
    "long suffix": (lambda: RequestGroup("VCPU=1", suffix="x" * 65), "1 to 64"),
    "suffix of the unnamed": (lambda: Request("VCPU=1", suffix="1"), "suffix: got '1'"),
    "suffix twice": (
        lambda: Request("VCPU=1").with_group("1", "PGPU=1").with_group("1", "PGPU=2"),
        r"groups: got \['1'\], expected each suffix once",
    ),
    "policy": (lambda: Request("VCPU=1", group_policy="both"), "group_policy: got 'both'"),
    "compatibility": (lambda: Request("VCPU=1", compatibility="nova"), "compatibility"),
    "subtree of nobody": (
        lambda: Request("VCPU=1", same_subtree=[["_A"]]),
        r"same_subtree: got \['_A'\]",
    ),
    "subtree of nothing": (lambda: Request("VCPU=1", same_subtree=[[]]), "same_subtree"),
    "subtrees as text": (lambda: Request("VCPU=1", same_subtree="_A"), "same_subtree: got '_A'"),
    "subtree as text": (lambda: Request("VCPU=1", same_subtree=["_A"]), "same_subtree: got '_A'"),
    "a group of nothing": (
        lambda: Request("VCPU=1").with_group("_A", required=["CUSTOM_A"]),
        "group _A: got 'nothing'",
    ),
    "conditions on nothing": (
        lambda: Request(required=["CUSTOM_A"], groups=[RequestGroup("PGPU=1", suffix="1")]),
        "request: got",
    ),
    "nothing but nothing": (
        lambda: Request(groups=[RequestGroup(suffix="_A")], same_subtree=[["_A"]]),
        "an amount of something",
    ),
    "one of none": (
        lambda: Request("VCPU=1", forbidden=["CUSTOM_A"], any_of=[["CUSTOM_A"]]),
        "any_of",
    ),
    "in and not in": (
        lambda: Request("VCPU=1", member_of=["a"], not_member_of=["a"]),
        "member_of",
    ),
    "members as text": (lambda: Request("VCPU=1", member_of="a"), "member_of: got 'a'"),
    "members as numbers": (lambda: Request("VCPU=1", member_of=[1]), "member_of: got 1"),
    "any of text": (lambda: Request("VCPU=1", any_of="CUSTOM_A"), "any_of: got 'CUSTOM_A'"),
    "excluded as text": (lambda: Request("VCPU=1", not_member_of="a"), "not_member_of"),
    "traits of another class": (
        lambda: Request("VCPU=1", traits_of={"PGPU": ["CUSTOM_A"]}),
        "traits_of: got 'PGPU'",
    ),
    "traits of text": (lambda: Request("VCPU=1", traits_of={"VCPU": "CUSTOM_A"}), "traits_of"),
    "traits of a list": (lambda: Request("VCPU=1", traits_of=["CUSTOM_A"]), "traits_of"),
    "traits that the group forbids": (
        lambda: Request("VCPU=1", forbidden=["CUSTOM_A"], traits_of={"VCPU": ["CUSTOM_A"]}),
        "traits_of VCPU",
    ),
    "traits that the named group requires": (
        lambda: RequestGroup(
            "VCPU=1", suffix="1", required=["CUSTOM_A"], traits_of={"VCPU": ["!CUSTOM_A"]}
        ),
        "group 1: traits_of VCPU",
    ),
    "root": (
        lambda: Request("VCPU=1", root_required=["CUSTOM_A"], root_forbidden=["CUSTOM_A"]),
        "root_forbidden",
    ),
    "a topology with a name": (
        lambda: Request("VCPU=1").with_group("1", "NUMA_TOPOLOGY=1:shared=2"),
        "group 1: NUMA_TOPOLOGY",
    ),
    "too many": (
        lambda: Request(
            "VCPU=1", groups=[RequestGroup("VCPU=1", suffix=str(n)) for n in range(1000)]
        ),
        "groups: got 1001, expected at most 1000",
    ),
    "too many of one name": (
        lambda: Request("VCPU=1", groups=[RequestGroup("VCPU=1", suffix="1")] * 1000),
        "groups: got 1001, expected at most 1000",
    ),
    "too many traits": (
        lambda: Request("VCPU=1", forbidden=LONG),
        "request: got '1048580 characters', expected at most 1048576",
    ),
    "too many aggregates in all groups": (
        lambda: Request(
            "VCPU=1",
            member_of=[LONG[:2056]],
            groups=[RequestGroup("VCPU=1", suffix="1", any_of=[LONG[2056:]])],
        ),
        "request: got '1048585 characters', expected at most 1048576",
    ),
    "too many traits of the root": (
        lambda: Request("VCPU=1", root_forbidden=LONG),
        "request: got '1048580 characters', expected at most 1048576",
    ),
    "too many traits of a class": (
        lambda: Request("VCPU=1", traits_of={"VCPU": LONG}),
        "request: got '1048584 characters', expected at most 1048576",
    ),
    "too much": (
        lambda: Request({"VCPU": 2**62}).with_group("1", {"VCPU": 2**62}),
        "amount: got 9223372036854775808",
    ),
    "unknown word": (lambda: Request("VCPU=1", colour="blue"), "colour"),
}


def test_a_request_says_as_much_as_a_query_may():
    assert len(Request("VCPU=1", required=LONG[:-1]).unnamed.required) == 4112


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_asked_is_refused_by_name(case):
    make, told = BAD[case]
    error = TypeError if case == "unknown word" else "InvalidRequest"
    with raises_code(error, match=told):
        make()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Request("VCPU=1", any_of=[["CUSTOM_A", "NOBODY_KNOWS"]]), "UnknownTrait"),
        (lambda: Request("VCPU=1", root_required=["NOBODY_KNOWS"]), "UnknownTrait"),
        (lambda: Request("VCPU=1", traits_of={"VCPU": ["NOBODY_KNOWS"]}), "UnknownTrait"),
        (lambda: Request("VCPU=1").with_group("1", "NOBODY=1"), "UnknownResourceClass"),
        (lambda: Request("VCPU=1", member_of=[""]), "InvalidName"),
        (lambda: Request("VCPU=1", in_tree=""), "InvalidName"),
        (lambda: Request("VCPU=1", in_tree=7), "InvalidName"),
    ],
    ids=["any_of", "root", "of a class", "class", "aggregate", "tree", "no tree"],
)
def test_unknown_names_are_told(make, error):
    with raises_code(error):
        make()
