"""The real Placement in this process, called through its WSGI application without a network.

A call includes routing, authentication without Keystone (``noauth2``), policy, JSON and its schema.
One process has one Placement, because its engine and policy are globals of its modules.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

#: The newest microversion, by its number.
VERSION = "placement 1.39"
NAME = "placement 16"
PROJECT, USER, TYPE = "project", "user", "INSTANCE"

Resources = Mapping[str, int]


def is_installed() -> bool:
    """Return True if Placement is installed."""
    return importlib.util.find_spec("placement") is not None


class Refused(Exception):
    """An answer with a status of 400 or more."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status


class Placement:
    """The service on a database.

    :param folder: for its configuration file
    :param sync: whether to create or upgrade the schema
    """

    def __init__(self, url: str, folder: pathlib.Path, *, sync: bool = True) -> None:
        from oslo_config import cfg
        from placement import conf, db_api, deploy

        self.config = cfg.ConfigOpts()
        conf.register_opts(self.config)
        file = folder / "placement.conf"
        file.write_text(
            f"[api]\nauth_strategy = noauth2\n[placement_database]\n"
            f"sync_on_startup = {str(sync).lower()}\n"
            f"connection = {url_for(url).replace('%', '%%')}\n"
        )
        self.config(["--config-file", str(file)], project="placement")
        db_api.configure(self.config)
        self._engine = db_api.get_placement_engine()
        self._app = deploy.loadapp(self.config)

    @property
    def engine(self) -> Any:
        """The engine of its database."""
        return self._engine

    @property
    def application(self) -> Any:
        """Its WSGI application."""
        return self._app

    def reconnect(self) -> None:
        """Close the idle connections of its pool."""
        self._engine.dispose()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query in its database."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    def context(self) -> Any:
        """Return a new request context."""
        from placement import context

        return context.RequestContext(config=self.config)

    # --- requests ---

    def answer(
        self, method: str, path: str, body: Any = None, version: str = VERSION
    ) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        import webob

        request = webob.Request.blank(path, method=method)
        request.headers.update(
            {
                "x-auth-token": "admin",
                "x-roles": "admin,service",  # an admin alone may not reshape
                "openstack-api-version": version,
            }
        )
        if body is not None:
            request.content_type = "application/json"
            request.body = json.dumps(body).encode()
        response = request.get_response(self._app)
        return response.status_int, response.json if response.body else None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the body of an answer.

        :raises Refused: for a status of 400 or more
        """
        status, document = self.answer(method, path, body)
        if status >= 400:
            raise Refused(status, json.dumps(document))
        return document

    def create(
        self,
        name: str,
        inventories: Resources,
        traits: Iterable[str] = (),
        aggregates: Iterable[str] = (),
    ) -> str:
        """Create a provider with its inventories, traits and aggregates; return its uuid."""
        key = str(uuid.uuid4())
        self.ask("POST", "/resource_providers", {"name": name, "uuid": key})
        path = f"/resource_providers/{key}"
        self.put_inventories(key, inventories, 0)
        traits, aggregates = list(traits), list(aggregates)
        if traits:
            body = {"resource_provider_generation": 1, "traits": traits}
            self.ask("PUT", f"{path}/traits", body)
        if aggregates:
            body = {"resource_provider_generation": 2, "aggregates": aggregates}
            self.ask("PUT", f"{path}/aggregates", body)
        return key

    def put_inventories(self, provider: str, inventories: Resources, generation: int) -> None:
        """Replace the inventories of a provider by totals."""
        totals = {name: {"total": total} for name, total in inventories.items()}
        body = {"resource_provider_generation": generation, "inventories": totals}
        self.ask("PUT", f"/resource_providers/{provider}/inventories", body)

    def claim(self, provider: str, resources: Resources) -> str:
        """Claim for a new consumer; return its uuid."""
        key = str(uuid.uuid4())
        self.ask("PUT", f"/allocations/{key}", claim_body(provider, resources))
        return key

    def claim_many(self, provider: str, resources: Resources, count: int) -> list[str]:
        """Claim for new consumers in one request; return their uuids."""
        keys = [str(uuid.uuid4()) for _ in range(count)]
        self.ask("POST", "/allocations", dict.fromkeys(keys, claim_body(provider, resources)))
        return keys

    def generation(self, provider: str) -> int:
        """Return the generation of a provider."""
        generation: int = self.ask("GET", f"/resource_providers/{provider}")["generation"]
        return generation

    def reshape_body(
        self,
        source: str,
        target: str,
        inventories: Resources,
        consumers: Iterable[str],
        resources: Resources,
        generation: int,
    ) -> dict[str, Any]:
        """Return the body that moves inventories and all consumers from source to target.

        :param generation: of the consumers
        """
        totals = {name: {"total": total} for name, total in inventories.items()}
        claim = {**claim_body(target, resources), "consumer_generation": generation}
        return {
            "inventories": {
                key: {"resource_provider_generation": self.generation(key), "inventories": has}
                for key, has in ((source, {}), (target, totals))
            },
            "allocations": dict.fromkeys(consumers, claim),
        }


def claim_body(provider: str, resources: Resources) -> dict[str, Any]:
    """Return the body of a claim for a new consumer."""
    return {
        "allocations": {provider: {"resources": dict(resources)}},
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_generation": None,
        "consumer_type": TYPE,
    }


def url_for(url: str) -> str:
    """Return a URL with a driver of Placement, which reads ``cursor.lastrowid``."""
    return url.replace("postgresql+psycopg:", "postgresql+psycopg2:")
