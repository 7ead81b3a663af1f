"""Both versions in processes of their own, which answer the same questions.

The version before is installed from git, with the packages that are installed here
(:mod:`benchmarks.against`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks import against

#: The commit whose answers are kept.
BEFORE = "1953e9277cab31de01080c6a8ed656688248f596"
_ROOT = pathlib.Path(__file__).resolve().parents[3]
_ANSWERS = pathlib.Path(__file__).with_name("process") / "answers.py"


class Process:
    """One version, which answers questions."""

    def __init__(self, python: pathlib.Path, folder: pathlib.Path) -> None:
        # sets have the same order in both, where an error names the first wrong one of some
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            [python, "-W", "ignore", _ANSWERS],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, case: Any) -> None:
        """Begin with a question."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer to the first question that has none yet.

        :raises RuntimeError: if it ended: what it said is on the standard error
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return json.loads(line)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def running() -> Iterator[tuple[Process, Process]]:
    """Lend the version before, and this one.

    :raises against.Failed: if the one before cannot be had: there is no git or no history here
    """
    with tempfile.TemporaryDirectory(prefix="before-") as scratch:
        before = against.install("before", BEFORE, pathlib.Path(scratch, "before"), BEFORE)
        with contextlib.ExitStack() as stack:
            places = (before.python, before.folder), (pathlib.Path(sys.executable), _ROOT)
            pair = [Process(*place) for place in places]
            for one in pair:
                stack.callback(one.stop)
            yield pair[0], pair[1]


def answered(before: Process, now: Process, cases: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each question with the answer of the version before and of this one."""
    for case in cases:
        for one in (before, now):
            one.ask(case)
        yield case, before.answer(), now.answer()
