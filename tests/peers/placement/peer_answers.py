"""Answers of two applications to the same request, and how they differ."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import webob

from resource_objects.requests import Request
from tests.peers.placement import peer_state
from tests.peers.placement.peer_requests import Sent
from tests.peers.placement.peer_state import State

#: Headers of which the order has no meaning, and those of which only that they are there has one.
_LISTS = ("allow", "vary")
_OTHERS = ("content-length", "last-modified", "x-openstack-request-id")


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer as it is compared: what has no order is without one."""

    status: int
    headers: dict[str, Any]
    body: Any  #: lists in it are sorted; of an error without its number and its text
    detail: str = ""  #: the text of an error

    @classmethod
    def of(cls, response: webob.Response) -> Answer:
        """Return the compared parts of a response."""
        headers: dict[str, Any] = {}
        for header, said in response.headers.items():
            name = header.lower()
            headers[name] = said
            if name in _LISTS:
                headers[name] = sorted({one.strip().lower() for one in said.split(",")})
            elif name in _OTHERS:
                headers[name] = True
        body: Any = None
        detail = ""
        if response.body:
            try:
                body = response.json
            except ValueError:
                detail = response.text
        if isinstance(body, dict) and "errors" in body:
            for error in body["errors"]:
                detail = error.pop("detail", "")
                error.pop("request_id", None)
        return cls(response.status_int, headers, in_order(body), detail)


def in_order(value: Any) -> Any:
    """Return a value with its lists sorted: none that Placement tells has an order."""
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted(
            (in_order(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True)
        )
    return value


@dataclasses.dataclass(frozen=True)
class Unlike:
    """A request that two applications answer differently."""

    sent: Sent
    theirs: Answer
    ours: Answer
    #: of a write: what both hold afterwards
    state: tuple[State, State] = ({}, {})
    request: Request | None = None  #: what candidates are asked for
    #: uuids of providers that are out of service here
    out: frozenset[str] = frozenset()
    #: ``(provider, class)`` of which the capacity by a product of floats is another one
    inexact: frozenset[tuple[str, str]] = frozenset()

    @property
    def where(self) -> tuple[str, ...]:
        """The differing parts: ``status``, ``body``, headers; after a write the rows ``kept``."""
        found = [] if self.state[0] == self.state[1] else ["kept"]
        if self.theirs.status != self.ours.status:
            found.append("status")
        if self.theirs.body != self.ours.body:
            found.append("body")
        names = {*self.theirs.headers, *self.ours.headers}
        found += [
            n for n in sorted(names) if self.theirs.headers.get(n) != self.ours.headers.get(n)
        ]
        return tuple(found)

    def __str__(self) -> str:
        lines = [str(self.sent), f"  differs in {', '.join(self.where)}"]
        lines += [f"  {one}" for one in peer_state.differing(*self.state)]
        for who, one in (("Placement", self.theirs), ("here", self.ours)):
            said = {
                name: one.headers.get(name)
                for name in self.where
                if name not in ("status", "body", "kept")
            }
            lines.append(f"  {who}: {one.status} {said} {one.detail[:300]}")
            if "body" in self.where:
                lines.append(f"     {json.dumps(one.body, sort_keys=True)[:600]}")
        return "\n".join(lines)
