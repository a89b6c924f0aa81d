"""``nova-lite-setup``: its settings, and the texts that it writes. tests/integration/systemd/test_setup.py runs it."""

from __future__ import annotations

import argparse
import configparser
import errno
import os
from pathlib import Path

import pytest
import yaml
from oslo_config import cfg

from nova_lite.base import directory_users, exceptions
from nova_lite.base.join_requests import JoinToken
from nova_lite.cmd import setup
from nova_lite.cmd.setup import broker, controller, joining, machine, monitoring, removal, settings, steps
from nova_lite.rpc.broker import definitions


def read(*arguments: str) -> settings.Settings:
    return settings.read(setup.parser().parse_args(["controller", *arguments]))


def refused(*arguments: str) -> str:
    with pytest.raises(exceptions.ConfigurationError) as found:
        read(*arguments)
    return found.value.message


def test_defaults_are_loopback_without_tls() -> None:
    wanted = read()
    assert (wanted.address, wanted.database, wanted.has_tls) == ("127.0.0.1", "sqlite", False)
    assert wanted.url(5000) == "http://127.0.0.1:5000"
    assert read("--address", "2001:db8::1").url(5000) == "https://[2001:db8::1]:5000"


def test_flag_comes_before_the_answer(tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text("region: north\ncloud: mine\n")
    wanted = read("--answers", str(answers), "--region", "south")
    assert (wanted.region, wanted.cloud, wanted.address) == ("south", "mine", "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adress: 192.0.2.1", "unknown adress; there are address"),
        ("address: 1", "address is not text; put it in quotes"),
        ("- a", "has no settings by name"),
        ("a: [", "is not YAML"),
    ],
)
def test_mistake_in_the_answers_is_named(tmp_path: Path, text: str, said: str) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(text)
    assert said in refused("--answers", str(answers))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--address", "0.0.0.0"), "name one address of this machine"),
        (("--address", "host"), "is not an IP address"),
        (("--region", "a b"), "region: 'a b'"),
        (("--cloud", "x\n[api]"), "cloud: "),
        (("--project-ranges", "10.0.0.1/8"), "has host bits set"),
        (("--database", "sqlite:////tmp/x"), "a URL has to be of MariaDB or PostgreSQL"),
        (("--database", "mysql://a/b\nx = y"), "a URL has to be of MariaDB or PostgreSQL"),
        (("--database", "postgres"), "sqlite, mariadb, or a URL"),
    ],
)
def test_setting_that_cannot_work_is_refused(arguments: tuple[str, str], said: str) -> None:
    assert said in refused(*arguments)


def test_configuration_file_never_gets_a_line_from_a_value() -> None:
    with pytest.raises(ValueError, match="several lines"):
        machine.ini({"api": {"port": "1\n[database]"}})


def test_written_configuration_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "api.conf"
    file.write_text(machine.ini({"DEFAULT": {"transport_url": broker.url("api", "a%b/c@d")}, "api": {"port": "1"}}))
    parser = configparser.RawConfigParser(default_section="")
    parser.read(file)
    assert parser.get("api", "port") == "1"
    account = broker.account("api", "h", machine.setting(file, "DEFAULT", "transport_url"), file)
    assert (account.user, account.password) == ("nova-lite-api", "a%b/c@d")


def test_file_without_an_account_is_named(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="transport_url names no account"):
        broker.account("api", "h", "rabbit://127.0.0.1/", tmp_path / "api.conf")


def test_definitions_have_hashes_and_the_permissions_of_the_role() -> None:
    account = broker.account("scheduler", "h1", broker.url("scheduler", "secret"), Path("f"))
    made = definitions("v", [account])
    assert "secret" not in str(made)
    assert made["permissions"][0] | {"write": ""} == {
        "user": "nova-lite-scheduler",
        "vhost": "v",
        "configure": made["permissions"][0]["configure"],
        "write": "",
        "read": made["permissions"][0]["read"],
    }
    assert "scheduler" in made["permissions"][0]["configure"] and "h1" in made["permissions"][0]["configure"]


def test_failed_step_is_named_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> str:
        raise exceptions.ConfigurationError(reason="the disk is full.")

    with pytest.raises(exceptions.ConfigurationError, match=r"Doing it: the disk is full\. Correct this"):
        steps.run([steps.Step("Doing it", fail)])
    assert capsys.readouterr().out == "[ 1/1] Doing it ... failed.\n"


def test_installed_files_are_in_the_package() -> None:
    units = {path.name for path in (machine.FILES / "systemd").iterdir()}
    assert {f"nova-lite-{name}.service" for name in controller.DAEMONS} <= units
    for name in ("nova-lite/api-paste.ini", "sysusers.d/nova-lite.conf", "tmpfiles.d/nova-lite.conf"):
        assert (machine.FILES / name).is_file()


