"""The conformance kit on a remote Placement that is the real one."""

from __future__ import annotations

import pytest
import sqlalchemy

from benchmarks.peer import Placement
from resource_objects.providers.backend import Capability
from tests.peers.placement import peer_fleets
from tests.peers.placement.conftest import ON
from tests.support.remote_kit import ADAPTERS, RemoteConformance
from tests.support.remote_rules import Difference, real_why_of
from tests.support.wsgi_transport import WSGITransport, session_for

pytestmark = pytest.mark.filterwarnings("ignore")  # other libraries' own


def empty(placement: Placement) -> None:
    """Take out all that tests leave: providers, consumers, and names that are not standard."""
    peer_fleets.empty(placement)
    with placement.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM consumers")
        for table in ("traits", "resource_classes"):
            connection.execute(sqlalchemy.text(f"DELETE FROM {table} WHERE name LIKE 'CUSTOM_%'"))


class TestPlacement(RemoteConformance):
    """The kit; one process has one Placement, which is emptied before each rule."""

    backend_name = "placement 16"

    @classmethod
    def why(cls, item: pytest.Function) -> Capability | Difference | None:
        """Return why a test cannot pass, None if it has to."""
        return real_why_of(item.name, ON) or super().why(item)

    @pytest.fixture
    def url(self, placement: Placement) -> str:
        empty(placement)
        ADAPTERS["placement://one"] = session_for(WSGITransport(placement.application))
        return "placement://one"

    @pytest.fixture
    def another_url(self, url: str) -> str:
        pytest.skip("one process has one Placement")
