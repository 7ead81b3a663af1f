"""Flavors and images read by us and by the real ``nova.virt.hardware``, over random words.

Two kinds of words. *Plain* ones are what an operator writes, right or wrong: the answers are the
same, down to which rule a refusal names. *Strange* ones are what gets past nobody's eyes: there the
answers may differ, but only as one of ``DIFFERENCES`` says, each of which has its smallest case.
"""

from __future__ import annotations

import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from os_resource_classes import normalize_name

from resource_objects.interop.nova import (
    flavor_topology,
    format_cpu_spec,
    host_settings,
    parse_cpu_spec,
)
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa.cells import ANY, LARGE, SMALL
from tests.interop.nova.refusals import breaks

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import exception, objects
    from nova.virt import hardware

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

CONF = nova.conf.CONF
Words = dict[str, Any]
Case = tuple[int, int, Words, Words]
#: What an image's record refuses with a bare ValueError, before anybody reads it.
UNREADABLE = "refused: the image's record"
PAGES = {hardware.MEMPAGES_SMALL: SMALL, hardware.MEMPAGES_LARGE: LARGE, hardware.MEMPAGES_ANY: ANY}
MANY = settings(
    max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    CONF([], project="nova", default_config_files=[])


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """Leave nova's configuration as it was."""
    yield
    CONF.clear_override("vcpu_pin_set")
    CONF.clear_override("reserved_huge_pages")
    for name in ("cpu_shared_set", "cpu_dedicated_set"):
        CONF.clear_override(name, group="compute")


# --- both answers in one form ---


def of_nova(vcpus: int, memory_mb: int, specs: Words, image: Words) -> Any:
    """Return nova's topology as plain data, None, or the name of what it raises."""
    flavor = objects.Flavor(
        name="f",
        vcpus=vcpus,
        memory_mb=memory_mb,
        extra_specs={key: str(value) for key, value in specs.items()},
    )
    try:
        meta = objects.ImageMeta.from_dict({"name": "i", "properties": dict(image)})
    except ValueError:
        return UNREADABLE
    try:
        made = hardware.numa_get_constraints(flavor, meta)
        realtime = hardware.get_realtime_cpu_constraint(flavor, meta)
        locked = hardware.get_locked_memory_constraint(flavor, meta)
    except Exception as error:  # whatever it raises is its answer
        return f"refused: {type(error).__name__}"
    labels = [normalize_name(f"PMEM_NAMESPACE_{name}") for name in hardware.get_vpmems(flavor)]
    rest = (sorted(realtime or ()), bool(locked), sorted(labels))
    if made is None:
        return None, *rest
    (size,) = {cell.pagesize for cell in made.cells}
    (threads,) = {cell.cpu_thread_policy for cell in made.cells}
    cells = [(sorted(c.cpuset), sorted(c.pcpuset), c.memory) for c in made.cells]
    shown = PAGES.get(size, "" if size is None else str(size))
    return (cells, shown, threads, made.emulator_threads_policy), *rest


def of_ours(vcpus: int, memory_mb: int, specs: Words, image: Words) -> Any:
    """Return our topology in the same form; a refusal by nova's name for it."""
    try:
        asked = flavor_topology(vcpus, memory_mb, extra_specs=specs, image=image)
    except InvalidNovaInput as error:
        return f"refused: {error.rule.nova_name or error.rule.name}"
    labels = [name for name, count in asked.pmem.items() for _ in range(count)]
    rest = (list(asked.realtime), asked.locked_memory, sorted(labels))
    amount = asked.amount
    if amount is None:
        return None, *rest
    cells = [(list(c.shared), list(c.dedicated), c.memory_mb) for c in amount.cells]
    return (cells, amount.page_size, amount.thread_policy, amount.emulator_policy), *rest


# --- plain words ---

SIZES = st.tuples(st.sampled_from([2, 4, 4, 6, 8, 1, 3]), st.sampled_from([1024, 3072, 512, 1025]))
LISTS = st.sampled_from(
    ["0", "1", "0-1", "2-3", "0,2", "1,3", "0-3", "4-7", "0-7", "0-8", "0-3,^1"]
)
MASKS = st.sampled_from(["^0", "^0-1", "0", "1", "^1", "0-1,^0"]) | LISTS | st.just("^0-7")
PAGE = st.sampled_from(["large", "any", "small", "2048", "2MB", "1GB", "1GiB", "4", "huge", "2 MB"])
FLAG = st.sampled_from(["true", "yes", "1", "True", "false", "no", "off", "0"])
MEMORY = st.sampled_from(["512", "256", "1024", "768", "0", "2048", "3072"])
COUNT = st.sampled_from(["2", "4", "1", "3", "5", "8", "9", "0"])

#: ``{name: (values, whether an image may say it)}``
PLAIN: Mapping[str, tuple[st.SearchStrategy[str], bool]] = {
    "numa_nodes": (st.sampled_from(["1", "2", "2", "1", "2", "3", "4", "0", "two", "02"]), True),
    "cpu_policy": (st.sampled_from(["dedicated", "mixed", "shared", "dedicated", "any"]), True),
    "cpu_thread_policy": (st.sampled_from(["prefer", "require", "isolate", "none"]), True),
    "emulator_threads_policy": (st.sampled_from(["share", "isolate", "isolate", "own"]), False),
    "cpu_realtime": (FLAG, False),
    "cpu_realtime_mask": (MASKS, True),
    "cpu_dedicated_mask": (MASKS, False),
    "mem_page_size": (PAGE, True),
    "locked_memory": (FLAG, True),
    "pmem": (st.sampled_from(["6GB", "6GB,16GB", " , ", "6GB,,6GB"]), False),
    **{f"numa_cpus.{n}": (LISTS, True) for n in range(3)},
    **{f"numa_mem.{n}": (MEMORY, True) for n in range(3)},
}
OF_IMAGE = [name for name, (_, allowed) in PLAIN.items() if allowed]
POLICIES = ["none", "none", "dedicated", "dedicated", "mixed", "realtime", "image", "resources"]


@st.composite
def flavors(draw: st.DrawFn) -> Case:
    """Return vCPUs, memory, extra specs and properties: a sound core, and a few keys beside it."""
    vcpus, memory = draw(SIZES)
    image: Words = {}
    specs = draw(a_policy(vcpus, image))
    if draw(st.booleans()):
        specs |= draw(whole_cells(vcpus, memory))
    if draw(st.integers(0, 4)) == 0:
        given = image if draw(st.booleans()) else specs
        given["trait:HW_CPU_HYPERTHREADING"] = "required"
        if given is specs and draw(st.booleans()):
            given["trait:HW_CPU_HYPERTHREADING"] = "forbidden"
    for name in draw(st.lists(st.sampled_from(sorted(PLAIN)), max_size=2, unique=True)):
        specs[f"hw:{name}"] = draw(PLAIN[name][0])
    for name in draw(st.lists(st.sampled_from(OF_IMAGE), max_size=1)):
        image[f"hw_{name}"] = draw(PLAIN[name][0])
    return vcpus, memory, specs, image


@st.composite
def a_policy(draw: st.DrawFn, vcpus: int, image: Words) -> Words:
    """Return extra specs, and set properties, that say one of the CPU policies."""
    kind = draw(st.sampled_from(POLICIES))
    if kind == "mixed":
        return {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": draw(MASKS)}
    if kind == "realtime":
        words = {"hw:cpu_policy": draw(st.sampled_from(["dedicated", "mixed"]))}
        return words | {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": draw(MASKS)}
    if kind == "image":
        image["hw_cpu_policy"] = "dedicated"
        image["hw_cpu_thread_policy"] = draw(st.sampled_from(["prefer", "require", "isolate"]))
    if kind == "resources":
        count = st.sampled_from([str(vcpus), str(vcpus), str(vcpus + 1)]) | COUNT
        keys = ["resources:PCPU", "resources1:PCPU", "resources:VCPU"]
        return draw(st.dictionaries(st.sampled_from(keys), count, min_size=1, max_size=2))
    return {"hw:cpu_policy": "dedicated"} if kind == "dedicated" else {}


@st.composite
def whole_cells(draw: st.DrawFn, vcpus: int, memory: int) -> Words:
    """Return guest cells that share out what there is, now and then with something wrong."""
    count = draw(st.integers(1, min(3, vcpus)))
    order = draw(st.permutations(range(vcpus)))
    cuts = sorted(draw(st.lists(st.integers(0, vcpus), min_size=count - 1, max_size=count - 1)))
    parts = [order[first:last] for first, last in itertools.pairwise([0, *cuts, vcpus])]
    words: Words = {"hw:numa_nodes": str(count)}
    for number, part in enumerate(parts):
        words[f"hw:numa_cpus.{number}"] = format_cpu_spec(part)
        words[f"hw:numa_mem.{number}"] = "256" if number else str(memory - 256 * (count - 1))
    wrong = draw(st.sampled_from(["", "", "", "", "twice", "beyond", "memory", "gone"]))
    if wrong == "twice":
        words[f"hw:numa_cpus.{count - 1}"] = str(draw(st.integers(0, vcpus - 1)))
    elif wrong == "beyond":
        words["hw:numa_cpus.0"] += f",{vcpus}"
    elif wrong == "memory":
        words["hw:numa_mem.0"] = draw(MEMORY)
    elif wrong == "gone":
        del words[draw(st.sampled_from(sorted(words)))]
    return words


# --- every difference has a name ---

DIGITS = re.compile(r"[0-9]+\Z", re.ASCII)
TRUTH = ["1", "t", "true", "on", "y", "yes", "0", "f", "false", "off", "n", "no"]
#: Keys of which even empty text says something.
PARTS = ("hw:numa_cpus.", "hw:numa_mem.")


def said(case: Case, *names: str) -> list[str]:
    """Return what flavor and image say under some names, which may stand for ``name.N``."""
    _, _, specs, image = case
    pairs = [*specs.items(), *image.items()]
    return [v for k, v in pairs if k[:2] == "hw" and k[3:].split(".")[0] in names]


def grouped(case: Case, kind: str) -> dict[str, str]:
    """Return the ``resources...:`` or ``trait...:`` keys of both, but for those of other names."""
    _, _, specs, image = case
    names = ("VCPU", "PCPU", "HW_CPU_HYPERTHREADING")
    pairs = [*specs.items(), *((f"{k} of the image", v) for k, v in image.items())]
    return {
        k: v for k, v in pairs if k.startswith(kind) and k.partition(":")[2].split(" ")[0] in names
    }


def without_empty(specs: Words) -> Words:
    return {k: v for k, v in specs.items() if v != "" or k.startswith(PARTS)}


def with_numbered_groups(specs: Words) -> Words:
    found: Words = {}
    for number, (key, value) in enumerate(specs.items(), start=70):
        group, colon, name = key.partition(":")
        if re.match(r"(resources|trait)(?![1-9][0-9]*$).+", group):
            group = re.match("resources|trait", group)[0] + str(number)  # type: ignore[index]
        found[f"{group}{colon}{name}"] = value
    return found


def without_longer_names(specs: Words) -> Words:
    longer = re.compile("(resources|trait).*:((VCPU|PCPU|HW_CPU_HYPERTHREADING).+)")
    return {k: v for k, v in specs.items() if not longer.match(k)}


def with_sizes_nova_reads(specs: Words) -> Words:
    words = dict(specs)
    size = words.get("hw:mem_page_size", "")
    if re.fullmatch("[0-9]+[KMGT]", size):
        words["hw:mem_page_size"] = f"{size}B"
    elif re.fullmatch("[0-9]+k(B|iB)?", size):
        words["hw:mem_page_size"] = size.partition("k")[0]
    return words


#: ``{what we read otherwise: (words that nova reads as we read these, the smallest case)}``
READ_OTHERWISE: dict[str, tuple[Callable[[Words], Words], Case]] = {
    "empty text says nothing, under any key": (
        without_empty,
        (
            4,
            1024,
            {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": ""},
            {"hw_cpu_thread_policy": "isolate"},
        ),
    ),
    "a group may have any suffix": (
        with_numbered_groups,
        (4, 1024, {"resources_A:PCPU": "4"}, {}),
    ),
    "a class of a longer name is another": (
        without_longer_names,
        (4, 1024, {"resources:PCPU_X": "4"}, {}),
    ),
    "a trait of a longer name is another": (
        without_longer_names,
        (
            4,
            1024,
            {"hw:cpu_policy": "dedicated", "trait:HW_CPU_HYPERTHREADING_X": "required"},
            {},
        ),
    ),
    "a page size may be written as nova's interface takes it": (
        with_sizes_nova_reads,
        (4, 2048, {"hw:mem_page_size": "2M"}, {}),
    ),
}

#: ``{what only we refuse: (its type, a test of the words, the smallest case)}``
ONLY_REFUSED_HERE: dict[str, tuple[NovaRule, Callable[[Case], bool], Case]] = {
    "an unknown truth value is not no": (
        NovaRule.INVALID_FLAG,
        lambda case: any(
            value.strip().lower() not in TRUTH
            for value in said(case, "cpu_realtime", "locked_memory")
        ),
        (4, 1024, {"hw:cpu_realtime": "maybe"}, {}),
    ),
    "an amount is a number": (
        NovaRule.INVALID_RESOURCE_COUNT,
        lambda case: not all(DIGITS.match(v) for v in grouped(case, "resources").values()),
        (4, 1024, {"resources:PCPU": "four"}, {}),
    ),
    "a trait is required or forbidden": (
        NovaRule.INVALID_HYPERTHREADING_TRAIT,
        lambda case: not {"required", "forbidden"}.issuperset(grouped(case, "trait").values()),
        (4, 1024, {"trait:HW_CPU_HYPERTHREADING": "preferred"}, {}),
    ),
    "an image cannot forbid": (
        NovaRule.INVALID_HYPERTHREADING_TRAIT,
        lambda case: case[3].get("trait:HW_CPU_HYPERTHREADING") == "forbidden",
        (4, 1024, {}, {"trait:HW_CPU_HYPERTHREADING": "forbidden"}),
    ),
    "a trait is not required and forbidden": (
        NovaRule.HYPERTHREADING_TRAIT_CONFLICT,
        lambda case: len(set(grouped(case, "trait").values())) > 1,
        (
            4,
            1024,
            {"hw:cpu_policy": "dedicated", "trait:HW_CPU_HYPERTHREADING": "forbidden"},
            {"trait:HW_CPU_HYPERTHREADING": "required"},
        ),
    ),
    "memory of a guest cell is a number": (
        NovaRule.INVALID_CELL_MEMORY,
        lambda case: not all(DIGITS.match(v) for v in said(case, "numa_mem")),
        (1, 1024, {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0", "hw:numa_mem.0": "many"}, {}),
    ),
    "memory of a guest cell is not negative": (
        NovaRule.INVALID_CELL_MEMORY,
        lambda case: any(v.startswith("-") for v in said(case, "numa_mem")),
        (
            2,
            1024,
            {
                "hw:numa_nodes": "2",
                "hw:numa_cpus.0": "0",
                "hw:numa_cpus.1": "1",
                "hw:numa_mem.0": "-512",
                "hw:numa_mem.1": "1536",
            },
            {},
        ),
    ),
    "a guest cell has something in it": (
        NovaRule.EMPTY_CELL,
        lambda case: "0" in said(case, "numa_mem"),
        (
            2,
            1024,
            {
                "hw:numa_nodes": "2",
                "hw:numa_cpus.0": "0-1",
                "hw:numa_cpus.1": "",
                "hw:numa_mem.0": "1024",
                "hw:numa_mem.1": "0",
            },
            {},
        ),
    ),
    "a page size of 0 is not none": (
        NovaRule.INVALID_PAGE_SIZE,
        lambda case: "0" in said(case, "mem_page_size"),
        (4, 1024, {"hw:mem_page_size": "0"}, {}),
    ),
    "a page has a size that pages have": (
        NovaRule.INVALID_PAGE_SIZE,
        lambda case: any(
            re.match("[0-9]+$", v) and int(v) & (int(v) - 1) for v in said(case, "mem_page_size")
        ),
        (4, 1024, {"hw:mem_page_size": "3000"}, {}),
    ),
    "a page size is no fraction, and not in bits": (
        NovaRule.INVALID_PAGE_SIZE,
        lambda case: any("." in v or v[-1:] == "b" for v in said(case, "mem_page_size")),
        (4, 1024, {"hw:mem_page_size": "16Mb"}, {}),
    ),
    "a page is smaller than 2 TiB": (
        NovaRule.INVALID_PAGE_SIZE,
        lambda case: "2TB" in said(case, "mem_page_size"),
        (4, 1024, {"hw:mem_page_size": "2TB"}, {}),
    ),
    "a label of persistent memory has a class of its own": (
        NovaRule.INVALID_PMEM_LABEL,
        lambda case: any(
            re.search("[^A-Za-z0-9_]|__|^_", label.strip())
            for text in said(case, "pmem")
            for label in text.split(",")
        ),
        (4, 1024, {"hw:pmem": "é"}, {}),
    ),
    "a request has so many guest cells": (
        NovaRule.INVALID_CELL_COUNT,
        lambda case: "2048" in said(case, "numa_nodes"),
        (2048, 2048, {"hw:numa_nodes": "2048"}, {}),
    ),
    "a flavor has so many vCPUs": (
        NovaRule.INVALID_FLAVOR_SIZE,
        lambda case: case[0] > 65536,
        (65537, 1024, {}, {}),
    ),
    "a flavor has so much memory": (
        NovaRule.INVALID_FLAVOR_SIZE,
        lambda case: case[1] >= 2**31,
        (4, 2**31, {}, {}),
    ),
    "a CPU has a number up to 65535": (
        NovaRule.INVALID_CPU_LIST,
        lambda case: any("65536" in text for text in said(case, "cpu_dedicated_mask")),
        (4, 1024, {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0,65536"}, {}),
    ),
    "memory of a guest cell is said by a number": (
        NovaRule.INVALID_CELL_MEMORY,
        lambda case: "" in said(case, "numa_mem"),
        (1, 1024, {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0", "hw:numa_mem.0": ""}, {}),
    ),
    "a number is written in digits": (
        NovaRule.INVALID_CPU_LIST,
        lambda case: any(
            set(v) & set("+_٣")
            for v in said(case, "numa_cpus", "cpu_realtime_mask", "cpu_dedicated_mask")
        ),
        (4, 1024, {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "+1"}, {}),
    ),
    "a size is written in digits": (
        NovaRule.INVALID_PAGE_SIZE,
        lambda case: "٣" in said(case, "mem_page_size"),
        (4, 1024, {"hw:mem_page_size": "٣"}, {}),
    ),
    "a number of guest cells is written in digits, by an image too": (
        NovaRule.INVALID_CELL_COUNT,
        lambda case: case[3].get("hw_numa_nodes") == "02",
        (4, 1024, {}, {"hw_numa_nodes": "02"}),
    ),
    "an image that says 0 guest cells says something": (
        NovaRule.CELLS_SAID_TWICE,
        lambda case: case[3].get("hw_numa_nodes") == "0",
        (4, 1024, {"hw:numa_nodes": "2"}, {"hw_numa_nodes": "0"}),
    ),
}


def as_nova_reads(case: Case) -> Case:
    """Return the words that nova reads as we read these."""
    vcpus, memory, specs, image = case
    for rewrite, _ in READ_OTHERWISE.values():
        specs = rewrite(specs)
    return vcpus, memory, specs, image


def same(case: Case) -> bool:
    """Return whether the answers are the same, or differ as is said above; refuse by a message."""
    ours, theirs = of_ours(*case), of_nova(*as_nova_reads(case))
    if ours == theirs or (theirs == UNREADABLE and str(ours).startswith("refused")):
        return True
    words = as_nova_reads(case)
    named = [
        name
        for name, (rule, applies, _) in ONLY_REFUSED_HERE.items()
        if refused_as(rule, ours) and applies(words)
    ]
    assert named, (ours, theirs)
    event(named[0])
    return True


def refused_as(rule: NovaRule, ours: Any) -> bool:
    return bool(ours == f"refused: {rule.nova_name or rule.name}")


@MANY
@given(flavors())
def test_plain_words_mean_the_same_and_break_the_same_rule(case: Case) -> None:
    assert same(case)
    answer = of_ours(*case)
    event(answer if isinstance(answer, str) else f"a topology: {answer[0] is not None}")


STRANGE = st.sampled_from(
    [
        "",
        " ",
        "maybe",
        "0",
        "-1",
        "+1",
        "1_0",
        "2M",
        "2048kB",
        "16Mb",
        "3000",
        "0.5MB",
        "2TB",
        "6GB-FAST",
        "é",
        "^",
        "1-",
        "٣",
    ]
)
STRANGE_KEYS = st.sampled_from(
    [f"hw:{name}" for name in PLAIN]
    + ["resources:PCPU", "resources_A:PCPU", "resources0:VCPU", "resources:PCPU_X"]
    + [
        "trait:HW_CPU_HYPERTHREADING",
        "trait_A:HW_CPU_HYPERTHREADING",
        "trait:HW_CPU_HYPERTHREADING_X",
    ]
)


@MANY
@given(flavors(), st.dictionaries(STRANGE_KEYS, STRANGE, min_size=1, max_size=2))
def test_strange_words_differ_only_as_is_said(case: Case, strange: Words) -> None:
    vcpus, memory, specs, image = case
    assert same((vcpus, memory, specs | strange, image))


@pytest.mark.parametrize("name", READ_OTHERWISE)
def test_what_is_read_otherwise(name: str) -> None:
    rewrite, case = READ_OTHERWISE[name]
    vcpus, memory, specs, image = case
    assert of_ours(*case) != of_nova(*case)
    assert of_ours(*case) == of_nova(vcpus, memory, rewrite(specs), image)


@pytest.mark.parametrize("name", ONLY_REFUSED_HERE)
def test_what_is_only_refused_here(name: str) -> None:
    rule, applies, case = ONLY_REFUSED_HERE[name]
    assert of_ours(*case) != of_nova(*case)
    assert applies(case)
    with breaks(rule):
        flavor_topology(case[0], case[1], extra_specs=case[2], image=case[3])


# --- lists of CPUs and options of a host ---

ITEMS = st.lists(
    st.sampled_from(
        [
            "",
            " ",
            "0",
            "3",
            "1-4",
            "^2",
            "^1-2",
            " ^ 3",
            "2 - 5",
            "9-7",
            "a",
            "^",
            "^^1",
            "-3",
            "1-^2",
        ]
    ),
    max_size=6,
).map(",".join)


@settings(max_examples=2000, deadline=None)
@given(ITEMS)
def test_a_list_of_cpus_is_read_the_same(text: str) -> None:
    try:
        theirs: Any = sorted(hardware.parse_cpu_spec(text))
    except exception.Invalid:
        theirs = "refused"
    try:
        ours: Any = list(parse_cpu_spec(text))
    except InvalidNovaInput as error:
        assert error.rule is NovaRule.INVALID_CPU_LIST
        ours = "refused"
    assert ours == theirs


@given(st.sets(st.integers(0, 80)))
def test_a_list_of_cpus_is_written_the_same(cpus: set[int]) -> None:
    assert format_cpu_spec(cpus) == hardware.format_cpu_spec(cpus)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(*[st.none() | ITEMS] * 3)
def test_the_cpu_sets_of_a_host_are_read_the_same(
    shared: str | None, dedicated: str | None, pinned: str | None
) -> None:
    CONF.set_override("cpu_shared_set", shared, group="compute")
    CONF.set_override("cpu_dedicated_set", dedicated, group="compute")
    CONF.set_override("vcpu_pin_set", pinned)
    try:
        pins = hardware.get_vcpu_pin_set()
        named = hardware.get_cpu_shared_set(), hardware.get_cpu_dedicated_set()
    except exception.Invalid:
        with breaks(NovaRule.INVALID_CPU_LIST, NovaRule.CPU_SET_EMPTY):
            host_settings(cpu_shared_set=shared, cpu_dedicated_set=dedicated, vcpu_pin_set=pinned)
        return
    if pins and named[1]:
        with breaks(NovaRule.PIN_SET_CONFLICT):
            host_settings(cpu_shared_set=shared, cpu_dedicated_set=dedicated, vcpu_pin_set=pinned)
    elif not pins and (named[0] or set()) & (named[1] or set()):
        with breaks(NovaRule.CPU_SETS_OVERLAP):
            host_settings(cpu_shared_set=shared, cpu_dedicated_set=dedicated, vcpu_pin_set=pinned)
    else:
        sets = host_settings(
            cpu_shared_set=shared, cpu_dedicated_set=dedicated, vcpu_pin_set=pinned
        )
        assert set(sets.dedicated or ()) == (pins or named[1] or set())
        if pins or named[0] or named[1]:
            assert set(sets.shared or ()) == (pins or named[0] or set())
        else:
            assert sets.shared is None


ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "node": st.sampled_from(["0", "1", "x"]),
        "size": st.sampled_from(["4", "2048", "2MB", "1GB", "2 MB", "large"]),
        "count": st.sampled_from(["0", "64", "many"]),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(ENTRIES, max_size=3))
def test_reserved_pages_are_read_the_same(entries: list[dict[str, str]]) -> None:
    CONF.set_override("reserved_huge_pages", entries)
    ours: Any
    try:
        theirs: Any = {
            n: dict(sizes) for n, sizes in hardware.numa_get_reserved_huge_pages().items()
        }
    except exception.InvalidReservedMemoryPagesOption:
        theirs = "refused"
    try:
        ours = host_settings(reserved_huge_pages=entries).reserved_pages
    except InvalidNovaInput as error:
        if error.rule is NovaRule.PAGES_RESERVED_TWICE:
            ours = theirs
        else:
            assert error.rule is NovaRule.INVALID_RESERVED_PAGES
            ours = "refused"
    assert ours == theirs
