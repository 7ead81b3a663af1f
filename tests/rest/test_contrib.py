"""What ``contrib`` has: systemd understands the unit, and the command all options that are used."""

from __future__ import annotations

import argparse
import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resource_objects.cli.serve import serve
from resource_objects.rest.serving import GRACE
from tests.support.served import Served

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "contrib" / "systemd" / "resource-objects.service"
CONTAINER = ROOT / "contrib" / "container" / "Containerfile"


def options_of(words: list[str]) -> argparse.Namespace:
    """Return how the command understands what stands behind it."""
    assert words[0] == "serve"
    command: Any = serve
    options: argparse.Namespace = command(None, None).get_parser("serve").parse_args(words[1:])
    return options


def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_the_unit_starts_the_command_with_options_that_there_are() -> None:
    service = unit()
    command = shlex.split(service["ExecStart"])
    assert Path(command[0]).name == "resource-objects"
    said = options_of(command[1:])
    assert said.auth == "keystone"
    assert said.keystone_file
    assert service["Type"] == "notify"
    assert int(service["TimeoutStopSec"]) > GRACE, "or it is killed while it ends"
    assert service["User"] not in ("root", "0", "nobody")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text()
    [program] = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
    here = tmp_path / UNIT.name
    here.write_text(text.replace(program, sys.executable))
    found = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(here)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in found.stderr.splitlines() if UNIT.name in line]
    assert not said
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(here)],
        capture_output=True,
        text=True,
        check=False,
    )
    level = re.search(r"exposure level for \S+: ([0-9.]+)", rated.stdout)
    if level is not None:  # older ones have no --offline
        assert float(level[1]) < 2.5, rated.stdout


def test_systemd_is_told_when_the_service_is_ready(service: Served) -> None:
    assert b"READY=1" in service.notified


def _steps() -> list[tuple[str, str]]:
    """Return the instructions of the container file."""
    lines = re.sub(r"\\\n\s*", "", CONTAINER.read_text()).splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in kept)]


def test_the_container_starts_the_command_with_options_that_there_are() -> None:
    steps = dict(_steps())
    assert json.loads(steps["ENTRYPOINT"]) == ["resource-objects"]
    said = options_of(json.loads(steps["CMD"]))
    assert said.bind.endswith(f":{steps['EXPOSE']}")
    assert said.auth == "keystone", "it is reached from elsewhere"
    assert int(steps["USER"].split(":")[0]) > 0
    _, _, check = steps["HEALTHCHECK"].partition("CMD ")
    program = json.loads(check)[2]
    compile(program, "health", "exec")
    assert f":{steps['EXPOSE']}/health" in program


def test_the_container_is_made_of_what_there_is() -> None:
    steps = _steps()
    copied = [rest.split()[:-1] for name, rest in steps if name == "COPY" and "--from" not in rest]
    for path in (path for paths in copied for path in paths):
        assert (ROOT / path).exists(), path
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    [extras] = re.findall(r"/src\[([a-z,]+)\]", CONTAINER.read_text())
    assert set(extras.split(",")) <= set(setup["options.extras_require"])
