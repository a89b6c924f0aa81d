"""``nova-lite-manage config check``: mistakes in files, and daemons' files of a whole machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.cmd import manage
from nova_lite.conf import config_files
from tests.support.manage import Tool
from tests.support.ports import free_port

PASTE = Path(__file__).parents[3] / "etc" / "nova-lite" / "api-paste.ini"


def write(path: Path, text: str, mode: int = 0o640) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


class Machine:
    """A directory with daemons' files, whose broker is a port that no process has, and its check."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._capsys = capsys
        # Children run as this user: the users of the daemons are not on a machine without them.
        monkeypatch.setattr(manage.configuration.os, "geteuid", lambda: 1000)
        self.broker = free_port()
        self.add("nova-lite", f"[DEFAULT]\nstate_path = {path}\n[metrics]\nenabled = false\n")

    def add(self, name: str, text: str = "[DEFAULT]\n") -> None:
        own = text.replace("[DEFAULT]\n", f"[DEFAULT]\ntransport_url = rabbit://u:p@127.0.0.1:{self.broker}/\n", 1)
        write(self.path / f"{name}.conf", text if name == "nova-lite" else own)

    def problems(self) -> list[str]:
        cfg.CONF.reset()
        status = manage.main(["config", "check", "--directory", str(self.path)])
        lines = self._capsys.readouterr().out.splitlines()
        assert status == (0 if lines == ["The configuration can work."] else 1)
        return lines


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, capsys, monkeypatch)


def test_unknown_options_and_groups_are_reported_with_the_nearest_name(tool: Tool) -> None:
    tool.configure("transport_url = fake:/\nreport_intervall = 10\n[schedulr]\nhost_subset_size = 2\n")
    tool("config", "check", status=1)
    assert "[DEFAULT] has no option report_intervall; did you mean report_interval?" in tool.text
    assert "there is no group [schedulr]; did you mean scheduler?" in tool.text


@pytest.mark.parametrize(
    "line",
    [
        "[DEFAULT]\nlogdir = /var/log",  # a former name
        "[oslo_messaging_rabbit]\nheartbeat_timeout_threshold = 30",
        "[keystone_authtoken]\nauth_type = password\nusername = u\nuser_domain_name = d",
        "[mdev_nvidia-35]\nmax_instances = 2",
        "[neutron]\nauth_section = other\n[other]\nauth_type = v3token\ntoken = t",
    ],
)
def test_option_of_a_library_a_plugin_or_an_earlier_version_is_known(tmp_path: Path, line: str) -> None:
    path = str(write(tmp_path / "api.conf", line))
    assert list(config_files.unknown(path, config_files.read(path), config_files.known_options())) == []


