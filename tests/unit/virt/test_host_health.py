"""Signs of failing machines in the kernel's files and in smartctl's output."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.virt import host_health
from nova_lite.virt.host_health import HostChecks, MemoryErrors, Raid, Smart, Storage, Uplinks
from tests.support.clock import Clock


def write(directory: Path, files: Mapping[str, int | None]) -> None:
    """Write counters by path. None: a directory."""
    for name, value in files.items():
        path = directory / name
        if value is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")


def test_machine_without_counters_has_no_problem(tmp_path: Path) -> None:
    assert [*MemoryErrors(1, tmp_path).check(), *Raid(tmp_path).check(), *Uplinks((), 1.0, tmp_path).check()] == []


def test_uncorrected_memory_error_is_a_problem_and_corrected_ones_are_if_many_in_a_day(tmp_path: Path) -> None:
    clock, mc = Clock(), "devices/system/edac/mc/mc0"
    memory = MemoryErrors(100, tmp_path, clock)
    write(tmp_path, {f"{mc}/ue_count": 0, f"{mc}/ce_count": 5000})
    assert list(memory.check()) == [], "errors before the first look may be years old"
    write(tmp_path, {f"{mc}/ce_count": 5100})
    assert [item.text for item in memory.check()] == ["Memory controller mc0: 100 corrected errors within a day."]
    for _ in range(26):
        clock.time += 3600
        assert [item.key for item in memory.check()] in ([], ["memory/corrected/mc0"])
    assert list(memory.check()) == []
    write(tmp_path, {f"{mc}/ue_count": 2})
    (problem,) = memory.check()
    assert (problem.kind, problem.key) == ("memory", "memory/uncorrected/mc0")
    assert problem.text == "Memory controller mc0: 2 uncorrected errors since the machine's start."


def test_array_that_lacks_a_device_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, {"block/md0/md/degraded": 1, "block/md0/md/raid_disks": 2, "block/md1/md/degraded": 0})
    assert [item.text for item in Raid(tmp_path).check()] == ["RAID md0 lacks 1 of 2 devices."]


def test_card_of_a_bridge_is_a_problem_once_it_has_lost_its_link_and_a_named_one_always(tmp_path: Path) -> None:
    net = "class/net"
    write(tmp_path, {f"{net}/{name}/device": None for name in ("eth0", "eth1", "eth2")})
    write(tmp_path, {f"{net}/eth0/brport": None, f"{net}/eth1/master": None, f"{net}/eth2/carrier": 0})
    write(tmp_path, {f"{net}/eth0/carrier": 1, f"{net}/eth1/carrier": 0})
    uplinks = Uplinks(("eth3",), 1.0, tmp_path)
    assert [item.text for item in uplinks.check()] == ["Network card eth3 is missing."]
    write(tmp_path, {f"{net}/eth0/carrier": 0, f"{net}/eth3/carrier": 0})
    assert [item.text for item in uplinks.check()] == [
        "Network card eth0 has no link.",
        "Network card eth3 has no link.",
    ]


@pytest.mark.parametrize(
    ("errors", "packets", "expected"), [(9, 0, []), (10, 991, []), (10, 990, ["network/errors/a"])]
)
def test_card_whose_packets_have_errors_is_a_problem(
    tmp_path: Path, errors: int, packets: int, expected: list[str]
) -> None:
    names = ("rx_errors", "tx_errors", "rx_packets", "tx_packets")
    write(tmp_path, {f"class/net/a/statistics/{name}": 7000 for name in names} | {"class/net/a/carrier": 1})
    uplinks = Uplinks(("a",), 1.0, tmp_path)
    assert list(uplinks.check()) == []
    values = {"rx_errors": 7000 + errors, "tx_packets": 7000 + packets}
    write(tmp_path, {f"class/net/a/statistics/{name}": value for name, value in values.items()})
    assert [item.key for item in uplinks.check()] == expected


def test_disk_that_says_it_fails_is_a_problem_and_disks_are_read_once_an_hour() -> None:
    scan = [{"name": "/dev/sda", "type": "sat"}, {"name": "/dev/sdb", "type": "sat"}, {"name": "-x", "type": "sat"}]
    verdicts = {"/dev/sda": True, "/dev/sdb": False}
    calls: list[tuple[str, ...]] = []

    def run(*arguments: str) -> tuple[int, str]:
        calls.append(arguments)
        if arguments[0] == "--scan":
            return 0, json.dumps({"devices": scan})
        return 0, json.dumps({"smart_status": {"passed": verdicts[arguments[-1]]}})

    clock = Clock()
    smart = Smart(run, clock)
    assert [item.text for item in smart.check()] == ["Disk /dev/sdb says that it fails (SMART)."]
    assert calls[1:] == [("-H", "-j", "-n", "standby", "-d", "sat", name) for name in ("/dev/sda", "/dev/sdb")]
    verdicts["/dev/sdb"] = True
    assert len(smart.check()) == 1
    clock.time += host_health.SMART_INTERVAL
    assert smart.check() == []


@pytest.mark.parametrize(
    "reply", [None, (2, ""), (2, '{"devices": [{"name": "/dev/sda", "type": "sat"}]}'), (0, "[1]")]
)
def test_disk_whose_smart_cannot_be_read_is_no_problem(reply: tuple[int, str] | None) -> None:
    assert Smart(lambda *_: reply).check() == []


def test_directory_of_disks_that_works_has_no_problem_and_no_file_is_left(tmp_path: Path) -> None:
    assert Storage(str(tmp_path)).check() == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EROFS, ["is read-only."]),
        (errno.EIO, ["has errors (Input/output error)."]),
        (errno.ENOSPC, []),
        (errno.EDQUOT, []),
    ],
)
def test_directory_of_disks_with_errors_is_a_problem_unless_it_is_full(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: list[str]
) -> None:
    def fail(path: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(host_health, "probe_directory", fail)
    assert [item.text for item in Storage("/d").check()] == [f"Directory /d {text}" for text in expected]


def test_directory_of_disks_that_hangs_is_a_problem_and_no_second_probe_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(host_health.concurrency, "native_thread", lambda probe, name: begun.append(name))
    clock = Clock()
    storage = Storage("/d", clock, 0.0)
    assert storage.check() == []
    clock.time += 60
    assert [item.text for item in storage.check()] == ["Directory /d does not answer for 60 s."]
    assert begun == ["storage-health"]


def test_checks_are_those_of_the_configuration(tmp_path: Path) -> None:
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf([])
    assert [problem for problem in HostChecks(conf, str(tmp_path / "none")).check() if problem.kind == "storage"]
    conf.set_override("checks", ["memory"], "host_health")
    assert HostChecks(conf, str(tmp_path / "none")).check() == []
