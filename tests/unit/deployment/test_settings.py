"""Sources of devstack's settings, and refused values."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[3]


@pytest.fixture
def devstack(tmp_path: pathlib.Path) -> pathlib.Path:
    """Copy the scripts, so that a developer's own local.conf is neither read nor harmed."""
    for name in ("lib", "packaging"):
        shutil.copytree(TOP / "devstack" / name, tmp_path / "devstack" / name)
    return tmp_path / "devstack"


def settings(devstack: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = """
        source lib/common.sh
        STACKED=$TOP/stacked.env
        load_settings
        for name in "${!DEFAULTS[@]}"; do echo "$name=${!name}"; done
    """
    return subprocess.run(
        ["bash", "-c", script],
        cwd=devstack,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_defaults(devstack: pathlib.Path) -> None:
    lines = settings(devstack).stdout.split()
    assert "DATABASE=sqlite" in lines
    assert "VIRT_DRIVER=libvirt" in lines
    assert "COMPUTES=1" in lines
    assert "API_PORT=8774" in lines
    assert "AUTH=standalone" in lines


def test_the_environment_wins_over_the_file(devstack: pathlib.Path) -> None:
    (devstack / "local.conf").write_text("DATABASE=mariadb\nCOMPUTES=3\n")
    lines = settings(devstack, DATABASE="postgresql").stdout.split()
    assert "DATABASE=postgresql" in lines
    assert "COMPUTES=3" in lines


def test_a_stacked_machine_keeps_what_is_not_said_again(devstack: pathlib.Path) -> None:
    (devstack.parent / "stacked.env").write_text("DATABASE=mariadb\nCOMPUTES=3\nAPI_PORT=9000\n")
    (devstack / "local.conf").write_text("COMPUTES=4\n")
    lines = settings(devstack, API_PORT="9001").stdout.split()
    assert "DATABASE=mariadb" in lines
    assert "COMPUTES=4" in lines
    assert "API_PORT=9001" in lines
    assert "API_WORKERS=1" in lines


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE", "oracle"),
        ("VIRT_DRIVER", "xen"),
        ("COMPUTES", "0"),
        ("COMPUTES", "many"),
        ("AUTH", "ldap"),
        ("VOLUMES", "nfs"),
        ("SPICE", "1"),
        ("API_WORKERS", ""),
        ("API_PORT", "99999"),
        ("IDENTITY_PORT", "x"),
        ("IMAGE_PORT", "0"),
        ("CONCURRENCY", "asyncio"),
        ("NETWORK_CIDR", "here"),
        ("NETWORK_CIDR6", "fd00:77::/56"),
        ("NETWORK_VNI", "0"),
        ("FLOATING_CIDR", "there"),
        ("NETWORK_BRIDGE", "a-name-that-is-too-long"),
        ("BROKER_ADDRESS", "0.0.0.0"),
        ("BROKER_ADDRESS", "here"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(devstack: pathlib.Path, name: str, value: str) -> None:
    result = settings(devstack, **{name: value})
    assert result.returncode == 1
    assert result.stderr.startswith("bash: " + name + "=" + value)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("failover.sh", ["--runs", "0"]),
        ("failover.sh", ["--guests=0"]),
        ("failover.sh", ["--seed", "1", "--nemesis", "0.0"]),
        ("failover.sh", ["--alarms", "0"]),
        ("failover.sh", ["--alarms", "1", "--load", "-1"]),
        ("faults.sh", ["--pairs", "-1"]),
        ("faults.sh", ["--history", "0"]),
    ],
)
def test_script_with_a_number_that_means_nothing_is_refused_at_once(script: str, arguments: list[str]) -> None:
    done = subprocess.run(
        ["bash", str(TOP / "devstack" / script), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{script}: --") and done.stderr.endswith("must be above 0.\n")


@pytest.mark.parametrize("number", ["0", "21", "1.5", "²", "x"])
@pytest.mark.skipif(os.geteuid() != 0, reason="cluster.sh needs root")
def test_cluster_of_an_impossible_number_of_hosts_is_refused_in_one_line(number: str) -> None:
    done = subprocess.run(
        ["bash", str(TOP / "devstack/cluster.sh"), number], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"cluster.sh {number}: N must be a number from 1 to 20.\n"


def test_keystone_goes_with_one_libvirt_host(devstack: pathlib.Path) -> None:
    assert settings(devstack, AUTH="keystone", COMPUTES="2", VIRT_DRIVER="fake").returncode == 0
    result = settings(devstack, AUTH="keystone", COMPUTES="2")
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)


def test_every_setting_is_in_the_sample() -> None:
    sample = (TOP / "devstack/local.conf.sample").read_text()
    common = (TOP / "devstack/lib/common.sh").read_text()
    names = [
        line.split("]")[0].strip("[ ") for line in common.splitlines() if line.startswith("    [") and "]=" in line
    ]
    assert len(names) > 5
    for name in names:
        assert f"#{name}=" in sample


@pytest.mark.parametrize(
    ("volumes", "said"), [("local", "store_path = /state/volumes"), ("cinder", "backend = cinder")]
)
def test_hosts_share_the_files_of_volumes(devstack: pathlib.Path, volumes: str, said: str) -> None:
    """Each of several hosts has a state directory of its own, and would find no volume that another one made."""
    script = f"source lib/common.sh; source $TOP/devstack/lib/cinder.sh; STATE=/state VOLUMES={volumes}; volume_config"
    done = subprocess.run(["bash", "-c", script], cwd=devstack, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[volume]", said]


def test_volumes_in_ceph_are_configured_with_the_files_that_backups_need(devstack: pathlib.Path) -> None:
    """No key is in it: that is libvirt's."""
    script = (
        f"source lib/common.sh; source {TOP}/devstack/lib/cinder.sh; source {TOP}/devstack/lib/ceph.sh; "
        "ceph_secret_uuid() { echo some-uuid; }; STATE=/state VOLUMES=rbd; volume_config"
    )
    done = subprocess.run(["bash", "-c", script], cwd=devstack, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[volume]",
        "backend = rbd",
        "store_path = /state/volumes",
        "backup_path = /state/backups",
        "rbd_pool = volumes",
        "rbd_user = cinder",
        "rbd_ceph_conf = /etc/ceph/nova-lite.conf",
        "rbd_secret_uuid = some-uuid",
    ]


@pytest.mark.parametrize(("computes", "address"), [("1", "127.0.0.1"), ("2", "169.254.76.100")])
def test_ceph_listens_where_all_libvirt_hosts_reach_it(devstack: pathlib.Path, computes: str, address: str) -> None:
    script = f"source lib/common.sh; source {TOP}/devstack/lib/ceph.sh; VOLUMES=rbd COMPUTES={computes}; ceph_address"
    done = subprocess.run(["bash", "-c", script], cwd=devstack, capture_output=True, text=True, check=True)
    assert done.stdout == f"{address}\n"
