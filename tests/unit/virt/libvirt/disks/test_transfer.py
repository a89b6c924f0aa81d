"""Transfer of a guest's disks between directories, and of a domain's description between hosts."""

from __future__ import annotations

import os
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.base.timing import LibvirtTiming
from nova_lite.objects import DiskFile, DiskSource, LiveDestination
from nova_lite.virt.libvirt.disks import offers, transfer
from nova_lite.virt.libvirt.domain import guest_xml, live_migration

UUID = str(uuid.uuid4())


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    return conf


@pytest.fixture
def source(conf: cfg.ConfigOpts, tmp_path: Path) -> DiskSource:
    directory = tmp_path / "source" / UUID
    directory.mkdir(parents=True)
    (directory / "disk").write_bytes(b"root disk" * 1000)
    (directory / "disk.config").write_bytes(b"config")
    (directory / "console.log").write_text("stays behind")
    return transfer.offer(conf, str(directory))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target" / UUID
    path.mkdir(parents=True)
    return path


def fetch(conf: cfg.ConfigOpts, source: DiskSource, target: Path) -> None:
    transfer.Fetcher(conf, source, UUID, str(target)).fetch()


def without_marker(source: DiskSource) -> DiskSource:
    files = [file for file in source.files if file.name != transfer.MARKER]
    return msgspec.structs.replace(source, files=files)


def test_visible_source_is_copied(conf: cfg.ConfigOpts, source: DiskSource, target: Path) -> None:
    fetch(conf, source, target)
    assert sorted(os.listdir(target)) == ["disk", "disk.config"]
    assert (target / "disk").read_bytes() == b"root disk" * 1000
    assert (target / "disk").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("wrong", ["no marker", "another marker", "a link"])
