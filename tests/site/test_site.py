"""A site in a file: an export makes the same site again, and faults are named by line."""

from __future__ import annotations

import datetime
import json
import tempfile

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host import partitions
from resource_objects.providers import Provider, Share, diff
from resource_objects.providers.definition import compare_tree, definitions_of
from resource_objects.resources.pci import DEVICES, PCIInventory
from resource_objects.site import Site, apply_site, count_pruned, export_site, plan_site
from resource_objects.site.patterns import Pattern
from resource_objects.testing.refusals import raises_code
from tests.support.lengths import examples
from tests.support.pci_strategies import pci_devices
from tests.support.site_trees import tree_of
from tests.support.strategies import inventories, labels, provider_names

LAB = """\
version: 1
machines:
  lab-[0-5]:
    inventories: VCPU=64,MEMORY_MB=512000
    aggregates: [rack-1]
    children:
      /gpu[0-7]:
        inventories: PGPU=1
        split: halves
        traits: [CUSTOM_H100]
pools:
  nfs:
    inventories: DISK_GB=100000
    aggregates: [rack-1]"""


@pytest.fixture
def ledger():
    with ro.connect("memory://") as opened:
        yield opened


def kept(ledger, name):
    return ledger.provider(name)


# --- what an export writes ------------------------------------------------------------------------


def test_lab_is_written_as_it_was_said(ledger):
    done = apply_site(ledger, Site.parse(LAB))
    assert (done.created, done.machines) == (6 * 9 + 1, 7)
    assert str(export_site(ledger)) == LAB


def test_split_of_file_is_that_of_partitions(ledger):
    apply_site(ledger, Site.parse(LAB))
    gpu = partitions.split(Provider("lab-3/gpu2", "PGPU=1"), "PGPU", {"CUSTOM_PGPU_HALF": 2})
    result = kept(ledger, "lab-3/gpu2")
    assert result.inventories == gpu.inventories and result.shares == gpu.shares


MIG_LAB = """\
version: 1
machines:
  lab-[0-1]:
    inventories: VCPU=64
    children:
      /gpu[0-1]:
        inventories: PGPU=1
        split: mig-h100-80gb
        traits: [CUSTOM_H100]"""

#: Of each card the names of its profiles, with the memory slices at which they may begin.
MIG_PROFILES = {
    "mig-a100-40gb": ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "mig-a100-80gb": (
        "1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb",
    ),
    "mig-h100-80gb": (
        "1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb",
    ),
    "mig-h200-141gb": (
        "1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb",
    ),
}  # fmt: skip
STARTS = (range(7), range(7), (0, 2, 4, 6), (0, 2, 4), (0, 4), (0,), (0,))


def test_each_known_card_is_tested():
    assert MIG_PROFILES.keys() == partitions.MIG_CARDS.keys()


@pytest.mark.parametrize("card", MIG_PROFILES)
def test_card_has_its_profiles_at_their_placements(ledger, card):
    text = MIG_LAB.replace("mig-h100-80gb", card)
    site = Site.parse(text)
    assert str(apply_site(ledger, site)) == f"{2 + 2 * 2 * 26} created"
    assert not apply_site(ledger, site) and not apply_site(ledger, site, prune=True)
    assert str(export_site(ledger)) == text and export_site(ledger) == site
    assert Site.from_dict(export_site(ledger).to_dict()) == site
    result = kept(ledger, "lab-1/gpu0")
    expected = {
        f"lab-1/gpu0/{profile}-at-{start}"
        for profile, starts in zip(MIG_PROFILES[card], STARTS, strict=True)
        for start in starts
    }
    assert {child.name for child in result.children} == expected
    two = result.find(f"lab-1/gpu0/{MIG_PROFILES[card][3]}-at-4")
    name = f"CUSTOM_MIG_{MIG_PROFILES[card][3].upper().replace('.', '_')}"
    assert str(two.inventories) == f"{name}=1"
    assert {f"{share.of_class} {share.factor}" for share in two.shares} == {
        "CUSTOM_GPU_AT_4 1",
        "CUSTOM_GPU_AT_5 1",
        f"CUSTOM_{card[4:].upper().replace('-', '_')}_SLICE 2",
    }
    assert {share.of for share in two.shares} == {"lab-1/gpu0"}


