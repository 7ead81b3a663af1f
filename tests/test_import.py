"""Importing the library: light, silent, and downwards only.

oslo.versionedobjects itself imports much. Of that, oslo.messaging with eventlet is loaded when
somebody uses it (see ``_ovo``); what else it brings is left, and what we add is measured against
it.
"""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from tests.support.lengths import some
from tools.house import House, blocks, statements

PACKAGE = Path(ro.__file__).parent

#: What a program that only counts must not load.
HEAVY = [
    "sqlalchemy",
    "alembic",
    "oslo_db",
    "oslo_service",
    "numpy",
    "cliff",
    "psutil",
    "eventlet",
    "hypothesis",
]

#: What a command that reads the ledger must not load, beyond what keeps it.
HEAVY_FOR_READING = [
    "alembic",
    "eventlet",
    "numpy",
    "oslo_service",
    "psutil",
    "rich",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
]

USAGE = """
import sys
from resource_objects.cli.main import main
sys.stdout, told = open(os.devnull, "w"), sys.stdout
assert main(["--database", "sqlite:///" + DATABASE, "usage"]) == 0
sys.stdout = told
"""

ALGEBRA = """
import resource_objects as ro
ro.IntegerAmount(1) + ro.IntegerAmount(2)
host = ro.Inventories.parse("VCPU=8:allocation_ratio=1.5,CUSTOM_A=2")
host.consume("VCPU=2")
ro.Inventories.obj_from_primitive(host.obj_to_primitive())
"""


