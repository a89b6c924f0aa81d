"""Open vSwitch and OVN of devstack: others' are refused, and what was there before is there afterwards.

The services are fakes: files that say that a service runs, and a log of what the script has run.
"""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[3]

SCRIPT = r"""
source devstack/lib/common.sh
cd "$TOP"
source devstack/lib/ovn.sh
there=$1
STATE=$there/state
OVN_NOTE=$STATE/ovn-before
OVS_DATABASE=$there/etc/conf.db
OVN_DATABASES=$there/ovn
has_systemd() { false; }
compute_host() { echo box; }
wait_for() { shift; "$@"; }
ovn_processes() {
    case $1 in
    runs) [[ -e $there/runs/$2 ]] ;;
    start) touch "$there/runs/$2" "$there/etc/conf.db" "$there/ovn/ovnnb_db.db" && echo "start $2" >>"$there/log" ;;
    stop) rm "$there/runs/$2" && echo "stop $2" >>"$there/log" ;;
    esac
}
ovs-vsctl() { echo "ovs-vsctl $*" >>"$there/log"; }
ovn-nbctl() { echo "ovn-nbctl $*" >>"$there/log"; }
ovn-sbctl() { echo "ovn-sbctl $*" >>"$there/log"; echo chassis; }
ovs-dpctl() { [[ -e $there/kernel ]]; }
ovsdb-tool() { table=${3#*\"table\":\"}; cat "$2.${table%%\"*}" 2>/dev/null; }
set -euo pipefail
shift
"$@"
"""


class Machine:
    """A machine with these services running."""

    def __init__(self, directory: pathlib.Path, *running: str) -> None:
        self.directory = directory
        for name in ("runs", "etc", "ovn"):
            (directory / name).mkdir()
        for name in running:
            (directory / "runs" / name).touch()

    def run(self, function: str) -> str:
        done = subprocess.run(
            ["bash", "-c", SCRIPT, "stack.sh", str(self.directory), function],
            cwd=TOP,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stderr if done.returncode else ""

    def has(self, path: str, table: str, *rows: dict[str, object]) -> None:
        """Let the database at this path have these rows."""
        (self.directory / path).touch()
        (self.directory / f"{path}.{table}").write_text(json.dumps([{"rows": list(rows)}], separators=(",", ":")))

    @property
    def running(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "runs").iterdir())

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()


ALL = ["openvswitch-switch", "ovn-central", "ovn-host"]


def test_machine_without_open_vswitch_is_as_before(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    for _ in range(2):
        assert machine.run("note_ovn") == ""
        assert machine.run("set_up_ovn") == ""
        assert machine.running == ALL
    assert "external_ids:hostname=box external_ids:ovn-remote=tcp:127.0.0.1:6642" in machine.log
    assert machine.log.count("start ovn-host") == 1
    for _ in range(2):
        assert machine.run("remove_ovn") == ""
        assert machine.running == []
        assert [*(tmp_path / "etc").iterdir(), *(tmp_path / "ovn").iterdir()] == []
    assert not (tmp_path / "state/ovn-before").exists()


def test_open_vswitch_that_ran_before_runs_on(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path, "openvswitch-switch", "ovn-central")
    machine.has("etc/conf.db", "Bridge", {"name": "br-mine"})
    for function in ("note_ovn", "set_up_ovn", "remove_ovn"):
        assert machine.run(function) == ""
    assert machine.running == ["openvswitch-switch", "ovn-central"]
    assert (tmp_path / "etc/conf.db").exists()
    assert "stop openvswitch-switch" not in machine.log
    assert "--if-exists del-br br-int -- remove Open_vSwitch . external_ids hostname ovn-remote" in machine.log


def test_bridge_of_a_controller_that_is_part_of_no_ovn_is_taken(tmp_path: pathlib.Path) -> None:
    """The packages' service makes it when it starts."""
    machine = Machine(tmp_path, *ALL)
    machine.has("etc/conf.db", "Bridge", {"name": "br-int"})
    for function in ("note_ovn", "set_up_ovn", "remove_ovn"):
        assert machine.run(function) == ""
    assert machine.running == ALL


@pytest.mark.parametrize(("kernel", "datapath"), [(False, "netdev"), (True, "system")])
def test_datapath_is_that_of_the_kernel_if_it_has_one(tmp_path: pathlib.Path, kernel: bool, datapath: str) -> None:
    machine = Machine(tmp_path)
    if kernel:
        (tmp_path / "kernel").touch()
    machine.run("set_up_ovn")
    assert f"external_ids:ovn-bridge-datapath-type={datapath}\n" in machine.log


@pytest.mark.parametrize(
    ("path", "table", "row", "message"),
    [
        (
            "etc/conf.db",
            "Open_vSwitch",
            {"external_ids": ["map", [["ovn-remote", "tcp:10.0.0.5:6642"]]]},
            "is part of an OVN already",
        ),
        ("etc/conf.db", "Bridge", {"name": "br-int"}, "Remove it first: ovs-vsctl del-br br-int"),
        ("ovn/ovnnb_db.db", "Logical_Switch", {"name": "theirs"}, "networks of somebody else's (ovn-nbctl show)"),
        ("ovn/ovnnb_db.db", "Logical_Router", {"name": "theirs"}, "networks of somebody else's (ovn-nbctl show)"),
    ],
)
def test_ovn_of_others_is_refused_and_left_alone(
    tmp_path: pathlib.Path, path: str, table: str, row: dict[str, object], message: str
) -> None:
    running = ["openvswitch-switch", "ovn-central"]
    machine = Machine(tmp_path, *running)
    machine.has(path, table, row)
    assert message in machine.run("note_ovn")
    assert machine.run("remove_ovn") == ""
    assert machine.running == running
    assert (tmp_path / path).exists()


def test_broker_of_neutron_is_devstacks_own() -> None:
    """The broker is left as it is when it has virtual hosts of others."""
    script = """
source devstack/lib/common.sh
cd "$TOP"
source devstack/lib/rabbitmq.sh
BROKER_ETC=/nonexistent
broker_answers() { true; }
rabbitmqctl() { printf '%s\\n' / nova-lite nova-lite-cinder nova-lite-neutron $others; }
others=; broker_is_anothers; others=theirs; broker_is_anothers
"""
    done = subprocess.run(["bash", "-c", script], cwd=TOP, capture_output=True, text=True, check=True)
    assert done.stdout == "its virtual host theirs is not ours\n"
