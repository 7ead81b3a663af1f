"""From a URL to a ledger."""

from __future__ import annotations

from resource_objects import exceptions, plugins
from resource_objects.ledger.retries import RetryPolicy
from resource_objects.ledger.whole import Ledger
from resource_objects.providers import Backend

BACKEND_NAMESPACE = "resource_objects.backends"


def connect(
    url: str = "memory://", *, retries: RetryPolicy | None = None, actor: str | None = None
) -> Ledger:
    """Open the ledger that ``url`` names.

    ===================================  =========================================================
    ``memory://``                        a new one in this process, gone when closed
    ``sqlite:///lab.db``                 a file (four slashes for an absolute path), made and
                                         upgraded by opening it
    ``postgresql+psycopg://host/name``   a server's database; ``resource-objects db upgrade`` makes
                                         and upgrades it
    ``mysql+pymysql://host/name``        the same on MariaDB, Galera or MySQL
    ===================================  =========================================================

    More come from plug-ins (namespace ``resource_objects.backends``).

    :param retries: how often a write is tried again after somebody else was faster
    :param actor: who writes, as the change feed shall tell it
    :raises InvalidURL: if it is no URL, or not one of its backend's
    :raises BackendNotFound: if no backend of its name is installed
    :raises DatabaseUnavailable: if it cannot be opened; nothing is left behind
    :raises SchemaTooNew: if a newer library made it
    :raises SchemaTooOld: if it needs ``db upgrade``
    """
    return Ledger(backend_for(url).open(url), retries=retries, actor=actor)


def backend_for(url: str) -> type[Backend]:
    """Return the backend class that serves a URL.

    :raises InvalidURL: if it is no URL
    :raises BackendNotFound: if no backend of that name is installed

    >>> backend_for("memory://").__name__
    'MemoryBackend'
    """
    if not isinstance(url, str) or "://" not in url:
        raise exceptions.InvalidURL("ledger URL", url, "a URL such as sqlite:///lab.db")
    name = url.partition("://")[0].partition("+")[0]
    if name not in plugins.names(BACKEND_NAMESPACE):
        known = ", ".join(plugins.names(BACKEND_NAMESPACE))
        raise exceptions.BackendNotFound(name, f"installed: {known}")
    backend: type[Backend] = plugins.load(BACKEND_NAMESPACE, name)
    return backend
