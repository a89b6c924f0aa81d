"""The compute daemon as a process, over a real broker: both concurrency modes, failures, kills, stops."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for

CREATES = 6


@pytest.fixture(scope="module", params=["threading", "eventlet"])
def mode_cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Two compute hosts; every daemon in one of the two modes."""
    path = tmp_path_factory.mktemp(request.param)
    with cloud.running(path, computes=2, environment={"NOVA_LITE_CONCURRENCY": request.param}) as running:
        yield running


@pytest.fixture
def tidy_mode(mode_cloud: Cloud) -> Iterator[Cloud]:
    yield mode_cloud
    for host in mode_cloud.computes:
        mode_cloud.control_host(host)
        if host not in mode_cloud.processes:
            mode_cloud.start(host)
    mode_cloud.wait_until_ready()
    mode_cloud.delete_all()
    # A host that does not count as up yet clears away after its servers are gone for their owner.
    wait_for("hosts are empty", lambda: not mode_cloud.domains() and not leftovers(mode_cloud))
    mode_cloud.audit()


def leftovers(running: Cloud) -> list[str]:
    return [
        str(path)
        for host in running.computes
        for kind in ("domains", "disks", "vifs")
        for path in (running.path / host / "instances" / f"fake-{host}" / kind).iterdir()
    ]


def both(running: Cloud, **control: object) -> None:
    for host in running.computes:
        running.control_host(host, **control)


@pytest.mark.parametrize(("step", "error"), [("spawn_after_domain", "virt"), ("image", "image")])
def test_a_host_that_fails_is_left_for_the_other(tidy_mode: Cloud, step: str, error: str) -> None:
    """Whatever is wrong with it: a store that is not mounted looks like an image that is gone."""
    broken, other = tidy_mode.computes
    tidy_mode.control_host(broken, fail_at=[step], fail_error=error)
    ids = tidy_mode.create(count=4)
    tidy_mode.wait_active(ids)
    assert tidy_mode.domains() == dict.fromkeys(ids, other)


def test_a_failure_that_aborts_says_why_and_releases_everything(tidy_mode: Cloud) -> None:
    both(tidy_mode, fail_at=["spawn_before_domain"], fail_error="abort")
    (server_id,) = tidy_mode.create(count=1)
    server = tidy_mode.wait_settled([server_id])[server_id]
    assert server["status"] == "ERROR"
    assert "configured to fail at spawn_before_domain" in server["fault"]["message"]
    assert leftovers(tidy_mode) == []


def is_at(running: Cloud, host: str, step: str) -> bool:
    if step == "spawn_after_domain":
        return host in running.domains().values()
    return ": building generation" in running.log(host, 10000)


@pytest.mark.parametrize("step", ["plug_vifs", "spawn_before_domain", "spawn_after_domain"])
def test_builds_interrupted_by_a_kill_end_after_the_restart(tidy_mode: Cloud, step: str) -> None:
    both(tidy_mode, delays={step: 3})
    ids = tidy_mode.create(count=CREATES)
    victim = tidy_mode.computes[0]
    wait_for("a build is at that step", lambda: is_at(tidy_mode, victim, step))
    tidy_mode.kill(victim)
    both(tidy_mode)
    tidy_mode.start(victim)
    tidy_mode.wait_active(ids)
    assert set(tidy_mode.domains()) == set(ids)


def test_a_delete_during_the_build_ends_it_soon(tidy_mode: Cloud) -> None:
    both(tidy_mode, delays={"spawn_before_domain": 2})
    tidy_mode.create(count=3)
    wait_for("builds are on their way", lambda: leftovers(tidy_mode))
    tidy_mode.delete_all()
    assert leftovers(tidy_mode) == []


def test_a_stopped_daemon_finishes_its_build_and_ends_with_0(tidy_mode: Cloud) -> None:
    both(tidy_mode, delays={"spawn_before_domain": 2})
    ids = tidy_mode.create(count=2)
    wait_for("a build is on its way", lambda: leftovers(tidy_mode))
    for host in tidy_mode.computes:
        assert tidy_mode.stop(host) == 0
    assert set(tidy_mode.domains()) == set(ids)
    tidy_mode.wait_active(ids)


def test_guests_outlive_the_daemon_and_can_be_used_after_its_restart(tidy_mode: Cloud) -> None:
    (server_id,) = tidy_mode.create(count=1)
    host = tidy_mode.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"]
    tidy_mode.kill(host)
    tidy_mode.start(host)
    tidy_mode.wait_until_ready()
    assert tidy_mode.domains() == {server_id: host}
    assert tidy_mode.action(server_id, {"os-stop": None}).status_code == 202
    assert tidy_mode.wait_settled([server_id])[server_id]["status"] == "SHUTOFF"
    output = tidy_mode.action(server_id, {"os-getConsoleOutput": {}}).json()["output"]
    assert f"nova-lite-guest: instance={server_id}" in output


def test_a_second_daemon_of_the_same_host_waits(tidy_mode: Cloud) -> None:
    host = tidy_mode.computes[0]
    second = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.compute", *tidy_mode.config_arguments(host)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert second.stdout is not None
        line = next(line for line in second.stdout if "cannot start yet" in line)
        assert f"Another nova-lite-compute is running as host {host}" in line
    finally:
        second.terminate()
        assert second.wait(20) == 0


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("compute_driver = hyperv", "compute_driver: unknown hyperv"),
        ("[image]\nbackend = swift", "[image] backend: unknown swift"),
        ("state_path = /proc/nowhere", "state_path cannot be used"),
    ],
)
def test_a_wrong_setting_ends_it_with_one_line_and_1(tidy_mode: Cloud, setting: str, words: str) -> None:
    extra = tidy_mode.path / "extra.conf"
    extra.write_text(setting if setting.startswith("[") else f"[DEFAULT]\n{setting}\nhost = nobody\n")
    if setting.startswith("["):
        extra.write_text(f"[DEFAULT]\nhost = nobody\n{setting}\n")
    with extra.open("a") as file:
        file.write("\n[rpc]\nsigning = off\n")  # this host has no key, which would be said first
    arguments = [*tidy_mode.config_arguments(tidy_mode.computes[0]), "--config-file", str(extra)]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.compute", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("nova-lite-compute: ")]
    assert words in line
    assert "Traceback" not in ended.stderr
