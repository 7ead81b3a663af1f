"""Change the rules in one small place, and see whether a test notices.

::

    .venv/bin/python tools/mutants.py --seed 1 --count 50            # an hour on two processors
    .venv/bin/python tools/mutants.py --seed 1 --count 50 --list     # what would be tried
    .venv/bin/python tools/mutants.py --seed 1 --only 7              # one of them again

Mutation testing (DeMillo, Lipton, Sayward: Hints on test data selection, Computer 11(4), 1978). A
mutant is the library with one such change: a comparison moved or turned round, a condition taken
for true or false, "and" for "or", plus for minus, a number off by one, a value not returned, an
error not raised. One that no test fails on, a survivor, is one of three things: equal to what was
written, a branch that nobody needs, or a hole in the tests. Which of them, a person has to say.

It is a sample that is drawn by a seed, because all mutants take days. :data:`RUNS` are tried one
after the other. Each is run once with a note at the place of every mutant that is left, which says
what tests come by there; then each such mutant is run with those tests alone, the quick ones first.
Mutmut and cosmic-ray try every mutant, and know neither pytest's doctests nor what a program that
a test starts comes by. Mutants are written into a copy of the checkout in memory, never into the
checkout itself. Tests are the fast ones, without database servers unless ``--servers`` is given.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import copy
import dataclasses
import fnmatch
import functools
import itertools
import os
import pathlib
import queue
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "resource_objects"
#: What a checkout needs to run its tests.
COPIED = [PACKAGE, "tests", "benchmarks", "tools", "doc", "pyproject.toml", "setup.cfg", "tox.ini"]
COPIED += ["README.rst", "CONTRIBUTING.rst"]

#: Tests of the rules, those first that know a rule itself.
RUNS = [
    "tests/resources resource_objects/resources resource_objects/ratio.py",
    "tests/requests tests/providers resource_objects/requests resource_objects/providers",
    "tests/search tests/scenarios resource_objects/search",
    "tests/scheduler resource_objects/scheduler",
    "tests/ledger resource_objects/ledger resource_objects/backends",
    "tests/host resource_objects/host",
    "tests/backends",
    "tests/cli doc/source README.rst",
]
#: Seconds that the tests of a mutant may take, as they took before; at least one is run.
SECONDS = 40
#: Seconds of processor time after which they are in a loop, and kilobytes that they may take.
LOOP, MEMORY = 4 * SECONDS, 8 * 2**20
#: Seconds after which a run of tests waits for what never comes.
PATIENCE = 1800
#: Nobody answers here, so that tests of servers skip.
NO_SERVERS = {
    "RO_TEST_POSTGRESQL": "postgresql+psycopg://nobody@127.0.0.1:1/none",
    "RO_TEST_MYSQL": "mysql+pymysql://nobody@127.0.0.1:1/none",
}

#: Where rules are.
RULES = ["resources/*.py", "ratio.py", "requests/*.py", "search/*.py", "providers/*.py"]
RULES += ["ledger/*.py", "backends/*.py", "host/*.py", "scheduler/*.py"]
#: Not rules: what is said of them, how they are written down, and the files of a machine.
LEFT_OUT = ["*/__init__.py", "*/text.py", "*/migrations/*", "host/linux.py", "host/sysfs.py"]


# --- what can be changed ---


@dataclasses.dataclass(frozen=True, order=True)
class Mutant:
    """One change of one module: the characters from ``start`` to ``end`` of it become ``new``.

    ``is_imported``: it is passed while the module is imported, as a default of an argument is.
    """

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    is_imported: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {_short(self.old)}  ->  {_short(self.new)}"

    def of(self, text: bytes) -> bytes:
        """Return a module's text with the change."""
        return text[: self.start] + self.new.encode() + text[self.end :]


def _short(code: str) -> str:
    return " ".join(code.split())


_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
#: Methods that speak to people.
_TELLING = {"__repr__", "__str__", "describe", "text"}


def mutants_of(path: str, text: str) -> list[Mutant]:
    r"""Return every mutant of a module, by place.

    Docstrings, messages, types and what speaks to people stay.

    >>> text = '''
    ... def least(a: int, b: int) -> int:
    ...     "Return a + 1."
    ...     if a < b:
    ...         raise ValueError("not " + "that")
    ...     return b
    ... '''
    >>> for mutant in mutants_of("example.py", text):
    ...     print(mutant)
    example.py:4  a < b  ->  (False)
    example.py:4  a < b  ->  (True)
    example.py:4  a < b  ->  (a <= b)
    example.py:5  raise ValueError("not " + "that")  ->  pass
    example.py:6  return b  ->  return None
    """
    return sorted(_Finder(path, text).found)


