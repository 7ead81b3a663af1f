"""The command that serves Placement's API: ``serve``."""

from __future__ import annotations

import argparse

from resource_objects.cli.base import Command, Misused, database_url, misused


class Serve(Command):
    """Serve the ledger by Placement's API, microversions 1.0 to 1.39, over HTTP.

    Without --auth every token is believed, which only a loopback address allows. GET /health tells
    whether the ledger answers.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add(
            "--bind",
            metavar="HOST:PORT",
            default="127.0.0.1:8778",
            help="where to listen (127.0.0.1:8778), or unix:PATH",
        )
        add("--workers", type=int, default=2, metavar="COUNT", help="how many processes (2)")
        add("--auth", choices=("noauth2", "keystone"), default="noauth2", help="who is believed")
        add(
            "--keystone",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="an option of [keystone_authtoken], such as auth_url; repeatable",
        )
        add(
            "--policy",
            default="secure",
            help="who may do what: secure (the default), legacy, open, or a file of oslo.policy",
        )
        add("--cors-origin", action="append", default=[], metavar="URL", help="repeatable")
        add("--cors-header", action="append", default=[], metavar="NAME", help="repeatable")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Serve until a signal ends it."""
        import os

        try:
            from resource_objects.rest.serving import serve
        except ImportError as error:
            raise Misused(
                f"{error}: pip install 'resource_objects[rest]' brings what it needs"
            ) from error

        if parsed_args.keystone and parsed_args.auth != "keystone":
            raise Misused("--keystone: it needs --auth keystone, else every token is believed")
        options = dict(one.partition("=")[::2] for one in parsed_args.keystone)
        with misused():
            serve(
                database_url(self.app.options.database, os.environ),
                parsed_args.bind,
                workers=parsed_args.workers,
                auth=parsed_args.auth,
                policy=parsed_args.policy,
                cors_allowed_origin=parsed_args.cors_origin,
                cors_allow_headers=parsed_args.cors_header,
                keystone=options,
            )