def test_mig_instances_and_whole_cards_exclude_each_other(ledger):
    apply_site(ledger, Site.parse(MIG_LAB.replace("lab-[0-1]", "lab-0").replace("[0-1]", "0")))

    def fits(request):
        return bool(ledger.snapshot().candidates(request))

    assert fits("CUSTOM_MIG_1G_10GB=7") and not fits("CUSTOM_MIG_1G_10GB=8")
    assert fits("CUSTOM_MIG_3G_40GB=1,CUSTOM_MIG_1G_10GB=4")
    assert not fits("CUSTOM_MIG_3G_40GB=2,CUSTOM_MIG_1G_10GB=1")
    assert not fits("CUSTOM_MIG_1G_10GB_ME=2")
    assert fits("CUSTOM_MIG_1G_20GB=4") and not fits("CUSTOM_MIG_1G_20GB=4,CUSTOM_MIG_1G_10GB=1")
    ledger.claim("job", ledger.snapshot().candidates("CUSTOM_MIG_1G_10GB=1"))
    assert not fits("PGPU=1") and not fits("CUSTOM_MIG_7G_80GB=1")
    ledger.release("job")
    ledger.claim("job", ledger.snapshot().candidates("PGPU=1"))
    assert not fits("CUSTOM_MIG_1G_10GB=1")


def test_card_with_a_placement_of_another_kind_is_written_in_full(ledger):
    apply_site(ledger, Site.parse(MIG_LAB))
    ledger.disable("lab-0/gpu0/1g.10gb-at-6", reason="slice is broken")
    site = export_site(ledger)
    assert "/1g.10gb-at-6:" in str(site) and str(site).count("split: mig-h100-80gb") == 2
    assert Site.parse(str(site)) == site
    with ro.connect("memory://") as other:
        apply_site(other, site)
        assert str(export_site(other)) == str(site)


def test_card_with_a_child_of_its_own_keeps_it(ledger):
    text = MIG_LAB + "\n        children:\n          /port:\n            inventories: CUSTOM_PORT=1"
    apply_site(ledger, Site.parse(text))
    assert str(export_site(ledger)) == text
    apply_site(ledger, Site.parse(MIG_LAB), prune=True)
    assert str(export_site(ledger)) == MIG_LAB


@pytest.mark.parametrize(
    ("split", "word"),
    [
        ("{slices: {CUSTOM_SLICE: 2}}", "partitions=CUSTOM_SLICE*2"),
        (
            "{slices: {CUSTOM_SLICE: 7, CUSTOM_MEM: 8}, partitions: "
            "{CUSTOM_MIG_3G: {CUSTOM_MEM: 4, CUSTOM_SLICE: 3}, CUSTOM_LINK: {CUSTOM_MEM: 1}}}",
            "partitions=CUSTOM_MEM*8+CUSTOM_SLICE*7/CUSTOM_LINK*1+0/CUSTOM_MIG_3G*4+3",
        ),
    ],
)
def test_mapping_is_the_long_form_of_partitions(ledger, split, word):
    text = "version: 1\nmachines:\n  gpu:\n    inventories: PGPU=1\n    split: {}"
    site = Site.parse(text.format(split))
    assert site == Site.parse(text.format(word))
    apply_site(ledger, site)
    assert str(export_site(ledger)) == text.format(word)


@pytest.mark.parametrize(
    "split",
    ["thousandths", "partitions=CUSTOM_MEM*8+CUSTOM_SLICE*7/CUSTOM_MIG_1G*1+1/CUSTOM_MIG_3G*4+3"],
)
def test_every_way_to_split_is_written_as_its_word(ledger, split):
    text = f"version: 1\nmachines:\n  gpu:\n    inventories: PGPU=1\n    split: {split}"
    apply_site(ledger, Site.parse(text))
    assert str(export_site(ledger)) == text


@st.composite
def trees(draw, names, depth=0):
    """Trees with any figures, and shares of the inventories above in some."""
    created = Provider(
        names.pop(),
        draw(inventories(100, max_size=2)),
        traits=draw(st.sets(st.sampled_from(["CUSTOM_A", "HW_NUMA_ROOT"]))),
        aggregates=draw(st.sets(labels(), max_size=2)),
    )
    below = draw(st.integers(0, 2 if depth < 3 else 0))
    children = [draw(trees(names, depth + 1)) for _ in range(below) if names]
    for child in children:
        for kind in child.inventories if not child.shares and not created.shares else ():
            if kind in created.inventories and draw(st.booleans()):
                share = Share(resource_class=kind.name, of=created.name, of_class=kind.name)
                child.update(shares=(*child.shares, share))
    created.update(children=children)
    return created


