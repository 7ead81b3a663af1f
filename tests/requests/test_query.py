"""Placement's query string: what it says is read, what a request asks is said, and back again."""

from __future__ import annotations

import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests import Request, RequestGroup, query
from resource_objects.testing.refusals import is_one_of, raises_code
from tests.support.strategies import queries

A, B, C = "CUSTOM_A", "CUSTOM_B", "CUSTOM_C"
UUID = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"


def read(text: str) -> Request:
    """Return the request that a query string says."""
    return query.parse(text).request


def asks(*groups: RequestGroup, **wide: object) -> Request:
    """Return a request with Placement's semantics; the first group is the one without a name."""
    unnamed, *named = groups
    said = {**unnamed.arguments(), **wide}
    return Request(unnamed.resources, groups=named, compatibility="placement", **said)


# --- there and back -----------------------------------------------------------------------------


@given(queries(), st.none() | st.integers(1, MAX_AMOUNT))
def test_what_is_said_is_read_as_it_was(request: Request, limit: int | None) -> None:
    text = query.format(request, limit)
    assert query.parse(text) == query.ParsedQuery(request, limit)
    assert query.parse(urllib.parse.parse_qsl(text)) == query.ParsedQuery(request, limit)
    assert text.isascii()


@given(queries(compatibility=None))
def test_a_request_with_our_semantics_comes_back_with_placements(request: Request) -> None:
    assert read(query.format(request)) == request.replace(compatibility="placement")


# --- what each key says -------------------------------------------------------------------------

VM = "resources=VCPU:1"
ONE = RequestGroup("VCPU=1")


