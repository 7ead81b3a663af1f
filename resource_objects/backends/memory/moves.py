"""Providers that are moved to another tree, with everybody below them."""

from __future__ import annotations

from resource_objects.backends.memory.draft import Draft
from resource_objects.providers.definition import DefinitionChanges


def find(draft: Draft, changes: DefinitionChanges) -> dict[str, str]:
    """Return who will be moved, or is below one who will, with the root each has before."""
    found: dict[str, str] = {}
    for update in changes.updates:
        kept = draft.providers.get(update.definition.uuid)
        if kept is not None and kept.parent_uuid != update.definition.parent_uuid:
            root = draft.top(kept.uuid).uuid
            waiting = [kept.uuid]
            for uuid in waiting:  # grows while it is read
                found[uuid] = root
                waiting += draft.children.get(uuid)
    return found


def end(draft: Draft, moving: dict[str, str]) -> None:
    """Tell both trees of who was moved."""
    for uuid, root in moving.items():
        if draft.top(uuid).uuid != root:
            draft.touch(uuid)
            draft.touch(uuid, draft.providers[root].number)
