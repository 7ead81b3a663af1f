"""Agents of the tests: drivers of hosts that say what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from resource_objects.host.tracker import Driver
from resource_objects.providers import Provider
from resource_objects.providers.statistics import Statistic

#: Text of inventories, an exception to raise, or a function that edits the tree.
Word = str | Exception | Callable[[Provider], None] | Mapping[str, Any]


class Agent(Driver):
    """Hosts by name, each with what is said of it."""

    def __init__(self, **has: Word) -> None:
        self.has: dict[str, Word] = has
        self.named: list[Any] | None = None  #: names to say in place of the keys
        self.uuids: dict[str, str] = {}
        self.running: dict[str, Mapping[str, Any]] = {}
        self.tells: dict[str, Iterable[Statistic] | Exception] = {}
        self.edits = 0

    def hosts(self) -> list[Any]:
        return list(self.has) if self.named is None else self.named

    def get_available_resource(self, host: str) -> Any:
        word = self.has[host]
        if isinstance(word, Exception):
            raise word
        return None if callable(word) else word

    def update_provider_tree(self, tree: Provider, available: Any) -> None:
        self.edits += 1
        word = self.has[tree.name]
        if callable(word):
            word(tree)
        else:
            super().update_provider_tree(tree, available)

    def identity(self, host: str) -> str | None:
        return self.uuids.get(host)

    def consumers(self, host: str) -> Mapping[str, Any] | None:
        return self.running.get(host)

    def statistics(self, host: str) -> Iterable[Statistic] | None:
        told = self.tells.get(host)
        if isinstance(told, Exception):
            raise told
        return told
