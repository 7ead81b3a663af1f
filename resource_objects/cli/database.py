"""Which ledger a command opens."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from resource_objects import exceptions

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: Names the ledger where ``--database`` does not.
VARIABLE = "RESOURCE_OBJECTS_DATABASE"
_HOW_ELSE = f"choose another ledger with --database or {VARIABLE}"


def default_path(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the file of the user's own ledger, after the XDG base directory specification.

    >>> str(default_path({"XDG_DATA_HOME": "/data"}))
    '/data/resource_objects/ledger.db'

    :raises DatabaseUnavailable: if the user has no home
    """
    given = environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(given):  # the specification has relative ones ignored
        return pathlib.Path(given, "resource_objects", "ledger.db")
    try:
        home = pathlib.Path(environ["HOME"]) if environ.get("HOME") else pathlib.Path.home()
    except RuntimeError as error:
        raise exceptions.DatabaseUnavailable(
            "the ledger of this user", f"no home; {_HOW_ELSE}"
        ) from error
    return home / ".local" / "share" / "resource_objects" / "ledger.db"


def database_url(option: str | None, environ: Mapping[str, str]) -> str:
    """Return the URL of the ledger to open; the default one's directory is made.

    :raises DatabaseUnavailable: if the directory cannot be made
    """
    named = option or environ.get(VARIABLE)
    if named:
        return named
    path = default_path(environ)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        detail = f"{error.strerror}; {_HOW_ELSE}"
        raise exceptions.DatabaseUnavailable(str(path.parent), detail) from error
    return f"sqlite:///{path}"


def open_ledger(option: str | None, environ: Mapping[str, str] | None = None) -> Ledger:
    """Open the ledger that the option, the environment or the default names."""
    from resource_objects.ledger import connect

    return connect(database_url(option, os.environ if environ is None else environ))