@st.composite
def sites(draw):
    """A few small trees with any names, like ones among them; cells and devices in some."""
    like = st.builds("{}{}".format, st.sampled_from(["lab-", "lab/gpu", "/x", "[0]"]),
                     st.integers(0, 12).map(lambda n: draw_width(n)))  # fmt: skip
    names = draw(st.lists(provider_names() | like, min_size=1, max_size=9, unique=True))
    names = [name for name in names if not ro.names.is_uuid(name)] or ["host0"]
    roots = []
    while names:
        roots.append(draw(trees(names)))
    for root in roots:
        if draw(st.integers(0, 3)) == 0 and not list(root.inventories):
            cells = [
                ro.HostCell(n, dedicated=[n], memory_mb=draw(st.integers(1, 9))) for n in (0, 1)
            ]
            root.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
        if draw(st.integers(0, 3)) == 0:
            root.add_parts(DEVICES, PCIInventory(draw(pci_devices(max_groups=2))))
    for root in roots:
        for item in root.walk():
            try:
                diff(None, root)
            except exceptions.InvalidTree:
                item.update(shares=())
    return roots


def outages(roots):
    """Some of the providers, with why they are out of service and until when."""
    years = datetime.datetime(2100, 1, 1), datetime.datetime(2200, 1, 1)
    ends = st.none() | st.datetimes(*years, timezones=st.just(datetime.UTC))
    reasons = labels() | st.sampled_from(["no", "fan"])
    why = st.fixed_dictionaries({"reason": reasons, "until": ends})
    names = [item.name for root in roots for item in root.walk()]
    return st.lists(st.tuples(st.sampled_from(names), why), max_size=3)


def draw_width(number):
    return f"{number:02}" if number % 3 else str(number)


@hypothesis.settings(max_examples=examples(100), deadline=None)
@hypothesis.given(roots=sites(), data=st.data())
def test_export_applied_to_nothing_exports_same(roots, data):
    _goes_there_and_back(roots, data.draw(outages(roots)), "memory://", "memory://")


@hypothesis.settings(max_examples=examples(20), deadline=None)
@hypothesis.given(roots=sites(), data=st.data())
def test_export_applied_to_nothing_exports_same_in_sqlite(roots, data):
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:///{folder}/{name}.db?synchronous=NORMAL" for name in ("first", "second")]
        _goes_there_and_back(roots, data.draw(outages(roots)), *urls)


def _goes_there_and_back(roots, outages, *urls):
    with ro.connect(urls[0]) as first, ro.connect(urls[1]) as second:
        try:
            first.sync(*roots)
        except exceptions.ResourceObjectsError:
            hypothesis.reject()
        for name, outage in outages:
            if any(name == item.name for root in roots for item in root.walk()):
                first.disable(name, **outage)
        text = str(export_site(first))
        site = Site.parse(text)
        assert str(site) == text
        assert not plan_site(first, site, prune=True) and not apply_site(first, site, prune=True)
        apply_site(second, site)
        assert str(export_site(second)) == text
        assert sorted(map(_said, second.trees()), key=str) == sorted(
            map(_said, first.trees()), key=str
        )


def _said(root):
    return [
        (
            item.name,
            str(item.inventories),
            *map(sorted, (item.traits, item.aggregates)),
            [*map(str, item.shares)],
            item.disabled and (item.disabled.reason, item.disabled.until),
        )
        for item in root.walk()
    ]


# --- what is left alone ---------------------------------------------------------------------------


def test_what_file_does_not_name_is_left_alone(ledger):
    host = Provider("lab-0", "VCPU=8,DISK_GB=9", traits=["CUSTOM_A"], aggregates=["r"])
    host.add("lab-0/gpu0", "PGPU=1")
    ledger.sync(host, Provider("other", "VCPU=1"))
    values = "machines: {lab-0: {inventories: VCPU=16, children: {/gpu1: {inventories: PGPU=1}}}}"
    assert str(plan_site(ledger, Site.parse(values))).splitlines() == [
        "+ lab-0/gpu1 below lab-0: PGPU=1",
        "~ lab-0: VCPU=16 -DISK_GB",
    ]
    done = apply_site(ledger, Site.parse(values))
    assert (done.created, done.updated, done.removed) == (1, 1, 0)
    result = kept(ledger, "lab-0")
    assert result.traits == {"CUSTOM_A"} and result.aggregates == {"r"}
    assert [child.name for child in result.children] == ["lab-0/gpu0", "lab-0/gpu1"]
    assert kept(ledger, "other").name == "other"


