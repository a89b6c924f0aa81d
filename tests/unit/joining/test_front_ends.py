"""A machine becomes a front end: only after root on the first controller has confirmed its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from oslo_config import cfg

from nova_lite.base import exceptions, join_requests, sealing
from nova_lite.base.join_requests import FRONT_ENDS, FrontEndBody, JoinBody, confirmation_code
from nova_lite.cmd.registrar import Follower
from nova_lite.cmd.setup import cluster
from nova_lite.db.hosts import joins
from nova_lite.objects import FrontEnd, JoinReply, JoinState
from nova_lite.rpc import controllers, keys, trust
from tests.support.join_site import Site
from tests.support.joining import NewHost
from tests.unit.joining.new_controllers import FIRST, NewController, ThisMachine, ask, confirm

CONTROLLER_KEY = ("conductor", "controller")


class NewFrontEnd(NewHost):
    """A machine that wants to have one role."""

    def __init__(self, role: str = "api", name: str = "h4") -> None:
        super().__init__(name)
        self.seal_key = sealing.new_private_key()
        front_end = FrontEndBody(
            role=role,
            certificate_keys=dict.fromkeys(FRONT_ENDS.get(role, ()), self.body.host_key),
            seal_key=sealing.public_key(self.seal_key),
        )
        self.body = msgspec.structs.replace(self.body, host_key="", console_key="", front_end=front_end)

    def changed(self, **changes: Any) -> JoinBody:
        assert self.body.front_end is not None
        return msgspec.structs.replace(self.body, front_end=msgspec.structs.replace(self.body.front_end, **changes))


@pytest.fixture
def first(site: Site) -> Site:
    controllers.write_members(str(site.directory), [FIRST])
    site.registrar._machine = ThisMachine()
    return site


def confirm_front_end(site: Site, body: JoinBody) -> None:
    assert body.front_end is not None
    name = controllers.front_end_name(body.front_end.role, body.host)
    controllers.confirm(str(site.directory / "hosts"), name, confirmation_code(body))


def reply_of(state: JoinState, machine: NewFrontEnd, pem: str) -> JoinReply:
    return trust.reply_of(state, pem, machine.body.host, machine.body.key)


def join(site: Site, machine: NewFrontEnd) -> JoinReply:
    token = site.token()
    confirm_front_end(site, machine.body)
    site.now += 2
    return reply_of(ask(site, machine.request(token)), machine, site.pem)


def test_front_end_gets_nothing_before_root_confirms_its_code(first: Site) -> None:
    machine, token = NewFrontEnd(), first.token()
    assert ask(first, machine.request(token)) == JoinState(state="pending")
    confirm(first, machine.body)  # A code for a controller of this name is none for a front end.
    assert ask(first, machine.request(token)).state == "pending"
    assert first.trusted() == {CONTROLLER_KEY} and first.accounts.hashes == {}
    confirm_front_end(first, machine.body)
    assert ask(first, machine.request(token)).state == "joined"


@pytest.mark.parametrize("role", FRONT_ENDS)
def test_front_end_gets_its_role_alone(first: Site, role: str) -> None:
    machine = NewFrontEnd(role)
    reply = join(first, machine)
    assert first.trusted() == {CONTROLLER_KEY, (role, "h4")}
    assert first.accounts.hashes == {f"{role} h4": machine.body.password_hash}
    assert (reply.user, reply.vhost, reply.broker) == (f"nova-lite-{role}.h4", "cloud", "192.0.2.10:5671")
    assert set(reply.certificates) == {f"{n}/{f}" for n in FRONT_ENDS[role] for f in ("ca-cert.pem", "cert.pem")}
    found = msgspec.json.decode(sealing.unseal(machine.seal_key, reply.sealed), type=cluster.FrontEndSettings)
    assert set(found.files) == {"nova-lite.conf"} and found.members == [FIRST]


def test_certificate_names_the_machine_and_the_virtual_address(first: Site) -> None:
    pem = join(first, NewFrontEnd()).certificates["api/cert.pem"]
    names = x509.load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [str(name.value) for name in names.value] == ["h4", "192.0.2.14", "192.0.2.1", "127.0.0.1"]


def test_machine_has_both_roles_and_each_is_removed_alone(first: Site) -> None:
    for role in FRONT_ENDS:
        join(first, NewFrontEnd(role))
    listed = controllers.front_ends(str(first.directory))
    assert listed == [FrontEnd(role=role, host="h4", address="192.0.2.14") for role in FRONT_ENDS]
    first.db.write(lambda uow: joins.remove_controller(uow, "h4", "api"))
    first.registrar.tick()
    assert controllers.front_ends(str(first.directory)) == listed[1:]
    assert first.trusted() == {CONTROLLER_KEY, ("console", "h4")}
    assert set(first.accounts.hashes) == {"console h4"}
    assert set(controllers.confirmed(str(first.directory / "hosts"))) == {"console h4"}
    assert first.db.read(lambda uow: joins.removal(uow, "h4", "api")) is None
    with pytest.raises(exceptions.JoinedHostNotFound):
        first.db.write(lambda uow: joins.remove_controller(uow, "h9", "api"))


def test_controllers_follow_the_list_of_front_ends(first: Site, conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    directory = tmp_path / "other"
    directory.mkdir()
    (tmp_path / "ca.pem").write_text(first.pem)
    conf.set_override("keys_directory", str(directory), "rpc")
    conf.set_override("trust_address", first.address, "rpc")
    conf.set_override("trust_ca_file", str(tmp_path / "ca.pem"), "rpc")
    this_machine = ThisMachine()
    follower = Follower(conf, this_machine)
    join(first, NewFrontEnd())
    first.now += 2
    follower.tick()
    assert controllers.front_ends(str(directory)) == controllers.front_ends(str(first.directory)) != []
    assert this_machine.applied == 1


def test_controller_is_no_front_end(first: Site) -> None:
    controller, token = NewController("h4"), first.token()
    confirm(first, controller.body)
    ask(first, controller.request(token))
    machine, token = NewFrontEnd(), first.token()
    confirm_front_end(first, machine.body)
    first.now += 2
    assert "h4 is a controller" in ask(first, machine.request(token)).problem
    assert first.accounts.hashes == {}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (NewFrontEnd("conductor").body, "role has to be one of api, console"),
        (NewFrontEnd().changed(certificate_keys={}), "certificate_keys have to be of api"),
        (NewFrontEnd().changed(seal_key="AAAA"), "seal_key is no X25519 key"),
        (msgspec.structs.replace(NewFrontEnd().body, password_hash="x"), "no salted SHA-256"),
        (msgspec.structs.replace(NewFrontEnd().body, host_key=NewHost().body.host_key), "sends no keys of a host"),
        (
            msgspec.structs.replace(NewController().body, front_end=NewFrontEnd().body.front_end),
            "a controller sends no password",
        ),
    ],
)
def test_request_with_wrong_parts_is_refused(body: JoinBody, said: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match=said):
        join_requests.parse_body(msgspec.json.encode(body).decode())


def test_request_of_others_has_no_trace_of_front_ends() -> None:
    """An earlier conductor stores what it knows of a request, and would take any other field for a change."""
    for body in (NewHost().body, NewController().body):
        assert "front_end" not in msgspec.json.decode(msgspec.json.encode(body))


# --- settings of the first controller


def test_settings_for_a_front_end_name_no_account_and_no_other_daemon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster, "CONFIGURATION", tmp_path)
    monkeypatch.setattr(cluster, "LOCAL", tmp_path / "cluster.json")
    (tmp_path / "nova-lite.conf").write_text("[DEFAULT]\nmy_ip = 192.0.2.10\n")
    for name in ("api", "novncproxy", "serialproxy", "spicehtml5proxy", "conductor", "manage"):
        (tmp_path / f"{name}.conf").write_text(f"[DEFAULT]\ntransport_url = rabbit://{name}:SECRET@h\ndebug = true\n")
    (tmp_path / "api-paste.ini").write_text("[composite:x]\n")
    for role, names in (
        (keys.API, {"nova-lite.conf", "api.conf", "api-paste.ini"}),
        (keys.CONSOLE, {"nova-lite.conf", "novncproxy.conf", "serialproxy.conf", "spicehtml5proxy.conf"}),
    ):
        found = cluster.front_end_settings(str(tmp_path), role)
        assert set(found.files) == names and (found.address, found.virtual_address) == ("192.0.2.10", "")
        assert "SECRET" not in str(found) and "debug = true" in str(found)
