"""A machine becomes a controller: only after root on the first controller has confirmed its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from oslo_config import cfg

from nova_lite.base import exceptions, host_certificates, join_requests, sealing
from nova_lite.base.host_certificates import CONTROLLER_CERTIFICATES
from nova_lite.base.join_requests import CONTROLLER, CONTROLLER_ROLES, confirmation_code
from nova_lite.cmd.registrar import Follower
from nova_lite.cmd.setup import cluster
from nova_lite.db.hosts import joins
from nova_lite.objects import Controller, JoinState
from nova_lite.rpc import controllers, keys, trust
from tests.support.join_site import Site
from tests.support.joining import NewHost
from tests.unit.joining.new_controllers import FIRST, NewController, ThisMachine, ask, confirm


@pytest.fixture
def first(site: Site) -> Site:
    controllers.write_members(str(site.directory), [FIRST])
    site.registrar._machine = ThisMachine()
    return site


def secrets_of(state: JoinState, machine: NewController, pem: str) -> cluster.Secrets:
    reply = trust.reply_of(state, pem, machine.body.host, machine.body.key)
    return msgspec.json.decode(sealing.unseal(machine.seal_key, reply.sealed), type=cluster.Secrets)


def test_controller_gets_nothing_before_root_confirms_its_code(first: Site) -> None:
    machine, token = NewController(), first.token()
    assert ask(first, machine.request(token)) == JoinState(state="pending")
    assert first.trusted() == {("conductor", "controller")}
    confirm(first, machine.body)
    state = ask(first, machine.request(token))
    assert secrets_of(state, machine, first.pem).cookie == "COOKIE"
    assert {("api", "h2"), ("conductor", "h2"), ("scheduler", "h2"), ("manage", "h2")} < first.trusted()


def test_code_of_other_keys_admits_nobody(first: Site) -> None:
    """Whoever holds a captured token sends other keys, whatever name it takes."""
    expected, thief, token = NewController(), NewController(), first.token()
    confirm(first, expected.body)
    assert ask(first, thief.request(token)).state == "pending"
    assert ask(first, thief.request(token)).reply == ""
    with pytest.raises(exceptions.JoinRefused, match="was used by host h2"):
        first.client.join(expected.request(token))


@pytest.mark.parametrize("name", ["message_keys", "certificate_keys", "seal_key"])
def test_each_key_changes_the_code(name: str) -> None:
    machine, other = NewController(), NewController()
    assert other.body.controller is not None
    changed = machine.changed(**{name: getattr(other.body.controller, name)})
    assert confirmation_code(changed) != confirmation_code(machine.body)
    same = msgspec.structs.replace(machine.body, sent=1.0, version="2")
    assert confirmation_code(same) == confirmation_code(machine.body)


def test_used_expired_and_revoked_tokens_give_nothing(first: Site) -> None:
    machine, thief, token = NewController(), NewController("h3"), first.token()
    confirm(first, machine.body)
    confirm(first, thief.body)
    ask(first, machine.request(token))
    with pytest.raises(exceptions.JoinRefused, match="was used by host h2"):
        first.client.join(thief.request(token))
    revoked = first.token()
    first.db.write(lambda uow: joins.revoke_token(uow, revoked.id))
    with pytest.raises(exceptions.JoinRefused, match="was revoked"):
        first.client.join(thief.request(revoked))


def test_captured_reply_has_no_secret(first: Site) -> None:
    machine, token = NewController(), first.token()
    confirm(first, machine.body)
    state = ask(first, machine.request(token))
    text = msgspec.json.encode(state).decode()
    assert not [word for word in ("COOKIE", "mysql", "secret", "PRIVATE") if word in text]
    with pytest.raises(sealing.Unreadable):
        secrets_of(state, NewController(), first.pem) if state.reply == "" else sealing.unseal(
            NewController().seal_key, trust.reply_of(state, first.pem, "h2", machine.body.key).sealed
        )


def test_certificates_name_the_machine_and_the_virtual_address(first: Site) -> None:
    machine, token = NewController(), first.token()
    confirm(first, machine.body)
    reply = trust.reply_of(ask(first, machine.request(token)), first.pem, "h2", machine.body.key)
    assert set(reply.certificates) == {f"{n}/{f}" for n in CONTROLLER_CERTIFICATES for f in ("ca-cert.pem", "cert.pem")}
    certificate = x509.load_pem_x509_certificate(reply.certificates["api/cert.pem"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["h2", "192.0.2.12", "192.0.2.1", "127.0.0.1"]
    assert reply.certificates["api/ca-cert.pem"] == first.pem
    assert reply.certificates["broker-cluster/ca-cert.pem"] == reply.certificates["database-cluster/ca-cert.pem"]
    assert reply.certificates["broker-cluster/ca-cert.pem"] != first.pem


def test_address_of_another_controller_is_refused(first: Site) -> None:
    machine, token = NewController(), first.token()
    for address, said in (("192.0.2.10", "is the address of controller ha1"), ("192.0.2.1", "is the virtual address")):
        machine.body = msgspec.structs.replace(machine.body, addresses=[address])
        confirm(first, machine.body)
        assert said in ask(first, machine.request(token)).problem
    assert first.trusted() == {("conductor", "controller")}


def test_cloud_without_a_virtual_address_says_so(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "LOCAL", tmp_path / "cluster.json")
    machine, token = NewController(), site.token()
    confirm(site, machine.body)
    assert "set it up with --virtual-address first" in ask(site, machine.request(token)).problem


def test_other_controllers_follow_the_list(first: Site, conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    directory = tmp_path / "other"
    directory.mkdir()
    (tmp_path / "ca.pem").write_text(first.pem)
    conf.set_override("keys_directory", str(directory), "rpc")
    conf.set_override("trust_address", first.address, "rpc")
    conf.set_override("trust_ca_file", str(tmp_path / "ca.pem"), "rpc")
    this_machine = ThisMachine()
    follower = Follower(conf, this_machine)
    machine, token = NewController(), first.token()
    confirm(first, machine.body)
    ask(first, machine.request(token))
    first.now += 2
    follower.tick()
    second = Controller(host="h2", address="192.0.2.12")
    assert controllers.members(str(directory)) == controllers.members(str(first.directory)) == [FIRST, second]
    assert ("api", "h2") in {(key.role, key.host) for key in keys.read_trusted(str(directory / keys.TRUSTED))}
    first.db.write(lambda uow: joins.remove_controller(uow, "h2"))
    first.accounts.problem = exceptions.ConfigurationError(reason="the broker is away")
    first.registrar.tick()
    first.accounts.problem = None
    first.registrar.tick()
    assert first.accounts.removed_controllers == ["h2"]
    first.now += 2
    follower.tick()
    assert controllers.members(str(directory)) == [FIRST]
    assert first.trusted() == {("conductor", "controller")}
    assert controllers.confirmed(str(first.directory / "hosts")) == {}
    assert this_machine.applied == 2


def test_controller_is_a_compute_host_as_well_and_each_part_is_removed_alone(first: Site) -> None:
    machine, token = NewController(), first.token()
    confirm(first, machine.body)
    assert ask(first, machine.request(token)).state == "joined"
    host, of_host = NewHost("h2"), first.token()
    first.now += 2
    assert ask(first, host.request(of_host)).state == "joined"
    assert ("compute", "h2") in first.trusted() and ("api", "h2") in first.trusted()
    first.now += 2
    assert first.client.join(machine.request(token)).reply, "A repeated request finds the controller's reply."
    first.db.write(lambda uow: joins.remove(uow, "h2"))
    first.registrar.tick()
    assert ("compute", "h2") not in first.trusted() and ("api", "h2") in first.trusted()
    assert first.accounts.removed_controllers == []
    again = first.token()
    first.now += 2
    assert ask(first, host.request(again)).state == "joined"
    first.db.write(lambda uow: joins.remove_controller(uow, "h2"))
    first.registrar.tick()
    assert first.trusted() == {("conductor", "controller"), ("compute", "h2")}
    assert first.db.read(lambda uow: joins.removal(uow, "h2", CONTROLLER)) is None
    with pytest.raises(exceptions.JoinedHostNotFound):
        first.db.write(lambda uow: joins.remove_controller(uow, "h9"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"message_keys": {}}, "message_keys have to be of manage, conductor"),
        ({"message_keys": dict.fromkeys(CONTROLLER_ROLES, "AAAA")}, "key has to be that of manage"),
        ({"certificate_keys": {}}, "certificate_keys have to be of api"),
        ({"certificate_keys": dict.fromkeys(CONTROLLER_CERTIFICATES, "x")}, "of the curve P-256"),
        ({"seal_key": "AAAA"}, "seal_key is no X25519 key"),
    ],
)
def test_request_with_wrong_keys_is_refused(changes: dict[str, Any], said: str) -> None:
    body = NewController().changed(**changes)
    with pytest.raises(exceptions.InvalidInput, match=said):
        join_requests.parse_body(msgspec.json.encode(body).decode())


def test_controller_that_sends_keys_of_a_host_is_refused() -> None:
    body = msgspec.structs.replace(NewController().body, password_hash=NewHost().body.password_hash)
    with pytest.raises(exceptions.InvalidInput, match="no password and no keys of a host"):
        join_requests.parse_body(msgspec.json.encode(body).decode())


def test_request_of_a_host_has_no_trace_of_controllers() -> None:
    """An earlier conductor stores what it knows of a request, and would take any other field for a change."""
    assert "controller" not in msgspec.json.decode(msgspec.json.encode(NewHost().body))


def test_replaced_keys_of_a_controller_end_after_an_hour_once_root_confirms_them(first: Site) -> None:
    old, new = NewController(), NewController()
    confirm(first, old.body)
    ask(first, old.request(first.token()))
    first.now += 2
    assert ask(first, new.renewal(old.key)).state == "pending"
    confirm(first, new.body)
    first.now += 2
    assert ask(first, new.renewal(old.key)).state == "joined"
    trusted = [key for key in keys.read_trusted(str(first.directory / keys.TRUSTED)) if key.host == "h2"]
    assert new.body.controller is not None
    ending = {key.role for key in trusted if key.not_after is not None}
    staying = {key.role: key.key for key in trusted if key.not_after is None}
    assert ending == set(CONTROLLER_ROLES) and staying == new.body.controller.message_keys
    assert controllers.members(str(first.directory)) == [FIRST, Controller(host="h2", address="192.0.2.12")]


def test_wrong_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(exceptions.InvalidInput, match="is no code such as"):
        controllers.confirm(str(tmp_path), "h2", "ABCD-EFGH")
    assert host_certificates.CONTROLLER_CERTIFICATES[0] == "api"
