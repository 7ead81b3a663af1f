"""Upgrades of ledgers that are in use: filled, cut short, and beside another library's version."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid as uuids
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import os_resource_classes
import pytest
import sqlalchemy
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy.pool import NullPool

import resource_objects
from resource_objects import exceptions
from resource_objects.backends.sql import migrations
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.columns import trees
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.listing import By, ConsumerFilter
from resource_objects.providers.orders import NameKind, Operation
from resource_objects.resources.traits import standard_traits
from resource_objects.testing import checker
from resource_objects.testing.conformance.base import adjust, claim, define, host, picture, release
from tests.backends.conftest import ask, ask_all

PACKAGE = Path(resource_objects.__file__).parent
HOSTS, JOBS = 30, 90
WHEN = "2026-01-02 03:04:05.678901"


# --- a ledger of the first schema, filled by plain SQL ---


def make_first(url: str) -> None:
    """Run the first revision, and no other."""
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    [first] = [one for one in scripts.walk_revisions() if one.revision == "0001"]
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        options = {"version_table": migrations.VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        context.stamp(scripts, "base")
        with Operations.context(context):
            first.module.upgrade()
        context.stamp(scripts, "0001")


def _uuid(*parts: object) -> str:
    return str(uuids.uuid5(uuids.NAMESPACE_DNS, "/".join(map(str, parts))))


def fill_first(url: str) -> None:
    """Fill the tables of the first schema: hosts with a GPU each, and jobs on them."""
    rows: dict[str, list[dict[str, Any]]] = {
        "resource_classes": [
            {"id": number, "name": name}
            for number, name in enumerate(["VCPU", "CUSTOM_GPU", "MEMORY_MB"], 1)
        ],
        "traits": [{"id": 1, "name": "CUSTOM_FAST"}, {"id": 2, "name": "HW_CPU_X86_AVX2"}],
    }
    rows["resource_providers"] = [row for n in range(HOSTS) for row in _first_tree(n)]
    rows["resource_provider_traits"] = [
        {"provider_id": 2 * n + 1, "trait_id": 1 + n % 2} for n in range(HOSTS)
    ]
    jobs = [_first_job(n) for n in range(JOBS)]
    for table in ("operations", "consumers", "claims", "allocations"):
        rows[table] = [row for job in jobs for row in job.get(table, [])]
    used: dict[Any, int] = {}
    for row in rows["allocations"]:
        key = row["provider_id"], row["class_id"]
        used[key] = used.get(key, 0) + row["used"]
    rows["inventories"] = [row for n in range(HOSTS) for row in _first_inventories(n, used)]
    order = ["resource_classes", "traits", "resource_providers", "resource_provider_traits"]
    order += ["inventories", "operations", "consumers", "claims", "allocations"]
    with _engine(url).begin() as connection:
        for table in order:
            columns = list(rows[table][0])
            text = f"INSERT INTO {table} ({', '.join(columns)})"
            text += f" VALUES ({', '.join(':' + name for name in columns)})"
            connection.execute(sqlalchemy.text(text), rows[table])
            if connection.dialect.name == "postgresql" and "id" in columns:
                reset = f"SELECT setval('{table}_id_seq', (SELECT MAX(id) FROM {table}))"
                connection.exec_driver_sql(reset)


def _first_tree(n: int) -> Iterator[dict[str, Any]]:
    times = {"created_at": WHEN, "updated_at": WHEN, "generation": n}
    root = 2 * n + 1
    yield {
        "id": root,
        "uuid": _uuid("host", n),
        "name": f"host{n}",
        "root_id": root,
        "parent_id": None,
        **times,
    }
    yield {
        "id": root + 1,
        "uuid": _uuid("gpu", n),
        "name": f"host{n}/gpu",
        "root_id": root,
        "parent_id": root,
        **times,
    }


def _first_inventories(n: int, used: dict[Any, int]) -> Iterator[dict[str, Any]]:
    for provider, class_, total in ((2 * n + 1, 1, 16), (2 * n + 1, 3, 64), (2 * n + 2, 2, 4)):
        yield {
            "id": 3 * n + {1: 1, 3: 2, 2: 3}[class_],
            "provider_id": provider,
            "class_id": class_,
            "total": total,
            "reserved": 1,
            "min_unit": 1,
            "max_unit": None,
            "step_size": 1,
            "ratio_millionths": 1_500_000,
            "capacity": (total - 1) * 3 // 2,
            "used": used.get((provider, class_), 0),
        }


def _first_job(n: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a job that claimed; every third was released again."""
    at, operation = n % HOSTS, 2 * n + 1
    took = [
        (_uuid("host", at), f"host{at}", "VCPU", 2),
        (_uuid("gpu", at), f"host{at}/gpu", "CUSTOM_GPU", 1),
    ]
    said = {
        "id": _uuid("claim", n),
        "consumer": f"job-{n}",
        "consumer_uuid": _uuid("job", n),
        "created_at": "2026-01-02T03:04:05.678901+00:00",
        "held": took,
        "state": "held",
        "request": None,
    }
    recorded = {"subject": f"job-{n}", "created_at": WHEN}
    rows: dict[str, list[dict[str, Any]]] = {
        "operations": [
            {
                "id": operation,
                "uuid": _uuid("claimed", n),
                "kind": "claim",
                "outcome": json.dumps(said),
                **recorded,
            }
        ]
    }
    if n % 3 == 0:
        gone = json.dumps({**said, "state": "released"})
        rows["operations"].append(
            {
                "id": operation + 1,
                "uuid": _uuid("released", n),
                "kind": "release",
                "outcome": gone,
                **recorded,
            }
        )
        return rows
    rows["consumers"] = [
        {
            "id": n + 1,
            "uuid": _uuid("job", n),
            "name": f"job-{n}",
            "generation": operation,
            "request": None,
            "created_at": WHEN,
        }
    ]
    rows["claims"] = [
        {
            "uuid": _uuid("claim", n),
            "consumer_id": n + 1,
            "state": "held",
            "created_at": WHEN,
        }
    ]
    rows["allocations"] = [
        {"consumer_id": n + 1, "provider_id": 2 * at + 1, "class_id": 1, "used": 2},
        {"consumer_id": n + 1, "provider_id": 2 * at + 2, "class_id": 2, "used": 1},
    ]
    return rows