def test_users_of_units_keys_and_directories_are_those_that_are_created() -> None:
    text = (machine.FILES / "sysusers.d" / "nova-lite.conf").read_text()
    created = {line.split()[1] for line in text.splitlines() if line.startswith("u ")} | {"root"}
    assert {*controller.DAEMONS.values(), *controller.KEY_OWNERS.values()} <= created
    for name, user in controller.DAEMONS.items():
        assert f"\nUser={user}\n" in (machine.FILES / "systemd" / f"nova-lite-{name}.service").read_text()


def test_set_up_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    assert setup.main(["controller"]) == 1
    assert capsys.readouterr().err == "nova-lite-setup: this needs root.\n"


def test_help_shows_each_setting_with_its_default() -> None:
    made = argparse.ArgumentParser()
    settings.add_arguments(made)
    text = " ".join(made.format_help().split())
    for default in ("127.0.0.1", "sqlite", "RegionOne", "nova-lite", "any range"):
        assert f"default: {default}" in text


@pytest.fixture
def machine_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of a machine, and groups that exist."""
    monkeypatch.setattr(controller, "CONFIGURATION", tmp_path)
    monkeypatch.setattr(controller, "CLOUDS", tmp_path / "openstack" / "clouds.yaml")
    monkeypatch.setattr(monitoring, "DIRECTORY", tmp_path.parent / f"{tmp_path.name}-prometheus")
    monkeypatch.setattr(machine, "_group_id", lambda name: os.getgid())
    return tmp_path


def test_changed_configuration_stays(machine_files: Path) -> None:
    paste = machine_files / "api-paste.ini"
    controller._write_configuration(read())
    assert paste.read_text() == (machine.FILES / "nova-lite" / "api-paste.ini").read_text()
    files = sorted(machine_files.iterdir())
    assert paste in files and machine_files / "api.conf" in files
    for file in files:
        file.write_text(f"{file.read_text()}\n# changed\n")
    before = {file: file.read_text() for file in files}
    controller._write_configuration(read())
    assert {file: file.read_text() for file in files} == before


def test_socket_of_the_conductor_is_that_of_a_lone_controller(machine_files: Path) -> None:
    """Its directory is made at boot, and the unit may write it."""
    option = controller.configuration(read())[controller.COMMON]["rpc"]["conductor_socket"]
    directory = os.path.dirname(option)
    assert f"d {directory} " in (machine.FILES / "tmpfiles.d" / "nova-lite.conf").read_text()
    unit = (machine.FILES / "systemd" / "nova-lite-conductor.service").read_text()
    assert f" -{directory}\n" in unit
    wanted = read("--address", "192.0.2.10", "--virtual-address", "192.0.2.100", "--database", "mariadb")
    assert "conductor_socket" not in controller.configuration(wanted)[controller.COMMON]["rpc"]


def test_cloud_of_the_admin_is_in_the_chosen_region(machine_files: Path) -> None:
    controller.store_cloud(read("--region", "north"), "http://127.0.0.1:5000/v3", "secret")
    (cloud,) = yaml.safe_load(controller.CLOUDS.read_text())["clouds"].values()
    assert cloud["region_name"] == "north"
    secure = controller.CLOUDS.parent / "secure.yaml"
    assert controller.admin_password("nova-lite") == "secret"
    assert secure.stat().st_mode & 0o777 == 0o600


def test_clouds_that_are_not_yaml_are_named(machine_files: Path) -> None:
    controller.CLOUDS.parent.mkdir()
    controller.CLOUDS.write_text("clouds: [")
    with pytest.raises(exceptions.ConfigurationError, match="is not YAML"):
        controller.store_cloud(read(), "http://127.0.0.1:5000/v3", "secret")
    with pytest.raises(exceptions.ConfigurationError, match="is not YAML"):
        removal._clouds(controller.CLOUDS)


def test_dollar_of_a_password_is_read_as_it_is(tmp_path: Path) -> None:
    file, url = tmp_path / "conductor.conf", "mysql+pymysql://u:p$$w$host@h/d"
    file.write_text(machine.ini({"database": {"connection": url}}))
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.StrOpt("connection"), "database")
    conf(["--config-file", str(file)])
    assert conf.database.connection == url
    assert machine.setting(file, "database", "connection") == url


class Broker:
    """The broker's service. ``running``: the configuration that it has started with."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = directory / "conf.d" / "nova-lite.conf"
        self.running: str | None = "of the package"
        monkeypatch.setattr(broker, "_ETC", directory)
        monkeypatch.setattr(broker, "_OURS", self.file)
        monkeypatch.setattr(machine, "run", self.run)

    def run(self, *command: str, **_: object) -> str:
        if command[:2] == ("systemctl", "is-active") and self.running is None:
            raise exceptions.ConfigurationError(reason="inactive")
        if command[:2] in (("systemctl", "stop"), ("systemctl", "restart")):
            self.running = None
        if command[:2] in (("systemctl", "enable"), ("systemctl", "restart")) and self.running is None:
            self.running = self.file.read_text()
        return ""


