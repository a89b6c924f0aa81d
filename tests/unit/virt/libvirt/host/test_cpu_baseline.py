"""``[libvirt] cpu_mode = baseline``: new guests get the CPU of the host's aggregates."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.host import cpu_model, guest_cpus
from nova_lite.virt.libvirt.host.cpu_model import CpuModel
from tests.unit.virt.libvirt.processors import CAPABILITIES, DOMAIN_CAPABILITIES, INCOMPATIBLE, Libvirt


@pytest.fixture
def connection() -> Libvirt:
    return Libvirt()


@pytest.fixture
def driver(conf: cfg.ConfigOpts, tmp_path: Path, connection: Libvirt, monkeypatch: pytest.MonkeyPatch) -> LibvirtDriver:
    conf.set_override("state_path", str(tmp_path))
    conf.set_override("cpu_mode", "baseline", "libvirt")
    made = LibvirtDriver(conf, "one", lambda image, path: None)
    made.machine.cpus = guest_cpus.GuestCpus(connection, "kvm", DOMAIN_CAPABILITIES, CAPABILITIES)  # type: ignore[arg-type]
    return made


def test_baseline_mode_starts_with_the_hosts_model_and_has_no_flags(conf: cfg.ConfigOpts) -> None:
    conf.set_override("cpu_mode", "baseline", "libvirt")
    assert cpu_model.choose(conf, "kvm", DOMAIN_CAPABILITIES) == CpuModel("host-model")
    conf.set_override("cpu_model_extra_flags", ["vmx"], "libvirt")
    with pytest.raises(exceptions.ConfigurationError, match="do not go with cpu_mode = baseline"):
        cpu_model.choose(conf, "kvm", DOMAIN_CAPABILITIES)
    conf.set_override("cpu_model_extra_flags", [], "libvirt")
    conf.set_override("cpu_models", ["Nehalem"], "libvirt")
    with pytest.raises(exceptions.ConfigurationError, match="go with cpu_mode = custom"):
        cpu_model.choose(conf, "kvm", DOMAIN_CAPABILITIES)


def test_new_guests_follow_the_baseline_of_the_hosts_aggregates(driver: LibvirtDriver, connection: Libvirt) -> None:
    found = ["Haswell +avx2 -pcid"]
    driver.cpu_baseline = lambda: found[-1]
    driver.machine.follow_baseline()
    haswell = CpuModel("custom", "Haswell", {"avx2": "require", "pcid": "disable"})
    assert driver.machine.properties.cpu == haswell
    compared = len(connection.named("compareHypervisorCPU"))
    driver.machine.follow_baseline()
    assert len(connection.named("compareHypervisorCPU")) == compared == 1, "an unchanged baseline costs nothing"
    found.append("Nehalem")
    driver.machine.follow_baseline()
    assert driver.machine.properties.cpu == CpuModel("custom", "Nehalem")


def test_host_that_lacks_the_baseline_refuses_new_guests(driver: LibvirtDriver, connection: Libvirt) -> None:
    driver.cpu_baseline = lambda: "Icelake-Server"
    connection.failures["compareHypervisorCPU"] = INCOMPATIBLE
    for _ in range(2):
        with pytest.raises(exceptions.VirtDriverError, match=r"cannot run the CPU baseline Icelake-Server: .* avx512f"):
            driver.machine.follow_baseline()


def test_host_without_a_baseline_says_so_and_uses_its_own_model(
    driver: LibvirtDriver, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            driver.machine.follow_baseline()
    assert driver.machine.properties.cpu == CpuModel("host-model")
    assert [record.message for record in caplog.records if "baseline" in record.message] == [
        "No aggregate of host one has a CPU baseline: guests get the host's model"
    ]


def test_other_modes_query_no_baseline(driver: LibvirtDriver, conf: cfg.ConfigOpts) -> None:
    def query() -> Any:
        raise AssertionError

    driver.cpu_baseline = query
    conf.set_override("cpu_mode", None, "libvirt")
    driver.machine.follow_baseline()
    assert driver.machine.properties.cpu is None
