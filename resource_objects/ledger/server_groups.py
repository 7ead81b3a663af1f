"""The server groups of a ledger: ``ledger.groups``."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext, any_limit, pages_of
from resource_objects.providers.orders import GroupChange, Write
from resource_objects.providers.server_groups import ServerGroup


class ServerGroups:
    """Consumers to place on one host, or on different hosts.

    A consumer is a member from the claim that names the group (``ledger.claim(..., group=)``)
    until it is deleted, wherever it moves meanwhile. Strict policies are checked by each write that
    allocates resources of another host to a member. A host is the root of a tree; allocations of
    pools do not count. A placeholder of a move (``move(..., leaving=)``) is no member.

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

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def ensure(
        self, name: str, policy: str, max_per_host: int = 1, *, operation: str | None = None
    ) -> ServerGroup:
        """Create a server group unless it exists, and return it.

        Its policy never changes, because its members were placed by it.

        :param policy: ``affinity``, ``anti-affinity``, ``soft-affinity`` or ``soft-anti-affinity``
        :param max_per_host: for ``anti-affinity``, the maximum number of members on one host
        :raises AlreadyExists: if a group of that name has another policy
        :raises InvalidInput: for another policy, or an invalid number
        """
        group = ServerGroup(name, policy, (), max_per_host)
        self._commit("ensure_group", GroupChange(group.name, group), operation)
        return self.get(name)

    def get(self, name: str) -> ServerGroup:
        """Return a server group with its members. Cost: one query.

        :raises NotFound: if it does not exist
        """
        key = names.label(name, "server group")
        groups = self._context.backend.list_server_groups(1, names=[key])
        if not groups:
            raise exceptions.NotFound("server group", key)
        return groups[0]

    def list(self, *, limit: int | None = None, after: str | None = None) -> Iterator[ServerGroup]:
        """Yield the server groups with their members, by name. Cost: one query per page.

        :param limit: the maximum number of groups
        :param after: only those after this name
        """
        pages = pages_of(
            self._context.backend.list_server_groups,
            lambda group: group.name,
            self._context.page,
            any_limit(limit),
            None if after is None else names.label(after, "server group"),
        )
        return (group for page in pages for group in page)

    def remove(self, name: str, *, operation: str | None = None) -> None:
        """Delete a server group that has no members.

        :raises NotFound: if it does not exist
        :raises InUse: if it has members
        """
        change = GroupChange(names.label(name, "server group"), None)
        self._commit("delete_group", change, operation)

    def _commit(self, kind: str, change: GroupChange, operation: str | None) -> None:
        write = Write(self._context.operation(operation), kind, change.name, groups=(change,))
        self._context.backend.commit(write)
