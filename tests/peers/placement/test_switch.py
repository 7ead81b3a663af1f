"""From a real Placement to the service and back, by ``contrib/copy_placement.py``."""

from __future__ import annotations

import contextlib

import pytest

from benchmarks.peer import Placement
from resource_objects.rest import application
from tests.peers.placement import peer_sequences
from tests.rest.test_copy_placement import copying, fill
from tests.rest.test_copy_placement import placement as asked

pytest.importorskip("placement", reason="the environment of tox -e placement has it")


def test_a_cloud_is_switched_and_switched_back(placement: Placement) -> None:
    def send(method: str, path: str, body: object, version: str) -> tuple[int, object]:
        return placement.answer(method, path, body, f"placement {version}")

    peer_sequences.empty(placement)  # of names too
    theirs = copying.Placement(send)
    fill(theirs, hosts=10)
    with contextlib.closing(application("memory://", auth="noauth2", policy="open")) as app:
        ours = asked(app)
        copying.copy(theirs, ours, str)
        before = theirs.everything()
        assert len(before) > 30
        assert copying.differences(theirs, ours) == []
        for name in before:
            if name.startswith("consumer "):
                theirs.ask("DELETE", f"/allocations/{name.split()[1]}")
        for provider in reversed(theirs.providers()):
            theirs.ask("DELETE", f"/resource_providers/{provider}")
        assert len(theirs.everything()) == 2, "its own class and trait"
        copying.copy(ours, theirs, str)
        assert theirs.everything() == before