OLD_ROWS = (
    *("SELECT id, name FROM resource_classes WHERE id <= 3", "SELECT * FROM claims"),
    "SELECT id, uuid, name, generation, root_id, parent_id FROM resource_providers",
    "SELECT id, provider_id, class_id, total, capacity, used FROM inventories",
    "SELECT provider_id, trait_id FROM resource_provider_traits",
    "SELECT id, uuid, name, generation, project_id, request, created_at FROM consumers",
    "SELECT consumer_id, provider_id, class_id, used FROM allocations",
    "SELECT id, uuid, kind, subject, outcome, created_at FROM operations",
)


def old_rows(url: str) -> list[list[Any]]:
    return [sorted(map(tuple, rows), key=repr) for rows in ask_all(url, *OLD_ROWS)]


@pytest.fixture
def filled(database_url: str) -> str:
    """The URL of a filled ledger of the first schema."""
    make_first(database_url)
    fill_first(database_url)
    return database_url


def check_it_works(url: str) -> None:
    """Use what was there before the upgrade, and what came with it."""
    backend = SQLBackend.open(url)
    found = picture(backend)
    assert len(found.providers) == 2 * HOSTS
    assert found.providers["host7/gpu"].root == "host7"
    assert found.providers["host7"].traits == {"HW_CPU_X86_AVX2"}
    assert len(found.allocations) == 2 * (JOBS - JOBS // 3)
    claimed = Operation(_uuid("claimed", 4))
    outcome, held = backend.outcome(claimed), backend.held("job-4")
    assert outcome is not None and held is not None and outcome.claim == held
    assert [(one.resource_class, one.amount) for one in held.held] == [
        ("VCPU", 2),
        ("CUSTOM_GPU", 1),
    ]
    totals = backend.totals(ConsumerFilter(), By.RESOURCE_CLASS)
    assert {one.resource_class: one.used for one in totals} == {"VCPU": 120, "CUSTOM_GPU": 60}
    names = backend.uuids(["host4", "host4/gpu"])
    claim(
        backend, "new", {names["host4"]: "VCPU=3,MEMORY_MB=5", names["host4/gpu"]: "CUSTOM_GPU=1"}
    )
    adjust(backend, "job-4", {names["host4"]: "VCPU=-1"})
    release(backend, "job-34")
    with pytest.raises(exceptions.CapacityException):
        claim(backend, "more", {names["host4/gpu"]: "CUSTOM_GPU=4"})
    [tree] = trees(backend.read("host4/gpu"))
    assert str(tree.inventories) != ""
    define(backend, host("host-new"))
    classes = {one.name for one in backend.list_names(NameKind.RESOURCE_CLASS, 1000)}
    assert {*os_resource_classes.STANDARDS, "CUSTOM_GPU"} == classes
    with pytest.raises(exceptions.CursorExpired):  # what was before the feed is not told
        backend.changes(Cursor((0,) * SHARDS), 10)
    backend.close()
    assert checker.problems(url) == []


def test_everything_is_there_after_an_upgrade_and_works(filled: str) -> None:
    before = old_rows(filled)
    [step] = SQLBackend.upgrade_database(filled)
    assert step.startswith("0002 ")
    assert old_rows(filled) == before
    assert ask(filled, "SELECT COUNT(*) FROM change_heads")[0][0] == SHARDS
    assert ask(filled, "SELECT oldest_library FROM schema_info")[0][0] == 2
    check_it_works(filled)


def test_a_server_is_never_upgraded_by_opening_it(database_kind: str, filled: str) -> None:
    if database_kind == "sqlite":
        SQLBackend.open(filled).close()
        check_it_works(filled)
        return
    before = old_rows(filled)
    with pytest.raises(exceptions.SchemaTooOld, match="db upgrade"):
        SQLBackend.open(filled)
    assert old_rows(filled) == before
    assert not sqlalchemy.inspect(_engine(filled)).has_table("change_heads")


def _engine(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url, poolclass=NullPool)


# --- cut short ---


class Cut(BaseException):
    """The process died, so to speak."""


@contextlib.contextmanager
def dying_after(allowed: int) -> Iterator[list[str]]:
    """Let some statements that change something run, then die; collect all that were tried."""
    tried: list[str] = []

    def note(_: Any, __: Any, statement: str, *more: Any) -> None:
        if statement.split()[0].upper() in ("CREATE", "ALTER", "INSERT", "UPDATE", "DELETE"):
            tried.append(statement)
            if len(tried) > allowed:
                raise Cut(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        yield tried
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)


def test_an_upgrade_that_is_cut_anywhere_goes_on(database_kind: str, filled: str) -> None:
    """Cut after each statement in turn.

    MariaDB keeps each definition of a table, so a later try meets what is there already; on the
    others nothing was done.
    """
    before = old_rows(filled)
    allowed = cuts = 0
    while True:
        with dying_after(allowed) as tried:
            try:
                SQLBackend.upgrade_database(filled)
                break
            except Cut:
                cuts += 1
        assert old_rows(filled) == before
        assert ask(filled, f"SELECT version_num FROM {migrations.VERSION_TABLE}") == [("0001",)]
        if database_kind != "mysql":
            assert not sqlalchemy.inspect(_engine(filled)).has_table("aggregates")
        kept = database_kind == "mysql" and tried[-1].split()[0] in ("CREATE", "ALTER")
        allowed = 1 if kept else allowed + 1
    assert cuts > 20
    assert old_rows(filled) == before
    check_it_works(filled)


# --- two versions of the library at once ---


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old, text.count(old))
    path.write_text(text.replace(old, new), encoding="utf-8")