def test_prune_removes_what_file_does_not_name(ledger):
    host = Provider("lab-0", "VCPU=8", traits=["CUSTOM_A"], aggregates=["r"])
    host.add("lab-0/gpu0", "PGPU=1")
    ledger.sync(host, Provider("other", "VCPU=1"))
    site = Site.parse("machines: {lab-0: {inventories: VCPU=8}}")
    done = apply_site(ledger, site, prune=True)
    assert (done.updated, done.removed) == (1, 2)
    assert export_site(ledger) == site


NO_MACHINES = ["", "# lab-0: {}", "version: 1", "machines:", "{}", '{"machines": {}}', "null"]


@pytest.mark.parametrize("text", [*NO_MACHINES, "pools: {nfs: {inventories: DISK_GB=9}}"])
def test_prune_by_a_file_without_machines_is_refused(ledger, text):
    apply_site(ledger, Site.parse(LAB))
    before = export_site(ledger)
    site = Site.parse(text, file="lab.yaml")
    for do in (apply_site, plan_site):
        with raises_code("InvalidSite", match=r"lab\.yaml, machines: got 0, expected 1"):
            do(ledger, site, prune=True)
    assert export_site(ledger) == before
    apply_site(ledger, site)  # the absent providers do not change
    assert export_site(ledger).machines == before.machines


@pytest.mark.parametrize("text", [*NO_MACHINES, "pools: {nfs: {inventories: DISK_GB=9}}"])
def test_prune_that_removes_nothing_is_possible_without_machines(ledger, text):
    site = Site.parse(text)
    apply_site(ledger, site)
    assert not apply_site(ledger, site, prune=True)


def test_what_a_prune_would_remove_is_counted(ledger):
    ledger.sync(Provider("lab-0", children=[Provider("lab-0/a"), Provider("b")]), Provider("lab-1"))
    for text, removed in (
        ("machines: {lab-0: {children: {/a: {}, b: {}}}, lab-1: {}}", 0),
        ("machines: {lab-0: {children: {/a: {}}}, lab-1: {}}", 1),
        ("machines: {lab-0: {}}", 3),
        (f"machines: {{'{ledger.provider('lab-1').uuid}': {{}}}}", 3),
        ("machines: {lab-2: {}}", 4),
        ("", 4),
    ):
        assert count_pruned(ledger, Site.parse(text)) == (removed, 4)


def test_child_goes_below_another_parent(ledger):
    host = Provider("lab-0")
    host.add("lab-0/gpu0", "PGPU=1")
    ledger.sync(host)
    values = "machines: {lab-0: {children: {cell: {children: {lab-0/gpu0: {}}}}}}"
    apply_site(ledger, Site.parse(values))
    (child,) = kept(ledger, "lab-0").children
    assert [item.name for item in child.walk()] == ["cell", "lab-0/gpu0"]
    assert str(child.children[0].inventories) == "PGPU=1"


def test_what_is_allocated_remains_allocated(ledger):
    apply_site(ledger, Site.parse(LAB))
    ledger.claim("job-1", ledger.snapshot().candidates("PGPU=8"))
    place = ledger.get_claim("job-1").allocations[0].provider.partition("/")[0]
    with raises_code("ProviderInUse"):
        apply_site(ledger, Site.parse(f"machines: {{{place}: {{}}}}"), prune=True)
    apply_site(ledger, Site.parse(LAB.replace("VCPU=64", "VCPU=32")))
    assert len(ledger.get_claim("job-1").allocations) == 8