def test_directory_without_the_marker_is_fetched_over_the_network(
    conf: cfg.ConfigOpts, source: DiskSource, target: Path, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = Path(source.location, transfer.MARKER)
    if wrong == "no marker":
        marker.unlink()
    elif wrong == "another marker":
        marker.write_text("0" * 32)
    else:
        marker.rename(marker.with_name("elsewhere"))
        marker.symlink_to("elsewhere")
    commands = []
    monkeypatch.setattr(transfer, "_run", lambda command, **more: (commands.append(command), (23, "not today"))[1])
    with pytest.raises(exceptions.VirtDriverError, match="not today"):
        fetch(conf, source, target)
    (command,) = commands
    assert command[0] == "rsync"
    assert command[-3:] == ["--", f"root@{conf.my_ip}:{UUID}/disk", f"{target}/disk"]


def test_fetch_is_resumed_after_a_broken_connection(
    conf: cfg.ConfigOpts, source: DiskSource, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(12, "broken"), (255, "broken"), (0, "")])
    data = iter([b"", b"", b"root disk" * 1000])

    def run(command: list[str], **more: object) -> tuple[int, str]:
        Path(command[-1]).write_bytes(next(data))
        return next(answers)

    monkeypatch.setattr(transfer, "_run", run)
    root = msgspec.structs.replace(source, files=[file for file in source.files if file.name == "disk"])
    transfer.Fetcher(conf, root, UUID, str(target), LibvirtTiming(transfer_pause=0.0)).fetch()
    assert next(answers, None) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [DiskFile(name="../disk", size=1)]},
        {"files": [DiskFile(name="console.log", size=1)]},
        {"files": [DiskFile(name="disk", size=2**62)]},
        {"location": "/etc"},
        {"location": f"/srv/{uuid.uuid4()}"},
        {"host": "-oProxyCommand=id"},
        {"host": "a b"},
        {"driver": "fake"},
    ],
)
def test_file_outside_of_an_instance_is_rejected(
    conf: cfg.ConfigOpts, source: DiskSource, target: Path, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_run", lambda *command, **more: pytest.fail(f"{command} was run"))
    with pytest.raises(exceptions.VirtDriverError):
        fetch(conf, msgspec.structs.replace(without_marker(source), **changes), target)
    assert os.listdir(target) == []


def test_file_that_differs_from_the_offer_is_removed(conf: cfg.ConfigOpts, source: DiskSource, target: Path) -> None:
    Path(source.location, "disk").write_bytes(b"root DISK" * 1000)
    with pytest.raises(exceptions.VirtDriverError, match="not match the offer of its host"):
        fetch(conf, source, target)
    assert not (target / "disk").exists()


def test_symbolic_link_is_not_followed(conf: cfg.ConfigOpts, source: DiskSource, target: Path) -> None:
    disk = Path(source.location, "disk")
    disk.rename(disk.with_name("secret"))
    disk.symlink_to("secret")
    with pytest.raises(exceptions.VirtDriverError):
        fetch(conf, source, target)


DOMAIN = f"""
<domain type='qemu'>
  <metadata><n:instance xmlns:n='{guest_xml.NAMESPACE}'><n:host>one</n:host><n:generation>1</n:generation></n:instance>
  </metadata>
  <os><kernel>/a/_base/k</kernel><initrd>/a/_base/r</initrd></os>
  <devices>
    <disk><source file='/a/u/disk'/><backingStore><source file='/a/_base/i'/></backingStore></disk>
    <interface><source network='net' portid='p' bridge='b'/></interface>
    <serial><log file='/a/u/console.log'/></serial>
  </devices>
</domain>
"""


def test_destination_xml_describes_the_domain_at_the_destination() -> None:
    paths = {name: f"/b/{name}" for name in ("disk", "console.log", "kernel", "ramdisk")}
    there = LiveDestination(driver="libvirt", host="two", generation=7, address="192.0.2.2", paths=paths)
    xml = live_migration.destination_xml(DOMAIN, there)
    root = ET.fromstring(xml)
    assert [element.text for element in root.iterfind("metadata/*/*")] == ["two", "7"]
    assert [element.get("file") for element in root.iter() if element.get("file")] == ["/b/disk", "/b/console.log"]
    assert [root.findtext("os/kernel"), root.findtext("os/initrd")] == ["/b/kernel", "/b/ramdisk"]
    assert root.find("devices/interface/source").attrib == {"network": "net"}  # type: ignore[union-attr]
    assert "/a/" not in xml


def test_destination_xml_with_a_missing_file_is_an_error() -> None:
    there = LiveDestination(driver="libvirt", host="two", generation=7, address="192.0.2.2")
    with pytest.raises(exceptions.MigrationPreCheckError, match="has no disk ready"):
        live_migration.destination_xml(DOMAIN, there)


def test_token_of_the_source_travels_with_each_fetch(
    conf: cfg.ConfigOpts, source: DiskSource, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[dict[str, str] | None] = []

    def run(command: list[str], *descriptors: int, environment: dict[str, str] | None = None) -> tuple[int, str]:
        assert not any(source.token and source.token in word for word in command), "others can list the processes"
        assert "SendEnv=LC_NOVA_LITE_OFFER" in " ".join(command)
        runs.append(environment)
        return 0, ""

    monkeypatch.setattr(transfer, "_run", run)
    distant = msgspec.structs.replace(without_marker(source), host="192.0.2.7")
    fetcher = transfer.Fetcher(conf, distant, UUID, str(target))
    fetcher.fetch_base("image-1", str(target / "base"))
    (environment,) = runs
    assert environment is not None
    assert environment["LC_NOVA_LITE_OFFER"] == f"{UUID}:{source.token}"
    assert offers.check(os.path.dirname(source.location), environment[offers.VARIABLE], f"{UUID}/disk")
    older = transfer.Fetcher(conf, msgspec.structs.replace(distant, token=""), UUID, str(target))
    older.fetch_base("image-1", str(target / "base"))
    assert runs[-1] is None


def test_withdrawn_offer_opens_nothing(source: DiskSource) -> None:
    path, value = os.path.dirname(source.location), offers.value_of(source.location, source.token)
    assert offers.check(path, value, f"{UUID}/disk") == (source.location, "disk")
    for _ in range(2):
        transfer.withdraw(source.location)
        with pytest.raises(offers.OfferError, match="is not offered"):
            offers.check(path, value, f"{UUID}/disk")