_EXPAND = '''"""a note of each provider"""

import sqlalchemy as sa

from resource_objects.backends.sql.migrations.steps import NAME, add_column

revision = "0003"
down_revision = "0002"


def upgrade():
    add_column("resource_providers", sa.Column("note", NAME, nullable=True))
'''

_CONTRACT = '''"""every provider has a note now"""

from resource_objects.backends.sql.migrations.steps import library_at_least

revision = "0004"
down_revision = "0003"


def upgrade():
    library_at_least(3)
'''


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a newer library: a column more, which it writes."""
    folder = tmp_path_factory.mktemp("newer")
    package = folder / "resource_objects"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    sql = package / "backends" / "sql"
    (sql / "migrations" / "versions" / "r0003_note.py").write_text(_EXPAND, encoding="utf-8")
    _edit(sql / "migrations" / "__init__.py", "NEWEST = 2", "NEWEST = 3")
    column = '    sa.Column("reported_at", _TIME, nullable=True),\n'
    _edit(sql / "schema.py", column, column + '    sa.Column("note", _NAME, nullable=True),\n')
    made = '            "generation": 0,\n'
    _edit(sql / "providers.py", made, made + '            "note": "written by the newer one",\n')
    return folder


@pytest.fixture(scope="module")
def newest(newer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a library that is newer still, and shuts out all before the column."""
    folder = tmp_path_factory.mktemp("newest")
    shutil.copytree(newer, folder, dirs_exist_ok=True)
    sql = folder / "resource_objects" / "backends" / "sql"
    (sql / "migrations" / "versions" / "r0004_note.py").write_text(_CONTRACT, encoding="utf-8")
    _edit(sql / "migrations" / "__init__.py", "NEWEST = 3", "NEWEST = 4")
    return folder