def test_batches_before_an_error_are_done(ledger):
    ledger.sync(Provider("rack", children=[Provider("lab-2")]))
    site = Site.parse("machines: {'lab-[0-2]': {inventories: VCPU=1}}")
    message = []
    with raises_code("ProviderExists"):
        apply_site(ledger, site, batch=1, progress=lambda *how_far: message.append(how_far))
    assert message == [(1, 3), (2, 3)]
    with raises_code("ProviderExists"):
        apply_site(ledger, Site.parse("machines: {'lab-[2-4]': {}}"), batch=None)
    assert [tree.name for tree in ledger.trees()] == ["rack", "lab-0", "lab-1"]


def test_equal_machines_are_what_each_would_be_alone(ledger):
    """Providers after the first of an entry are named, not computed."""
    text = """machines:
  lab-[0-2]:
    inventories: VCPU=8
    children:
      /a: {children: {'/x[0-1]': {inventories: PGPU=1, split: halves, traits: [CUSTOM_A]}}}
      /b: {inventories: VCPU=2, shares: [VCPU uses 1 VCPU of /], children: {/y: {aggregates: [r]}}}
"""
    apply_site(ledger, Site.parse(text))
    assert not plan_site(ledger, Site.parse(text), prune=True)
    with ro.connect("memory://") as other:
        for n in range(3):
            apply_site(other, Site.parse(text.replace("lab-[0-2]", f"lab-{n}")))
        assert sorted(map(_said, other.trees()), key=str) == sorted(
            map(_said, ledger.trees()), key=str
        )
    ledger.change("lab-1/a/x1", traits=["CUSTOM_B"])
    ledger.change("lab-2", inventories="VCPU=9")
    assert str(plan_site(ledger, Site.parse(text))).splitlines() == [
        "~ lab-1/a/x1: +CUSTOM_A -CUSTOM_B",
        "~ lab-2: VCPU=8",
    ]
    assert apply_site(ledger, Site.parse(text)).updated == 2


@st.composite
def entries(draw, kinds=(None, "VCPU=8", "VCPU=9,MEMORY_MB=4"), depth=0):
    """The possible content of a file about a machine or its parts; much of it is absent."""
    values = {
        "inventories": draw(st.sampled_from(kinds)),
        "traits": draw(st.sampled_from([None, [], ["CUSTOM_A"], ["CUSTOM_A", "CUSTOM_B"]])),
        "aggregates": draw(st.sampled_from([None, [], ["r"], ["r", "s"]])),
    }
    if depth and values["inventories"] == "PGPU=1":
        values["split"] = draw(st.sampled_from([None, "halves", "thousandths"]))
    if depth and values["inventories"] == "VCPU=2":
        values["shares"] = draw(st.sampled_from([None, ["VCPU uses 1 VCPU of /"]]))
    if depth < 2:
        below = st.sampled_from(["/gpu[0-1]", "/gpu1", "/a", "x"])
        of_devices = entries(("PGPU=1", "VCPU=2", None), depth + 1)
        values["children"] = draw(st.dictionaries(below, of_devices, max_size=2))
    return {key: value for key, value in values.items() if value is not None}


def _of_plan(definitions):
    names = "changed", "removed", "children_changed", "shares_changed", "traits_added"
    names += "traits_removed", "aggregates_added", "aggregates_removed"
    updates = {
        (update.definition.name, *(getattr(update, name) for name in names))
        for update in definitions.updates
    }
    return {*definitions.removals}, {create.name for create in definitions.creates}, updates


@hypothesis.settings(max_examples=examples(200), deadline=None)
@hypothesis.given(entries(), entries(), st.sampled_from(["machines", "pools"]), st.booleans())
def test_machine_with_what_is_stored_is_what_its_tree_would_be(previous, target, word, prune):
    """Compared by records, as by trees of objects."""
    previous.get("children", {}).pop("x", None)  # of one machine alone
    with ro.connect("memory://") as ledger:
        try:
            apply_site(ledger, Site.parse(json.dumps({"machines": {"lab-[0-1]": previous}})))
        except exceptions.ResourceObjectsError:
            hypothesis.reject()
        try:
            site = Site.parse(json.dumps({word: {"lab-[0-1]": target}}))
        except exceptions.ResourceObjectsError:
            return
        for machine in site.each_machine():
            stored = ledger.provider(machine.name)
            tree = definitions_of([stored])
            by_name = {entry.definition.name: entry for entry in tree.values()}
            pattern = Pattern(machine.part, machine.is_pool)
            try:
                expected = compare_tree(tree, tree_of(machine, stored, prune))
            except exceptions.InvalidInput as error:
                with pytest.raises(type(error)):
                    pattern.changes(machine.name, by_name, prune)
                continue
            changes = pattern.changes(machine.name, by_name, prune)
            assert _of_plan(changes) == _of_plan(expected)


