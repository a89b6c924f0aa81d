"""Configuration of single domains, over the identity API.

It is kept and shown, as Keystone does while its option ``domain_configurations_from_database`` is off. The users of a
domain do not depend on it.
"""

from __future__ import annotations

import json
from typing import Any

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import requests
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import DomainConfig
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite_conformance import policies

Config = dict[str, dict[str, Any]]

#: Options by group, with their defaults. Those with a secret are not kept, such as the password of LDAP.
DEFAULTS: Config = {
    "identity": {"driver": "sql", "list_limit": None},
    "ldap": {
        "url": "ldap://localhost",
        "suffix": "cn=example,cn=com",
        "query_scope": "one",
        "page_size": 0,
        "user_tree_dn": None,
        "user_filter": None,
        "user_objectclass": "inetOrgPerson",
        "user_id_attribute": "cn",
        "user_name_attribute": "sn",
        "user_mail_attribute": "mail",
        "user_enabled_attribute": "enabled",
        "group_tree_dn": None,
        "group_filter": None,
        "group_objectclass": "groupOfNames",
        "group_id_attribute": "cn",
        "group_name_attribute": "ou",
        "group_member_attribute": "member",
        "use_tls": False,
        "tls_req_cert": "demand",
    },
}
MAX_TEXT = 1024

_ONE = "/v3/domains/{id}/config"
_DEFAULT = "/v3/domains/config"


class DomainConfigs(IdentityResource):
    """Configuration of domains."""

    @route("GET", f"{_DEFAULT}/default", policies.CONFIG_DEFAULT, response="config")
    @route("GET", f"{_DEFAULT}/{{group}}/default", policies.CONFIG_DEFAULT, response="config")
    @route("GET", f"{_DEFAULT}/{{group}}/{{option}}/default", policies.CONFIG_DEFAULT, response="config")
    def default(self, req: ServiceRequest, group: str = "", option: str = "") -> View:
        _check_names(group, option)
        return _part(DEFAULTS, group, option)

    @route("PUT", _ONE, policies.CONFIG_CREATE, key="config")
    def create(self, req: ServiceRequest, id: str) -> Response:
        """Replace the configuration of a domain."""
        config = _config(requests.object_field(req.json_object(), "config"))

        def create(content: Content) -> bool:
            requests.domain(content, id)
            before = content.find(DomainConfig, id)
            _store(content, id, config)
            return before is None

        return Response({"config": config}, 201 if self.change(create) else 200)

    @route("GET", _ONE, policies.CONFIG_SHOW, response="config")
    @route("GET", f"{_ONE}/{{group}}", policies.CONFIG_SHOW, response="config")
    @route("GET", f"{_ONE}/{{group}}/{{option}}", policies.CONFIG_SHOW, response="config")
    def show(self, req: ServiceRequest, id: str, group: str = "", option: str = "") -> View:
        _check_names(group, option)
        requests.domain(self.content, id)
        return _part(_stored(self.content, id), group, option)

    @route("PATCH", _ONE, policies.CONFIG_UPDATE, key="config")
    @route("PATCH", f"{_ONE}/{{group}}", policies.CONFIG_UPDATE, key="config")
    @route("PATCH", f"{_ONE}/{{group}}/{{option}}", policies.CONFIG_UPDATE, key="config")
    def update(self, req: ServiceRequest, id: str, group: str = "", option: str = "") -> View:
        """Change the options in the body. A URL with a group or an option allows only those."""
        _check_names(group, option)
        given = requests.object_field(req.json_object(), "config")
        if option:
            given = {group: given}
        config = _config(given)
        if (group and set(config) != {group}) or (option and set(config[group]) != {option}):
            raise exceptions.Forbidden(f"The body may have {group} {option} only, as the URL.".replace("  ", " "))

        def update(content: Content) -> Config:
            requests.domain(content, id)
            known = _stored(content, id)
            _part(known, group, option)
            for name, options in config.items():
                known[name] = known.get(name, {}) | options
            _store(content, id, known)
            return known

        return self.change(update)

    @route("DELETE", _ONE, policies.CONFIG_DELETE, status=204)
    @route("DELETE", f"{_ONE}/{{group}}", policies.CONFIG_DELETE, status=204)
    @route("DELETE", f"{_ONE}/{{group}}/{{option}}", policies.CONFIG_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str, group: str = "", option: str = "") -> None:
        _check_names(group, option)

        def delete(content: Content) -> None:
            requests.domain(content, id)
            known = _stored(content, id)
            _part(known, group, option)
            if option:
                del known[group][option]
            elif group:
                del known[group]
            _store(content, id, known if group else {})

        self.change(delete)


def _check_names(group: str, option: str) -> None:
    if (group and group not in DEFAULTS) or (option and option not in DEFAULTS[group]):
        raise exceptions.Forbidden(
            f"Domains have no option {f'{group[:64]} {option[:64]}'.strip()}. They have Keystone's options in "
            f"{', '.join(DEFAULTS)} that are no secrets."
        )


def _config(given: dict[str, Any]) -> Config:
    """Return the configuration in a body. Raises `Forbidden` for unknown options, and `ValidationError`."""
    for group, options in given.items():
        if not isinstance(options, dict):
            raise exceptions.ValidationError(detail="A configuration is an object with an object for each group.")
        _check_names(group or "-", "")
        for option, value in options.items():
            _check_names(group, option or "-")
            if isinstance(value, list | dict) or (isinstance(value, str) and len(value) > MAX_TEXT):
                raise exceptions.ValidationError(
                    detail=f"{option} must be a number, a boolean, or a string of at most {MAX_TEXT} characters."
                )
    if not any(given.values()):
        raise exceptions.ValidationError(detail="A configuration has at least one option.")
    return given


def _part(config: Config, group: str, option: str) -> dict[str, Any]:
    """Return a part of the configuration. Raises `NotFound` if it has no such part."""
    if not config or (group and group not in config) or (option and option not in config[group]):
        name = " ".join(filter(None, (group, option)))
        raise exceptions.NotFound(f"Could not find the configuration {name} of the domain.")
    if option:
        return {option: config[group][option]}
    return {group: config[group]} if group else config


def _stored(content: Content, id: str) -> Config:
    found = content.find(DomainConfig, id)
    config: Config = json.loads(found.config) if found is not None else {}
    return config


def _store(content: Content, id: str, config: Config) -> None:
    """Store the configuration of a domain, without groups that have no option."""
    content.domain_configs = [item for item in content.domain_configs if item.id != id]
    if used := {group: options for group, options in config.items() if options}:
        content.domain_configs.append(DomainConfig(id=id, config=json.dumps(used)))
