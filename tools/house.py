"""Figures of the house: how big the rooms are, what ties them, and how far a question walks.

::

    .venv/bin/python tools/house.py            # everything, in about a minute
    .venv/bin/python tools/house.py --static   # without the walks, in seconds
    .venv/bin/python tools/house.py --walks    # the walks alone
    .venv/bin/python tools/house.py --short    # one line per figure
    .venv/bin/python tools/house.py --check    # compare each package with its budget
    .venv/bin/python tools/house.py --lower    # lower the budgets to the figures of today

Figures are places to look, never targets to be met by moving lines: a long file that tells one
story is better than six that cannot be read alone, and a circle hidden by an import inside a
function is still a circle. Walks go through public names only, so that they do the same work
whatever is behind them.
"""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import os
import pathlib
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

PACKAGE = "resource_objects"
sys.path.insert(0, str(pathlib.Path(__file__).parent))  # also where it is imported

import prose  # noqa: E402

BUDGET = "tools/budget.toml"
#: The folders that have a budget, in addition to the packages below the library.
SURROUNDINGS = ("benchmarks", "doc", "tests")
#: Figures of size, counted in files of Python and, for lines, of documentation.
SIZES = ("lines", "modules", "classes")
#: Figures of :mod:`prose`, in its order; a line of a docstring that is "free" begins with a clause.
RATES = ("vague", "dialect", "clause", "names")

#: A class of more public methods is told.
MANY_METHODS = 20


# --- what is there ---


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of the package, as it is written."""

    name: str
    path: pathlib.Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def is_testing(self) -> bool:
        return ".testing" in self.name

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        kinds = ast.FunctionDef, ast.AsyncFunctionDef
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))


def blocks(node: ast.AST) -> list[ast.AST]:
    """Return the statements right below a node, with the parts of ``try`` and ``match``."""
    fields = ("body", "orelse", "finalbody", "handlers", "cases")
    return [child for field in fields for child in getattr(node, field, ())]


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node; the expressions in them are ten times as many."""
    for child in blocks(node):
        yield child
        yield from statements(child)


