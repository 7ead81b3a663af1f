"""The commands of the pages, as a shell runs them: on an empty folder, with ``curl``."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.served import free_port

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not here")

#: Where its output is that of another command.
_MARK = "--- next ---"


def commands(path: str, language: str) -> list[str]:
    """Return the commands of a page that are about the service, each in one text."""
    text = (ROOT / path).read_text(encoding="utf-8")
    blocks = re.findall(rf"\.\. code-block:: {language}\n\n((?: +.*\n|\n)+)", text)
    lines = "\n".join(textwrap.dedent(one) for one in blocks if "8778" in one).splitlines()
    found: list[str] = []
    for line in filter(None, lines):
        goes_on = line.startswith(" ") or (found and found[-1].endswith("\\"))
        if goes_on:
            found[-1] += f"\n{line}"
        else:
            found.append(line.removeprefix("$ "))
    return found


def answers(said: list[str], folder: Path) -> list[Any]:
    """Run commands in a shell; return the JSON that each of them printed, if it did."""
    port, python = free_port(), shlex.quote(sys.executable)
    program = f"{python} -W ignore -m resource_objects"
    script = "\n".join(f"{one}\necho '{_MARK}'" for one in said)
    script = re.sub(r"(\.venv|lab)/bin/resource-objects", program, script)
    script = script.replace(
        "serve --auth noauth2 &", f"serve --auth noauth2 --bind 127.0.0.1:{port} 2>log &"
    )
    script = script.replace("127.0.0.1:8778", f"127.0.0.1:{port}")
    done = subprocess.run(
        ["bash", "-c", f"trap 'kill $(jobs -p); wait' EXIT\nset -e\n{script}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + (folder / "log").read_text()
    printed = [one.strip() for one in done.stdout.split(_MARK)]
    return [json.loads(one) for one in printed if one.startswith("{")]


def test_the_commands_of_the_page_are_answered_as_it_says(tmp_path: Path) -> None:
    said = commands("doc/source/howto/serving.rst", "console")
    begin = next(number for number, one in enumerate(said) if "serve --auth" in one)
    assert "pip install" in said[begin - 1], "what is installed is what is tested"
    health, host, inventories, found, usages, empty = answers(said[begin:], tmp_path)
    assert set(health) == {"now"}
    assert host["name"] == "host0"
    assert inventories["inventories"]["VCPU"]["total"] == 8
    [one] = found["allocation_requests"]
    assert one["allocations"] == {host["uuid"]: {"resources": {"VCPU": 6}}}
    assert usages["usages"] == {"VCPU": 6}
    assert empty["allocation_requests"] == []
    [reason] = empty["explanation"]["refused"]["host0"]
    assert reason["holders"] == [["f5a91a0a-e111-4a9c-8a33-7b320ae1e52a", 6]]
    assert (tmp_path / "lab.db").exists()


@pytest.mark.long
def test_the_commands_of_the_readme_find_this_machine(tmp_path: Path) -> None:
    said = [one.rpartition("&& ")[2] for one in commands("README.rst", "sh")]
    health, found = answers(said, tmp_path)
    assert set(health) == {"now"}
    [summary] = found["provider_summaries"].values()
    assert summary["resources"]["VCPU"]["capacity"] >= 1
