"""``nova-lite-setup api`` and ``console``: files of a machine with one role. ``nova-lite-manage frontend``."""

from __future__ import annotations

import grp
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.base.host_certificates import Authority
from nova_lite.cmd import setup
from nova_lite.cmd.setup import admission, cluster, front_end, machine
from nova_lite.cmd.setup.joining import Host
from nova_lite.objects import FrontEnd, JoinReply
from nova_lite.rpc import controllers
from tests.support.joining import make_token
from tests.support.manage import Tool

ADDRESS = "192.0.2.21"
COMMON = "[DEFAULT]\nmy_ip = 192.0.2.11\nhost = ha1\n[rpc]\nkeys_directory = /etc/nova-lite/keys\n"
API = "[DEFAULT]\ntransport_url = \n# mine\n[api]\nlisten = 192.0.2.11\n"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> front_end.FrontEndSetup:
    """Return a set-up of an API whose request was accepted."""
    monkeypatch.setattr(front_end, "CONFIGURATION", tmp_path)
    own = grp.getgrgid(0).gr_name
    monkeypatch.setattr(machine, "_group_id", lambda name: grp.getgrnam(own).gr_gid)
    made = front_end.FrontEndSetup("api", Host(make_token(), "a1", ADDRESS))
    admission.make_memory(tmp_path / "join-api.json", "a1")
    made._reply = JoinReply(
        host="a1", key="", broker="192.0.2.10:5671", vhost="nova-lite", user="nova-lite-api.a1", settings={},
        certificates={},
    )  # fmt: skip
    made._settings = cluster.FrontEndSettings(
        address="192.0.2.11",
        virtual_address="192.0.2.10",
        files={"nova-lite.conf": COMMON, "api.conf": API, "api-paste.ini": "[x]\n"},
        members=[],
    )
    return made


def test_files_have_the_machines_own_name_address_and_account(
    prepared: front_end.FrontEndSetup, tmp_path: Path
) -> None:
    prepared.write_configuration()
    password = admission.memory(tmp_path / "join-api.json")
    assert password is not None
    api, common = (tmp_path / "api.conf").read_text(), tmp_path / "nova-lite.conf"
    assert f"transport_url = rabbit://nova-lite-api.a1:{password.password}@192.0.2.10:5671/nova-lite\n# mine" in api
    assert f"listen = {ADDRESS}" in api and "192.0.2.11" not in api
    assert machine.setting(common, "DEFAULT", "host") == "a1" and machine.setting(common, "DEFAULT", "my_ip") == ADDRESS
    assert machine.setting(common, "oslo_messaging_rabbit", "ssl_ca_file") == "/etc/openstack/nova-lite-ca.pem"
    assert machine.setting(tmp_path / "registrar.conf", "rpc", "trust_address") == "192.0.2.10:8780"
    assert not (tmp_path / "conductor.conf").exists()
    assert (tmp_path / "api.conf").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "join-api.json").stat().st_mode & 0o777 == 0o600


def test_file_that_is_no_file_of_the_role_is_refused(prepared: front_end.FrontEndSetup, tmp_path: Path) -> None:
    assert prepared._settings is not None
    prepared._settings.files["conductor.conf"] = "[database]\nconnection = x\n"
    with pytest.raises(exceptions.ConfigurationError, match="sent an unknown file: 'conductor"):
        prepared.write_configuration()
    assert not (tmp_path / "conductor.conf").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("conductor.conf", "is a controller, which has this role already"),
        ("compute.conf", "is a compute host already"),
        ("api.conf", "was made by hand. Move it away"),
    ],
)
def test_machine_that_has_another_part_is_refused(
    prepared: front_end.FrontEndSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (tmp_path / "join-api.json").unlink()
    (tmp_path / name).write_text("")
    monkeypatch.setattr(front_end.settings, "has_systemd", lambda: True)
    monkeypatch.setattr(front_end.settings.sys, "executable", str(tmp_path / "python"))
    for program in ("api", "registrar"):
        (tmp_path / f"nova-lite-{program}").write_text("")
    with pytest.raises(exceptions.ConfigurationError, match=said):
        prepared.check_machine()


def test_each_role_is_a_command() -> None:
    for role in front_end.KINDS:
        args = setup.parser().parse_args([role, "nlj1-x", "--address", ADDRESS])
        assert (args.run, args.command) == (setup._front_end, role)


# --- nova-lite-manage frontend


@pytest.fixture
def first(tool: Tool, tmp_path: Path) -> Path:
    Authority(str(tmp_path / "keys" / "hosts")).create()
    tool.configure(f"my_ip = 192.0.2.11\n[rpc]\nkeys_directory = {tmp_path}/keys\n")
    return tmp_path / "keys"


def test_admit_confirms_a_role_of_a_machine(tool: Tool, first: Path) -> None:
    assert "may serve as api" in tool("frontend", "admit", "api", "a1", "abcd-efgh-ijkl-mnop")
    assert controllers.confirmed(str(first / "hosts")) == {"api a1": "ABCD-EFGH-IJKL-MNOP"}
    assert "is not a host name" in tool.fails("frontend", "admit", "api", "../x", "ABCD-EFGH-IJKL-MNOP")


def test_list_shows_machines_with_one_role(tool: Tool, first: Path) -> None:
    controllers.write_front_ends(str(first), [FrontEnd(role="console", host="c1", address="192.0.2.22")])
    assert tool.json("frontend", "list") == [{"role": "console", "host": "c1", "address": "192.0.2.22"}]


def test_remove_names_an_unknown_machine(tool: Tool, first: Path) -> None:
    tool("db", "sync")
    assert "a9" in tool.fails("frontend", "remove", "api", "a9")
