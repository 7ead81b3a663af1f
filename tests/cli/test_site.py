"""The commands export and apply."""

from __future__ import annotations

import io
import sys

import pytest

SITE = """\
version: 1
machines:
  lab-[0-2]:
    inventories: VCPU=64
    children:
      /gpu[0-7]:
        inventories: PGPU=1
        split: halves
"""


@pytest.fixture
def site(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(SITE)
    return path


def test_file_is_applied_and_exported(run, site):
    assert run("apply", str(site)).out == "27 created\n"
    assert run("export").out == SITE
    assert run("apply", str(site)).out == "nothing changed\n"


def test_dry_run_prints_plan_and_writes_nothing(run, site):
    shown = run("apply", str(site), "--dry-run")
    assert shown.status == 0 and "+ lab-0: VCPU=64" in shown.lines
    assert run("export").out == "version: 1\n"


def test_export_of_some_hosts_names_them_alone(run, site):
    run("apply", str(site))
    assert "  lab-1:" in run("export", "lab-1").lines
    assert "lab-0" not in run("export", "lab-1").out
    missing = run("export", "lab-9")
    assert missing.status == 1 and "lab-9" in missing.err


def test_who_disabled_by_a_file_is_the_actor(run, site):
    site.write_text(SITE + "    disabled: fan\n")
    assert run("apply", str(site), "--dry-run").lines[-3:-2] == ["~ lab-0: disabled: fan"]
    assert run("apply", str(site), "--actor", "ann").out == "27 created, 3 disabled\n"
    listed = run("provider", "list", "-c", "disabled", "-f", "value").out
    assert listed.count("by ann: fan") == 3
    assert run("export").lines[4] == "    disabled: fan"


def test_prune_removes_what_is_not_named(run, site):
    run("apply", str(site))
    site.write_text("machines: {lab-0: {inventories: VCPU=64}}")
    assert run("apply", str(site)).out == "nothing changed\n"
    assert run("apply", str(site), "--prune", "--dry-run").out.count("\n- ") >= 20
    run("apply", str(site), "--prune", "--yes")
    assert run("export").out == "version: 1\nmachines:\n  lab-0:\n    inventories: VCPU=64\n"


def test_prune_of_more_than_half_of_the_site_needs_yes(run, site):
    run("apply", str(site))
    site.write_text("machines: {'lab-[0-2]': {children: {'/gpu[0-3]': {}}}}")
    assert run("apply", str(site), "--prune", "--dry-run").out.count("\n- ") == 12
    assert run("apply", str(site), "--prune").out == "15 updated, 12 removed\n"  # of 27
    before = run("export").out
    site.write_text("machines: {lab-0: {children: {'/gpu[0-3]': {}}}}")
    done = run("apply", str(site), "--prune")
    assert (done.status, done.out) == (1, "")
    assert "--prune would remove 10 of 15 providers, more than 50%:" in done.err
    assert "--yes removes them" in done.err
    assert run("export").out == before
    shown = run("apply", str(site), "--prune", "--dry-run")
    assert (shown.status, shown.out.count("- lab-")) == (0, 10)
    assert run("apply", str(site), "--prune", "--yes").out == "10 removed\n"


@pytest.mark.parametrize("options", [[], ["--yes"], ["--dry-run"], ["--at-once"]])
@pytest.mark.parametrize("text", ["", "# lab-0: {}\n", "{}", "pools: {nfs: {}}"])
def test_prune_by_a_file_without_machines_is_refused(run, site, text, options):
    run("apply", str(site))
    before = run("export").out
    site.write_text(text)
    done = run("apply", str(site), "--prune", *options)
    assert (done.status, done.out) == (1, "")
    assert f"{site}, machines: got 0, expected 1 or more: a prune would remove 27 of 27" in done.err
    assert run("export").out == before


def test_fault_names_file_and_line_and_changes_nothing(run, site):
    site.write_text(SITE.replace("split: halves", "split: thirds"))
    done = run("apply", str(site))
    assert done.status == 2
    assert done.err.startswith(f"resource-objects: {site}, line 8, split: got 'thirds', expected")
    assert run("export").out == "version: 1\n"


def test_file_is_read_from_standard_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SITE.encode())))
    assert run("apply", "-").out == "27 created\n"


def test_what_is_no_file_is_refused(run, tmp_path):
    assert run("apply", str(tmp_path)).status == 2
    assert run("apply", str(tmp_path / "nothing")).status == 2


def test_it_is_said_how_far_it_came(run, site, monkeypatch):
    run("apply", str(site))
    run("claim", "job-1", "PGPU=1")
    text = "machines:\n  new-0: {inventories: VCPU=1}\n  lab-0:\n    inventories: VCPU=64\n"
    site.write_text(text + "    children:\n      /gpu0: {inventories: VCPU=1}\n")
    monkeypatch.setattr("resource_objects.site.BATCH", 1)
    done = run("apply", str(site))
    assert done.status == 1 and "1 of 2 machines are written; then:" in done.err
    assert "new-0" in run("export").out
