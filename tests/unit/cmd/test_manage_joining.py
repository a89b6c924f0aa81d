"""Commands ``host token`` and ``host remove``."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from nova_lite.base import host_certificates
from nova_lite.base.context import RequestContext
from nova_lite.base.host_certificates import Authority
from nova_lite.base.join_requests import JoinToken
from nova_lite.base.timing import ManageTiming
from nova_lite.cmd.manage.app import App
from nova_lite.db.hosts import joins, services
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.fake_clients import FakeClient, fake_client
from tests.support.joining import NewHost, make_token
from tests.support.made_up_schemas import set_versions
from tests.support.manage import Tool, placed, report


@pytest.fixture
def controller(tool: Tool, tmp_path: Path) -> Authority:
    authority = Authority(str(tmp_path / "keys" / "hosts"))
    authority.create()
    tool.configure(f"my_ip = 192.0.2.10\n[rpc]\nkeys_directory = {tmp_path}/keys\n")
    return authority


@pytest.fixture
def conductor(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Return a conductor that deletes services in the tool's database."""
    found = fake_client(ConductorRPC)

    def delete(context: RequestContext, service_id: str) -> None:
        tool.database_of().write(services.delete, service_id)

    found.script("service_delete", delete)
    monkeypatch.setattr(App, "servers", types.SimpleNamespace(conductor=found))
    return found


def test_token_is_one_line_that_pins_the_clouds_certificate(tool: Tool, controller: Authority) -> None:
    line = tool("host", "token")
    token = JoinToken.parse(line)
    assert "\n" not in line
    assert token.address == "192.0.2.10:8780"
    assert token.pin == host_certificates.fingerprint(controller.services_certificate())


def test_tokens_are_listed_and_revoked_without_what_is_secret(tool: Tool, controller: Authority) -> None:
    first, second = (tool.json("host", "token", "--expires", "60")[0] for _ in range(2))
    assert "cannot be used any more" in tool("host", "token", "--revoke", first["id"])
    listed = tool.json("host", "token", "--list")
    assert {row["id"]: row["revoked_at"] is None for row in listed} == {first["id"]: False, second["id"]: True}
    assert first["token"] not in str(listed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--expires", "604801"), "at most 604800 seconds"),
        (("--revoke", "0" * 16), "There is no token"),
    ],
)
def test_token_that_cannot_be_made_or_revoked_is_one_line(
    tool: Tool, controller: Authority, arguments: tuple[str, ...], said: str
) -> None:
    assert said in tool.fails("host", "token", *arguments)


def test_token_of_a_controller_that_no_host_can_join_is_refused(
    tool: Tool, controller: Authority, tmp_path: Path
) -> None:
    tool.configure(f"[rpc]\nkeys_directory = {tmp_path}/keys\n")
    assert "my_ip is a loopback address" in tool.fails("host", "token")
    tool.configure("my_ip = 192.0.2.10")
    assert "[rpc] keys_directory is not set" in tool.fails("host", "token")


def test_token_on_another_schema_is_one_line(tool: Tool, controller: Authority) -> None:
    set_versions(make.conf(tool.database), "9999", "9999")
    assert "9999" in tool.fails("host", "token")


def joined(tool: Tool, name: str) -> None:
    """Make a host that has joined and reports."""
    database = tool.database_of()
    token = make_token(database)
    request = NewHost(name).request(token)
    database.write(lambda uow: joins.join(uow, make.conf(tool.database), request))
    (work,) = database.read(joins.pending)
    database.write(lambda uow: joins.finish(uow, work, "{}", "s", ""))
    report(tool, name)


def test_removed_host_has_no_service_once_the_registrar_has_revoked_its_key(
    tool: Tool, controller: Authority, conductor: FakeClient
) -> None:
    joined(tool, "h1")
    tool.timing = ManageTiming(removal_wait=0.0, removal_poll=0.0, last_report=0.0)
    assert "nova-lite-registrar does not run" in tool.fails("host", "remove", "h1")
    database = tool.database_of()
    assert len(database.read(services.list_)) == 1
    (work,) = database.read(joins.pending)
    database.write(lambda uow: joins.finish(uow, work, "", "", ""))
    assert "Host h1 is removed." in tool("host", "remove", "h1")
    assert database.read(services.list_) == []
    assert "No host h1 has joined" in tool.fails("host", "remove", "h1")


def test_host_with_servers_is_not_removed(tool: Tool, controller: Authority, conductor: FakeClient) -> None:
    joined(tool, "h1")
    placed(tool, "h1")
    assert "Host h1 has 1 server(s): drain it first" in tool.fails("host", "remove", "h1")
    assert tool.database_of().read(joins.pending) == []