class _Finder:
    """A walk through a module that notes what can be changed."""

    def __init__(self, path: str, text: str) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._text = text.encode()
        self._depth = 0  # functions around
        lines = self._text.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._walk(ast.parse(text))

    def _walk(self, node: ast.AST) -> None:
        for new in _statements(node):
            self._note(node, new)
        for expression in _changed(node):
            self._note(node, f"({ast.unparse(expression)})")
        for condition in _conditions(node):
            self._note(condition, "(True)")
            self._note(condition, "(False)")
        body = node.body if isinstance(node, ast.FunctionDef) else ()
        for child in _inside(node):
            self._depth += child in body
            self._walk(child)
            self._depth -= child in body

    def _note(self, node: ast.AST, new: str) -> None:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        old = self._text[start:end].decode()
        self.found.append(Mutant(self._path, node.lineno, start, end, old, new, not self._depth))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that are rules, not words and not types."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.FunctionDef):
        if node.name not in _TELLING:
            yield from (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body)
    elif isinstance(node, ast.ClassDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        yield from filter(None, [node.value])
    elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        yield from ast.iter_child_nodes(node)


def _conditions(node: ast.AST) -> Sequence[ast.expr]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return () if isinstance(node.test, ast.Constant) else (node.test,)
    return node.ifs if isinstance(node, ast.comprehension) else ()


def _statements(node: ast.AST) -> Iterator[str]:
    """Yield what a statement becomes."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        if "NotImplementedError" not in ast.unparse(node.exc):
            yield "pass"
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return None"
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        other = copy.copy(node)
        other.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield ast.unparse(other)


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what an expression becomes."""
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            ops = [*node.ops[:number], _COMPARISONS[type(operator)](), *node.ops[number + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        if not any(isinstance(part, ast.JoinedStr) for part in ast.walk(node)):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield ast.BinOp(node.left, other, node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)


# --- which of them ---


def is_rule(path: str, rules: Sequence[str] = RULES) -> bool:
    """Return whether a module of the package holds rules, or some of them.

    >>> is_rule("resources/numa/placement.py"), is_rule("cli/main.py")
    (True, False)
    >>> is_rule("resources/numa/placement.py", ["search/*.py"])
    False
    """
    holds, left_out = (
        any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
        for patterns in (rules, LEFT_OUT)
    )
    return holds and not left_out


def sample(
    seed: int, count: int, root: pathlib.Path = ROOT, rules: Sequence[str] = RULES
) -> list[Mutant]:
    """Return some mutants of the rules of a checkout: the same ones for the same seed and text."""
    every: list[Mutant] = []
    for module in sorted((root / PACKAGE).rglob("*.py")):
        path = module.relative_to(root / PACKAGE).as_posix()
        if is_rule(path, rules):
            every += mutants_of(path, module.read_text())
    return random.Random(seed).sample(every, min(count, len(every)))


# --- which tests come by ---

#: A plug-in of pytest that notes who comes by, also in programs that a test starts.
NOTER = """
import os
noted = set()
def note(*said):
    if said not in noted:
        noted.add(said)
        with open(os.environ["MUTANTS_NOTES"], "a") as notes:
            print(*said, sep="\\t", file=notes)
def passed(number):
    note("passed", number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
def pytest_runtest_logreport(report):
    if report.when == "call":
        note("took", report.duration, report.nodeid)
"""


def with_notes(text: bytes, numbered: Mapping[int, Mutant]) -> bytes:
    r"""Return a module's text that notes when the place of a mutant is passed.

    >>> text = "if a:\n    raise b\n"
    >>> numbered = dict(enumerate(mutants_of("example.py", text)))
    >>> print(with_notes(text.encode(), numbered).decode().replace('__import__("noter").', ""))
    if (passed(1) or (passed(0) or a)):
        passed(2); raise b
    <BLANKLINE>
    """
    added: list[tuple[int, str]] = []
    for number, mutant in numbered.items():
        note = f'__import__("noter").passed({number})'
        if mutant.new.startswith("("):
            added += [(mutant.start, f"({note} or "), (mutant.end, ")")]
        else:
            added += [(mutant.start, f"{note}; ")]
    for place, code in sorted(added, key=lambda one: one[0], reverse=True):
        text = text[:place] + code.encode() + text[place:]
    return text


# --- whether a test notices ---


class Scratch:
    """A copy of the checkout, in which mutants are tried."""

    def __init__(
        self, root: pathlib.Path, folder: pathlib.Path, runner: Sequence[str], servers: bool
    ) -> None:
        self._folder = folder
        self._runner = runner
        self._notes = folder / "notes.txt"
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, folder / name)
            elif (root / name).exists():
                shutil.copy(root / name, folder / name)
        if (root / ".venv").exists():
            (folder / ".venv").symlink_to(root / ".venv")
        (folder / "noter.py").write_text(NOTER)
        self._environment = {
            **os.environ,
            **({} if servers else NO_SERVERS),
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MUTANTS_NOTES": str(self._notes),
        }

    def passing(self, run: str, numbered: Mapping[int, Mutant]) -> dict[int, list[str]]:
        """Return the tests of a run that pass the place of each mutant, the quickest first.

        What is passed while modules are imported, by whichever test, is all tests' affair.

        :raises RuntimeError: if the tests cannot be run
        """
        by_path: dict[str, dict[int, Mutant]] = {}
        for number, mutant in numbered.items():
            by_path.setdefault(mutant.path, {})[number] = mutant
        self._notes.write_text("")
        with contextlib.ExitStack() as restored:
            for path, those in by_path.items():
                change = functools.partial(with_notes, numbered=those)
                restored.enter_context(self._written(path, change))
            code, told = self._pytest("-p", "noter", *run.split())
        if code not in (0, 1):
            raise RuntimeError(f"{run} ended with {code}: {told[-2000:]}")
        took: dict[str, float] = {}
        passed: dict[int, set[str]] = {}
        for line in self._notes.read_text().splitlines():
            kind, value, test = line.split("\t", 2)
            if kind == "took":
                took[test] = float(value)
            else:
                passed.setdefault(int(value), set()).add(test)
        found: dict[int, list[str]] = {}
        for number, tests in passed.items():
            if numbered[number].is_imported:
                tests = set(took)
            quick = sorted(tests & took.keys(), key=lambda test: (took[test], test))
            if quick:
                found[number] = _in_time(quick, took)
        return found

    def killer(self, mutant: Mutant, tests: Sequence[str]) -> str | None:
        """Return the first of some tests that fails on a mutant, None if none does."""
        with self._written(mutant.path, mutant.of):
            code, told = self._pytest("-x", *tests, seconds=LOOP)
        if code == 0:
            return None
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", told, re.MULTILINE)
        return failed[1] if failed else f"ended with {code}: {told[-200:]}"

    @contextlib.contextmanager
    def _written(self, name: str, change: Callable[[bytes], bytes]) -> Iterator[None]:
        path = self._folder / PACKAGE / name
        written = path.read_bytes()
        path.write_bytes(change(written))
        try:
            yield
        finally:
            path.write_bytes(written)

    def _pytest(self, *arguments: str, seconds: int | None = None) -> tuple[int, str]:
        """Run tests, for so long of processor time; return how they ended and what was printed."""
        limits = f"ulimit -v {MEMORY} -t {seconds or 'unlimited'}"
        bounded = ["sh", "-c", f'{limits}; exec "$@"', "sh"]
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={self._folder}/tmp"]
        with subprocess.Popen(
            [*bounded, *self._runner, *options, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                told, _ = process.communicate(timeout=PATIENCE)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what its tests started too
        return process.returncode, told


def _in_time(tests: Sequence[str], took: Mapping[str, float]) -> list[str]:
    """Return the first tests, as many as end in :data:`SECONDS`, and at least one."""
    sums = itertools.accumulate(took[test] for test in tests)
    count = sum(until <= SECONDS for until in sums)
    return [*tests[: max(1, count)]]


def tried(
    scratch: Scratch, run: str, left: dict[int, Mutant], tell: Callable[[str], None]
) -> Iterator[int]:
    """Try what is left on a run of tests; yield the numbers of mutants that a test comes by."""
    for number, tests in scratch.passing(run, dict(left)).items():
        yield number
        mutant = left.get(number)
        if mutant is None:
            continue  # another run was quicker
        killer = scratch.killer(mutant, tests)
        told = f"{number:3}  {mutant}"
        if killer is None:
            tell(f"{told}\n     not noticed by {len(tests)} tests of {run}")
        elif left.pop(number, None):
            tell(f"{told}\n     killed by {killer}")


def main() -> int:
    """Try a sample; return 1 if some survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--only", type=int, nargs="+", help="these alone, by their numbers")
    parser.add_argument("--list", action="store_true", help="show the sample and stop")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--servers", action="store_true", help="use database servers too")
    parser.add_argument("--rules", nargs="+", default=RULES, help="modules in place of RULES")
    parser.add_argument("--runs", nargs="+", default=RUNS, help="tests in place of those of RUNS")
    parser.add_argument("--pytest", default=f"{sys.executable} -m pytest", help="the command")
    wanted = parser.parse_args()
    left = dict(enumerate(sample(wanted.seed, wanted.count, rules=wanted.rules), 1))
    left = {number: left[number] for number in wanted.only or left}
    count, passed = len(left), set[int]()
    if wanted.list:
        print(*(f"{number:3}  {mutant}" for number, mutant in left.items()), sep="\n")
        return 0
    free: queue.SimpleQueue[Scratch] = queue.SimpleQueue()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mutants.", dir=memory) as folder:
        for job in range(wanted.jobs):
            place = pathlib.Path(folder, str(job))
            place.mkdir()
            free.put(Scratch(ROOT, place, shlex.split(wanted.pytest), wanted.servers))

        def one(run: str) -> None:
            scratch = free.get()
            passed.update(tried(scratch, run, left, lambda text: print(text, flush=True)))
            free.put(scratch)

        with concurrent.futures.ThreadPoolExecutor(wanted.jobs) as pool:
            list(pool.map(one, wanted.runs))
    for number, mutant in left.items():
        print(f"{number:3}  {mutant}\n     {'survived' if number in passed else 'no test'}")
    print(f"{count} mutants, {count - len(left)} killed, {len(left)} left")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
