"""Projects and users in commands of ``nova-lite-manage``: by id or name, and refused if no account knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from nova_lite.api.identity import directory
from nova_lite.db.core.models import QuotaLimit, UserQuotaLimit
from nova_lite.db.identity.identity_records import DatabaseStore
from tests.support.http_site import HttpSite
from tests.support.identity_records import fresh_replica
from tests.support.manage import Tool


def stored(tool: Tool) -> set[str]:
    """Return the projects that have limits."""
    database = tool.database_of()
    try:
        return database.read(
            lambda uow: {
                project
                for column in (QuotaLimit.project_id, UserQuotaLimit.project_id)
                for project in uow.session.scalars(sa.select(column))
            }
        )
    finally:
        database.close()


@pytest.fixture
def accounts(tool: Tool) -> dict[str, str]:
    """Ids of the project demo, and of its user alice."""
    database = tool.database_of()
    try:
        with fresh_replica(DatabaseStore(database)).changing() as content:
            project = directory.add_project(content, "demo")
            user = directory.add_user(content, "alice", "!", project)
            #: A project whose name is the id of another one.
            directory.add_project(content, project.id)
            return {"demo": project.id, "alice": user.id}
    finally:
        database.close()


@pytest.mark.parametrize(
    "command",
    [
        ("quota", "set", "dmeo", "--cores", "4"),
        ("quota", "show", "dmeo"),
        ("server-group", "create", "g", "--policy", "affinity", "--project", "dmeo"),
        ("network", "create", "n", "10.20.0.0/24", "--project", "dmeo"),
        ("scheduler", "explain", "--flavor", "f", "--project", "dmeo"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_unknown_project_is_refused(tool: Tool, accounts: dict[str, str], command: tuple[str, ...]) -> None:
    assert "There is no project dmeo." in tool.fails(*command)


def test_unknown_user_is_refused(tool: Tool, accounts: dict[str, str]) -> None:
    assert "There is no user alcie." in tool.fails("quota", "set", "demo", "--user", "alcie", "--cores", "4")


@pytest.mark.parametrize("by", ["name", "id"])
def test_limits_are_stored_under_the_ids_of_project_and_user(tool: Tool, accounts: dict[str, str], by: str) -> None:
    project, user = ("demo", "alice") if by == "name" else (accounts["demo"], accounts["alice"])
    tool("quota", "set", project, "--user", user, "--cores", "4")
    assert stored(tool) == {accounts["demo"]}
    shown = {row["resource"]: row["limit"] for row in tool.json("quota", "show", "demo", "--user", "alice")}
    assert shown["cores"] == 4


def test_id_is_preferred_to_an_equal_name_of_another_project(tool: Tool, accounts: dict[str, str]) -> None:
    tool("project", "delete", accounts["demo"])
    assert [row["name"] for row in tool.json("project", "list")] == [accounts["demo"]]


def test_project_is_not_checked_if_the_api_accepts_every_token(tool: Tool, accounts: dict[str, str]) -> None:
    (tool.path / "api.conf").write_text("[api]\nauth_strategy = noauth2\n")
    tool("quota", "set", "dmeo", "--cores", "4")
    assert stored(tool) == {"dmeo"}


# --- Keystone


class Keystone:
    """A Keystone with one project. ``status``: of every answer about projects, unless it is 0."""

    def __init__(self) -> None:
        self.status = 0
        self.asked: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = webob.Request(environ)
        self.asked.append(request.path_qs)
        return self._answer(request)(environ, start_response)

    def _answer(self, request: webob.Request) -> webob.Response:
        project = {"id": "p1", "name": "demo"}
        if request.path == "/v3":
            links = [{"rel": "self", "href": f"{request.host_url}/v3/"}]
            return webob.Response(json_body={"version": {"id": "v3.14", "status": "stable", "links": links}})
        if request.path == "/v3/auth/tokens":
            token = {"expires_at": "2999-01-01T00:00:00Z", "issued_at": "2026-01-01T00:00:00Z", "methods": ["password"]}
            return webob.Response(json_body={"token": token}, status=201, headers={"X-Subject-Token": "t"})
        if self.status:
            return webob.Response(json_body={"error": {}}, status=self.status)
        if request.path == "/v3/projects":
            return webob.Response(json_body={"projects": [project] if request.GET["name"] == "demo" else []})
        found = request.path == "/v3/projects/p1"
        return webob.Response(json_body={"project": project} if found else {}, status=200 if found else 404)


@pytest.fixture
def keystone(tool: Tool) -> Iterator[Keystone]:
    made = Keystone()
    site = HttpSite(made)
    url = f"http://127.0.0.1:{site.address[1]}/v3"
    options = {"auth_type": "v3password", "auth_url": url, "username": "nova", "password": "x", "project_name": "s"}
    options |= {"user_domain_id": "default", "project_domain_id": "default"}
    lines = "\n".join(f"{name} = {value}" for name, value in options.items())
    (tool.path / "api.conf").write_text(f"[api]\nauth_strategy = keystone\n[keystone_authtoken]\n{lines}\n")
    yield made
    site.stop()


@pytest.mark.parametrize("project", ["demo", "p1"])
def test_project_of_keystone_is_found_by_id_and_name(tool: Tool, keystone: Keystone, project: str) -> None:
    tool("quota", "set", project, "--cores", "4")
    assert stored(tool) == {"p1"}


def test_unknown_project_of_keystone_is_refused(tool: Tool, keystone: Keystone) -> None:
    assert "There is no project ../users?x." in tool.fails("quota", "set", "../users?x", "--cores", "4")
    assert [path for path in keystone.asked if path.startswith("/v3/users")] == []


@pytest.mark.parametrize("status", [403, 500])
def test_keystone_that_does_not_say_is_named(tool: Tool, keystone: Keystone, status: int) -> None:
    keystone.status = status
    error = tool.fails("quota", "set", "demo", "--cores", "4")
    assert f"Keystone answers {status} to the user of [keystone_authtoken]" in error


def test_keystone_that_is_away_is_named(tool: Tool, keystone: Keystone) -> None:
    path = tool.path / "api.conf"
    path.write_text(path.read_text().replace("http://127.0.0.1:", "http://127.0.0.1:1"))
    assert "Keystone cannot say who demo is" in tool.fails("quota", "set", "demo", "--cores", "4")
