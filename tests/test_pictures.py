"""The pictures of the documentation agree with the text and the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import resource_objects as ro

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "doc" / "source" / "_static"


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