def test_broker_listens_as_written_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, original = Broker(tmp_path, monkeypatch), machine.replace

    def interrupted(path: Path, text: str) -> bool:
        original(path, text)
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broker.listen("127.0.0.1", tmp_path)
    monkeypatch.setattr(machine, "replace", original)
    broker.listen("127.0.0.1", tmp_path)
    assert "listeners.tcp.1 = 127.0.0.1:5672" in service.file.read_text()
    assert service.running == service.file.read_text()


@pytest.mark.parametrize(
    ("files", "purge", "said"),
    [
        (False, False, "Nothing of the set-up is on this machine.\n"),
        (False, True, "Nothing of the set-up is on this machine.\n"),
        (True, False, "No daemon of the set-up is on this machine. --purge removes its files.\n"),
    ],
)
def test_removal_of_nothing_says_so_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: bool,
    purge: bool,
    said: str,
) -> None:
    for module, name in ((machine, "CONFIGURATION"), (controller, "STATE"), (monitoring, "DIRECTORY")):
        monkeypatch.setattr(module, name, tmp_path / name)
    for name in ("UNITS", "PACKAGED"):
        monkeypatch.setattr(machine, name, tmp_path / name)
    monkeypatch.setattr(broker, "_OURS", tmp_path / "broker.conf")
    if files:
        (tmp_path / "STATE").mkdir()
    removal.run(False, purge)
    assert capsys.readouterr().out == said
    if files:
        removal.run(False, True)
        (tmp_path / "STATE/images").mkdir()
        directory_users.register(str(tmp_path / "STATE/images"), "h2")
        assert capsys.readouterr().out.startswith(f"This would remove:\n  {tmp_path}/CONFIGURATION")
        removal.run(False, True)
        stays = f"This would stay:\n  {tmp_path}/STATE/images: other hosts use it: h2\nRun it again with --yes.\n"
        assert capsys.readouterr().out.endswith(stays)


# --- hosts


def test_host_is_read_from_the_token_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "h1")
    token = JoinToken.generate("127.0.0.1:8780", bytes(32))
    assert joining.read(f"{token.text()}\n", None) == (token, "h1", "127.0.0.1")


@pytest.mark.parametrize(
    ("token", "name", "address", "said"),
    [
        ("nlj1-x", "h1", None, "TOKEN: the token is incomplete"),
        ("secret", "h1", None, "a token begins with nlj1-"),
        (None, "localhost", None, "hostnamectl set-hostname NAME"),
        (None, "a b", None, "hostnamectl set-hostname NAME"),
        (None, "h1", "192.0.2.99", "192.0.2.99 is no IP address of this machine"),
        (None, "h1", "name", "name is no IP address of this machine"),
    ],
)
def test_host_that_cannot_be_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, token: str | None, name: str, address: str | None, said: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: name)
    text = token or JoinToken.generate("127.0.0.1:8780", bytes(32)).text()
    with pytest.raises(exceptions.ConfigurationError) as found:
        joining.read(text, address)
    assert said in found.value.message


def test_full_disk_is_named_with_the_file_that_did_not_fit() -> None:
    def fail() -> str:
        raise OSError(errno.ENOSPC, "No space left on device", "/etc/nova-lite/compute.conf")

    with pytest.raises(exceptions.ConfigurationError) as found:
        steps.run([steps.Step("Writing", fail)])
    assert found.value.message.startswith("Writing: /etc/nova-lite/compute.conf: No space left on device. Correct this")


def test_unit_and_users_of_a_debian_package_stay_the_only_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the files of a set-up would hide those of the next version of the package."""
    programs = tmp_path / "lib/nova-lite/controller/bin"
    monkeypatch.setattr(machine, "PACKAGED", tmp_path / "lib")
    monkeypatch.setattr(machine, "UNITS", tmp_path / "units")
    monkeypatch.setattr(machine.sys, "executable", str(programs / "python"))
    monkeypatch.setattr(machine, "run", lambda *command: "")
    packaged = tmp_path / "lib/systemd/system/nova-lite-api.service"
    packaged.parent.mkdir(parents=True)
    packaged.write_text(f"[Service]\nExecStart={programs}/nova-lite-api\n")
    (tmp_path / "lib/sysusers.d").mkdir()
    (tmp_path / "lib/sysusers.d/nova-lite-common.conf").touch()
    assert machine.install_units(["nova-lite-api", "nova-lite-scheduler"]) == ["nova-lite-scheduler"]
    assert machine.install_settings("sysusers.d") == tmp_path / "lib/sysusers.d/nova-lite-common.conf"
    assert [machine.has_unit(f"nova-lite-{name}") for name in ("api", "scheduler", "conductor")] == [True, True, False]
    packaged.write_text("[Service]\nExecStart=/usr/lib/nova-lite/controller/bin/nova-lite-api\n")
    assert machine.install_units(["nova-lite-api"]) == ["nova-lite-api"], "another installation is in use"
