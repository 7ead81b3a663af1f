"""The command that serves Placement's API: ``serve``."""

from __future__ import annotations

import os
from argparse import Namespace

from resource_objects.cli import base


@base.command(
    base.argument(
        "--bind",
        "HOST:PORT",
        "where to listen (127.0.0.1:8778), or unix:PATH",
        default="127.0.0.1:8778",
    ),
    base.argument("--workers", "COUNT", "how many processes (2)", type=int, default=2),
    base.argument(
        "--auth",
        None,
        "the authentication: every token (noauth2), passwords, or tokens of Keystone",
        choices=("noauth2", "http_basic", "keystone"),
        required=True,
    ),
    base.argument(
        "--password-file", "FILE", "with --auth http_basic: lines as 'htpasswd -B' makes them"
    ),
    base.argument(
        "--roles-file",
        "FILE",
        "with --auth http_basic: lines USER:ROLE,ROLE or USER:ROLE,ROLE:PROJECT",
    ),
    base.argument(
        "--keystone-file",
        "FILE",
        "a configuration with the section [keystone_authtoken], such as placement.conf",
    ),
    base.repeated(
        "--keystone",
        "KEY=VALUE",
        "an option of that section, such as auth_url; repeatable. Others on this machine can read "
        "it: passwords belong into the file",
    ),
    base.argument(
        "--policy",
        None,
        "the authorization: secure (the default), legacy, open, or a file of oslo.policy",
        default="secure",
    ),
    base.argument(
        "--metrics",
        "NAME",
        "an entry point of resource_objects.rest.metrics, called for each request",
    ),
    base.argument(
        "--statsd",
        "HOST:PORT",
        "where gunicorn sends its counts of requests, and of workers, by UDP",
    ),
    base.repeated("--cors-origin", "URL", "repeatable"),
    base.repeated("--cors-header", "NAME", "repeatable"),
    opens=False,
)
def serve(command: base.Command, args: Namespace) -> None:
    """Serve the ledger by Placement's API, microversions 1.0 to 1.39, over HTTP.

    The kind of authentication is required. --auth noauth2 accepts every token, and requires a
    loopback address: for tests. GET /health reports whether the ledger answers.
    """
    try:
        from resource_objects.rest import serving
    except ImportError as error:
        raise base.Misused(
            f"{error}: pip install 'resource_objects[rest]' brings what it needs"
        ) from error

    if args.auth != "keystone" and (args.keystone or args.keystone_file):
        raise base.Misused("--keystone: it needs --auth keystone, else every token is believed")
    with base.misused():
        serving.serve(
            base.database_url(command.app.options.database, os.environ),
            args.bind,
            workers=args.workers,
            auth=args.auth,
            password_file=args.password_file,
            roles_file=args.roles_file,
            policy=args.policy,
            cors_allowed_origin=args.cors_origin,
            cors_allow_headers=args.cors_header,
            keystone=dict(map(_option, args.keystone)),
            keystone_file=args.keystone_file,
            metrics=args.metrics,
            statsd=args.statsd,
        )


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise base.Misused(f"--keystone: got {key!r}, expected KEY=VALUE")
    return key.strip(), value