def one(**conditions: object) -> Request:
    return asks(RequestGroup("VCPU=1", **conditions))


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("resources=VCPU:1,MEMORY_MB:512", asks(RequestGroup("VCPU=1,MEMORY_MB=512"))),
        (f"resources=VCPU:{MAX_AMOUNT}", asks(RequestGroup(f"VCPU={MAX_AMOUNT}"))),
        ("resources=CUSTOM_X:01", asks(RequestGroup("CUSTOM_X=1"))),
        (f"{VM}&required={A},!{B}", one(required=[A], forbidden=[B])),
        (f"{VM}&required={A}&required=!{B}&required={C}", one(required=[A, C], forbidden=[B])),
        (f"{VM}&required=in:{A},{B}", one(any_of=[[A, B]])),
        (f"{VM}&required=in:{A}&required={B}", one(any_of=[[A]], required=[B])),
        (f"{VM}&required=in:{A},{B}&required=!{A}", one(any_of=[[A, B]], forbidden=[A])),
        (f"{VM}&required=%20{A}%20,+!{B}", one(required=[A], forbidden=[B])),
        (f"{VM}&required={A},{A}", one(required=[A])),
        (f"{VM}&member_of=rack1", one(member_of=["rack1"])),
        (f"{VM}&member_of=in:a,b&member_of={UUID}", one(member_of=[["a", "b"], UUID])),
        (f"{VM}&member_of=!a&member_of=!in:b,c", one(not_member_of=["a", "b", "c"])),
        (f"{VM}&member_of=in:a,b&member_of=!a", one(member_of=[["a", "b"]], not_member_of=["a"])),
        (f"{VM}&member_of=rack%207", one(member_of=["rack 7"])),
        (f"{VM}&in_tree=host0", one(in_tree="host0")),
        (f"{VM}&in_tree=+{UUID.upper()}", one(in_tree=UUID)),
        (f"{VM}&group_policy=isolate", asks(ONE, group_policy="isolate")),
        (f"{VM}&root_required={A},!{B}", asks(ONE, root_required=[A], root_forbidden=[B])),
        (
            f"resources_NIC=SRIOV_NET_VF:1&required_NIC={A}",
            asks(RequestGroup(), RequestGroup("SRIOV_NET_VF=1", suffix="_NIC", required=[A])),
        ),
        (
            f"resources1=PGPU:1&{VM}&resources-x=VGPU:2&group_policy=none",
            asks(
                ONE,
                RequestGroup("PGPU=1", suffix="1"),
                RequestGroup("VGPU=2", suffix="-x"),
                group_policy="none",
            ),
        ),
        (
            f"{VM}&required_A={A}&resources_B=PGPU:1&same_subtree=_A,+_B&group_policy=isolate",
            asks(
                ONE,
                RequestGroup(suffix="_A", required=[A]),
                RequestGroup("PGPU=1", suffix="_B"),
                same_subtree=[["_A", "_B"]],
                group_policy="isolate",
            ),
        ),
        (f"&;{VM};&", one()),
        (f"{VM};required={A}", one(required=[A])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_query_says(text: str, request_: Request) -> None:
    assert read(text) == request_


def test_a_limit_is_beside_the_request() -> None:
    assert query.parse(VM).limit is None
    assert query.parse(f"limit=7&{VM}").limit == 7
    assert query.format(Request("VCPU=1"), 7) == f"{VM}&limit=7"


def test_keys_and_values_may_be_given_instead_of_text() -> None:
    pairs = [("resources", "VCPU:1"), ["member_of", "a&b=c"]]
    assert query.parse(pairs).request == one(member_of=["a&b=c"])
    assert query.parse(iter(pairs)).request == one(member_of=["a&b=c"])


def test_groups_are_said_in_their_order_and_names_are_encoded() -> None:
    asked = asks(
        RequestGroup("VCPU=1", member_of=["rack 7", ["a", "é"]], not_member_of=["x&y"]),
        RequestGroup("PGPU=1", suffix="b", any_of=[[A, B]], in_tree="host/0"),
        RequestGroup(suffix="a", required=[A], forbidden=[B]),
        same_subtree=[["a", "b"]],
        group_policy="isolate",
        root_forbidden=[C],
    )
    assert query.format(asked).split("&") == [
        "resources=VCPU:1",
        "member_of=in:a,%C3%A9",
        "member_of=rack+7",
        "member_of=!x%26y",
        "resourcesb=PGPU:1",
        f"requiredb=in:{A},{B}",
        "in_treeb=host/0",
        f"requireda={A},!{B}",
        "group_policy=isolate",
        "same_subtree=a,b",
        f"root_required=!{C}",
    ]


# --- what is refused ----------------------------------------------------------------------------

TWO = "resources1=VCPU:1&resources2=VCPU:1"
InvalidAmount = "InvalidAmount"
InvalidRequest = "InvalidRequest"
DuplicateKey = "DuplicateKey"

REFUSED = [
    # nothing asked, or not in these words
    ("", InvalidRequest, "resources: got 'nothing', expected CLASS:AMOUNT"),
    (f"required={A}", InvalidRequest, "resources: got 'nothing', expected CLASS:AMOUNT"),
    (f"{VM}&colour=red", InvalidRequest, "query: got 'colour', expected one of group_policy, "),
    (f"?{VM}", InvalidRequest, "query: got '?resources', expected one of"),
    (f"{VM}&limit1=2", InvalidRequest, "query: got 'limit1', expected one of"),
    (f"{VM}&member_of=%ff", InvalidRequest, "query: got 'member_of=%ff', expected percent-encoded"),
    # keys
    (f"{VM}&resources$=PGPU:1", InvalidRequest, "query: got 'resources$', expected resources and "),
    (f"{VM}&required_A.B={A}", InvalidRequest, "query: got 'required_A.B', expected required and "),
    (f"{VM}&in_tree{'x' * 65}=a", InvalidRequest, "expected in_tree and a suffix of 1 to 64 of"),
    (f"{VM}%0A&limit=1", InvalidAmount, "resources: got '1\\n', expected a whole number of VCPU"),
    (f"{VM}&required", InvalidRequest, "required: got '', expected a value"),
    (f"{VM}&member_of=", InvalidRequest, "member_of: got '', expected a value"),
    (f"{VM}&in_tree=++", InvalidRequest, "in_tree: got '  ', expected a value"),
    ("resources1=", InvalidRequest, "resources1: got '', expected a value"),
    (f"{VM}&resources=PGPU:1", DuplicateKey, "query: got 'resources', expected this key once"),
    (f"{VM}&in_tree=a&in_tree=b", DuplicateKey, "query: got 'in_tree', expected this key once"),
    (f"{VM}&limit=1&limit=1", DuplicateKey, "query: got 'limit', expected this key once"),
    (
        f"{VM}&group_policy=none&group_policy=none",
        DuplicateKey,
        "query: got 'group_policy', expected this key once",
    ),
    (
        f"{VM}&root_required={A}&root_required={B}",
        DuplicateKey,
        "query: got 'root_required', expected this key once",
    ),
    # amounts
    ("resources=VCPU", InvalidRequest, "resources: got 'VCPU', expected CLASS:AMOUNT"),
    ("resources=VCPU:1,", InvalidRequest, "resources: got '', expected CLASS:AMOUNT"),
    ("resources=VCPU:1:2", InvalidRequest, "resources: got 'VCPU:1:2', expected CLASS:AMOUNT"),
    ("resources=VCPU=1", InvalidRequest, "resources: got 'VCPU=1', expected CLASS:AMOUNT"),
    ("resources_A=VCPU:", InvalidAmount, "resources_A: got '', expected a whole number of VCPU"),
    ("resources=VCPU:0", InvalidAmount, "resources: got '0', expected a whole number of VCPU"),
    ("resources=VCPU:-1", InvalidAmount, "resources: got '-1', expected"),
    ("resources=VCPU:1.5", InvalidAmount, "resources: got '1.5', expected"),
    ("resources=VCPU:%2B1", InvalidAmount, "resources: got '+1', expected"),
    ("resources=VCPU:+1", InvalidAmount, "resources: got ' 1', expected"),
    ("resources=VCPU:1_0", InvalidAmount, "resources: got '1_0', expected"),
    ("resources=VCPU:%D9%A3", InvalidAmount, "resources: got '\u0663', expected"),
    (f"resources=VCPU:{2**63}", InvalidAmount, f"got '{2**63}', expected a whole number of VCPU"),
    (f"resources=VCPU:{'9' * 5000}", InvalidAmount, f"from 1 to {2**63 - 1}"),
    (
        f"resources=VCPU:{2**63 - 1}&resources1=VCPU:1",
        InvalidAmount,
        f"resources1: got 1, expected at most {2**63 - 1} of VCPU over all groups",
    ),
    ("resources=VCPU:1,VCPU:2", DuplicateKey, "resources: got 'VCPU', expected each class once"),
    (
        "resources=CPU:1",
        "UnknownResourceClass",
        "resources: got 'CPU', expected a standard or CUSTOM_ class, such as",
    ),
    ("resources=vcpu:1", "InvalidResourceClass", "resources: got 'vcpu', expected"),
    ("resources=:1", "InvalidResourceClass", "resources: got '', expected"),
    (
        "resources=NUMA_TOPOLOGY:1",
        InvalidRequest,
        "resources: got 'NUMA_TOPOLOGY:1', expected a class that is counted",
    ),
    # traits
    (f"{VM}&required={A},", InvalidRequest, f"required: got '{A},', expected traits with commas"),
    (f"{VM}&required=!", InvalidRequest, "required: got '!', expected traits with commas"),
    (f"{VM}&required=in:", InvalidRequest, "required: got 'in:', expected in: and traits"),
    (f"{VM}&required=in:{A},,{B}", InvalidRequest, "expected in: and traits with commas between"),
    (f"{VM}&required=in:{A},!{B}", InvalidRequest, "between, none with !"),
    (f"{VM}&required=!!{A}", "InvalidTrait", f"required: got '!{A}', expected 1 to 255"),
    (f"{VM}&required=!in:{A}", "InvalidTrait", f"required: got 'in:{A}', expected"),
    (
        "resources_A=VCPU:1&required_A=HW_CPU_X86_AVX9",
        "UnknownTrait",
        "required_A: got 'HW_CPU_X86_AVX9', expected a standard or CUSTOM_ trait, such as",
    ),
    (f"{VM}&required=in:{A},X", "UnknownTrait", "required: got 'X', expected a standard"),
    (f"{VM}&required={A},!{A}", InvalidRequest, f"required: got ['{A}'], expected traits that are"),
    (
        f"resources1=VCPU:1&required1={A}&required1=!{A}",
        InvalidRequest,
        f"required1: got ['{A}'], expected traits that are not forbidden too",
    ),
    (
        f"{VM}&required=in:{A},{B}&required=!{A},!{B}",
        InvalidRequest,
        f"required: got 'in:{A},{B}', expected at least one trait that is not forbidden too",
    ),
    # aggregates and trees
    (f"{VM}&member_of=a,b", InvalidRequest, "member_of: got 'a,b', expected an aggregate, or in:"),
    (f"{VM}&member_of=!a,b", InvalidRequest, "member_of: got '!a,b', expected an aggregate"),
    (f"{VM}&member_of=in:a,!b", InvalidRequest, "member_of: got 'in:a,!b', expected an aggregate"),
    (f"{VM}&member_of=in:!a", InvalidRequest, "member_of: got 'in:!a', expected an aggregate"),
    (f"{VM}&member_of=!!a", InvalidRequest, "member_of: got '!!a', expected an aggregate"),
    (f"{VM}&member_of=in:a,", InvalidRequest, "member_of: got 'in:a,', expected an aggregate"),
    (f"{VM}&member_of=!in:", InvalidRequest, "member_of: got '!in:', expected an aggregate"),
    (f"{VM}&member_of=+a", "InvalidName", "member_of: got ' a', expected 1 to 255"),
    (f"{VM}&member_of={'a' * 256}", "InvalidName", "expected 1 to 255 printable"),
    (f"{VM}&member_of=in:a,b%00", "InvalidName", "member_of: got 'b\\x00', expected"),
    (
        f"{VM}&member_of=in:a,b&member_of=!in:a,b",
        InvalidRequest,
        "member_of: got 'in:a,b', expected at least one aggregate that is not forbidden too",
    ),
    (f"{VM}&in_tree=a%0Ab", "InvalidName", "in_tree: got 'a\\nb', expected 1 to 200"),
    # groups
    (
        f"{VM}&required_A={A}",
        InvalidRequest,
        f"required_A: got '{A}', expected resources_A=... beside it, or same_subtree=_A,...",
    ),
    (f"{VM}&member_of1=a", InvalidRequest, "member_of1: got 'a', expected resources1=... beside"),
    (f"{VM}&in_tree1=a", InvalidRequest, "in_tree1: got 'a', expected resources1=... beside"),
    (
        f"resources1=VCPU:1&required={A}",
        InvalidRequest,
        f"required: got '{A}', expected resources=... beside it",
    ),
    (
        TWO,
        InvalidRequest,
        "group_policy: got 'nothing', expected none or isolate, for the groups 1, 2",
    ),
    (
        f"resources1=VCPU:1&required2={A}&same_subtree=1,2",
        InvalidRequest,
        "group_policy: got 'nothing', expected none or isolate",
    ),
    (f"{TWO}&group_policy=apart", InvalidRequest, "group_policy: got 'apart', expected none or"),
    (f"{TWO}&group_policy=", InvalidRequest, "group_policy: got '', expected a value"),
    (
        f"{TWO}&group_policy=none&same_subtree=1,3",
        InvalidRequest,
        "same_subtree: got '1,3', expected suffixes of groups of the query: 1, 2",
    ),
    (
        f"{VM}&same_subtree=1",
        InvalidRequest,
        "same_subtree: got '1', expected suffixes of groups of the query: there are none",
    ),
    (
        f"{TWO}&group_policy=none&same_subtree=1,",
        InvalidRequest,
        "same_subtree: got '1,', expected suffixes of named groups with commas between",
    ),
    (f"{TWO}&group_policy=none&same_subtree=,", InvalidRequest, "same_subtree: got ',', expected"),
    # the request as a whole
    (f"{VM}&root_required={A},!{A}", InvalidRequest, f"root_required: got ['{A}'], expected"),
    (f"{VM}&root_required=in:{A}", "InvalidTrait", f"root_required: got 'in:{A}'"),
    (f"{VM}&root_required=,", InvalidRequest, "root_required: got ',', expected traits with"),
    (f"{VM}&root_required=HW_NO", "UnknownTrait", "root_required: got 'HW_NO', expected"),
    (f"{VM}&limit=0", InvalidAmount, "limit: got '0', expected a whole number from 1"),
    (f"{VM}&limit=many", InvalidAmount, "limit: got 'many', expected a whole number from 1"),
    (f"{VM}&limit={2**63}", InvalidAmount, f"limit: got '{2**63}', expected a whole number"),
    # absurd sizes
    (f"{VM}&member_of={'a' * 2**20}", InvalidRequest, "expected at most 1048576 characters"),
    (
        "&".join(f"resources{n}=VCPU:1" for n in range(1001)),
        InvalidRequest,
        "query: got '1001 groups', expected at most 1000",
    ),
]


@pytest.mark.parametrize(
    ("text", "kind", "message"), REFUSED, ids=[text[:60] for text, _, _ in REFUSED]
)
def test_a_query_is_refused(text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(exceptions.InvalidInput) as caught:
        query.parse(text)
    assert is_one_of(caught.value, kind)
    assert message in str(caught.value)


def test_of_many_groups_a_message_names_the_first_few() -> None:
    text = "&".join(f"resources{n}=VCPU:1" for n in range(1, 1000))
    with raises_code(InvalidRequest, match=r"for the groups 1, 2, 3, 4, 5 and 994 more$"):
        query.parse(text)


@pytest.mark.parametrize(
    "given_",
    [
        None,
        7,
        b"resources=VCPU:1",
        {"resources": "VCPU:1"},
        [("resources",)],
        ["resources"],
        [("resources", 1)],
        [(None, "VCPU:1")],
    ],
    ids=repr,
)
def test_what_is_neither_text_nor_pairs_is_refused(given_: object) -> None:
    with raises_code(InvalidRequest, match=r"^query: got "):
        query.parse(given_)  # type: ignore[arg-type]


_WORDS = st.sampled_from(
    [
        "resources",
        "resources1",
        "required",
        "required1",
        "member_of",
        "in_tree",
        "same_subtree",
        "group_policy",
        "root_required",
        "limit",
        "=",
        "=",
        "=",
        "&",
        "&",
        ":",
        ":",
        ",",
        "!",
        "in:",
        "1",
        "VCPU:1",
        "VCPU",
        "CUSTOM_A",
        "none",
        "isolate",
        "%",
        "%41",
        "+",
        "",
        ";",
        "\x00",
        "é",
    ]
)


@given(st.lists(_WORDS, max_size=25).map("".join) | st.text())
def test_any_text_is_read_or_refused_with_an_error_of_bad_input(text: str) -> None:
    try:
        found = query.parse(text)
    except exceptions.InvalidInput as error:
        assert str(error)
    else:
        assert found.request.compatibility == "placement"
        assert query.parse(query.format(found.request, found.limit)) == found


# --- what cannot be said ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("VCPU=4,NUMA_TOPOLOGY=2:shared=4"), "resources: got 'NUMA_TOPOLOGY=2:shared=4'"),
        (Request("VCPU=1", near="numa"), "near: got 'numa', expected none: a query"),
        (
            Request("VCPU=1", traits_of={"VCPU": [A]}),
            "traits_of: got 'VCPU', expected none: a query",
        ),
        (
            Request("PGPU=1").with_group("_A", "VCPU=1", traits_of={"VCPU": [A]}),
            "traits_of_A: got 'VCPU', expected none: a query",
        ),
        (
            Request("VCPU=1", member_of=["a,b"]),
            "member_of: got 'a,b', expected an aggregate without",
        ),
        (Request("VCPU=1", not_member_of=["!a"]), "member_of: got '!a', expected an aggregate"),
        (
            Request("VCPU=1", member_of=[["b", "in:a"]]),
            "member_of: got 'in:a', expected an aggregate",
        ),
        (
            Request("VCPU=1", groups=[RequestGroup("PGPU=1", suffix=s) for s in "ab"]),
            "group_policy: got None, expected none or isolate",
        ),
        (
            Request(
                groups=[RequestGroup("VCPU=1", suffix="a"), RequestGroup(suffix="b")],
                same_subtree=[["a", "b"]],
                group_policy="none",
            ),
            "group b: got 'nothing', expected an amount or a condition",
        ),
        ("VCPU=1", "request: got 'VCPU=1', expected a Request"),
    ],
    ids=str,
)
def test_what_a_query_cannot_say_is_refused(request_: Request, message: str) -> None:
    with raises_code(InvalidRequest) as caught:
        query.format(request_)
    assert message in str(caught.value)


@pytest.mark.parametrize("limit", [0, -1, True, "3", 1.5, 2**63], ids=repr)
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    with raises_code(InvalidAmount, match=r"^limit: got "):
        query.format(Request("VCPU=1"), limit)  # type: ignore[arg-type]


def test_what_would_be_too_long_is_refused() -> None:
    many = [f"{n:04d}{'é' * 200}" for n in range(1000)]  # each é is six characters there
    with raises_code(InvalidRequest, match="expected one of at most 1048576 characters"):
        query.format(Request("VCPU=1", not_member_of=many))


def test_keys_and_values_have_the_bound_of_the_text() -> None:
    many = [("member_of", f"{n:0250d}") for n in range(5000)]
    with raises_code(InvalidRequest, match="got '1250004 characters', expected at most 1048576"):
        query.parse([("resources", "VCPU:1"), *many])
