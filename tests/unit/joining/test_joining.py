"""A machine joins with a token, gets what a host needs, and follows the list of trusted keys."""

from __future__ import annotations

import datetime
import errno
import io
import os
import time
import types
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from oslo_config import cfg

from nova_lite.api.http import deploy, wsgi
from nova_lite.base import exceptions, host_certificates
from nova_lite.base.host_certificates import HOST_FILES, Authority
from nova_lite.cmd.manage.keys import provide_key
from nova_lite.cmd.setup import admission
from nova_lite.compute.api import API
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import JoinedHost, PublishedTrust
from nova_lite.db.hosts import joins
from nova_lite.objects import JoinReply, JoinState, TrustList
from nova_lite.policies.enforcer import Policy
from nova_lite.rpc import keys, trust
from nova_lite.rpc.trust import JoinClient, TrustUpdater
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.http_site import HttpSite
from tests.support.join_site import Site
from tests.support.joining import NewHost


def join(site: Site, host: NewHost) -> JoinReply:
    token = site.token()
    assert site.client.join(host.request(token)).state == "pending"
    site.registrar.tick()
    state = site.client.join(host.request(token))
    return trust.reply_of(state, site.pem, host.body.host, host.body.key)


def remove(site: Site, host: str) -> None:
    site.db.write(lambda uow: joins.remove(uow, host))
    site.registrar.tick()