def test_sample_configuration_has_only_known_options(tmp_path: Path) -> None:
    sample = (PASTE.parent / "nova-lite.conf").read_text().replace("\n#", "\n")
    lines = [line for line in sample.splitlines() if line.startswith("[") or (" = " in line and line[0].isalpha())]
    path = str(write(tmp_path / "nova-lite.conf", "\n".join(lines)))
    sections = config_files.read(path)
    assert len(sections) > 20
    assert list(config_files.unknown(path, sections, config_files.known_options())) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[DEFAULT]\nhost = a\nsecret\n", "line 3: No ':' or '=' found in assignment."),
        (b"[DEFAULT]\nhost = secret\xff\n", "it is not text in UTF-8."),
    ],
)
def test_file_that_cannot_be_parsed_is_reported_without_its_content(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "api.conf"
    path.write_bytes(content)
    assert list(config_files.report([str(path), str(tmp_path / "none")])) == [
        f"{path}: {problem}",
        f"{tmp_path}/none: No such file or directory.",
    ]


def test_file_with_a_secret_that_everybody_can_read_is_reported(tool: Tool) -> None:
    tool.config.chmod(0o644)
    tool("config", "check", status=1)
    assert f"every user of this machine can read [database] connection; run chmod o-rwx {tool.config}" in tool.text


def test_compute_host_is_not_asked_for_a_schema_and_names_what_it_cannot_reach(machine: Machine) -> None:
    pool = "[volume]\nbackend = rbd\nrbd_ceph_conf = /nowhere/ceph.conf\n[libvirt]\nimages_type = rbd\n"
    machine.add("compute", f"[DEFAULT]\ncompute_driver = fake\n[image]\nstore_path = /nowhere/images\n{pool}")
    problems = machine.problems()
    assert not any("db sync" in line for line in problems)
    for option in ("[volume] rbd_pool", "[libvirt] images_rbd_pool"):
        assert any(line.startswith(f"compute.conf: {option}: rbd ") for line in problems)
    assert [line for line in problems if line.startswith("compute.conf: [DEFAULT] transport_url: ")] == [
        "compute.conf: [DEFAULT] transport_url: The message broker cannot be used: "
        f"127.0.0.1:{machine.broker}: [Errno 111] Connection refused."
    ]
    assert any("[image] store_path = /nowhere/images" in line for line in problems)


def test_misspelt_strategy_and_api_are_reported_with_what_there_is(machine: Machine) -> None:
    common = f"[DEFAULT]\n[api]\nport = {free_port()}\nidentity_port = {free_port()}\npaste_config = {PASTE}\n"
    machine.add("api", common + "auth_strategy = standalon\nenabled_apis = osapi_compute\n")
    assert any(
        "auth_strategy = standalon: the paste file defines only http_basic, keystone, noauth2, standalone" in line
        for line in machine.problems()
    )
    machine.add("api", common + "enabled_apis = osapi_compute, identitty\n")
    assert any("identitty is unknown" in line and "Did you mean identity?" in line for line in machine.problems())


def test_files_of_the_spice_client_are_missed_only_where_guests_have_spice(machine: Machine) -> None:
    machine.add("spicehtml5proxy", "[DEFAULT]\nweb = /nowhere\n")
    assert not any("/nowhere" in line for line in machine.problems())
    machine.add("spicehtml5proxy", "[DEFAULT]\nweb = /nowhere\n[spice]\nenabled = true\n")
    assert any("[DEFAULT] web = /nowhere: the client's files are not there" in line for line in machine.problems())


def test_database_url_in_another_daemons_file_is_reported(machine: Machine) -> None:
    machine.add("scheduler", "[DEFAULT]\n[database]\nconnection = sqlite:////tmp/x\n")
    assert (
        f"{machine.path}/scheduler.conf: [database] connection belongs into conductor.conf; no other daemon uses the "
        "database."
    ) in machine.problems()


def test_wrong_value_is_reported_for_the_daemon_that_reads_it(machine: Machine) -> None:
    machine.add("scheduler", "[DEFAULT]\nreport_interval = often\n")
    (problem,) = machine.problems()
    assert problem.startswith("scheduler.conf: ") and "report_interval" in problem


def test_address_of_another_machine_and_port_of_a_silent_program_are_reported(machine: Machine) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        machine.add(
            "api",
            f"[DEFAULT]\n[api]\nenabled_apis = osapi_compute, identity\npaste_config = {PASTE}\nport = {port}\n"
            "identity_listen = 192.0.2.7\n",
        )
        problems = machine.problems()
    assert (
        f"api.conf: [api] port = {port}: another program has this port of 127.0.0.1, and does not answer." in problems
    )
    assert "api.conf: [api] identity_listen = 192.0.2.7: this machine has no such address." in problems


def test_tool_of_a_machine_with_a_conductor_uses_the_conductors_database(machine: Machine) -> None:
    url = f"sqlite:///{machine.path}/none/db.sqlite"
    machine.add("manage")
    assert not any("[database]" in line for line in machine.problems())
    machine.add("conductor", f"[DEFAULT]\n[database]\nconnection = {url}\n")
    found = {line.partition(":")[0] for line in machine.problems() if "[database] connection" in line}
    assert found == {"manage.conf", "conductor.conf"}


def test_directory_that_this_user_cannot_read_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add("scheduler")
    monkeypatch.setattr(manage.configuration.os, "access", lambda path, mode: path != str(machine.path))
    assert machine.problems() == [f"{machine.path}: this user cannot read it: run this as root."]


def test_directory_without_a_daemons_file_names_those_there_can_be(machine: Machine) -> None:
    (problem,) = machine.problems()
    assert "no daemon has a file here; there can be api.conf, compute.conf" in problem


def test_directory_and_identity_provider_that_do_not_answer_are_reported(machine: Machine) -> None:
    ports = f"[DEFAULT]\n[api]\nport = {free_port()}\npaste_config = {PASTE}\nenabled_apis = osapi_compute\n"
    directory = "[ldap]\nurls = ldaps://127.0.0.1:1\ndomain = corp\nuser_tree = ou=people\n"
    machine.add("api", f"{ports}{directory}[oidc]\nissuers = http://127.0.0.1:1\naudiences = cloud\n")
    problems = machine.problems()
    for option in ("[ldap] urls", "[oidc] issuers"):
        assert [line for line in problems if line.startswith(f"api.conf: {option}: ")], problems