# --- out of service ---


def _out(ledger):
    return {
        provider.name: provider.disabled
        for provider in ledger.providers()
        if provider.disabled is not None
    }


OUT = "machines: {lab-0: {disabled: fan, children: {/gpu1: {disabled: xid 79}}}}"


def test_what_file_disables_is_out_of_service_and_what_it_does_not_name_is_left_alone():
    with ro.connect("memory://", actor="ann") as ledger:
        apply_site(ledger, Site.parse(LAB))
        ledger.disable("lab-1", reason="disk")
        plan = plan_site(ledger, Site.parse(OUT))
        assert str(plan) == "~ lab-0: disabled: fan\n~ lab-0/gpu1: disabled: xid 79"
        assert type(plan).from_json(plan.to_json()) == plan
        assert set(_out(ledger)) == {"lab-1"}
        cursor = ledger.feed.cursor()
        assert str(apply_site(ledger, Site.parse(OUT))) == "2 disabled"
        out = _out(ledger)
        assert {name: (item.reason, item.by) for name, item in out.items()} == {
            "lab-0": ("fan", "ann"),
            "lab-0/gpu1": ("xid 79", "ann"),
            "lab-1": ("disk", "ann"),
        }
        (message,) = ledger.feed.changes(cursor)
        assert message.actor == "ann" and len(message.disabled) == 2
        assert not apply_site(ledger, Site.parse(OUT))
        assert _out(ledger) == out
        assert not apply_site(ledger, Site.parse("machines: {lab-0: {}}"))


@pytest.mark.parametrize("word", ["false", "no", "", "~"])
def test_what_file_says_is_in_service_is(ledger, word):
    ledger.sync(Provider("lab-0"), Provider("lab-1"))
    ledger.disable("lab-0", reason="fan")
    site = Site.parse(f"machines:\n  lab-[0-1]:\n    disabled: {word}")
    assert str(plan_site(ledger, site)) == "~ lab-0: enabled"
    assert str(apply_site(ledger, site)) == "1 enabled"
    assert not _out(ledger)


def test_machine_is_made_out_of_service_in_one_write(ledger):
    site = Site.parse('machines: {lab-0: {inventories: VCPU=1, disabled: {reason: "no"}}}')
    cursor = ledger.feed.cursor()
    assert str(plan_site(ledger, site)) == "+ lab-0: VCPU=1\n~ lab-0: disabled: no"
    ledger.apply(plan_site(ledger, site))
    assert len(list(ledger.feed.changes(cursor))) == 1
    assert _out(ledger)["lab-0"].reason == "no"
    assert str(export_site(ledger)).splitlines()[-1] == "    disabled: 'no'"


def test_what_is_over_is_in_service(ledger):
    text = "machines: {lab-0: {disabled: {reason: fan, until: 2001-01-01T08:00+01:00}}}"
    assert str(apply_site(ledger, Site.parse(text))) == "1 created"
    assert not _out(ledger)


def test_end_and_reason_are_changed_and_pruned(ledger):
    values = "machines: {lab-0: {disabled: {reason: fan, until: 2100-01-01T08:00+01:00}}}"
    apply_site(ledger, Site.parse(values.replace("fan", "disk")))
    since = _out(ledger)["lab-0"].since
    assert str(apply_site(ledger, Site.parse(values))) == "1 disabled"
    assert _out(ledger)["lab-0"].since == since
    exported = export_site(ledger)
    assert "'2100-01-01T07:00:00+00:00'" in str(exported)
    assert not apply_site(ledger, exported)
    assert str(apply_site(ledger, Site.parse("machines: {lab-0: {}}"), prune=True)) == "1 enabled"


@pytest.mark.parametrize(
    "inventories",
    ["VCPU=8,DISK_GB=0", "{VCPU: 8, DISK_GB: 0}", "{VCPU: {total: 8}, DISK_GB: {total: 0}}"],
)
def test_a_resource_of_total_0_is_not_there(ledger, inventories):
    site = Site.parse(f"machines:\n  lab-0:\n    inventories: {inventories}")
    apply_site(ledger, site)
    assert str(ledger.provider("lab-0")) == "lab-0: VCPU=8"
    assert Site.parse(str(site)) == site


