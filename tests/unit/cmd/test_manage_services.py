"""``nova-lite-manage service``."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base.context import RequestContext
from nova_lite.cmd.manage.app import App
from nova_lite.db.hosts import host_health, services
from nova_lite.objects import HostProblem, Service
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.fake_clients import fake_client
from tests.support.manage import Tool, report


class Daemons:
    """The conductor that the tool calls, over the tool's database."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.conductor = fake_client(ConductorRPC)
        self.conductor.script("service_list", self._list)
        self.conductor.script("service_update", self._update)

    def _list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]:
        return self._tool.database_of().read(services.list_, host, binary)

    def _update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        return self._tool.database_of().write(services.update, service_id, changes)


@pytest.fixture
def hosts(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    report(tool, "h1", "h2")
    monkeypatch.setattr(App, "servers", Daemons(tool))


def shown(tool: Tool) -> dict[str, tuple[str, str | None]]:
    return {row["host"]: (row["status"], row["reason"]) for row in tool.json("service", "list")}


def test_service_is_disabled_with_a_reason_and_enabled(tool: Tool, hosts: None) -> None:
    assert tool("service", "disable", "h1", "--reason", "new disk") == "nova-compute of h1 is disabled."
    assert shown(tool) == {"h1": ("disabled", "new disk"), "h2": ("enabled", None)}
    assert tool("service", "enable", "h1", "--binary", "nova-lite-compute") == "nova-compute of h1 is enabled."
    assert shown(tool) == {"h1": ("enabled", None), "h2": ("enabled", None)}


@pytest.mark.parametrize("verb", ["enable", "disable"])
@pytest.mark.parametrize("which", [("h3",), ("h1", "--binary", "nova-scheduler")])
def test_service_that_does_not_exist_is_named(tool: Tool, hosts: None, verb: str, which: tuple[str, ...]) -> None:
    binary = which[-1] if len(which) > 1 else "nova-compute"
    assert f"Could not find binary {binary} on host {which[0]}." in tool.fails("service", verb, *which)


@pytest.mark.parametrize("reason", ["", "x" * 256, "two\nlines"])
def test_reason_that_cannot_be_stored_is_refused(tool: Tool, hosts: None, reason: str) -> None:
    tool("service", "disable", "h1", "--reason", reason, status=2)
    assert "1 to 255 printable characters" in tool.error


def test_host_health_shows_each_problem_of_each_host(tool: Tool) -> None:
    assert tool.json("host", "health") == []
    problem = HostProblem(key="disk/smart/a", kind="disk", text="Disk a says that it fails (SMART).")
    tool.database_of().write(host_health.record, "h1", [problem])
    (row,) = tool.json("host", "health")
    assert (row["host"], row["kind"], row["problem"], row["state"]) == ("h1", "disk", problem.text, None)
