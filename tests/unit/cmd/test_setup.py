"""``nova-lite-setup``: its settings, and the texts that it writes. tests/integration/systemd/test_setup.py runs it."""

from __future__ import annotations

import argparse
import configparser
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd import setup
from nova_lite.cmd.setup import broker, controller, machine, settings, steps
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
    for default in ("127.0.0.1", "sqlite", "RegionOne", "nova-lite", "10.64.0.0/10"):
        assert f"default: {default}" in text
