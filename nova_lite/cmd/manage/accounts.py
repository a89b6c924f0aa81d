"""Projects and users that commands name, looked up in the identity service that the API daemon uses.

A command takes an id, or a name in the default domain. Limits and rights are stored under ids, so a name that was
stored as it is would have no effect.
"""

from __future__ import annotations

import os
from typing import Any, Literal, NoReturn, cast
from urllib.parse import quote

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App

_API_FILE = "api.conf"
_KEYSTONE = "keystone_authtoken"
#: Strategies of ``[api] auth_strategy`` whose users and projects are in the database.
_BUILT_IN = ("standalone", "http_basic")

Kind = Literal["project", "user"]


def project_id(app: App, text: str) -> str:
    """Return the id of the project with this id or name.

    Raises `NotFound` if there is none. Without an identity service that knows all projects, the text is the id.
    """
    return _find(app, "project", text)


def user_id(app: App, text: str) -> str:
    """Return the id of the user with this id or name, as `project_id` does."""
    return _find(app, "user", text)


def _find(app: App, kind: Kind, text: str) -> str:
    conf = _api_conf(app)
    strategy = conf.api.auth_strategy
    if strategy in _BUILT_IN:
        return _in_database(app, conf, kind, text)
    return _in_keystone(conf, kind, text) if strategy == "keystone" else text


def _api_conf(app: App) -> cfg.ConfigOpts:
    """Return the configuration with that of the API daemon, whose file is beside those of the command."""
    given: list[str] = list(app.conf.config_file or [])
    beside = os.path.join(os.path.dirname(given[0]), _API_FILE) if given else ""
    if not os.access(beside, os.R_OK) or beside in given:
        return app.conf
    from nova_lite.conf import api, ldap

    conf = cfg.ConfigOpts()
    api.register_opts(conf)
    ldap.register_opts(conf)
    try:
        conf([argument for path in (*given, beside) for argument in ("--config-file", path)], project="nova-lite")
    except cfg.Error as error:
        raise exceptions.ConfigurationError(reason=f"{beside}: {' '.join(str(error).split())}") from error
    return conf


def _in_database(app: App, conf: cfg.ConfigOpts, kind: Kind, text: str) -> str:
    """Look in the records of the built-in service. A database without projects belongs to another service, or none."""
    from nova_lite.api.identity import users_file
    from nova_lite.api.identity.replica import Replica
    from nova_lite.db.identity.identity_records import DatabaseStore

    content = Replica(DatabaseStore(app.db), lambda: users_file.read_all(app.conf)).content
    if not content.projects:
        return text
    if kind == "project":
        project = content.project(text) or content.project_named(text)
        return _unknown(kind, text) if project is None else project.id
    user = content.user(text) or content.user_named(text)
    if user is None and conf.ldap.urls:
        return text  # A user of the directory has a record from the first log-in on.
    return _unknown(kind, text) if user is None else user.id


def _in_keystone(conf: cfg.ConfigOpts, kind: Kind, text: str) -> str:
    """Look as the user of ``[keystone_authtoken]``, who needs a role that may read projects and users."""
    from keystoneauth1 import adapter, loading, plugin
    from keystoneauth1 import exceptions as keystone_errors

    from nova_lite.conf.service_client import space_by_monotonic_clock

    space_by_monotonic_clock()
    try:
        loading.register_auth_conf_options(conf, _KEYSTONE)
        loading.register_session_conf_options(conf, _KEYSTONE)
        auth = loading.load_auth_from_conf_options(conf, _KEYSTONE)
        if auth is None:
            raise exceptions.ConfigurationError(reason=f"[{_KEYSTONE}] auth_type: without it no {kind} is found.")
        session = loading.load_session_from_conf_options(conf, _KEYSTONE, auth=auth, timeout=30)
        keystone = adapter.Adapter(
            session,
            service_type="identity",
            interface=cast("str", plugin.AUTH_INTERFACE),
            min_version="3",
            max_version="3.latest",
        )
        found = keystone.get(f"/{kind}s/{quote(text, safe='')}", raise_exc=False)
        if found.status_code == 404:
            domain = conf[_KEYSTONE].get(f"{kind}_domain_id") or "default"
            query = {"name": text, "domain_id": domain}
            return _only(kind, text, keystone.get(f"/{kind}s", params=query).json()[f"{kind}s"])
        if found.status_code != 200:
            raise exceptions.ServiceUnavailable(
                f"Keystone answers {found.status_code} to the user of [{_KEYSTONE}], who has to read its {kind}s."
            )
        return str(found.json()[kind]["id"])
    except (keystone_errors.ClientException, cfg.Error, KeyError, ValueError) as error:
        raise exceptions.ServiceUnavailable(f"Keystone cannot say who {text[:64]} is: {error}") from error


def _only(kind: Kind, text: str, found: list[dict[str, Any]]) -> str:
    return str(found[0]["id"]) if found else _unknown(kind, text)


def _unknown(kind: Kind, text: str) -> NoReturn:
    raise exceptions.NotFound(f"There is no {kind} {text[:64]}.")