def test_host_gets_account_certificates_and_trust(site: Site) -> None:
    host = NewHost()
    reply = join(site, host)
    assert (reply.user, reply.vhost, reply.broker) == ("nova-lite-compute.h1", "cloud", "192.0.2.10:5671")
    assert site.accounts.hashes == {"h1": host.body.password_hash}
    assert site.trusted() == {("conductor", "controller"), ("compute", "h1")}
    assert set(reply.certificates) == set(HOST_FILES)
    certificate = x509.load_pem_x509_certificate(reply.certificates["server-cert.pem"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["h1", "192.0.2.11"]
    assert reply.settings["vnc"]["server_listen"] == "192.0.2.11"
    spice = reply.settings["spice"]
    assert (spice["enabled"], spice["server_listen"]) == ("false", "192.0.2.11")


def test_reply_holds_no_secret_of_the_cloud(site: Site) -> None:
    text = msgspec.json.encode(join(site, NewHost())).decode()
    assert "PRIVATE" not in text and "rabbit://" not in text and "sqlite" not in text


def test_reply_that_another_signed_or_that_is_for_another_key_is_refused(site: Site, tmp_path: Path) -> None:
    host, other = NewHost(), NewHost("h2")
    token = site.token()
    site.client.join(host.request(token))
    site.registrar.tick()
    state = site.client.join(host.request(token))
    stranger = Authority(str(tmp_path / "stranger"))
    stranger.create()
    with pytest.raises(exceptions.InvalidInput, match="not signed by the cloud's authority"):
        trust.reply_of(state, stranger.services_certificate(), "h1", host.body.key)
    with pytest.raises(exceptions.InvalidInput, match="not signed"):
        changed = msgspec.structs.replace(state, reply=state.reply.replace("192.0.2.10", "192.0.2.66"))
        trust.reply_of(changed, site.pem, "h1", host.body.key)
    with pytest.raises(exceptions.InvalidInput, match="for another host"):
        trust.reply_of(state, site.pem, "h1", other.body.key)


def test_signed_list_is_no_reply(site: Site) -> None:
    site.registrar.tick()
    listed = site.client.trust()
    assert listed is not None
    with pytest.raises(exceptions.InvalidInput, match="not signed"):
        trust.reply_of(JoinState(state="joined", reply=listed.content, signature=listed.signature), site.pem, "h", "k")


def test_registrar_that_cannot_do_its_work_says_why_and_does_it_later(site: Site) -> None:
    host, token = NewHost(), site.token()
    site.client.join(host.request(token))
    site.accounts.problem = exceptions.ConfigurationError(reason="rabbitmqctl failed: the node is down")
    site.registrar.tick()
    assert site.client.join(host.request(token)).problem == "rabbitmqctl failed: the node is down"
    site.accounts.problem = None
    site.registrar.tick()
    assert site.client.join(host.request(token)).state == "joined"


def test_host_whose_name_has_a_key_already_waits_for_the_operator(site: Site) -> None:
    provide_key(str(site.directory), keys.COMPUTE, "h1", "root")
    host, token = NewHost(), site.token()
    site.client.join(host.request(token))
    site.registrar.tick()
    assert "another key of compute on h1 is trusted" in site.client.join(host.request(token)).problem
    assert site.accounts.hashes == {}


def test_replaced_key_of_a_host_ends_after_an_hour(site: Site) -> None:
    old, new = NewHost(), NewHost()
    join(site, old)
    site.client.join(new.renewal(old.key))
    site.registrar.tick()
    state = site.client.join(new.renewal(old.key))
    assert trust.reply_of(state, site.pem, "h1", new.body.key).key == new.body.key
    entries = {entry.key: entry for entry in keys.read_trusted(str(site.directory / keys.TRUSTED))}
    ending = entries[old.body.key].not_after
    assert ending is not None and 3500 < (ending - keys.now()).total_seconds() <= 3600
    assert entries[new.body.key].not_after is None
    assert site.accounts.hashes == {"h1": new.body.password_hash}
    third = NewHost()
    site.client.join(third.renewal(new.key))
    site.registrar.tick()
    assert site.client.join(third.renewal(new.key)).state == "joined"


def test_rotation_that_was_interrupted_for_long_goes_on_with_the_next_key(site: Site, tmp_path: Path) -> None:
    old, new = NewHost(), NewHost()
    join(site, old)
    site.client.join(new.renewal(old.key))
    site.registrar.tick()
    hour_ago = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(hours=1, seconds=1)
    site.db.write(lambda uow: uow.change(sa.update(JoinedHost).values(updated_at=hour_ago)))
    present, following = tmp_path / "present", tmp_path / "following"
    for path, key in ((present, old.key), (following, new.key)):
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    text = new.renewal(old.key).body
    assert admission.renewed(site.client, text, present, following).state == "joined"
    with pytest.raises(exceptions.ConfigurationError, match="The token is not valid"):
        admission.renewed(site.client, text, present, present)


def test_host_joins_again_with_a_token_of_a_controller_that_has_the_database_and_another_authority(
    site: Site, db: Database, conductor: ConductorRPC, conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    host = NewHost()
    join(site, host)
    moved = Site(conf, db, conductor, tmp_path / "second")
    moved.registrar.tick()
    reply = join(moved, host)
    listed = moved.client.trust()
    moved.stop()
    assert reply.user == "nova-lite-compute.h1" and moved.accounts.hashes == {"h1": host.body.password_hash}
    assert listed is not None
    assert {(entry.role, entry.host) for entry in trust.keys_of(listed, moved.pem)} >= {("compute", "h1")}


# --- the list of trusted keys


def test_hosts_follow_new_and_revoked_keys(site: Site, tmp_path: Path) -> None:
    host_keys = tmp_path / "of_host"
    host_keys.mkdir()
    updater = TrustUpdater(str(host_keys), site.client, site.pem)

    def names() -> set[str]:
        return {entry.host for entry in keys.read_trusted(str(host_keys / keys.TRUSTED))}

    join(site, NewHost())
    assert updater.update() and names() == {"controller", "h1"}
    assert not updater.update()
    provide_key(str(site.directory), keys.SCHEDULER, "second", "root")
    site.registrar.tick()
    site.now += 2
    assert updater.update() and names() == {"controller", "h1", "second"}
    remove(site, "h1")
    site.now += 2
    assert updater.update() and names() == {"controller", "second"}
    assert site.accounts.hashes == {}
    assert os.stat(host_keys / keys.TRUSTED).st_mode & 0o777 == 0o644


def test_list_that_is_older_altered_or_anothers_is_refused(site: Site, tmp_path: Path) -> None:
    site.registrar.tick()
    old = site.client.trust()
    provide_key(str(site.directory), keys.SCHEDULER, "second", "root")
    site.registrar.tick()
    site.now += 2
    new = site.client.trust()
    assert old is not None and new is not None and new.serial > old.serial
    trust.write(str(tmp_path), new, site.pem)
    stranger = Authority(str(tmp_path / "stranger"))
    stranger.create()
    wrong: list[tuple[TrustList, str]] = [
        (old, "older than the present one"),
        (msgspec.structs.replace(new, content=new.content.replace("second", "secont")), "not signed"),
        (msgspec.structs.replace(old, serial=new.serial + 1), "another number"),
        (trust.signed_list(stranger, [], new.serial), "not signed"),
    ]
    for listed, said in wrong:
        with pytest.raises(exceptions.InvalidInput, match=said):
            trust.write(str(tmp_path), listed, site.pem)
    assert {entry.host for entry in keys.read_trusted(str(tmp_path / keys.TRUSTED))} == {"controller", "second"}


def test_registrar_publishes_again_after_the_database_was_restored(site: Site) -> None:
    site.registrar.tick()
    first = site.client.trust()
    site.db.write(lambda uow: uow.session.execute(sa.delete(PublishedTrust)))
    site.now += 31
    site.registrar.tick()
    second = site.client.trust()
    assert first is not None and second is not None and second.serial > first.serial


# --- the API


def test_client_believes_no_other_certificate(site: Site, tmp_path: Path) -> None:
    stranger = Authority(str(tmp_path / "stranger"))
    stranger.create()
    with pytest.raises(exceptions.ServiceUnavailable, match="wrong certificate"):
        JoinClient(site.address, stranger.services_certificate()).trust()
    unchecked = JoinClient(site.address)
    site.registrar.tick()
    found = unchecked.trust()
    assert found is not None
    assert host_certificates.fingerprint(found.authority) == host_certificates.fingerprint(site.pem)


def test_host_with_a_wrong_clock_is_admitted_by_the_same_token_once_it_is_set(site: Site) -> None:
    host, token = NewHost(), site.token()
    with pytest.raises(
        exceptions.JoinRefused, match=r"clock of h1 is 90 s behind the controller's; 30 s are allowed\."
    ):
        site.client.join(host.request(token, sent=time.time() - 90))
    assert site.client.join(host.request(token)).state == "pending"
    site.registrar.tick()
    assert site.client.join(host.request(token)).state == "joined"


def test_certificate_that_is_not_valid_by_this_machines_clock_is_one_line_about_it(site: Site, tmp_path: Path) -> None:
    site.registrar.tick()
    site.authority.issue_service("controller", ["127.0.0.1"], str(tmp_path), 0)  # The certificate has ended.
    server = HttpSite(site.app, tls=(str(tmp_path / "server-cert.pem"), str(tmp_path / "server-key.pem")))
    try:
        token = site.token()._replace(address=f"127.0.0.1:{server.address[1]}")
        said = r"^127\.0\.0\.1:\d+ has a wrong certificate: certificate has expired\. Check this machine's clock\.$"
        with pytest.raises(exceptions.ConfigurationError, match=said):
            admission.reach(token)
    finally:
        server.stop()


def test_client_names_an_address_without_a_join_api(site: Site) -> None:
    with pytest.raises(exceptions.ServiceUnavailable, match=r"127\.0\.0\.1:1 cannot be reached: Connection refused"):
        JoinClient("127.0.0.1:1", site.pem).trust()


def test_list_that_was_not_published_yet_is_unavailable(site: Site) -> None:
    with pytest.raises(exceptions.ServiceUnavailable, match="look at nova-lite-registrar"):
        site.client.trust()
    site.registrar.tick()
    site.now += 2
    assert site.client.trust() is not None


@pytest.mark.parametrize("away", ["no conductor answers", "the schema is another"])
def test_cloud_whose_conductor_is_away_is_one_line_and_serves_the_last_list(
    site: Site, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    site.registrar.tick()
    listed = site.client.trust()

    def fail(*_arguments: object) -> None:
        raise exceptions.MessagingUnavailable(away)

    site.app._services = types.SimpleNamespace(conductor=types.SimpleNamespace(trust_get=fail, host_join=fail))  # type: ignore[assignment]
    site.now += 2
    assert listed is not None and site.client.trust() == listed
    with pytest.raises(exceptions.ServiceUnavailable, match=away):
        site.client.join(NewHost().request(site.token()))


def test_host_without_room_goes_on_with_its_list(
    site: Site, conf: cfg.ConfigOpts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.registrar.tick()
    (tmp_path / "ca.pem").write_text(site.pem)
    conf.set_override("trust_address", site.address, "rpc")
    conf.set_override("trust_ca_file", str(tmp_path / "ca.pem"), "rpc")
    before = (site.directory / keys.TRUSTED).read_text()

    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "trusted.json")

    monkeypatch.setattr(keys, "write_trusted", fail)
    update = trust.updater(conf)
    assert update is not None
    update()
    assert "previous list of trusted keys: [Errno 28] No space left on device: 'trusted.json'" in caplog.text
    assert (site.directory / keys.TRUSTED).read_text() == before


@pytest.mark.parametrize("changes", [{"trust_ca_file": None}, {"trust_ca_file": "/nowhere"}, {"trust_address": "x"}])
def test_wrong_settings_of_the_list_are_named(site: Site, conf: cfg.ConfigOpts, changes: dict[str, str]) -> None:
    (site.directory / "ca.pem").write_text(site.pem)
    for name, value in (
        {"trust_address": site.address, "trust_ca_file": str(site.directory / "ca.pem")} | changes
    ).items():
        conf.set_override(name, value, "rpc")
    with pytest.raises(exceptions.ConfigurationError, match=r"\[rpc\] trust_"):
        trust.updater(conf)


def test_refused_request_has_the_reason_for_the_holder_of_the_token(site: Site) -> None:
    token = site.token()
    site.client.join(NewHost("h0").request(token))
    with pytest.raises(exceptions.JoinRefused, match="was used by host h0"):
        site.client.join(NewHost().request(token))


def test_requests_of_one_client_are_limited(site: Site) -> None:
    request = NewHost().request(site.token(), token="0" * 16)
    for _ in range(60):
        with pytest.raises(exceptions.JoinRefused, match="The token is not valid"):
            site.client.join(request)
    with pytest.raises(exceptions.ServiceUnavailable, match="more than 60 requests within a minute"):
        site.client.join(request)
    site.now += 61
    with pytest.raises(exceptions.JoinRefused):
        site.client.join(request)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", b"", 404),
        ("GET", "/v1/hosts", b"", 405),
        ("POST", "/v1/trust", b"{}", 405),
        ("POST", "/v1/hosts", b"", 400),
        ("POST", "/v1/hosts", b"[]", 400),
        ("POST", "/v1/hosts", b'{"token": 1}', 400),
        ("POST", "/v1/hosts", b"\xff", 400),
        ("POST", "/v1/hosts", b" " * 40000, 400),
    ],
)
def test_request_that_is_none_is_refused(site: Site, method: str, path: str, body: bytes, status: int) -> None:
    statuses = []
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "REMOTE_ADDR": "192.0.2.1",
        "wsgi.input": io.BytesIO(body),
        "CONTENT_LENGTH": str(len(body)),
        "SERVER_NAME": "x",
        "SERVER_PORT": "1",
        "wsgi.url_scheme": "https",
    }
    content = b"".join(site.app(environ, lambda line, headers: statuses.append(line)))
    assert statuses[0].startswith(str(status)) and b'"message"' in content


def test_join_api_is_loaded_before_the_bus_is_there(conf: cfg.ConfigOpts) -> None:
    conf.set_override("paste_config", str(Path(__file__).parents[3] / "etc" / "nova-lite" / "api-paste.ini"), "api")
    assert deploy.load_app("join", wsgi.ApiServices(conf, Policy(conf), API())) is not None


def test_host_gets_the_kind_of_the_clouds_queues(site: Site, conf: cfg.ConfigOpts) -> None:
    """A queue has one kind: a host that declares another does not start."""
    assert "oslo_messaging_rabbit" not in join(site, NewHost()).settings
    conf.set_override("rabbit_quorum_queue", True, "oslo_messaging_rabbit")
    conf.set_override("rabbit_transient_quorum_queue", True, "oslo_messaging_rabbit")
    section = join(site, NewHost("h2")).settings["oslo_messaging_rabbit"]
    assert section == {
        "ssl": "true",
        "ssl_ca_file": "/etc/nova-lite/ca.pem",
        "rabbit_quorum_queue": "true",
        "rabbit_transient_quorum_queue": "true",
    }