def test_a_machine_may_have_nothing_of_any_resource(ledger):
    apply_site(ledger, Site.parse("machines: {lab-0: {inventories: VCPU=8}}"))
    site = Site.parse("machines: {lab-0: {inventories: VCPU=0}}")
    assert str(apply_site(ledger, site)) == "1 updated"
    assert not ledger.provider("lab-0").inventories
    assert Site.parse(str(site)) == site and Site.from_dict(site.to_dict()) == site


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "values"),
    [
        ("machines: {a: {}", 1, "YAML"),
        ("machines:\n  a: {}\n  a: {}", 3, "each once: line 2"),
        ("machines:\n  a-[0-1]: {}\n  a-1: {}", 3, "line 2 has it"),
        ("machines:\n  a: {}\npools:\n  a: {}", 4, "line 2 has it"),
        ("machines:\n  a:\n    children: {g: {}}\n  b:\n    children: {g: {}}", 5, "line 3 has it"),
        ("machines:\n  'a-[0-1]':\n    children:\n      g: {}", 4, "got 'g', expected /g, which"),
        ("machines:\n  'a-[0-1]':\n    children:\n      'g[0-7]': {}", 4, "expected /g[0-7],"),
        ("machines:\n  a:\n    children:\n      '/b[0-1]':\n        children: {c: {}}", 5, "/c,"),
        ("machines:\n  'a-[0-1,1]': {}", 2, "got 'a-1', expected each number once"),
        ("machines:\n  a: {children: {'g[0,0]': {}}}", 2, "each number once"),
        ("machines: {'a-[0-1]': {}, a-1: {}}", 1, "line 1 has it"),
        ("machines:\n  a: &x {}\n  b: *x", 2, "no anchor"),
        ("machines:\n  a: !!python/object:os.system {}", 2, "no tag"),
        ("machines:\n  a:\n    inventory: VCPU=1", 3, "one of inventories"),
        ("machines:\n  a:\n    inventories: VCPU=x", 3, "VCPU"),
        ("machines:\n  a:\n    inventories: VCPU=-1", 3, "inventories, VCPU total: got -1, exp"),
        ("machines:\n  a:\n    inventories: {VCPU: -1}", 3, "inventories, VCPU total: got -1, exp"),
        ("machines:\n  a:\n    inventories: VCPU=4:reserved=5", 3, "VCPU reserved: got 5"),
        ("machines:\n  a:\n    inventories: VCPU=0:reserved=1", 3, "VCPU reserved: got 1"),
        ("machines:\n  a:\n    inventories:\n      VCPU: {reserved: 1}", 4, "a total"),
        ("machines:\n  a:\n    traits:\n    - CUSTOM_A\n    - FAST", 5, "FAST"),
        ("machines:\n  a:\n    traits: CUSTOM_A", 3, "a list"),
        ("machines:\n  a:\n    split: halves", 2, "inventories beside it"),
        ("machines:\n  a:\n    inventories: PGPU=2\n    split: halves", 2, "PGPU"),
        ("machines:\n  a:\n    inventories: PGPU=1\n    split: thirds", 4, "halves"),
        ("machines:\n  a:\n    inventories: PGPU=1\n    split: mig-h9", 4, "mig-h100-80gb"),
        ("machines:\n  a:\n    inventories: PGPU=1\n    split: {slice: {X: 1}}", 4, "slices: {"),
        ("machines:\n  a:\n    inventories: PGPU=1\n    split: {slices: {VGPU: 0}}", 2, "VGPU"),
        (
            "machines:\n  a:\n    inventories: PGPU=1\n"
            "    split: {slices: {VGPU: 2}, partitions: {FPGA: {X: 1}}}",
            4,
            "slice: got 'X', expected one of VGPU",
        ),
        (
            "machines:\n  a:\n    inventories: PGPU=1\n    split: mig-h100-80gb\n"
            "    children:\n      /1g.10gb-at-0: {}",
            0,
            "1g.10gb-at-0",
        ),
        ("machines:\n  a:\n    shares: [VCPU of b]", 3, "such as VCPU uses"),
        ("machines:\n  a:\n    disabled: true", 3, "why, such as: fan"),
        ("machines:\n  a:\n    disabled: {until: 2030-01-01T08:00Z}", 3, "reason"),
        ("machines:\n  a:\n    disabled:\n      reason: fan\n      by: me", 5, "one of reason"),
        ("machines:\n  a:\n    disabled: {reason: fan, until: 2030-01-01}", 3, "its time zone"),
        ("machines:\n  a:\n    disabled: {reason: fan, until: soon}", 3, "a moment"),
        ("machines:\n  a:\n    disabled: [fan]", 3, "text"),
        ("machines:\n  'a[x]': {}", 2, "a range such as"),
        ("machines:\n  'a[3-1]': {}", 2, "a range"),
        ("machines:\n  'a[0-999999999]': {}", 2, "at most 1000000"),
        ("machines:\n  'a[0-9999]': {children: {'b[0-9999]': {}}}", 2, "at most 1000000"),
        ("machines:\n  ? [a]\n  : {}", 2, "text"),
        ("version: 2", 1, "1"),
        ("hosts: {}", 1, "one of version, machines, pools"),
        ("- a", 1, "a mapping"),
        ("a: 1\n---\nb: 2", 2, "one document"),
        ("machines:\n  a\x07b: {}", 2, "a character of YAML"),
        ("machines: " + "{a: " * 300 + "x" + "}" * 300, 1, "levels"),
        ("[" * 100_000, 1, "YAML"),
        (b"machines:\n  a\xff: {}", 2, "UTF-8"),
    ],
)  # fmt: skip
def test_fault_is_named_by_line(text, line, values):
    with raises_code("InvalidSite") as caught:
        Site.parse(text, file="lab.yaml")
    assert str(caught.value).startswith(f"lab.yaml, line {line}")
    assert values in str(caught.value)


