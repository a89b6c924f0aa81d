"""systemd units and the scripts agree on what is run, as whom, with which files."""

from __future__ import annotations

import ast
import configparser
import pathlib
import re
import shutil
import subprocess

import pytest

from nova_lite.base.timing import TIMING
from nova_lite.virt.libvirt.net import dhcp

TOP = pathlib.Path(__file__).parents[3]
UNITS = sorted((TOP / "etc/systemd").glob("*.service"))

SCRIPT = """
source devstack/lib/common.sh
cd "$TOP"
source devstack/lib/services.sh
COMPUTES=$2
AUTH=$3
VIRT_DRIVER=$4
SPICE=$5
$1
"""


def in_shell(
    command: str, computes: int = 1, auth: str = "standalone", driver: str = "libvirt", spice: str = "no"
) -> str:
    result = subprocess.run(
        ["bash", "-c", SCRIPT, "test", command, str(computes), auth, driver, spice],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def read(path: pathlib.Path) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    return unit["Service"]


def service_name(path: pathlib.Path) -> str:
    return path.stem.removeprefix("nova-lite-").replace("@", "-7")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_runs_what_the_scripts_run_without_systemd(path: pathlib.Path) -> None:
    name = service_name(path)
    assert read(path)["ExecStart"].replace("%i", "7") == in_shell(f"service_command {name}").strip()
    assert read(path).get("User", "root") == in_shell(f"service_user {name}").strip()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_waits_for_the_daemon_to_be_ready(path: pathlib.Path) -> None:
    assert read(path)["Type"] == "notify"
    assert read(path)["TimeoutStartSec"] == "infinity"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_restarts_a_daemon_that_stands_still(path: pathlib.Path) -> None:
    """A stopped process ignores the signal that aborts it, until it is killed.

    All requests need a conductor and a scheduler. Their main loops call nothing that may wait for a hypervisor.
    """
    is_central = path.stem in ("nova-lite-conductor", "nova-lite-scheduler")
    assert {"TimeoutAbortSec=5", "Restart=on-failure", "LimitCORE=0"} <= set(lines(path))
    assert read(path).get("NotifyAccess", "main") == "main"
    limit = TIMING.health.max_loop_pause
    assert float(lines(path, "WatchdogSec")[0]) == (20 if is_central else limit)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_allows_a_thousand_connections(path: pathlib.Path) -> None:
    assert int(lines(path, "LimitNOFILE")[0]) >= 10_000


#: Sandboxing options of every daemon that is not root.
CONFINED = """
NoNewPrivileges=yes PrivateTmp=yes PrivateDevices=yes PrivateUsers=yes ProtectHome=yes ProtectSystem=strict
ProtectProc=invisible ProtectClock=yes ProtectHostname=yes ProtectControlGroups=yes ProtectKernelLogs=yes
ProtectKernelModules=yes ProtectKernelTunables=yes LockPersonality=yes MemoryDenyWriteExecute=yes RemoveIPC=yes
RestrictNamespaces=yes RestrictRealtime=yes RestrictSUIDSGID=yes CapabilityBoundingSet= AmbientCapabilities=
PrivateMounts=yes SystemCallArchitectures=native SystemCallErrorNumber=EPERM SupplementaryGroups=nova-lite
"""
#: The conductor reads /proc/stat, and rabbitmqctl's runtime the machine's memory.
OWN_PROC = {"api", "scheduler", "novncproxy", "serialproxy", "spicehtml5proxy"}
#: Images are for the group of all daemons, and the list of trusted keys for all users. Other daemons write nothing.
GROUP_READS = {"api", "conductor", "registrar"}
#: And compute, which is root: it shares the machine's devices, kernel settings and modules as far as guests need them,
#: and its child qemu writes the code that it runs.
CONFINED_ROOT = """
NoNewPrivileges=yes PrivateTmp=yes ProtectHome=yes ProtectSystem=strict ProtectClock=yes ProtectHostname=yes
ProtectControlGroups=yes ProtectKernelLogs=yes LockPersonality=yes RestrictNamespaces=net RestrictRealtime=yes
RestrictSUIDSGID=yes PrivateMounts=yes SystemCallArchitectures=native DevicePolicy=closed
ReadWritePaths=/var/lib/nova-lite ReadWritePaths=-/run/nova-lite-metadata
"""
#: And the registrar, which is root: it runs rabbitmqctl as the broker's user, which writes the code that it runs.
_NOT_OF_REGISTRAR = {"PrivateUsers=yes", "MemoryDenyWriteExecute=yes", "CapabilityBoundingSet="}
CONFINED_REGISTRAR = ({*CONFINED.split()} - _NOT_OF_REGISTRAR - {"SupplementaryGroups=nova-lite"}) | {
    "ReadWritePaths=/etc/nova-lite/keys",
    "SystemCallFilter=@system-service",
}
#: Writable directories by daemon; other daemons have none.
WRITABLE = {
    "api": "-/var/lib/nova-lite/images -/var/lib/nova-lite/identity",
    "conductor": "-/var/lib/nova-lite/images -/var/lib/nova-lite/conductor -/run/nova-lite-conductor",
}
CAPABILITIES = {
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_ADMIN",
    "NET_RAW",
    # The daemon enters realms, which are network namespaces. The filter of system calls has no mount.
    "SYS_ADMIN",
    "SYS_MODULE",
}


def lines(path: pathlib.Path, name: str | None = None) -> list[str]:
    """Return the unit's lines, or the values with this name."""
    found = path.read_text().splitlines()
    return found if name is None else [line.partition("=")[2] for line in found if line.startswith(f"{name}=")]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_confines_its_daemon(path: pathlib.Path) -> None:
    name = service_name(path)
    if name.startswith("compute"):
        assert set(CONFINED_ROOT.split()) - set(lines(path)) == set()
        assert [f"/var/lib/{made}" for made in lines(path, "StateDirectory")] == [dhcp.DIRECTORY]
        assert {f"CAP_{capability}" for capability in CAPABILITIES} == set(
            lines(path, "CapabilityBoundingSet")[0].split()
        )
        assert lines(path, "SystemCallFilter") == ["@system-service init_module finit_module setns"]
        return
    assert lines(path, "ProcSubset") == ["pid"] * (name in OWN_PROC)
    assert lines(path, "UMask") == ["0027" if name in GROUP_READS else "0077"]
    if name == "registrar":
        assert CONFINED_REGISTRAR - set(lines(path)) == set()
        assert lines(path, "CapabilityBoundingSet") == ["CAP_KILL CAP_SETGID CAP_SETUID"]
        assert lines(path, "User") == [], "systemd 255 of Ubuntu 24.04 would take CAP_SETUID away"
        assert lines(path, "RestrictAddressFamilies") == ["AF_UNIX AF_INET AF_INET6"]
        return
    assert set(CONFINED.split()) - set(lines(path)) == set()
    assert lines(path, "ReadWritePaths") == [value for key, value in WRITABLE.items() if key == name]
    assert lines(path, "RestrictAddressFamilies") == ["AF_UNIX AF_INET AF_INET6"]
    again = ["sched_setaffinity"] if name == "conductor" else []
    assert lines(path, "SystemCallFilter") == ["@system-service", "~@privileged @resources", *again]
    assert lines(path, "Group") == lines(path, "User")


def families(path: pathlib.Path) -> set[str]:
    """Return the address families of the sockets that a module makes."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("AF_")}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_allows_the_sockets_that_its_daemon_makes(path: pathlib.Path) -> None:
    """Compute and the drivers of the hypervisor run in compute hosts, all other modules in any daemon."""
    of_hosts = [TOP / "nova_lite/virt", TOP / "nova_lite/compute"]
    is_host = service_name(path).startswith("compute")
    modules = [
        module
        for module in (TOP / "nova_lite").rglob("*.py")
        if is_host or not any(map(module.is_relative_to, of_hosts))
    ]
    needed = set().union(*map(families, modules))
    assert {"AF_UNIX", "AF_INET"} <= needed
    assert needed <= set(lines(path, "RestrictAddressFamilies")[0].split())


#: Modules of the conductor, of compute hosts and of commands, which have the whole of /proc.
READS_THE_MACHINE = {"daemon/cpu_affinity.py", "compute/host_boot.py", "compute/load_balancer/processes.py"}


def test_daemons_that_see_processes_alone_read_nothing_else_in_proc() -> None:
    machine = re.compile(r"""["']/proc/(?!self/|\{pid\}|\{self\._process\.pid\})""")
    readers = {
        module.relative_to(TOP / "nova_lite").as_posix()
        for module in (TOP / "nova_lite").rglob("*.py")
        if machine.search(module.read_text())
    }
    assert {path for path in readers if not path.startswith(("virt/", "cmd/setup/"))} == READS_THE_MACHINE


def test_each_daemon_has_a_user_of_its_own() -> None:
    """But for the two proxies, who are one role with one key."""
    names = ["conductor", "scheduler", "api", "novncproxy", "serialproxy", "keystone", "glance", "compute", "compute-7"]
    users = {name: in_shell(f"service_user {name}").strip() for name in names}
    assert users.pop("compute") == users.pop("compute-7") == "root"
    assert users.pop("novncproxy") == users.pop("serialproxy") == "nova-lite-console"
    assert users == {name: f"nova-lite-{name}" for name in users}
    assert "nova-lite" not in users.values(), "that is the group of all"
    assert in_shell("openstack_users") == ""
    assert set(in_shell("openstack_users", auth="keystone").split()) == {users["keystone"], users["glance"]}


def test_every_daemon_has_a_unit() -> None:
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    scripts = [line.split("=")[0].strip() for line in setup["options.entry_points"]["console_scripts"].split("\n")]
    tools = {"nova-lite", "nova-lite-manage", "nova-lite-send-disks", "nova-lite-setup", "nova-lite-status"}
    daemons = {name for name in scripts if name} - tools
    assert daemons == {path.stem.rstrip("@") for path in UNITS}


def test_database_url_is_given_to_the_conductor_only() -> None:
    assert [path.stem for path in UNITS if "conductor.conf" in read(path)["ExecStart"]] == ["nova-lite-conductor"]


@pytest.mark.parametrize(
    ("wanted", "computes", "expected"),
    [
        ("", 1, "conductor scheduler compute api novncproxy serialproxy"),
        ("all", 2, "conductor scheduler compute-1 compute-2 api novncproxy serialproxy"),
        ("compute", 1, "compute"),
        ("compute", 3, "compute-1 compute-2 compute-3"),
        ("api compute-2", 2, "api compute-2"),
    ],
)
def test_names_of_services(wanted: str, computes: int, expected: str) -> None:
    assert in_shell(f"expand_services {wanted}", computes).split() == expected.split()


@pytest.mark.parametrize(
    ("driver", "computes", "expected"), [("libvirt", 1, ""), ("libvirt", 3, "2 3"), ("fake", 3, "")]
)
def test_each_further_compute_daemon_has_a_libvirt_of_its_own(driver: str, computes: int, expected: str) -> None:
    assert in_shell("libvirt_hosts", computes, driver=driver).split() == expected.split()


def test_fake_guests_have_no_consoles() -> None:
    assert in_shell("expand_services", driver="fake").split() == ["conductor", "scheduler", "compute", "api"]


def test_proxy_of_spice_is_a_service_where_it_is_asked_for() -> None:
    assert in_shell("expand_services", spice="yes").split()[-2:] == ["serialproxy", "spicehtml5proxy"]
    assert in_shell("service_user spicehtml5proxy").strip() == "nova-lite-console"


def test_keystone_and_glance_are_services_where_they_are_asked_for() -> None:
    assert in_shell("expand_services", auth="keystone").split() == [
        "keystone",
        "glance",
        "conductor",
        "scheduler",
        "compute",
        "api",
        "novncproxy",
        "serialproxy",
    ]
    assert in_shell("service_command glance").split()[1:] == [
        "/opt/nova-lite/openstack/serve_wsgi.py",
        "glance",
        "/etc/nova-lite/glance",
    ]


@pytest.mark.parametrize(
    ("name", "computes"), [("keystone", 1), ("nosuch", 1), ("compute-2", 1), ("compute-3", 2), ("compute.", 1)]
)
def test_unknown_service_is_refused_in_one_line(name: str, computes: int) -> None:
    result = subprocess.run(
        ["bash", "-c", SCRIPT, "test", f"expand_services {name}", str(computes), "standalone", "libvirt", "no"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert f"no service {name} " in result.stderr
    assert len(result.stderr.splitlines()) == 1


#: Largest exposure of each unit by `systemd-analyze security`, from 0 to 10. Guests need root, devices, the network's
#: settings, namespaces and kernel modules of compute, and `rabbitmqctl` needs root of the registrar. All others need
#: the network and the system's files to read.
EXPOSURE = {
    "nova-lite-api": 1.1,
    "nova-lite-compute": 4.2,
    "nova-lite-compute@": 4.2,
    "nova-lite-conductor": 1.2,
    "nova-lite-novncproxy": 1.1,
    "nova-lite-registrar": 2.2,
    "nova-lite-scheduler": 1.1,
    "nova-lite-serialproxy": 1.1,
    "nova-lite-spicehtml5proxy": 1.1,
}


def test_exposure_of_each_unit_is_known() -> None:
    assert {path.stem for path in UNITS} == EXPOSURE.keys()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_is_no_more_exposed_than_it_needs(path: pathlib.Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    most = round(EXPOSURE[path.stem] * 10)
    result = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", f"--threshold={most}", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, "\n".join(line for line in result.stdout.splitlines() if "✗" in line or "→" in line)
