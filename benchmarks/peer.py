"""The real Placement in this process, asked in its own words, without a network.

It is asked in two ways:

* through its WSGI application, what a client over HTTP waits for less the network: routing,
  authentication without Keystone (``noauth2``), policy, JSON and its schema, and the work;
* through its object layer, what a program could import: the work alone, with a new request context
  for each call, as each request has. Project and user are looked up once and kept, consumers are
  made by the call.

One process holds one Placement: its engine and policy are globals of its modules.
"""

from __future__ import annotations

import json
import pathlib
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

#: The newest there is, asked for by number.
VERSION = "placement 1.39"
NAME = "placement 16"
OBJECTS = "its objects"
PROJECT, USER, TYPE = "project", "user", "INSTANCE"

Resources = Mapping[str, int]


class Refused(Exception):
    """An answer from 400 on."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status


class Placement:
    """The service on one database, as empty as it was or with its own schema in it.

    :param folder: where its configuration is written
    :param sync: whether to make or upgrade the schema
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
        self._kept: tuple[Any, Any] | None = None

    @property
    def engine(self) -> Any:
        """The engine of its database."""
        return self._engine

    @property
    def application(self) -> Any:
        """Its WSGI application."""
        return self._app

    def reconnect(self) -> None:
        """Close the connections that wait in its pool."""
        self._engine.dispose()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query finds in its database."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    # --- over HTTP, without a network ---

    def answer(
        self, method: str, path: str, body: Any = None, version: str = VERSION
    ) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        import webob

        asked = webob.Request.blank(path, method=method)
        asked.headers.update(
            {
                "x-auth-token": "admin",
                "x-roles": "admin,service",  # an admin alone may not reshape
                "openstack-api-version": version,
            }
        )
        if body is not None:
            asked.content_type = "application/json"
            asked.body = json.dumps(body).encode()
        found = asked.get_response(self._app)
        return found.status_int, found.json if found.body else None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the body of an answer that is none of an error."""
        status, found = self.answer(method, path, body)
        if status >= 400:
            raise Refused(status, json.dumps(found))
        return found

    def create(
        self,
        name: str,
        inventories: Resources,
        traits: Iterable[str] = (),
        aggregates: Iterable[str] = (),
    ) -> str:
        """Make a provider with all that it has, a request each; return its uuid."""
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
        """Give a provider these totals and no others."""
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
        found: int = self.ask("GET", f"/resource_providers/{provider}")["generation"]
        return found

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

    def reshape(self, body: Mapping[str, Any]) -> None:
        """Move."""
        self.ask("POST", "/reshaper", body)

    # --- its objects ---

    def context(self) -> Any:
        """Return a new request context."""
        from placement import context

        return context.RequestContext(config=self.config)

    def _owner(self) -> tuple[Any, Any]:
        from placement import exception
        from placement.objects import project, user

        if self._kept is None:
            made = []
            for kind, name in ((project.Project, PROJECT), (user.User, USER)):
                try:
                    found = kind.get_by_external_id(self.context(), name)
                except exception.NotFound:
                    found = kind(self.context(), external_id=name)
                    found.create()
                made.append(found)
            self._kept = made[0], made[1]
        return self._kept

    def create_objects(
        self, name: str, inventories: Resources, traits: Iterable[str], aggregates: Iterable[str]
    ) -> None:
        """:meth:`create` on its objects."""
        from placement.objects import inventory, resource_provider, trait

        context = self.context()
        provider = resource_provider.ResourceProvider(context, name=name, uuid=str(uuid.uuid4()))
        provider.create()
        provider.set_inventory(
            [
                inventory.Inventory(
                    resource_provider=provider,
                    resource_class=kind,
                    total=total,
                    reserved=0,
                    min_unit=1,
                    max_unit=total,
                    step_size=1,
                    allocation_ratio=1.0,
                )
                for kind, total in inventories.items()
            ]
        )
        provider.set_traits(trait.get_all(context, filters={"name_in": list(traits)}))
        provider.set_aggregates(list(aggregates), increment_generation=True)

    def claim_objects(self, provider: str, resources: Resources) -> None:
        """:meth:`claim` on its objects."""
        from placement.objects import allocation, consumer, resource_provider

        context = self.context()
        project, user = self._owner()
        holder = consumer.Consumer(context, uuid=str(uuid.uuid4()), project=project, user=user)
        holder.create()
        found = resource_provider.ResourceProvider.get_by_uuid(context, provider)
        allocation.replace_all(
            context,
            [
                allocation.Allocation(
                    resource_provider=found, consumer=holder, resource_class=kind, used=used
                )
                for kind, used in resources.items()
            ],
        )

    def reshape_objects(
        self,
        source: str,
        target: str,
        inventories: Resources,
        consumers: Iterable[str],
        resources: Resources,
    ) -> None:
        """Move as by :meth:`reshape`; consumers are read one by one, as there."""
        from placement.objects import allocation, consumer, inventory, reshaper, resource_provider

        context = self.context()
        ends = [
            resource_provider.ResourceProvider.get_by_uuid(context, key) for key in (source, target)
        ]
        has = [
            inventory.Inventory(
                resource_provider=ends[1],
                resource_class=kind,
                total=total,
                reserved=0,
                min_unit=1,
                max_unit=total,
                step_size=1,
                allocation_ratio=1.0,
            )
            for kind, total in inventories.items()
        ]
        moved = [
            allocation.Allocation(
                resource_provider=ends[1], consumer=holder, resource_class=kind, used=used
            )
            for key in consumers
            for holder in [consumer.Consumer.get_by_uuid(context, key)]
            for kind, used in resources.items()
        ]
        reshaper.reshape(context, {ends[0]: [], ends[1]: has}, moved)

    def read_objects(self, provider: str, consumer: str) -> None:
        """Read usages of a provider, and allocations of it and of a consumer."""
        self.usages_objects(provider)
        self.held_by_provider_objects(provider)
        self.held_objects(consumer)

    def usages_objects(self, provider: str) -> Any:
        """Return what is used of a provider."""
        from placement.objects import resource_provider, usage

        context = self.context()
        resource_provider.ResourceProvider.get_by_uuid(context, provider)
        return usage.get_all_by_resource_provider_uuid(context, provider)

    def held_by_provider_objects(self, provider: str) -> Any:
        """Return the allocations of a provider."""
        from placement.objects import allocation, resource_provider

        context = self.context()
        found = resource_provider.ResourceProvider.get_by_uuid(context, provider)
        return allocation.get_all_by_resource_provider(context, found)

    def held_objects(self, consumer: str) -> Any:
        """Return the allocations of a consumer."""
        from placement.objects import allocation

        return allocation.get_all_by_consumer_id(self.context(), consumer)


def claim_body(provider: str, resources: Resources) -> dict[str, Any]:
    """Return what a claim for a consumer that holds nothing yet says."""
    return {
        "allocations": {provider: {"resources": dict(resources)}},
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_generation": None,
        "consumer_type": TYPE,
    }


def url_for(url: str) -> str:
    """Return a URL with the driver that Placement works with: it reads ``cursor.lastrowid``."""
    return url.replace("postgresql+psycopg:", "postgresql+psycopg2:")