def test_fault_with_what_is_stored_is_named_by_line(ledger):
    ledger.sync(Provider("lab-0", "VCPU=1"))
    values = "machines:\n  lab-0:\n    shares: [VCPU uses 1 PCPU of /]"
    with raises_code("InvalidSite", match="line 2"):
        apply_site(ledger, Site.parse(values))


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize("called", ["lab-0", "lab-0/gpu0"])
@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("machines:\n  {}: {{inventories: VCPU=9}}", "line 2"),
        ("machines:\n  lab-0: {{inventories: VCPU=8}}\n  {}: {{inventories: VCPU=9}}", "line 3"),
        ("pools:\n  {}: {{inventories: VCPU=9}}\nmachines: {{lab-9: {{}}}}", "line 2"),
        ("machines:\n  lab-0: {{children: {{'{}': {{inventories: VCPU=9}}}}}}", "line 2, lab-0"),
        ("machines:\n  lab-1: {{children: {{'{}': {{inventories: VCPU=9}}}}}}", "line 2, lab-1"),
    ],
)
def test_uuid_of_a_provider_is_no_name_of_another(ledger, form, line, called, prune):
    host = Provider("lab-0", "VCPU=8")
    host.add("lab-0/gpu0", "PGPU=1")
    ledger.sync(host, Provider("lab-1", "VCPU=8"))
    before = export_site(ledger)
    uuid = str(kept(ledger, called).uuid)
    for text in (uuid, uuid.upper()):
        parsed = Site.parse(form.format(text), file="lab.yaml")
        for do in (plan_site, apply_site):
            with raises_code("InvalidSite") as refused:
                do(ledger, parsed, prune=prune)
            assert str(refused.value) == (
                f"lab.yaml, {line}, name: got {text!r}, expected a name of its own: "
                f"it is the uuid of {called}"
            )
    assert export_site(ledger) == before


def test_machine_may_be_called_by_its_own_uuid(ledger):
    uuid = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
    for cpus, values in ((8, "1 created"), (9, "1 updated"), (9, "nothing changed")):
        site = Site.parse(f"machines: {{'{uuid}': {{inventories: VCPU={cpus}}}}}")
        assert str(apply_site(ledger, site)) == values
    assert (kept(ledger, uuid).name, str(kept(ledger, uuid).uuid)) == (uuid, uuid)


def test_names_are_text_whatever_they_look_like(ledger):
    apply_site(ledger, Site.parse("machines: {no: {}, 007: {}, 1e3: {}, null: {}}"))
    assert Site.parse(str(export_site(ledger))).machine_names == ("1e3", "007", "no", "null")
