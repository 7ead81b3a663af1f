"""The table of Placement's errors, to which the service is held, is true of Placement."""

from __future__ import annotations

import pytest

from benchmarks.peer import Placement
from tests.peers.placement import peer_sequences
from tests.rest.placement_errors import ERRORS, Row, check, start

pytest.importorskip("placement", reason="the environment of tox -e placement has it")


@pytest.fixture(scope="module")
def _started(placement: Placement) -> None:
    start(placement.application)


@pytest.mark.usefixtures("_started")
@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row["name"])
def test_the_table_of_errors_is_placements(placement: Placement, row: Row) -> None:
    if row["request"].startswith(("PUT /allocations", "POST /allocations", "POST /reshaper")):
        # a refused write of allocations leaves a consumer there
        peer_sequences.empty(placement)
        start(placement.application)
    check(placement.application, row, is_placement=True)
