"""``nova-lite-setup`` of several controllers: settings, and texts that name the controllers."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from nova_lite.base import exceptions
from nova_lite.base.host_certificates import CONTROLLER_CERTIFICATES, Authority
from nova_lite.base.join_requests import CONTROLLER_ROLES
from nova_lite.cmd import setup
from nova_lite.cmd.setup import admission, balancer, broker, cluster, controller, further, galera, machine, settings
from nova_lite.objects import Controller, FrontEnd
from nova_lite.rpc import controllers
from tests.support.manage import Tool

MEMBERS = [Controller(host=f"ha{number}", address=f"192.0.2.1{number}") for number in (1, 2, 3)]
VIRTUAL = "192.0.2.10"
ADDRESS = "192.0.2.11"


def read(*arguments: str) -> settings.Settings:
    return settings.read(setup.parser().parse_args(["controller", *arguments]))


def wanted(database: str = "mariadb") -> settings.Settings:
    return read("--address", ADDRESS, "--virtual-address", VIRTUAL, "--database", database)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have the address of the first controller at eth0."""
    listed = '[{"ifname": "lo", "addr_info": []}, {"ifname": "eth0", "addr_info": [{"local": "192.0.2.11"}]}]'
    monkeypatch.setattr(machine, "run", lambda *command, **_: listed)


# --- settings


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--virtual-address", "x", "--address", ADDRESS), "x is not an IP address"),
        (("--virtual-address", VIRTUAL), "name this machine's own address"),
        (("--virtual-address", ADDRESS, "--address", ADDRESS), "name this machine's own address"),
        (("--virtual-address", VIRTUAL, "--address", ADDRESS), "several controllers need mariadb or a URL"),
        (("--virtual-address", "2001:db8::1", "--address", ADDRESS), "of the network of address"),
        (("--virtual-address", "127.0.0.9", "--address", ADDRESS), "of the network of address"),
    ],
)
def test_wrong_virtual_address_is_named(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(exceptions.ConfigurationError) as found:
        read(*arguments)
    assert said in found.value.message


def test_clients_get_the_virtual_address_and_daemons_listen_at_their_own() -> None:
    common, api = controller._common(wanted()), controller._own(wanted(), "api")
    assert common["DEFAULT"]["my_ip"] == api["api"]["listen"] == api["api"]["join_listen"] == ADDRESS
    assert common["join"] == {"address": f"{VIRTUAL}:8780", "broker_address": f"{VIRTUAL}:5671"}
    assert set(api["identity"].values()) == {
        f"https://{VIRTUAL}:8774/v2.1",
        f"https://{VIRTUAL}:5000/v3",
        f"https://{VIRTUAL}:8776/v3",
        f"https://{VIRTUAL}:9292",
        f"https://{VIRTUAL}:9696",
    }
    assert common["oslo_messaging_rabbit"]["rabbit_quorum_queue"] == "true"
    assert common["oslo_messaging_rabbit"]["rabbit_transient_quorum_queue"] == "true"


def test_controller_alone_has_no_setting_of_several() -> None:
    alone = read("--address", ADDRESS)
    assert not {"join", "oslo_messaging_rabbit"} & set(controller._common(alone))
    assert set(controller._own(alone, "api")) == {"api"}


def test_database_is_reached_with_tls_through_the_balancer() -> None:
    url = controller._own(wanted(), "conductor")["database"]["connection"]
    assert re.fullmatch(
        r"mysql://nova_lite:[0-9a-f]{48}@127\.0\.0\.1:3307/nova_lite\?ssl_ca=/etc/openstack/nova-lite-ca\.pem",
        url,
    )
    other = "postgresql+psycopg://u:p@192.0.2.50/nova"
    assert controller._own(wanted(other), "conductor")["database"]["connection"] == other


def test_other_virtual_address_than_before_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "LOCAL", tmp_path / "cluster.json")
    monkeypatch.setattr(controller, "CONFIGURATION", tmp_path)
    controller._check_cluster(wanted())
    (tmp_path / "nova-lite.conf").write_text("")
    with pytest.raises(exceptions.ConfigurationError, match="was set up without --virtual-address"):
        controller._check_cluster(wanted())
    made = cluster.Local(host="ha1", address=ADDRESS, interface="eth0", virtual_address=VIRTUAL, has_database=True)
    cluster.write_local(made)
    assert cluster.local() == made
    controller._check_cluster(wanted())
    with pytest.raises(exceptions.ConfigurationError, match=f"was set up --virtual-address {VIRTUAL}"):
        controller._check_cluster(read("--address", ADDRESS))


