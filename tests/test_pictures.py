"""The pictures of the documentation: text stays in its place, and says what is drawn."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import resource_objects as ro

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "doc" / "source" / "_static"
_SPEC = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
assert _SPEC is not None and _SPEC.loader is not None
pictures = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pictures)


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_no_text_leaves_its_place_or_lies_on_another(path):
    assert pictures.faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_has_a_ground_of_its_own(path):
    """Else its dark text could not be read on a dark page."""
    found = path.read_text(encoding="utf-8")
    _, _, wide, high = re.search(r'viewBox="([^"]+)"', found)[1].split()
    assert f'<rect width="{wide}" height="{high}" fill="#ffffff"/>' in found


PLAIN = (
    '<svg viewBox="0 0 200 50" font-size="10"><rect x="5" y="5" width="90" height="30"/>'
    '<text x="10" y="20">{}</text><text x="{}" y="20">there</text></svg>'
)


@pytest.mark.parametrize(
    ("text", "other", "wrong"),
    [
        ("short", 120, 0),
        ("a text that is too long", 150, 1),  # for its box
        ("short", 20, 1),  # on the other
        ("short", 180, 1),  # out of the picture
        ("short", 90, 1),  # out of its box
        ("short", 4, 2),  # over the edge, and on the other
    ],
)
def test_what_is_wrong_is_found(text, other, wrong):
    assert len(pictures.faults(PLAIN.format(text, other))) == wrong


def test_the_states_that_are_drawn_are_those_that_are_told():
    found = (PICTURES / "modelling_states.svg").read_text(encoding="utf-8")
    drawn = set(re.findall(r'font-size="14"[^>]*font-weight="bold">([^<]+)<', found))
    page = ROOT / "doc" / "source" / "explanation" / "modelling.rst"
    _, _, rest = page.read_text(encoding="utf-8").partition("\nStates\n")
    section, _, _ = rest.partition("\nFrom a host")
    assert drawn == set(re.findall(r"^``([a-z ]+)`` ", section, re.MULTILINE)) and len(drawn) == 11


def test_the_overview_draws_the_numbers_of_the_readme():
    found = (PICTURES / "overview.svg").read_text(encoding="utf-8")
    ledger = ro.connect("memory://")
    for number in range(2):
        host = ro.Provider(f"host{number}", "VCPU=64,MEMORY_MB=515000")
        for gpu in range(4):
            host.add(f"host{number}/gpu{gpu}", "PGPU=1", traits=["CUSTOM_H100"])
        ledger.sync(host)
    job = ro.Request("VCPU=16,MEMORY_MB=65536,PGPU=3", required=["CUSTOM_H100"])
    readme = (ROOT / "README.rst").read_text(encoding="utf-8")
    assert 'ro.Request("VCPU=16,MEMORY_MB=65536,PGPU=3", required=["CUSTOM_H100"])' in readme
    ledger.claim("job-1", ledger.snapshot().candidates(job))
    [here] = ledger.snapshot().host_usage("host0")
    whole, used = (
        [
            float(width)
            for width in re.findall(rf'width="([\d.]+)" height="13" fill="{fill}"', found)
        ]
        for fill in ("#dbe8c9", "#5b8c2a")
    )
    drawn = [part / of for part, of in zip(used, whole, strict=True)]
    told = [here[name].used / here[name].capacity for name in ("VCPU", "MEMORY_MB", "PGPU")]
    assert drawn == pytest.approx(told, abs=0.005)
    refusal = ledger.snapshot("host0").candidates(job).explain()
    assert str(refusal).splitlines()[0] in found
    units = ", ".join(
        use.provider.partition("/")[2]
        for use in ledger.snapshot().candidates(job)[0].allocations
        if use.resource_class == "PGPU"
    )
    assert f"host1: {units}" in found
