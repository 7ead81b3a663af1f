"""The server groups of a ledger: ``ledger.groups``."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects import exceptions, names
from resource_objects.ledger.context import Store, any_limit, pages_of
from resource_objects.providers.orders import GroupChange, Write
from resource_objects.providers.server_groups import ServerGroup


class ServerGroups:
    """Consumers that are to be on one host, or on different ones.

    A consumer is a member from the claim that names the group (``ledger.claim(..., group=)``)
    until it is gone, wherever it moves meanwhile. What strict policies ask is judged by each write
    that lets a member take something of another host. A host is the root of a tree; what pools give
    does not count. A placeholder of a move (``move(..., leaving=)``) is no member.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(2)))
    ...     print(ledger.groups.ensure("db", "anti-affinity"))
    ...     first = ledger.claim("db-1", {"host0": "VCPU=1"}, group="db")
    ...     print(ledger.claim("db-2", {"host1": "VCPU=1"}, group="db").group)
    ...     print(sorted(ledger.groups.get("db").members))
    ...     ledger.claim("db-3", {"host0": "VCPU=1"}, group="db")
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: host0: group db: at most 1 of it on a host...
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def ensure(
        self, name: str, policy: str, max_per_host: int = 1, *, operation: str | None = None
    ) -> ServerGroup:
        """Create a server group unless it exists, and return it.

        Its policy never changes, since its members were placed by it.

        :param policy: ``affinity``, ``anti-affinity``, ``soft-affinity`` or ``soft-anti-affinity``
        :param max_per_host: by ``anti-affinity``, the maximum number of members on one host
        :raises AlreadyExists: if a group of that name has another policy
        :raises InvalidInput: for another policy, or a number that cannot be
        """
        wanted = ServerGroup(name, policy, (), max_per_host)
        self._change("ensure_group", GroupChange(wanted.name, wanted), operation)
        return self.get(name)

    def get(self, name: str) -> ServerGroup:
        """Return a server group with its members. Cost: one query.

        :raises NotFound: if it is not there
        """
        wanted = names.label(name, "server group")
        found = self._store.backend.list_server_groups(1, names=[wanted])
        if not found:
            raise exceptions.NotFound("server group", wanted)
        return found[0]

    def list(self, *, limit: int | None = None, after: str | None = None) -> Iterator[ServerGroup]:
        """Yield the server groups with their members, by name. Cost: one query per page.

        :param limit: at most so many
        :param after: only those after this name
        """
        pages = pages_of(
            self._store.backend.list_server_groups,
            lambda one: one.name,
            self._store.page,
            any_limit(limit),
            None if after is None else names.label(after, "server group"),
        )
        return (one for found in pages for one in found)

    def remove(self, name: str, *, operation: str | None = None) -> None:
        """Forget a server group that has no members.

        :raises NotFound: if it is not there
        :raises InUse: if it has members
        """
        wanted = names.label(name, "server group")
        self._change("delete_group", GroupChange(wanted, None), operation)

    def _change(self, kind: str, change: GroupChange, operation: str | None) -> None:
        doing, done = self._store.begin(operation, kind, change.name)
        if done is None:
            self._store.backend.commit(Write(doing, kind, change.name, groups=(change,)))