def test_options_of_the_first_controller_are_refused_with_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    args = setup.parser().parse_args(["controller", "nlj1-x", "--region", "north"])
    with pytest.raises(exceptions.ConfigurationError, match="--region: a further controller gets it from the first"):
        setup._controller(args)


# --- admission


def test_join_api_that_is_away_for_a_moment_does_not_end_the_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now, answers = [0.0], [exceptions.ServiceUnavailable("no route"), exceptions.ServiceUnavailable("no route"), "ok"]

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(admission.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert admission.asked(ask, admission.PATIENCE) == "ok"
    answers = [exceptions.ServiceUnavailable("no route")] * 100
    with pytest.raises(exceptions.ConfigurationError, match="no route"):
        admission.asked(ask, admission.PATIENCE)
    assert len(answers) == 100 - 31
    answers = [exceptions.ServiceUnavailable("no route"), exceptions.JoinRefused("used"), "ok"]
    with pytest.raises(exceptions.ConfigurationError, match="no route"):
        admission.asked(ask)
    with pytest.raises(exceptions.ConfigurationError, match="used"):
        admission.asked(ask, admission.PATIENCE)


# --- texts


def haproxy(
    address: str, virtual: str, listed: list[Controller], *, has_database: bool = True, proxy_protocol: bool = True
) -> str:
    return balancer.haproxy(address, virtual, listed, has_database=has_database, proxy_protocol=proxy_protocol)


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section of HAProxy's file."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            name = line
        found.setdefault(name, []).append(line.strip())
    return found


def test_each_api_is_passed_on_to_each_controller() -> None:
    found = sections(haproxy(ADDRESS, VIRTUAL, MEMBERS))
    ports = {
        "compute": 8774,
        "identity": 5000,
        "image": 9292,
        "volume": 8776,
        "network": 9696,
        "join": 8780,
        "page": 8788,
    }
    for name, port in ports.items():
        lines = found[f"listen {name}"]
        assert f"bind {VIRTUAL}:{port} transparent" in lines
        targets = [line.split()[2] for line in lines if line.startswith("server")]
        assert targets == [f"{member.address}:{port}" for member in MEMBERS]
    assert {port for _, port in controller.APIS.values()} < set(ports.values())


def test_daemons_prefer_their_own_broker_and_all_write_to_one_database() -> None:
    found = sections(haproxy("192.0.2.12", VIRTUAL, MEMBERS))

    def order(name: str) -> list[str]:
        return [line.split()[1] for line in found[name] if line.startswith("server")]

    assert order("listen broker") == ["ha2", "ha1", "ha3"]
    assert order("listen database") == ["ha1", "ha2", "ha3"]
    servers = [line for line in found["listen database"] if line.startswith("server")]
    assert [line.endswith(" backup") for line in servers] == [False, True, True]
    assert all(" check rise 10 observe layer4 error-limit 1 on-error mark-down " in line for line in servers)
    assert "listen database" not in sections(haproxy(ADDRESS, VIRTUAL, MEMBERS, has_database=False))


def test_balancer_names_its_clients_to_the_apis() -> None:
    found = sections(haproxy(ADDRESS, VIRTUAL, MEMBERS))
    named = {name for name, lines in found.items() if any("send-proxy-v2" in line for line in lines)}
    assert named == {f"listen {name}" for name in ("compute", *balancer._APIS)}
    servers = [line for name in named for line in found[name] if line.startswith("server")]
    assert all(f"source {ADDRESS} send-proxy-v2" in line for line in servers)
    assert all("check-send-proxy" in line for line in found["listen compute"] if line.startswith("server"))
    assert "send-proxy" not in haproxy(ADDRESS, VIRTUAL, MEMBERS, proxy_protocol=False)
    assert controller._own(wanted(), "api")["api"]["proxy_protocol_from"] == "controllers"


def test_balancer_of_an_older_cloud_sends_no_header(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(controller, "CONFIGURATION", tmp_path)
    assert controller.has_proxy_protocol(True) and not controller.has_proxy_protocol(False)
    (tmp_path / "api.conf").write_text("[api]\nworkers = 1\n")
    assert not controller.has_proxy_protocol(True)
    (tmp_path / "api.conf").write_text("[api]\nproxy_protocol_from = controllers\n")
    assert controller.has_proxy_protocol(False)


def test_front_ends_serve_beside_the_controllers() -> None:
    front_ends = [
        FrontEnd(role="api", host="a1", address="192.0.2.21"),
        FrontEnd(role="console", host="c1", address="192.0.2.22"),
    ]
    text = balancer.haproxy(ADDRESS, VIRTUAL, MEMBERS, front_ends, has_database=True, proxy_protocol=True)
    found = {
        name: {line.split()[1] for line in lines if line.startswith("server")} for name, lines in sections(text).items()
    }
    of_all = {member.host for member in MEMBERS}
    for name in ("compute", *balancer._APIS):
        assert found[f"listen {name}"] == {*of_all, "a1"}
    for name in balancer._CONSOLES:
        assert found[f"listen {name}"] == {*of_all, "c1"}
    for name in ("broker", "broker-of-hosts", "database"):
        assert found[f"listen {name}"] == of_all
    assert f"server a1 192.0.2.21:5000 track compute/a1 source {ADDRESS} send-proxy-v2" in text


def test_addresses_of_ipv6_are_bracketed() -> None:
    listed = [Controller(host="ha1", address="2001:db8::11")]
    text = haproxy("2001:db8::11", "2001:db8::10", listed)
    assert "bind [2001:db8::10]:8774 transparent" in text and "server ha1 [2001:db8::11]:8774" in text
    assert "source [2001:db8::11] " in text


def test_virtual_address_stays_at_the_controller_that_has_it(links: None) -> None:
    text = balancer.keepalived(ADDRESS, balancer.interface_of(ADDRESS), VIRTUAL, MEMBERS)
    assert "interface eth0" in text and "nopreempt" in text and "priority 200" in text
    assert 'script "/usr/bin/pgrep -x haproxy"' in text and "advert_int 0.4" in text
    peers = text[text.index("unicast_peer") : text.index("virtual_ipaddress")]
    assert ADDRESS not in peers and "192.0.2.12" in peers and "192.0.2.13" in peers
    assert "unicast_peer" not in balancer.keepalived(ADDRESS, "eth0", VIRTUAL, MEMBERS[:1])
    assert all(1 <= balancer.router_id(address) <= 255 for address in ("192.0.2.0", VIRTUAL, "2001:db8::ffff"))


class Systemd:
    """Records calls of systemctl. ``units``: directory of the units."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, units: Path) -> None:
        self.units, self.calls = units, list[str]()
        for module, names in ((machine, ("UNITS",)), (balancer, ("_SOCKET", "_CHECK", "_KEEPALIVED"))):
            for name in names:
                path = units / Path(getattr(module, name)).name if name != "UNITS" else units
                monkeypatch.setattr(module, name, path)
        monkeypatch.setattr(machine, "run", lambda *command, **_: self.calls.append(" ".join(command)) or "")

    def unit(self, name: str) -> str:
        return (self.units / name).read_text()


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Systemd:
    return Systemd(monkeypatch, tmp_path / "units")


def test_socket_of_the_database_check_waits_for_no_address_and_never_ends(systemd: Systemd) -> None:
    balancer.set_up(ADDRESS, has_database=True)
    lines = systemd.unit("nova-lite-database-check.socket").splitlines()
    assert {f"ListenStream={ADDRESS}:9200", "FreeBind=yes", "TriggerLimitIntervalSec=0"} <= {*lines}
    assert systemd.calls[-1] == "systemctl restart nova-lite-database-check.socket"
    balancer.set_up(ADDRESS, has_database=True)
    assert systemd.calls[-1] == "systemctl start nova-lite-database-check.socket"
    galera.write_unit_settings()
    assert "Upholds=nova-lite-database-check.socket" in systemd.unit("mariadb.service.d/nova-lite.conf").splitlines()


def test_each_unit_that_needs_the_address_is_started_until_it_runs(systemd: Systemd) -> None:
    cluster.write_units(
        cluster.Local(host="ha1", address=ADDRESS, interface="eth0", virtual_address=VIRTUAL, has_database=True)
    )
    for name in ("haproxy", "keepalived", "mariadb", "rabbitmq-server"):
        lines = {*systemd.unit(f"{name}.service.d/nova-lite.conf").splitlines()}
        assert {"After=network-online.target", "Wants=network-online.target", "StartLimitIntervalSec=0"} <= lines, name
    assert "Restart=on-failure" in systemd.unit("mariadb.service.d/nova-lite.conf")
    lines = systemd.unit("keepalived.service.d/nova-lite.conf").splitlines()
    assert {"Restart=always", f"ExecStartPre=/bin/sh -c 'ip -brief address show to {ADDRESS} | grep -q .'"} <= {*lines}
    machine.remove_unit_settings("haproxy.service", galera.UNIT, broker.UNIT)
    assert {path.name for path in systemd.units.glob("*.d")} == {"keepalived.service.d"}


def test_address_without_an_interface_is_named(links: None) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="no interface of this machine has"):
        balancer.interface_of("192.0.2.99")


def test_node_of_a_database_starts_a_cluster_or_joins_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(galera, "_MEMBERS", tmp_path / "members.cnf")
    assert galera.write_members(ADDRESS, MEMBERS[:1])
    assert (tmp_path / "members.cnf").read_text().endswith("wsrep_cluster_address = gcomm://\n")
    galera.write_members("192.0.2.12", MEMBERS)
    assert (tmp_path / "members.cnf").read_text().endswith("gcomm://192.0.2.12,192.0.2.11,192.0.2.13\n")
    assert not galera.write_members("192.0.2.12", MEMBERS)


def test_broker_that_joins_may_pause_until_it_sees_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(program: str, *arguments: str, **options: Any) -> str:
        command = arguments[1] if program == "rabbitmqctl" else arguments[0]
        ran.append(command)
        if command == "await_startup" and ran[-2] == "enable" and "start_app" in ran:
            raise exceptions.ConfigurationError(reason="'rabbit' application not running")
        return '{"disk_nodes": []}' if command == "cluster_status" else "guest\t[]"

    monkeypatch.setattr(machine, "run", run)
    monkeypatch.setattr(broker.time, "sleep", lambda seconds: ran.append("waits"))
    assert broker.join_cluster("ha1.example") == "a node of rabbit@ha1's cluster"
    assert ran[-5:] == ["start_app", "enable", "await_startup", "waits", "await_startup"]


def test_brokers_use_tls_with_certificates_of_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_ENVIRONMENT", "_DISTRIBUTION", "_CLUSTER"):
        monkeypatch.setattr(broker, name, tmp_path / name)
    assert broker.write_cluster_settings(Path("/tls"))
    assert not broker.write_cluster_settings(Path("/tls"))
    assert "-proto_dist inet_tls" in (tmp_path / "_ENVIRONMENT").read_text()
    text = (tmp_path / "_DISTRIBUTION").read_text()
    assert text.count("{verify, verify_peer}") == 2 and "{fail_if_no_peer_cert, true}" in text
    assert "pause_minority" in (tmp_path / "_CLUSTER").read_text()
    (tmp_path / "_ENVIRONMENT").write_text("NODENAME=other\n")
    with pytest.raises(exceptions.ConfigurationError, match="is of another program"):
        broker.write_cluster_settings(Path("/tls"))


def test_names_of_controllers_are_a_block_and_other_lines_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "HOSTS", tmp_path / "hosts")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    listed = [*MEMBERS[:1], Controller(host="ha2.example.org", address="192.0.2.12")]
    assert cluster._write_names(listed)
    lines = (tmp_path / "hosts").read_text().splitlines()
    assert lines[1:3] == ["192.0.2.11 ha1", "192.0.2.12 ha2.example.org ha2"]
    assert not cluster._write_names(listed)
    cluster.remove_names()
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n"


def test_files_of_the_first_controller_keep_an_operators_changes() -> None:
    text = "# mine\n[DEFAULT]\nhost = ha1\nmy_ip = 192.0.2.11\n\n"
    text += "[api]\nlisten = 192.0.2.11\nx = 192.0.2.110\n[n]\ny=1\ny=2\n"
    values = {("DEFAULT", "host"): "ha2", ("DEFAULT", "transport_url"): "rabbit://a$b"}
    made = cluster.adapted(text, values, "192.0.2.11", "192.0.2.12").splitlines()
    assert made[:4] == ["# mine", "[DEFAULT]", "host = ha2", "my_ip = 192.0.2.12"]
    assert "listen = 192.0.2.12" in made and "x = 192.0.2.110" in made and made.count("y=2") == made.count("y=1") == 1
    assert made[-2:] == ["[DEFAULT]", "transport_url = rabbit://a$$b"]


# --- keys and certificates


def test_each_certificate_of_a_controller_has_a_place() -> None:
    assert set(further.PLACES) == set(CONTROLLER_CERTIFICATES)
    assert len({place.directory for place in further.PLACES.values()}) == len(CONTROLLER_CERTIFICATES)
    assert set(CONTROLLER_ROLES) == set(controller.KEY_OWNERS)


def test_files_that_are_sent_are_those_of_the_daemons() -> None:
    assert {f"{name}.conf" for name in controller.FILE_ROLES} < set(cluster.FILES)


def test_secrets_have_the_volume_keys_as_their_owner_reads_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The registrar is root without the capability to read files of others."""
    read_as = []

    def run(*command: str, user: str = "", **_: Any) -> str:
        read_as.append((command, user))
        return "key"

    monkeypatch.setattr(machine, "run", run)
    monkeypatch.setattr(cluster, "LOCAL", tmp_path / "cluster.json")
    monkeypatch.setattr(cluster, "VOLUME_KEYS", tmp_path / "volume-keys")
    controllers.write_members(str(tmp_path), MEMBERS[:1])
    made = cluster.Local(host="ha1", address=ADDRESS, interface="eth0", virtual_address=VIRTUAL, has_database=True)
    cluster.write_local(made)
    assert cluster.secrets(str(tmp_path)).volume_keys == ""
    (tmp_path / "volume-keys").write_text("")
    assert cluster.secrets(str(tmp_path)).volume_keys == "key"
    assert (("cat", str(tmp_path / "volume-keys")), "nova-lite-conductor") in read_as


# --- nova-lite-manage controller


@pytest.fixture
def first(tool: Tool, tmp_path: Path) -> Path:
    Authority(str(tmp_path / "keys" / "hosts")).create()
    tool.configure(f"my_ip = {ADDRESS}\n[rpc]\nkeys_directory = {tmp_path}/keys\n")
    return tmp_path / "keys"


def test_admit_stores_the_code_for_root_alone(tool: Tool, first: Path) -> None:
    controllers.write_members(str(first), MEMBERS[:2])
    assert "may become a controller" in tool("controller", "admit", "ha3", "abcd-efgh-ijkl-mnop")
    assert controllers.confirmed(str(first / "hosts")) == {"ha3": "ABCD-EFGH-IJKL-MNOP"}
    assert (first / "hosts" / controllers.CONFIRMED).stat().st_mode & 0o777 == 0o600
    listed: Any = tool.json("controller", "list")
    assert listed == [{"host": member.host, "address": member.address} for member in MEMBERS[:2]]


def test_admit_names_a_mistake(tool: Tool, first: Path) -> None:
    assert "this cloud has one controller" in tool.fails("controller", "admit", "ha2", "ABCD-EFGH-IJKL-MNOP")
    controllers.write_members(str(first), MEMBERS[:1])
    assert "is no code such as" in tool.fails("controller", "admit", "ha2", "1234")
    assert "is not a host name" in tool.fails("controller", "admit", "../x", "ABCD-EFGH-IJKL-MNOP")


def test_admit_needs_the_machine_with_the_authority(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    tool.configure(f"[rpc]\nkeys_directory = {tmp_path}/keys\n")
    controllers.write_members(str(tmp_path / "keys"), MEMBERS)
    assert "No such file or directory" in tool.fails("controller", "admit", "ha2", "ABCD-EFGH-IJKL-MNOP")


def test_log_in_waits_until_the_load_balancer_has_seen_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, answer = requests.exceptions.SSLError("closed"), requests.Response()
    results: list[Exception | requests.Response] = [closed, closed, answer]

    def post(url: str, **_: Any) -> requests.Response:
        found = results.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(requests, "post", post)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert controller._log_in("https://192.0.2.10:5000/v3/auth/tokens", {}, True) is answer
    results.append(closed)
    with pytest.raises(requests.exceptions.SSLError):
        controller._log_in("https://192.0.2.10:5000/v3/auth/tokens", {}, True, seconds=0.0)
