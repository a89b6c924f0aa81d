"""``nova-lite-manage host cpu-baseline``."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.db.hosts import host_aggregates
from nova_lite.db.hosts import hosts as db_hosts
from nova_lite.objects import HOST_CPU
from tests.support import make
from tests.support.manage import Tool

OLD = {"virt_type": "kvm", "vendor": "Intel", "definition": "Haswell -pcid", "features": "aes avx"}
NEW = {**OLD, "definition": "Skylake-Server -hle", "features": "aes avx avx512f pcid"}
COMMAND = ("host", "cpu-baseline", "--aggregate", "mixed")


def report(tool: Tool, **cpus: dict[str, Any] | None) -> None:
    database = tool.database_of()
    for name, cpu in cpus.items():
        inventory = make.inventory(name, capabilities={} if cpu is None else {HOST_CPU: cpu})
        database.write(db_hosts.record, make.conf(tool.database), make.report(name, inventories=[inventory]))
    database.close()


def baseline_of(tool: Tool, host: str) -> str:
    database = tool.database_of()
    try:
        return database.read(host_aggregates.cpu_baseline, host)
    finally:
        database.close()


@pytest.fixture
def mixed(tool: Tool) -> Tool:
    """Provide an aggregate of an old and a new host, and a host outside of it."""
    report(tool, old=OLD, new=NEW, other=NEW)
    tool("aggregate", "create", "mixed")
    for host in ("old", "new"):
        tool("aggregate", "add-host", "mixed", host)
    return tool


def test_baseline_is_proposed_and_explained_but_not_stored(mixed: Tool) -> None:
    assert mixed.json(*COMMAND) == [
        {"host": "new", "processor": "Skylake-Server", "gives_up": "avx512f pcid", "baseline": "Haswell -pcid"},
        {"host": "old", "processor": "Haswell", "gives_up": None, "baseline": "Haswell -pcid"},
    ]
    assert "The baseline has 2 features, which all 2 host(s) have." in mixed.error
    assert "Without old it would also have avx512f, pcid." in mixed.error
    assert baseline_of(mixed, "old") == ""


def test_applied_baseline_is_that_of_the_aggregates_hosts(mixed: Tool) -> None:
    assert "It is the baseline of aggregate mixed." in mixed(*COMMAND, "--apply")
    assert [baseline_of(mixed, host) for host in ("old", "new", "other")] == ["Haswell -pcid"] * 2 + [""]
    mixed("aggregate", "remove-host", "mixed", "old")
    assert "Aggregate mixed has another one: Haswell -pcid" in mixed(*COMMAND)
    mixed("aggregate", "set", "mixed", "--remove", "cpu_baseline")
    assert baseline_of(mixed, "new") == ""


def test_hosts_without_a_baseline_are_named_in_one_line(mixed: Tool) -> None:
    report(mixed, silent=None, unnamed={**OLD, "definition": ""}, amd={**OLD, "vendor": "AMD"})
    for host in ("silent", "unnamed"):
        mixed("aggregate", "add-host", "mixed", host)
    assert "no processor is known of silent, unnamed" in mixed.fails(*COMMAND)
    for host in ("silent", "unnamed"):
        mixed("aggregate", "remove-host", "mixed", host)
    mixed("aggregate", "add-host", "mixed", "amd")
    assert "no vendor of processors in common (AMD: amd; Intel: " in mixed.fails(*COMMAND)
    mixed("aggregate", "create", "empty")
    assert "aggregate empty has no hosts" in mixed.fails("host", "cpu-baseline", "--aggregate", "empty")
    assert "nowhere" in mixed.fails("host", "cpu-baseline", "--aggregate", "nowhere")


def test_baseline_set_by_hand_has_to_be_a_definition(mixed: Tool) -> None:
    refused = mixed.fails("aggregate", "set", "mixed", "--property", "cpu_baseline=<cpu/>")
    assert "cpu_baseline=<cpu/> is wrong: the value is a CPU model, and features to add and to remove" in refused
    mixed("aggregate", "set", "mixed", "--property", "cpu_baseline=EPYC +pku")
    assert baseline_of(mixed, "new") == "EPYC +pku"
