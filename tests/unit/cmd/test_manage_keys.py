"""``nova-lite-manage keys`` and ``broker``."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.rpc import broker, keys
from nova_lite.rpc.keys import PrivateKey
from tests.support.manage import Tool


@pytest.fixture
def directory(tool: Tool) -> Path:
    path = tool.path / "keys"
    tool.configure(f"[rpc]\nkeys_directory = {path}")
    return path


def listed(tool: Tool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tool.json("keys", "list")
    return found


def test_create(tool: Tool, directory: Path) -> None:
    (made,) = tool.json("keys", "create", "compute", "host-1")
    path = directory / "compute.host-1.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (directory / "trusted.json").stat().st_mode & 0o777 == 0o644
    assert PrivateKey.from_file(str(path)).id == made["id"]
    assert listed(tool) == [made]
    assert (made["role"], made["host"], made["valid_until"]) == ("compute", "host-1", None)
    assert "PRIVATE" not in tool("keys", "list")
    assert "is there already; keys rotate replaces it" in tool.fails("keys", "create", "compute", "host-1")


@pytest.mark.parametrize("host", ["../x", "a/b", "", ".x", "a b"])
def test_names_that_are_none(tool: Tool, directory: Path, host: str) -> None:
    assert "is not a host name" in tool.fails("keys", "create", "compute", host)
    assert not directory.exists() or os.listdir(directory) == []


def test_without_a_directory(tool: Tool) -> None:
    assert "keys_directory is not set" in tool.fails("keys", "list")


def test_a_key_of_another_machine_is_trusted_by_its_public_half(tool: Tool, directory: Path) -> None:
    (made,) = tool.json("keys", "create", "compute", "host-1", "--directory", str(tool.path / "elsewhere"))
    assert listed(tool) == []
    tool("keys", "trust", "compute", "host-1", made["public_key"])
    assert [row["id"] for row in listed(tool)] == [made["id"]]
    assert "is trusted already" in tool.fails("keys", "trust", "compute", "host-1", made["public_key"])
    assert "32 bytes in base64" in tool.fails("keys", "trust", "compute", "host-1", "abc")


def test_rotate_keeps_the_old_key_valid_for_a_while(tool: Tool, directory: Path) -> None:
    (old,) = tool.json("keys", "create", "compute", "host-1")
    tool("keys", "create", "conductor", "controller")
    found = {row["id"]: row for row in tool.json("keys", "rotate", "compute", "host-1", "--overlap", "60")}
    new = PrivateKey.from_file(str(directory / "compute.host-1.key")).id
    assert new != old["id"] and set(found) == {new, old["id"]}
    until = datetime.datetime.fromisoformat(found[old["id"]]["valid_until"])
    assert 50 < (until - keys.now()).total_seconds() <= 60
    assert found[new]["valid_until"] is None
    tool("keys", "rotate", "compute", "host-1", "--overlap", "0")
    tool("keys", "rotate", "compute", "host-1", "--overlap", "0")
    left = [row for row in listed(tool) if row["role"] == "compute"]
    assert new not in [row["id"] for row in left], "what is over is dropped by the next"
    assert len(listed(tool)) == len(left) + 1


def test_a_staged_key_is_trusted_before_it_is_used(tool: Tool, directory: Path) -> None:
    (old,) = tool.json("keys", "create", "compute", "host-1")
    path = str(directory / "compute.host-1.key")
    tool("keys", "rotate", "compute", "host-1", "--stage")
    staged = PrivateKey.from_file(path + ".next").id
    assert PrivateKey.from_file(path).id == old["id"]
    assert {row["id"] for row in listed(tool)} == {old["id"], staged}
    assert "is there already" in tool.fails("keys", "rotate", "compute", "host-1", "--stage")
    tool("keys", "rotate", "compute", "host-1")
    assert PrivateKey.from_file(path).id == staged
    assert not os.path.exists(path + ".next")
    assert {row["id"] for row in listed(tool) if row["valid_until"] is None} == {staged}


def test_revoke(tool: Tool, directory: Path) -> None:
    (made,) = tool.json("keys", "create", "compute", "host-1")
    assert "compute on host-1 is trusted no more" in tool("keys", "revoke", made["id"])
    assert listed(tool) == []
    assert "no key" in tool.fails("keys", "revoke", made["id"])


def test_a_list_that_is_broken_is_not_overwritten(tool: Tool, directory: Path) -> None:
    tool("keys", "create", "api", "controller")
    trusted = directory / "trusted.json"
    trusted.write_text(trusted.read_text().replace('"id": "', '"id": "0'))
    before = trusted.read_text()
    assert "does not match it" in tool.fails("keys", "create", "compute", "host-1")
    assert trusted.read_text() == before
    assert not (directory / "compute.host-1.key").exists()


# --- broker


def allowed(role: str, host: str, what: str, name: str) -> bool:
    return re.search(getattr(broker.permissions(role, host), what), name) is not None


@pytest.mark.parametrize(
    ("role", "what", "may", "may_not"),
    [
        ("compute", "read", ["compute.h-1", "reply_compute.h-1.0af"], ["compute.h-2", "conductor", "compute.h-1x"]),
        ("compute", "read", ["nova_lite"], ["reply_compute.h-2.0af", "reply_api.h-1.0", "scheduler_fanout", "xh-1"]),
        ("compute", "configure", ["compute.h-1", "nova_lite"], ["compute.hx1", "anything", "compute.h-1.x"]),
        ("compute", "write", ["nova_lite", "amq.default"], ["scheduler_fanout", "compute.h-2"]),
        ("compute", "topic_write", ["conductor", "compute.h-1"], ["compute.h-2", "compute", "scheduler"]),
        ("compute", "topic_read", ["compute", "compute.h-1"], ["conductor", "#", "compute.#", "compute.h-2"]),
        ("conductor", "write", ["scheduler_fanout", "amq.default"], ["compute_fanout"]),
        ("conductor", "topic_write", ["conductor", "conductor.h-1", "compute.any", "scheduler"], ["scheduler.x"]),
        ("api", "write", ["nova_lite"], ["amq.default", "scheduler_fanout"]),
        ("api", "topic_write", ["conductor", "compute.any"], ["scheduler", "conductor.h-1"]),
        ("api", "topic_read", [], ["conductor", "#", "x"]),
        ("api", "read", ["reply_api.h-1.1"], ["nova_lite", "conductor"]),
        (
            "conductor",
            "configure",
            ["nova", "versioned_notifications.info", "notifications.error"],
            ["novas", "x.info"],
        ),
        ("conductor", "write", ["nova", "versioned_notifications.error"], ["nova.x", "versioned_notificationsxinfo"]),
        ("conductor", "read", ["nova", "notifications.info"], ["nov", "notifications.debug"]),
        ("scheduler", "topic_write", ["conductor", "notifications.info"], ["versioned_notifications.info"]),
        ("scheduler", "topic_read", ["scheduler", "notifications.error"], ["conductor"]),
        ("scheduler", "write", ["notifications.info"], ["nova"]),
        ("compute", "configure", [], ["nova", "notifications.info"]),
        ("console", "topic_write", ["conductor", "compute.any"], ["scheduler"]),
    ],
)
def test_permissions_of_accounts(role: str, what: str, may: list[str], may_not: list[str]) -> None:
    assert [name for name in may if not allowed(role, "h-1", what, name)] == []
    assert [name for name in may_not if allowed(role, "h-1", what, name)] == []


def test_a_host_whose_name_is_a_pattern_gets_no_more() -> None:
    assert not allowed("compute", "h.1", "read", "compute.hx1")
    with pytest.raises(exceptions.InvalidInput):
        broker.permissions("compute", ".*")


def test_permissions_have_the_names_of_notifications_in_the_options(tool: Tool) -> None:
    with open(tool.config, "a") as file:
        file.write("\n[notifications]\nexchange = o.ne\nversioned_notifications_topics = ours, theirs\n")
    whole, _ = tool.json("broker", "permissions", "conductor", "host-1")
    assert re.search(whole["write"], "o.ne") and re.search(whole["configure"], "theirs.info")
    assert not re.search(whole["write"], "oxne") and not re.search(whole["write"], "versioned_notifications.info")


def test_permissions_are_shown(tool: Tool) -> None:
    rows = tool.json("broker", "permissions", "compute", "host-1")
    assert [row["exchange"] for row in rows] == ["", "nova_lite"]
    assert rows[1]["write"] == broker.permissions("compute", "host-1").topic_write
