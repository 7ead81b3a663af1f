"""Which commands there are: ours, and those that plug-ins add.

Ours are listed here too, so that they work from a checkout that is not installed; a command's
module is imported when the command is run or its help is shown. Others declare theirs in the
stevedore namespace ``resource_objects.cli``, as cliff does it: ``lab_report = mylab.cli:Report``
adds the command ``lab report``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from cliff.commandmanager import CommandManager, EntryPointWrapper

if TYPE_CHECKING:
    from cliff.command import Command

NAMESPACE = "resource_objects.cli"

#: ``{command: "module:class"}``, in the order of the help.
BUILT_IN = {
    "tour": "resource_objects.cli.tour:Tour",
    "host show": "resource_objects.cli.host:Show",
    "host sync": "resource_objects.cli.host:Sync",
    "device list": "resource_objects.cli.device:ListDevices",
    "device show": "resource_objects.cli.device:Show",
    "candidates": "resource_objects.cli.candidates:ListCandidates",
    "allocation candidate list": "resource_objects.cli.candidates:ListCandidates",
    "claim": "resource_objects.cli.consumer:Claim",
    "release": "resource_objects.cli.consumer:Release",
    "consumer list": "resource_objects.cli.consumer:ListConsumers",
    "consumer show": "resource_objects.cli.consumer:Show",
    "allocation set": "resource_objects.cli.allocation:Set",
    "allocation show": "resource_objects.cli.allocation:Show",
    "allocation list": "resource_objects.cli.allocation:ListAllocations",
    "allocation move": "resource_objects.cli.allocation:Move",
    "allocation swap": "resource_objects.cli.allocation:Swap",
    "allocation delete": "resource_objects.cli.consumer:Release",
    "usage": "resource_objects.cli.usage:ShowUsage",
    "usage total": "resource_objects.cli.usage:ShowTotals",
    "provider list": "resource_objects.cli.provider:ListProviders",
    "provider show": "resource_objects.cli.provider:Show",
    "provider tree": "resource_objects.cli.provider:Tree",
    "provider create": "resource_objects.cli.provider:Create",
    "provider set": "resource_objects.cli.provider:Set",
    "provider delete": "resource_objects.cli.provider:Delete",
    "provider usage show": "resource_objects.cli.usage:ShowProviderUsage",
    "provider inventory list": "resource_objects.cli.definition:ListInventories",
    "provider inventory set": "resource_objects.cli.definition:SetInventories",
    "provider inventory delete": "resource_objects.cli.definition:DeleteInventories",
    "provider trait list": "resource_objects.cli.definition:ListTraits",
    "provider trait set": "resource_objects.cli.definition:SetTraits",
    "provider aggregate list": "resource_objects.cli.definition:ListAggregates",
    "provider aggregate set": "resource_objects.cli.definition:SetAggregates",
    "class list": "resource_objects.cli.kept_names:ListClasses",
    "class create": "resource_objects.cli.kept_names:CreateClass",
    "class set": "resource_objects.cli.kept_names:SetClass",
    "class delete": "resource_objects.cli.kept_names:DeleteClass",
    "trait list": "resource_objects.cli.kept_names:ListTraits",
    "trait create": "resource_objects.cli.kept_names:CreateTrait",
    "trait set": "resource_objects.cli.kept_names:SetTrait",
    "trait delete": "resource_objects.cli.kept_names:DeleteTrait",
    "aggregate list": "resource_objects.cli.kept_names:ListAggregates",
    "aggregate create": "resource_objects.cli.kept_names:CreateAggregate",
    "aggregate set": "resource_objects.cli.kept_names:SetAggregate",
    "aggregate delete": "resource_objects.cli.kept_names:DeleteAggregate",
    "pool list": "resource_objects.cli.pool:ListPools",
    "pool share": "resource_objects.cli.pool:Share",
    "pool unshare": "resource_objects.cli.pool:Unshare",
    "pool report": "resource_objects.cli.pool:Report",
    "reshape": "resource_objects.cli.reshape:Reshape",
    "audit": "resource_objects.cli.history:Audit",
    "changes": "resource_objects.cli.history:ListChanges",
    "db status": "resource_objects.cli.db:Status",
    "db upgrade": "resource_objects.cli.db:Upgrade",
}


class Plugin(EntryPointWrapper):
    """A command of another distribution, imported when it is asked for."""

    def __init__(self, name: str, entry: str) -> None:
        self.name = name
        self.entry = entry

    def load(self) -> type[Command]:
        """Return the command's class.

        :raises PluginError: naming it and the reason, if it cannot be imported
        """
        from resource_objects import plugins

        loaded: type[Command] = plugins.load(NAMESPACE, self.entry)
        return loaded

    @property
    def value(self) -> str:
        """Where it is from."""
        return f"{NAMESPACE}:{self.entry}"


class Commands(CommandManager):
    """The commands by name. cliff's own manager imports every one of them to list them."""

    def __init__(self) -> None:
        self._searched = False
        super().__init__(NAMESPACE)

    def load_commands(self, namespace: str) -> None:
        """Add our own commands; plug-ins are searched when something is asked that we lack."""
        self.group_list.append(namespace)
        for name, path in BUILT_IN.items():
            self.commands[name] = EntryPoint(name, path, namespace)

    def find_command(self, argv: list[str]) -> tuple[type[Command], str, list[str]]:
        """Return the class, the name and the arguments of the command that ``argv`` begins with.

        :raises ValueError: if there is none
        """
        try:
            return super().find_command(argv)
        except ValueError:
            self.search_plugins()
            return super().find_command(argv)

    def __iter__(self) -> Iterator[tuple[str, EntryPoint | EntryPointWrapper]]:
        self.search_plugins()
        return super().__iter__()

    def search_plugins(self) -> None:
        """Add what other distributions declare, once. A name of ours stays ours."""
        if self._searched:
            return
        self._searched = True
        from resource_objects import plugins

        for entry in plugins.names(NAMESPACE):
            name = entry.replace("_", " ")
            if name not in self.commands:
                self.commands[name] = Plugin(name, entry)