def start(folder: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a program with the library of a directory."""
    check = "import resource_objects, sys\n"
    check += f"assert resource_objects.__file__.startswith({str(folder)!r}), resource_objects\n"
    return subprocess.Popen(
        [sys.executable, "-c", check + program, *arguments],
        cwd=folder,  # comes before everything else in the path
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a program, which must succeed; return what it said."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


_OPEN = """
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
for action in sys.argv[2:]:
    try:
        if action == "upgrade":
            print(len(SQLBackend.upgrade_database(sys.argv[1])))
        else:
            SQLBackend.open(sys.argv[1]).close()
            print("opened")
    except exceptions.ResourceObjectsError as error:
        print(type(error).__name__)
"""

_WRITE = """
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.conformance.base import adjust, claim, define, host, release

url, who = sys.argv[1:]
backend = SQLBackend.open(url)
hot = backend.uuids(["hot"])["hot"]
for number in range(25):
    name = f"{who}-{number}"
    names = define(backend, host(name))
    try:
        claim(backend, name, {names[name]: "VCPU=2", hot: "VCPU=1"})
        adjust(backend, name, {hot: "MEMORY_MB=1"})
    except exceptions.CapacityException:
        continue
    if number % 2:
        release(backend, name)
print(sum(1 for name in backend.read().providers.name if name.startswith(f"{who}-")))
"""


def test_two_versions_of_the_library_write_together(
    database_kind: str, database_url: str, newer: Path, newest: Path
) -> None:
    assert len(SQLBackend.upgrade_database(database_url)) == 2
    backend = SQLBackend.open(database_url)
    hot = define(backend, host("hot", "VCPU=20,MEMORY_MB=64"))["hot"]
    # expand: the older one, which is at work, goes on
    said = finish(start(newer, _OPEN, database_url, "open", "upgrade", "open"))
    by_opening = database_kind == "sqlite"
    assert said.split() == (["opened", "0"] if by_opening else ["SchemaTooOld", "1"]) + ["opened"]
    workers = [
        start(folder, _WRITE, database_url, who)
        for who, folder in (("older", PACKAGE.parent), ("newer", newer))
    ]
    number = 0
    while any(worker.poll() is None for worker in workers):
        number += 1
        with contextlib.suppress(exceptions.CapacityException):
            claim(backend, f"job-{number}", {hot: "VCPU=1"})
            release(backend, f"job-{number}")
        time.sleep(0.01)
    assert [finish(worker) for worker in workers] == ["25", "25"]
    assert checker.problems(database_url) == []
    notes = ask(database_url, "SELECT name, note FROM resource_providers")
    assert len(notes) == 51
    for name, note in notes:
        assert note == ("written by the newer one" if name.startswith("newer") else None), name
    backend.close()
    # contract: the older one is shut out, the newer one is not
    assert finish(start(newest, _OPEN, database_url, "upgrade", "open")).split() == ["1", "opened"]
    assert finish(start(newer, _OPEN, database_url, "open")) == "opened"
    with pytest.raises(exceptions.SchemaTooNew):
        SQLBackend.open(database_url)
    assert checker.problems(database_url) == []


# --- first starts ---

_FIRST_START = """
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.conformance.base import claim, define, host
url, who = sys.argv[1:]
print("ready", flush=True)
sys.stdin.read()
done = SQLBackend.upgrade_database(url)
backend = SQLBackend.open(url)
names = define(backend, host(who))
claim(backend, who, {names[who]: "VCPU=1"})
backend.close()
print(len(done))
"""


def test_a_first_start_by_many_processes_creates_everything_once(database_url: str) -> None:
    program = f"import sys\n{_FIRST_START}"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, database_url, f"host{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.stdin = None
    assert sorted(int(finish(worker)) for worker in workers) == [0, 0, 0, 0, 0, 0, 0, 2]
    assert ask(database_url, f"SELECT version_num FROM {migrations.VERSION_TABLE}") == [("0002",)]
    assert ask(database_url, "SELECT COUNT(*) FROM schema_info") == [(1,)]
    shards = [row[0] for row in ask(database_url, "SELECT shard FROM change_heads")]
    assert sorted(shards) == list(range(SHARDS))
    classes = [row[0] for row in ask(database_url, "SELECT name FROM resource_classes")]
    assert sorted(classes) == sorted(os_resource_classes.STANDARDS)
    traits = [row[0] for row in ask(database_url, "SELECT name FROM traits")]
    assert sorted(traits) == sorted(standard_traits())
    assert checker.problems(database_url) == []
    assert len(ask(database_url, "SELECT name FROM consumers")) == 8
