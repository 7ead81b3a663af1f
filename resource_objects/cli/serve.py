"""The command that serves Placement's API: ``serve``."""

from __future__ import annotations

import argparse

from resource_objects.cli.base import Command, Misused, database_url, misused


class Serve(Command):
    """Serve the ledger by Placement's API, microversions 1.0 to 1.39, over HTTP.

    The kind of authentication is required. --auth noauth2 accepts every token, and requires a
    loopback address: for tests. GET /health reports whether the ledger answers.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--bind",
            metavar="HOST:PORT",
            default="127.0.0.1:8778",
            help="where to listen (127.0.0.1:8778), or unix:PATH",
        )
        add("--workers", type=int, default=2, metavar="COUNT", help="how many processes (2)")
        add(
            "--auth",
            choices=("noauth2", "http_basic", "keystone"),
            required=True,
            help="the authentication: every token (noauth2), passwords, or tokens of Keystone",
        )
        add(
            "--password-file",
            metavar="FILE",
            help="with --auth http_basic: lines as 'htpasswd -B' makes them",
        )
        add(
            "--roles-file",
            metavar="FILE",
            help="with --auth http_basic: lines USER:ROLE,ROLE or USER:ROLE,ROLE:PROJECT",
        )
        add(
            "--keystone-file",
            metavar="FILE",
            help="a configuration with the section [keystone_authtoken], such as placement.conf",
        )
        add(
            "--keystone",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="an option of that section, such as auth_url; repeatable. Others on this machine "
            "can read it: passwords belong into the file",
        )
        add(
            "--policy",
            default="secure",
            help="the authorization: secure (the default), legacy, open, or a file of oslo.policy",
        )
        add(
            "--metrics",
            metavar="NAME",
            help="an entry point of resource_objects.rest.metrics, called for each request",
        )
        add(
            "--statsd",
            metavar="HOST:PORT",
            help="where gunicorn sends its counts of requests, and of workers, by UDP",
        )
        add("--cors-origin", action="append", default=[], metavar="URL", help="repeatable")
        add("--cors-header", action="append", default=[], metavar="NAME", help="repeatable")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Serve until a signal ends it."""
        import os

        try:
            from resource_objects.rest.serving import serve
        except ImportError as error:
            raise Misused(
                f"{error}: pip install 'resource_objects[rest]' brings what it needs"
            ) from error

        if parsed_args.auth != "keystone" and (parsed_args.keystone or parsed_args.keystone_file):
            raise Misused("--keystone: it needs --auth keystone, else every token is believed")
        with misused():
            serve(
                database_url(self.app.options.database, os.environ),
                parsed_args.bind,
                workers=parsed_args.workers,
                auth=parsed_args.auth,
                password_file=parsed_args.password_file,
                roles_file=parsed_args.roles_file,
                policy=parsed_args.policy,
                cors_allowed_origin=parsed_args.cors_origin,
                cors_allow_headers=parsed_args.cors_header,
                keystone=dict(_option(text) for text in parsed_args.keystone),
                keystone_file=parsed_args.keystone_file,
                metrics=parsed_args.metrics,
                statsd=parsed_args.statsd,
            )


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Misused(f"--keystone: got {key!r}, expected KEY=VALUE")
    return key.strip(), value
