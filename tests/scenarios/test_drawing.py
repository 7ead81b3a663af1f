"""Drawings: parsing, drawing and building agree, and errors name the line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import Provider
from resource_objects.testing.drawing import Drawing, DrawnUse, draw
from resource_objects.testing.refusals import raises_code
from tests.support.columns import columns_of
from tests.support.lengths import examples
from tests.support.strategies import consumer_names, inventories, labels, provider_names

LAB = """
host0             VCPU 8 ratio 1.5 used 2 by job-1, MEMORY_MB 4096   aggregates: rack1, "my rack"
├── /gpu[0-1]     PGPU 1   traits: CUSTOM_H100
└── /card         CUSTOM_SLICE 7 reserved 1
    └── /part     VGPU 6 min 2 max 4 step 2 uses 1 CUSTOM_SLICE of host0/card
nfs               pool, DISK_GB 1000   aggregates: rack1
"""


@st.composite
def trees(draw_value, names: list[str], depth: int = 0) -> Provider:
    """Return a tree of some of the names, which are removed from the list."""
    name = names.pop()
    figures = inventories(100, max_size=2)
    below = draw_value(st.integers(0, 2 if depth < 3 else 0))
    return Provider(
        name,
        draw_value(figures),
        traits=draw_value(st.sets(st.sampled_from(["CUSTOM_A", "CUSTOM_B", "HW_NUMA_ROOT",
                                                  "MISC_SHARES_VIA_AGGREGATE"]))),
        aggregates=draw_value(st.sets(labels(), max_size=2)),
        children=[draw_value(trees(names, depth + 1)) for _ in range(below) if names],
    )  # fmt: skip


@st.composite
def drawings(draw_value) -> Drawing:
    """Return drawings of a few small trees with any names and allocations."""
    names = draw_value(st.lists(provider_names(), min_size=1, max_size=8, unique=True))
    names = [name for name in names if not ro.names.is_uuid(name)] or ["host0"]
    roots = []
    while names and len(roots) < 3:
        roots.append(draw_value(trees(names)))
    places = [
        (provider.name, kind)
        for root in roots
        for provider in root.walk()
        for kind, _ in provider.inventories.by_name()
    ]
    uses = []
    for provider, kind in draw_value(st.lists(st.sampled_from(places), max_size=4, unique=True)
                                    if places else st.just([])):  # fmt: skip
        for consumer in draw_value(st.sets(consumer_names(), min_size=1, max_size=2)):
            uses.append(DrawnUse(consumer, provider, kind, draw_value(st.integers(1, 99))))
    return Drawing(tuple(roots), tuple(uses))


@settings(max_examples=examples(60))
@given(drawings())
def test_a_parsed_drawing_equals_the_drawn_trees(drawing: Drawing) -> None:
    assert Drawing.parse(str(drawing)) == drawing


def test_each_figure_is_parsed_and_drawn() -> None:
    drawing = Drawing.parse(LAB)
    host, nfs = drawing.roots
    assert [provider.name for provider in host.walk()] == [
        "host0",
        "host0/gpu0",
        "host0/gpu1",
        "host0/card",
        "host0/card/part",
    ]
    assert str(host.inventories) == "VCPU=8:allocation_ratio=1.5,MEMORY_MB=4096"
    part = host.find("host0/card/part")
    assert str(part.inventories) == "VGPU=6:min_unit=2:max_unit=4:step_size=2"
    assert [str(share) for share in part.shares] == ["VGPU uses 1 CUSTOM_SLICE of host0/card"]
    assert host.aggregates == {"rack1", "my rack"}
    assert nfs.traits == {"MISC_SHARES_VIA_AGGREGATE"}
    assert drawing.uses == (DrawnUse("job-1", "host0", "VCPU", 2),)
    assert str(drawing).splitlines() == [
        "host0                    VCPU 8 ratio 1.5 used 2 by job-1, MEMORY_MB 4096  "
        'aggregates: "my rack", rack1',
        "├── host0/gpu0           PGPU 1  traits: CUSTOM_H100",
        "├── host0/gpu1           PGPU 1  traits: CUSTOM_H100",
        "└── host0/card           CUSTOM_SLICE 7 reserved 1",
        "    └── host0/card/part  VGPU 6 min 2 max 4 step 2 uses 1 CUSTOM_SLICE of host0/card",
        "nfs                      pool, DISK_GB 1000  aggregates: rack1",
    ]


def test_an_empty_drawing() -> None:
    assert Drawing.parse("") == Drawing(())
    assert str(Drawing(())) == ""
    with ro.connect("memory://") as ledger:
        Drawing(()).build(ledger)
        assert draw(ledger) == ""


def test_ascii_branches_are_equivalent() -> None:
    unicode = "a\n├── b  VCPU 1\n│   └── c\n└── d\n    └── e"
    assert Drawing.parse("a\n+-- b  VCPU 1\n|   +-- c\n+-- d\n    +-- e") == Drawing.parse(unicode)
    assert Drawing.parse("a\n|-- b  VCPU 1\n|   `-- c\n`-- d\n    `-- e") == Drawing.parse(unicode)


def test_a_range_is_expanded_with_its_children() -> None:
    drawing = Drawing.parse("host[08-10]  VCPU 4 used 1 by job-1\n└── /gpu[0-1]  PGPU 1")
    assert [provider.name for provider in drawing.walk()] == [
        *("host08", "host08/gpu0", "host08/gpu1", "host09", "host09/gpu0", "host09/gpu1"),
        *("host10", "host10/gpu0", "host10/gpu1"),
    ]
    assert [use.provider for use in drawing.uses] == ["host08", "host09", "host10"]
    (plain,) = Drawing.parse('"host[0-1]"').roots
    assert plain.name == "host[0-1]"


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_a_built_drawing_equals_that_of_the_ledger(url: str, tmp_path) -> None:
    drawing = Drawing.parse(LAB)
    with ro.connect(url if "://" in url else f"sqlite:///{tmp_path}/lab.db") as ledger:
        drawing.build(ledger)
        assert Drawing.of(ledger) == drawing.by_name()
        assert draw(ledger) == draw(ledger.backend.read()) == draw(drawing.by_name())
        assert ledger.get_claim("job-1").amounts == ro.Amounts("VCPU=2")


def test_uses_above_the_capacity_and_pools_with_a_class_of_the_tree_are_built() -> None:
    drawing = Drawing.parse(
        "host0  VCPU 8 max 2 used 9 by job-1, DISK_GB 5  aggregates: rack1\n"
        "nfs    pool, DISK_GB 7  aggregates: rack1"
    )
    with ro.connect("memory://") as ledger:
        drawing.build(ledger)
        assert Drawing.of(ledger) == drawing
        assert ledger.usage()["host0", "VCPU"].free == -1


def test_columns_are_drawn() -> None:
    columns = columns_of([Provider("host0", "VCPU=8")], [("job-1", "host0", "VCPU", 3)])
    assert draw(columns) == "host0  VCPU 8 used 3 by job-1"


def test_an_inventory_that_is_not_a_count_is_refused() -> None:
    cells = ro.NUMATopologyInventory([ro.HostCell(0, shared=[0, 1], memory_mb=1024)])
    drawing = Drawing((Provider("host0", {"NUMA_TOPOLOGY": cells}),))
    with pytest.raises(exceptions.InvalidInventory, match="drawing of host0: got 'NUMA_TOPOLOGY'"):
        str(drawing)


INVALID = {
    "no provider above": ("├── a", 1, "a line above it"),
    "two levels down": ("a\n└── b\n        └── c", 3, "a line above it"),
    "not the last": ("a\n├── b", 2, "the branches '└── '"),
    "after the last": ("a\n└── b\n└── c", 2, "the branches '├── '"),
    "another's branch": ("a\n├── b\n│   └── c\n    └── d", 2, "the branches '└── '"),
    "a bar too many": ("a\n└── b\n│   └── c", 3, "the branches '    └── '"),
    "not four columns": ("a\n├─ b", 2, "branches of four columns"),
    "indented": ("a\n    b", 2, "a branch before the name"),
    "no total": ("a  VCPU", 1, "the total of VCPU"),
    "a total of words": ("a  VCPU many", 1, "the total of VCPU"),
    "a negative total": ("a  VCPU -1", 1, "the total of VCPU"),
    "figures that contradict": ("a  VCPU 8 max 9", 1, "from the min_unit of 1"),
    "an unknown figure": ("a  VCPU 8 most 9", 1, "one of reserved, ratio, min"),
    "a figure twice": ("a  VCPU 8 min 2 min 3", 1, "each figure once"),
    "an unknown class": ("a  CPU 8", 1, "a standard or CUSTOM_ class"),
    "a class twice": ("a  VCPU 8, VCPU 9", 1, "each resource class once"),
    "no count": ("a  NUMA_TOPOLOGY 8", 1, "a class that is counted"),
    "an unknown trait": ("a  traits: FAST", 1, "a standard or CUSTOM_ trait"),
    "no trait": ("a  traits:", 1, "a name"),
    "a trait twice": ("a  traits: CUSTOM_A, CUSTOM_A", 1, "each name once"),
    "traits twice": ("a  traits: CUSTOM_A traits: CUSTOM_B", 1, "each list once"),
    "no comma": ("a  pool DISK_GB 8", 1, "a comma"),
    "a comma too many": ("a  VCPU 8,, PGPU 1", 1, "a resource class"),
    "held twice": ("a  VCPU 8 used 1 used 2", 1, "each consumer once"),
    "nothing held": ("a  VCPU 8 used 0 by b", 1, "1 or more"),
    "a consumer of nothing": ("a  VCPU 8 used 1 by", 1, "a consumer's name"),
    "no ratio": ("a  VCPU 8 ratio x", 1, "a decimal"),
    "half a quotation": ('a\n└── "b', 2, "quotation marks in pairs"),
    "no JSON": ('"\\x"', 1, "a JSON string"),
    "a name twice": ("a\nb\na", 3, "each provider once"),
    "nothing to go on from": ("/a", 1, "there is no provider above"),
    "a range downwards": ("a\nb[3-1]", 2, "an ascending range"),
    "a range without end": ("a[0-999999]", 1, "an ascending range"),
    "a name that cannot be": ('" a"', 1, "printable characters"),
    "a share of nowhere": ("a  VCPU 2 uses 1 VCPU of b", None, "inventories of the same tree"),
    "a share without of": ("a  VCPU 2 uses 1 VCPU", 1, "of, and a provider's name"),
}


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_drawing_names_the_line(case: str) -> None:
    text, line, expected = INVALID[case]
    where = "lab.txt" if line is None else f"lab.txt, line {line}"
    with raises_code("InvalidText") as caught:
        Drawing.parse(text, source="lab.txt")
    assert caught.value.what == where
    assert expected in caught.value.expected


def test_uses_are_of_providers_in_the_trees() -> None:
    with raises_code("InvalidText", match="of a provider of the trees"):
        Drawing((Provider("a", "VCPU=1"),), (DrawnUse("job-1", "b", "VCPU", 1),))