def silent(program: str, *flags: str) -> str:
    """Return the output of a program that ends with status 0 and without errors."""
    command = [sys.executable, *flags, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@functools.cache
def loaded_by(program: str) -> frozenset[str]:
    """Return the names of the modules that are loaded after ``program``."""
    names = "import json, sys\njson.dump(list(sys.modules), sys.stdout)"
    return frozenset(json.loads(silent(f"{program}\n{names}")))


def test_importing_the_package_loads_nothing_but_itself() -> None:
    ours = loaded_by("import resource_objects") - loaded_by("import __future__, importlib, typing")
    assert ours == {"resource_objects", "resource_objects._version"}


@pytest.mark.parametrize("heavy", HEAVY)
def test_counting_loads_nothing_heavy_beyond_versioned_objects(heavy: str) -> None:
    assert heavy not in {name.split(".")[0] for name in loaded_by(ALGEBRA)}


def test_reading_the_ledger_loads_neither_the_search_nor_other_databases(tmp_path: Path) -> None:
    database = str(tmp_path / "lab.db")
    with ro.connect(f"sqlite:///{database}") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=2"))
    loaded = loaded_by(f"import os\nDATABASE = {database!r}\n{USAGE}")
    assert "sqlalchemy" in loaded
    assert not loaded.intersection(HEAVY_FOR_READING)
    assert "resource_objects.search.snapshot" not in loaded


RUN = USAGE.replace('"usage"', '"run", "--at", "host0", "VCPU=1", "--", "true"')


def test_running_a_job_loads_the_search_and_no_more(tmp_path: Path) -> None:
    database = str(tmp_path / "lab.db")
    with ro.connect(f"sqlite:///{database}") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=2"))
    loaded = loaded_by(f"import os\nDATABASE = {database!r}\n{RUN}")
    assert "resource_objects.search.snapshot" in loaded
    assert not loaded.intersection(HEAVY_FOR_READING) - {"numpy"}


# --- oslo.messaging is there when somebody uses it ---


def test_a_program_that_counts_forks_without_a_warning() -> None:
    silent(f"{ALGEBRA}import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()", "-W", "error")


USES_OF_MESSAGING = {
    "attribute": "import oslo_messaging\nassert oslo_messaging.Target.__name__ == 'Target'",
    "submodule": "import oslo_messaging.rpc.client\noslo_messaging.rpc.client.RPCClient",
    "serializer": "import oslo_messaging.serializer\noslo_messaging.serializer.NoOpSerializer",
    "from": "from oslo_messaging import Target, NoOpSerializer",
    "star": "from oslo_messaging import *\nassert Target and NoOpSerializer",
}


#: Each use before us or after, then each the other way round.
_IN_BOTH_ORDERS = [
    (use, ("before", "after")[(number + turn) % 2])
    for turn in range(2)
    for number, use in enumerate(USES_OF_MESSAGING)
]


@pytest.mark.parametrize(("use", "order"), some(_IN_BOTH_ORDERS, 2))
def test_a_program_that_uses_messaging_is_served_as_without_us(use: str, order: str) -> None:
    uses = f"import warnings\nwarnings.simplefilter('ignore')\n{USES_OF_MESSAGING[use]}\n"
    after = """
import oslo_messaging, types
from oslo_versionedobjects import base
assert base.messaging.Target is oslo_messaging.Target
assert issubclass(base.VersionedObjectSerializer, oslo_messaging.NoOpSerializer)
assert oslo_messaging.NoOpSerializer is oslo_messaging.serializer.NoOpSerializer
assert oslo_messaging.get_rpc_transport and type(oslo_messaging) is types.ModuleType
"""
    silent(uses + ALGEBRA + after if order == "before" else ALGEBRA + uses + after)


def test_what_messaging_lacks_it_lacks_with_us_too() -> None:
    asks = """
import warnings; warnings.simplefilter('ignore')
import oslo_messaging
for name in ("Targett", "__path_of_nobody__"):
    try:
        getattr(oslo_messaging, name)
    except AttributeError as error:
        print(error)
"""
    assert silent(ALGEBRA + asks) == silent(asks)


@pytest.mark.parametrize(
    "flags", some([["-W", "error"], ["-X", "dev"], ["-W", "always"], ["-bb"]], 2)
)
def test_counting_prints_nothing_whatever_is_asked_of_warnings(flags: list[str]) -> None:
    assert silent(ALGEBRA, *flags) == ""


def test_the_warnings_filters_of_the_program_stay_its_own() -> None:
    program = "import warnings; before = list(warnings.filters)"
    silent(f"{program}{ALGEBRA}assert warnings.filters == before, warnings.filters")


@pytest.mark.parametrize("name", ro.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(ro, name) is getattr(ro, name)
    assert name in dir(ro)


def test_what_is_no_public_name_says_so() -> None:
    with pytest.raises(AttributeError, match="module 'resource_objects' has no attribute 'Amont'"):
        ro.Amont  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(ro, "Amont")
    assert len(set(ro.__all__)) == len(ro.__all__)


def test_a_type_checker_sees_the_public_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (checked,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    said = set()
    for node in checked.body:
        if isinstance(node, ast.ImportFrom):
            said |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.AnnAssign):
            said.add(ast.unparse(node.target))
    assert said == set(ro.__all__) - {"__version__"}


# --- imports point downwards only ---

#: The rooms, lowest first: a module imports from its own room and from those before it.
ROOMS = [
    "_version",
    "clock",
    "collector",
    "reasons",
    "exceptions",
    "findings",
    "_ovo",
    "_dataclass",
    "_lazy",
    "names",
    "ratio",
    "fields",
    "base",
    "plugins",
    "resources",
    "requests",
    "providers",
    "yaml_nodes",
    "store",
    "backends",
    "search",
    "ledger",
    "host",
    "site",
    "interop",
    "scheduler",
    "rest",
    "testing",
    "cli",
    "__main__",
]


#: Modules that read and write Nova's formats, plug-ins of ``resource_objects.columns``: they may
#: import ``interop``.
OF_NOVA = ("host/nova_columns.py",)


def room_of(module: str) -> str:
    return module.split(".")[1]


@functools.cache
def house() -> House:
    """Return the modules and who imports whom; all are parsed once, by the tests that ask."""
    return House(PACKAGE.parent)


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """Keep the trees no longer than the tests of this file run: they are large."""
    yield
    house.cache_clear()


def tree_of(path: Path) -> ast.Module:
    return house().modules[module_name(path).removesuffix(".__init__")].tree


@functools.cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Return (line, module of ours) of every import, also inside functions.

    What only a type checker reads does not count.
    """
    return tuple(read_imports(path))


def read_imports(path: Path) -> Iterator[tuple[int, str]]:
    package = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1])
    todo: list[ast.AST] = [tree_of(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        todo += blocks(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] in (PACKAGE.name, "tests", "benchmarks"):
                yield node.lineno, name  # type: ignore[attr-defined]


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def test_imports_point_downwards_only() -> None:
    wrong = []
    for path in modules():
        here = room_of(module_name(path))
        assert here in ROOMS, f"{here} has no place in the order of rooms: see ROOMS"
        below = {*ROOMS[: ROOMS.index(here) + 1], "__version__"}
        if str(path.relative_to(PACKAGE)) in OF_NOVA:
            below.add("interop")
        wrong += [
            f"{path}, line {line}: {here} imports {name}"
            for line, name in imports(path)
            if name.split(".")[0] != PACKAGE.name  # who installs the library does not have these
            or name.count(".") == 0
            or room_of(name) not in below
        ]
    assert not wrong


def test_no_modules_import_each_other() -> None:
    """Imports inside functions and for type checkers count, too."""
    assert house().circles() == []


def test_the_rooms_of_the_algebra_are_pure() -> None:
    """No input or output below the ledger's rooms, but for looking up plug-ins."""
    forbidden = {"os", "io", "socket", "subprocess", "pathlib", "sqlite3", "logging", "random"}
    forbidden |= {"time", "threading", "asyncio", "tempfile", "shutil"}
    pure = [path for path in modules() if room_of(module_name(path)) in ("resources", "requests")]
    for path in [*pure, PACKAGE / "names.py", PACKAGE / "ratio.py", PACKAGE / "fields.py"]:
        found = set()
        for node in statements(tree_of(path)):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").split(".")[0])
        assert not found & forbidden, path


def test_the_one_module_that_imports_versioned_objects_silences_it() -> None:
    for path in modules():
        direct = [
            node.lineno
            for node in statements(tree_of(path))
            if (isinstance(node, ast.ImportFrom) and "oslo_versionedobjects" in (node.module or ""))
            or (
                isinstance(node, ast.Import)
                and any("oslo_versionedobjects" in alias.name for alias in node.names)
            )
        ]
        assert not direct or path.name == "_ovo.py", f"{path}: line {direct}"