class House:
    """All modules of a checkout, and who imports whom."""

    def __init__(self, root: pathlib.Path) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted((root / PACKAGE).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            name = name.removesuffix(".__init__")
            self.modules[name] = Module(name, path, ast.parse(path.read_text()))
        self.rooms = {name.split(".")[1] for name in self.modules if name.count(".") > 1}
        self.graph = {name: set(self._imports(one)) for name, one in self.modules.items()}
        #: the library itself: what is for tests of others stands beside it
        self.core = [module for module in self.modules.values() if not module.is_testing]

    def _imports(self, module: Module) -> Iterator[str]:
        for node in statements(module.tree):
            for target in self._targets(module, node):
                if target in self.modules and target != module.name:
                    yield target

    def _targets(self, module: Module, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if not isinstance(node, ast.ImportFrom):
            return []
        base = node.module or ""
        if node.level:
            package = module.name if module.is_package else module.name.rpartition(".")[0]
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(up + ([base] if base else []))
        named = [f"{base}.{alias.name}" for alias in node.names]
        return [name if name in self.modules else base for name in named]

    def room(self, name: str) -> str:
        parts = name.split(".")
        return f"{parts[1]}/" if len(parts) > 2 or parts[-1] in self.rooms else "(ground)"

    # --- what ties them ---

    def circles(self) -> list[list[str]]:
        """Return the sets of modules that import each other, the largest first."""
        ends = {name: self._reachable(name) for name in self.graph}
        found = {
            frozenset(other for other in ends[name] if name in ends[other])
            for name in self.graph
            if name in ends[name]
        }
        return sorted((sorted(circle) for circle in found), key=lambda one: (-len(one), one))

    def _reachable(self, start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = self.graph[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    def imported_once(self) -> list[str]:
        """Return the modules that one other imports, packages aside."""
        importers = collections.Counter(
            target for one in self.core if not one.is_package for target in self.graph[one.name]
        )
        return [o.name for o in self.core if importers[o.name] == 1 and not o.is_package]

    def private_imports(self) -> int:
        """Return how many private names are imported from other modules."""
        return sum(
            alias.name.startswith("_")
            and not alias.name.startswith("__")
            and f"{node.module}.{alias.name}" not in self.modules
            for module in self.core
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
            for alias in node.names
        )

    def hidden_imports(self) -> int:
        """Return how many imports of own modules stand inside functions."""
        return sum(
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
            for module in self.core
            for function in module.functions()
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        )

    # --- names and classes ---

    def defined_twice(self) -> dict[str, list[str]]:
        """Return the classes and public functions that several modules define."""
        found: dict[str, set[str]] = collections.defaultdict(set)
        for module in self.core:
            for node in module.tree.body:
                is_public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
                if isinstance(node, ast.ClassDef) or is_public:
                    found[node.name.lstrip("_")].add(module.name)  # type: ignore[attr-defined]
        return {name: sorted(places) for name, places in found.items() if len(places) > 1}

    def module_names(self) -> list[str]:
        """Return the names that modules of three or more rooms have."""
        places: dict[str, int] = collections.Counter(
            module.name.rpartition(".")[2] for module in self.core if not module.is_package
        )
        return [name for name, count in places.items() if count > 2]

    def deepest(self) -> list[tuple[int, str]]:
        """Return the classes with how many own classes they are made of, the deepest first."""
        parents = {
            (module.name, node.name): [_base(base) for base in node.bases]
            for module in self.modules.values()
            for node in module.classes()
        }
        by_name = collections.defaultdict(list)
        for key in parents:
            by_name[key[1]].append(key)

        def depth(key: tuple[str, str], seen: tuple[tuple[str, str], ...] = ()) -> int:
            above = (up for base in parents[key] for up in by_name[base])
            on = (depth(up, (*seen, key)) for up in above if up not in seen and up != key)
            return 1 + max(on, default=0)

        names = {module.name for module in self.core}
        found = [(depth(key), key) for key in parents if key[0] in names]
        return [(count, key[1]) for count, key in sorted(found, reverse=True)]

    def wide(self) -> list[str]:
        """Return the classes of many public methods."""
        found = []
        for module in self.core:
            for node in module.classes():
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
                count = sum(not method.name.startswith("_") for method in methods)
                if count > MANY_METHODS:
                    found.append(f"{_short(module.name)}.{node.name} {count}")
        return found


def _base(node: ast.expr) -> str:
    return ast.unparse(node).split("[")[0].split(".")[-1]


def _short(name: str) -> str:
    return name.removeprefix(f"{PACKAGE}.")


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    body = function.body[1:] if is_docstring else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


# --- walks ---


@dataclasses.dataclass(frozen=True)
class Walk:
    """How far one call goes through the package."""

    calls: int
    functions: int
    files: int
    crossings: int  #: calls from one file into another
    depth: int


def walk(function: Callable[[], Any]) -> Walk:
    """Call a function and watch where it goes."""
    import resource_objects

    inside = str(pathlib.Path(resource_objects.__file__).parent) + os.sep
    seen: list[str] = []
    functions: set[tuple[str, str]] = set()
    crossings = deepest = 0
    stack: list[str] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal crossings, deepest
        where = frame.f_code.co_filename
        if not where.startswith(inside):
            return
        if event == "call":
            seen.append(where)
            functions.add((where, frame.f_code.co_qualname))
            crossings += bool(stack) and stack[-1] != where
            stack.append(where)
            deepest = max(deepest, len(stack))
        elif event == "return" and stack:
            stack.pop()

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return Walk(len(seen), len(functions), len(set(seen)), crossings, deepest)


class Ways:
    """What is walked: each method prepares, and returns the call to watch."""

    def __init__(self, folder: str) -> None:
        self.url = f"sqlite:///{folder}/walked.db"
        self._ledgers: dict[str, Any] = {}

    def _ledger(self, url: str) -> Any:
        """Return a ledger of twenty hosts in which everything was just done twice."""
        if url not in self._ledgers:
            self._ledgers[url] = self._made(url)
        ledger = self._ledgers[url]
        for n in range(2):
            ledger.claim(f"warm{n}", ledger.snapshot().candidates(self._groups()))
            ledger.release(f"warm{n}")
        return ledger

    def _made(self, url: str) -> Any:
        import resource_objects as ro

        ledger = ro.connect(url)
        for n in range(20):
            host = ro.Provider(f"host{n}", "VCPU=64,MEMORY_MB=515000")
            for g in range(4):
                host.add(f"host{n}/gpu{g}", "PGPU=1", traits=["CUSTOM_H100"])
            ledger.sync(host)
        return ledger

    def _groups(self) -> Any:
        import resource_objects as ro

        groups = [ro.RequestGroup("PGPU=1", suffix=suffix) for suffix in ("_A", "_B")]
        return ro.Request("VCPU=4", groups=groups, group_policy="isolate")

    def _claim(self, url: str) -> Callable[[], Any]:
        ledger = self._ledger(url)
        found = ledger.snapshot().candidates("VCPU=4,MEMORY_MB=1024")
        return lambda: ledger.claim("job", found)

    def claim_in_memory(self) -> Callable[[], Any]:
        return self._claim("memory://")

    def candidates_of_two_named_groups(self) -> Callable[[], Any]:
        snapshot, request = self._ledger("memory://").snapshot(), self._groups()
        snapshot.candidates(request)
        return lambda: snapshot.candidates(request)

    def a_refusal_with_its_reasons(self) -> Callable[[], Any]:
        snapshot = self._ledger("memory://").snapshot()
        return lambda: str(snapshot.candidates("VCPU=400").explain())

    def claim_on_sqlite(self) -> Callable[[], Any]:
        return self._claim(self.url)

    def snapshot_after_a_foreign_claim_on_sqlite(self) -> Callable[[], Any]:
        import resource_objects as ro

        ledger = self._ledger(self.url)
        ro.connect(self.url).claim("foreign", {"host3": "VCPU=1"})
        return ledger.snapshot  # type: ignore[no-any-return]

    def fit_of_two_guest_cells(self) -> Callable[[], Any]:
        import resource_objects as ro

        inventory, amount = ro.NUMATopologyInventory(_cells()), ro.numa(cells=2, shared=4)
        inventory.fit(amount)
        return lambda: inventory.fit(amount)

    def the_specifications_loop_on_a_compute_node(self) -> Callable[[], Any]:
        node, request = _node_and_request()
        _ = node.inventories  # made once
        return lambda: _loop(node, request)

    def save_of_a_compute_node(self) -> Callable[[], Any]:
        import resource_objects as ro

        ledger = ro.connect("memory://")
        node, request = _node_and_request()
        node.bind(ledger)
        node.save()
        _loop(node, request)
        return node.save  # type: ignore[no-any-return]

    @classmethod
    def names(cls) -> list[str]:
        return [name for name in vars(cls) if not name.startswith("_") and name != "names"]


def _cells() -> list[Any]:
    import resource_objects as ro

    cpus = [range(4 * n, 4 * n + 4) for n in (0, 1)]
    return [ro.HostCell(n, shared=cpus[n], memory_mb=8192) for n in (0, 1)]


def _node_and_request() -> tuple[Any, Any]:
    import resource_objects as ro

    node = ro.ComputeNode(
        vcpus=8,
        vcpus_used=0,
        memory_mb=16384,
        memory_mb_used=0,
        hypervisor_hostname="h",
        host="h",
        numa_topology=ro.NUMATopologyInventory(_cells()),
    )
    return node, ro.Request("VCPU=4,MEMORY_MB=4096,NUMA_TOPOLOGY=2:shared=4:memory=4096")


def _loop(node: Any, request: Any) -> None:
    for resource, amount in request.resources.items():
        if node.inventories[resource].can_provide(amount):
            node.inventories[resource].consume(amount)


# --- budgets ---


def figures(root: pathlib.Path) -> dict[str, dict[str, float]]:
    """Return the figures of each package of the library and of each folder around it.

    ``resource_objects`` stands for the modules that are in no package below it. The language of
    documentation is measured in its pages, that of all else in docstrings and comments.
    """
    top = root / PACKAGE
    packages = sorted(path for path in top.iterdir() if (path / "__init__.py").exists())
    library = {f"{PACKAGE}/{path.name}": _files(path) for path in packages}
    around = {name: _files(root / name) for name in SURROUNDINGS if (root / name).is_dir()}
    return {
        name: _figures(files, language=".rst" if name == "doc" else ".py")
        for name, files in {PACKAGE: sorted(top.glob("*.py")), **library, **around}.items()
    }


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for kind in ("*.py", "*.rst") for path in folder.rglob(kind))


def _figures(files: list[pathlib.Path], language: str) -> dict[str, float]:
    modules = [path for path in files if path.suffix == ".py"]
    text = prose.Figures()
    for path in files:
        if path.suffix == language:
            (prose.of_module if language == ".py" else prose.of_rst)(path, text, str(path))
    sizes = (
        sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        len(modules),
        sum(
            isinstance(node, ast.ClassDef)
            for path in modules
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        ),
    )
    measured = {name: rate for name, rate in zip(RATES, text.rates(), strict=True) if rate}
    return {**dict(zip(SIZES, sizes, strict=True)), **measured}


def check(root: pathlib.Path) -> bool:
    """Print each package with its figures and budgets; return True if no budget is exceeded.

    A package without a budget, and a figure without one, exceeds it with its first line.
    """
    budgets = tomllib.loads((root / BUDGET).read_text())
    within = True
    for package, measured in figures(root).items():
        pairs = {
            name: (actual, budgets.get(package, {}).get(name, 0))
            for name, actual in measured.items()
        }
        exceeded = any(actual > budget for actual, budget in pairs.values())
        within &= not exceeded
        cells = ", ".join(
            f"{name} {actual} of {budget}{'!' if actual > budget else ''}"
            for name, (actual, budget) in pairs.items()
        )
        print(f"{'EXCEEDED' if exceeded else 'ok':8} {package:26} {cells}")
    return within


def lower(root: pathlib.Path) -> None:
    """Write each budget that is above its figure as that figure; raise none.

    Comments stay: the first of the file, and those above a package. A package without a budget gets
    its figures as one.
    """
    text = (root / BUDGET).read_text()
    budgets = tomllib.loads(text)
    first, *sections = text.split("\n\n")
    comments = {}
    for section in sections:
        comment, _, rest = section.rpartition("[")
        comments[rest.partition("]")[0].strip('"')] = comment
    blocks = [first]
    for package, measured in figures(root).items():
        of_package = budgets.get(package, measured)
        pairs = (f"{name} = {min(n, of_package.get(name, 0))}" for name, n in measured.items())
        blocks.append("\n".join((f'{comments.get(package, "")}["{package}"]', *pairs)))
    (root / BUDGET).write_text("\n\n".join(blocks) + "\n")


# --- tell ---


def tell_rooms(house: House) -> None:
    """Print a line for each room."""
    rooms: dict[str, list[Module]] = collections.defaultdict(list)
    for module in house.modules.values():
        rooms[house.room(module.name)].append(module)
    print(f"{'room':14} {'files':>5} {'lines':>6}  function body median / p90 / longest")
    for name, found in sorted(rooms.items(), key=lambda room: -_count(room[1])):
        bodies = sorted(_body_lines(f) for module in found for f in module.functions()) or [0]
        most = bodies[int(len(bodies) * 0.9)]
        figures = f"{statistics.median(bodies):.0f} / {most} / {bodies[-1]}"
        print(f"{name:14} {len(found):5} {_count(found):6}  {figures}")


def _count(modules: list[Module]) -> int:
    return sum(len(module.lines) for module in modules)


def tell(house: House) -> None:
    """Print a line for each figure."""
    others = len(house.modules) - len(house.core)
    circles = house.circles()
    sizes = ", ".join(str(len(circle)) for circle in circles) or "none"
    deep = ", ".join(f"{name} {depth}" for depth, name in house.deepest()[:6])
    print(
        f"library without testing/: {len(house.core)} modules, {_count(house.core)} lines;"
        f" testing/: {others} modules"
    )
    print(f"modules that one other imports: {len(house.imported_once())}")
    print(f"circles of modules: {len(circles)}, of {sizes}")
    print(f"deepest chains of own classes: {deep}")
    print(f"classes of over {MANY_METHODS} public methods: {', '.join(house.wide()) or 'none'}")
    print(f"classes and public functions of one name: {len(house.defined_twice())}")
    print(f"module names in three or more rooms: {', '.join(house.module_names()) or 'none'}")
    print(f"private names imported across modules: {house.private_imports()}")
    print(f"imports of own modules inside functions: {house.hidden_imports()}")


def tell_places(house: House) -> None:
    """Print where to look."""
    for circle in house.circles():
        print("  circle: " + ", ".join(map(_short, circle)))
    twice = sorted(house.defined_twice().items(), key=lambda item: -len(item[1]))
    print("  of one name: " + ", ".join(f"{name} x{len(found)}" for name, found in twice[:60]))
    print("  one importer: " + ", ".join(map(_short, house.imported_once())))


def tell_walks() -> None:
    """Walk, and print a line for each way."""
    print(f"{'walk':44} {'calls':>6} {'functions':>9} {'files':>5} {'crossings':>9} {'depth':>5}")
    with tempfile.TemporaryDirectory() as folder:
        ways = Ways(folder)
        for name in Ways.names():
            one = walk(getattr(ways, name)())
            figures = f"{one.calls:6} {one.functions:9} {one.files:5} {one.crossings:9}"
            print(f"{name.replace('_', ' '):44} {figures} {one.depth:5}")


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--static", action="store_true", help="without the walks")
    parser.add_argument("--walks", action="store_true", help="the walks alone")
    parser.add_argument("--short", action="store_true", help="one line per figure")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    parser.add_argument("--check", action="store_true", help="compare each package with its budget")
    parser.add_argument("--lower", action="store_true", help="lower the budgets to the figures")
    given = parser.parse_args()
    if given.lower:
        lower(given.root.resolve())
    if given.check or given.lower:
        sys.exit(not check(given.root.resolve()))
    if given.walks:
        tell_walks()
        return
    house = House(given.root.resolve())
    if not given.short:
        tell_rooms(house)
    tell(house)
    if not given.short:
        tell_places(house)
    if not given.static:
        tell_walks()


if __name__ == "__main__":
    main()
