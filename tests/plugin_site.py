"""A distribution of plug-ins, installed for programs that are run beside it.

``tests/site_plugin`` is built and installed into a directory of this test run; processes that have
the directory on their path see what it declares, this one does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "site_plugin"

#: Runs a program and returns what it says as JSON.
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the plug-in is installed into."""
    work = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, work / "source", ignore=shutil.ignore_patterns("conftest.py"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check"]
    command += ["--target", str(work / "site"), str(work / "source")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return work / "site"


@pytest.fixture
def run_with_plugins(plugin_site: Path, tmp_path: Path) -> Run:
    """A function that runs a program beside the plug-in and returns what it says as JSON.

    Every program has a process of its own, which is forked from one that has the library imported
    already; with ``anew=True`` Python is started for it.
    """

    def run(program: str, anew: bool = False) -> Any:
        if not anew:
            # imported late: the kit's settings are those of the profile that is loaded before it
            from tests.cli.forked import Program

            argv, environ = [str(plugin_site), textwrap.dedent(program)], {"XDG_CACHE_HOME": cache}
            forked = Program(argv, os.environ | environ, cache, False, _run)
            with contextlib.closing(forked):
                out, err = forked.communicate()
            assert (forked.returncode, err) == (0, "")
            return json.loads(out)
        path = os.pathsep.join(filter(None, [str(plugin_site), os.environ.get("PYTHONPATH")]))
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
            env=os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": cache},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""
        return json.loads(ran.stdout)

    cache = str(tmp_path)
    return run


def _run(argv: Sequence[str]) -> None:
    site, program = argv
    sys.path.insert(0, site)
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
