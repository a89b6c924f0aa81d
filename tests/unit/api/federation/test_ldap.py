"""Options, filters and failures of a directory server. tests/functional/test_ldap.py has a real one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldap3.operation.search import AND, MATCH_EQUAL, parse_filter
from ldap3.protocol.convert import prepare_filter_for_sending

from nova_lite.api.identity import directory as directory_records
from nova_lite.api.identity import external, passwords
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.domain_directory import DomainDirectory
from nova_lite.api.identity.external import ExternalGroup, ExternalUser
from nova_lite.api.identity.gate import PAUSE, Gate, UnreachableError
from nova_lite.api.identity.ldap import LdapDirectory, equals
from nova_lite.api.identity.records import Group, Project, User
from nova_lite.base import exceptions
from tests.support.api_client import make_conf
from tests.support.http_site import make_certificate
from tests.support.identity_api import World, error
from tests.support.identity_records import keyed_replica

CAROL = ExternalUser("u1", "ldap", "01", "carol", "d1", "carol@example.org", ("g1",))


def directory_of(path: Path, **options: object) -> LdapDirectory:
    lines = {"urls": "ldaps://directory", "domain": "corp", "user_tree": "ou=people", **options}
    return LdapDirectory(make_conf(path, "[ldap]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())))


# --- filters


@given(st.binary(max_size=64) | st.text(max_size=32).map(lambda text: text.encode(errors="surrogatepass")))
def test_filter_with_any_value_compares_one_attribute_with_this_value(value: bytes) -> None:
    root = parse_filter(f"(&(objectClass=person){equals('uid', value)})", None, True, True, None, False)
    (conjunction,) = root.elements
    assert (conjunction.tag, len(conjunction.elements)) == (AND, 2)
    comparison = conjunction.elements[1]
    assert (comparison.tag, comparison.elements, comparison.assertion["attr"]) == (MATCH_EQUAL, [], "uid")
    assert bytes(prepare_filter_for_sending(comparison.assertion["value"])) == value


# --- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"urls": "http://directory"}, "[ldap] urls: http://directory is not of the form"),
        ({"urls": "ldaps://directory/dc=org"}, "is not of the form"),
        ({"urls": "ldap://directory:99999"}, "[ldap] urls"),
        ({"urls": "ldap://directory", "start_tls": "false"}, "would send passwords unencrypted"),
        ({"user_tree": ""}, "[ldap] user_tree: set the DN"),
        ({"user_filter": "objectClass=person"}, "[ldap] user_filter: objectClass=person is not a filter"),
        ({"group_filter": "(objectClass=group"}, "[ldap] group_filter"),
        ({"bind_dn": "cn=reader"}, "[ldap] password_file: bind_dn needs"),
        ({"ca_file": "/nowhere/ca.pem"}, "[ldap] ca_file"),
    ],
)
def test_wrong_option_is_refused_with_one_line(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(exceptions.ConfigurationError) as refused:
        directory_of(tmp_path, **options)
    assert text in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_password_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "password"
    file.write_text("word\n")
    file.chmod(mode)
    with pytest.raises(exceptions.ConfigurationError):
        directory_of(tmp_path, bind_dn="cn=reader", password_file=file)


@pytest.mark.parametrize("domain", ["", "Default", "default"])
def test_domain_of_the_directory_is_not_the_default_domain(tmp_path: Path, domain: str) -> None:
    conf = make_conf(tmp_path, f"[ldap]\nurls = ldaps://directory\nuser_tree = ou=people\ndomain = {domain}\n")
    with pytest.raises(exceptions.ConfigurationError, match="other than the default domain"):
        DomainDirectory(conf, keyed_replica())


# --- a server that does not answer


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
def test_server_that_accepts_connections_and_is_silent_is_given_up(tmp_path: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        directory = directory_of(tmp_path, urls=url, timeout=0.1, ca_file=make_certificate(tmp_path)[0])
        with pytest.raises(exceptions.ServiceUnavailable, match="The directory of domain corp does not answer"):
            directory.find(directory.users, "uid", b"carol")
        with pytest.raises(exceptions.ServiceUnavailable):
            directory.is_password(None, "word")


def test_gate_after_a_failure_refuses_calls_for_a_while_and_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = [0.0]
    gate, ran = Gate("The directory", 1, lambda: now[0]), []

    def call(fails: bool) -> None:
        with gate.call():
            ran.append(fails)
            if fails:
                raise UnreachableError("it is down")

    for time in (0.0, PAUSE - 1, PAUSE, PAUSE + 1):
        now[0] = time
        with pytest.raises(exceptions.ServiceUnavailable):
            call(True)
    now[0] = 3 * PAUSE
    call(False)
    assert ran == [True, True, False]
    assert [record.message for record in caplog.records] == [
        "The directory cannot be used: it is down",
        "The directory answers again",
    ]


def test_gate_with_all_calls_under_way_refuses_the_next_one() -> None:
    gate = Gate("The directory", 1, wait=0.01)
    with gate.call(), pytest.raises(exceptions.ServiceUnavailable), gate.call():
        pass
    with gate.call():
        pass


# --- records


def test_record_of_a_user_is_updated_and_keeps_its_roles() -> None:
    content = Content()
    external.put_user(content, CAROL).roles["p"] = ["member"]
    assert external.is_current(content, CAROL)
    renamed = CAROL._replace(name="caroline", groups=())
    assert not external.is_current(content, renamed)
    external.put_user(content, renamed)
    assert [(user.name, user.roles) for user in content.users] == [("caroline", {"p": ["member"]})]


def test_user_with_the_name_of_an_earlier_user_gets_none_of_their_roles() -> None:
    content = Content()
    external.put_user(content, CAROL).roles["p"] = ["admin"]
    external.put_user(content, CAROL._replace(id="u2", key="02"))
    assert [(user.id, user.roles) for user in content.users] == [("u2", {})]


def test_user_with_the_name_of_a_user_of_ours_is_refused() -> None:
    content = Content(users=[User(id="ours", name="carol", password="hash", domain_id="d1")])
    with pytest.raises(exceptions.Conflict):
        external.put_user(content, CAROL)
    assert [user.id for user in content.users] == ["ours"]


def test_two_entries_of_a_list_with_one_name_replace_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf = make_conf(tmp_path, "[ldap]\nurls = ldaps://directory\nuser_tree = ou=people\ndomain = corp\n")
    replica = keyed_replica()
    directory = DomainDirectory(conf, replica)
    directory._put([CAROL, CAROL._replace(id="u2", key="02"), CAROL._replace(id="u3", name="dave")])
    assert [user.name for user in replica.content.users] == ["dave"]
    assert "two entries have this name" in caplog.text


def test_user_of_a_provider_in_the_domain_of_the_directory_has_no_password(tmp_path: Path) -> None:
    options = "auth_strategy = standalone\n[ldap]\nurls = ldaps://directory\nuser_tree = ou=people\ndomain = corp\n"
    world = World(tmp_path, dict.fromkeys(("admin", "alice"), passwords.hashed("word")), options)
    with world.users.changing() as content:
        domain = directory_records.add_domain(content, "corp")
        external.put_user(content, ExternalUser("u1", "idp/google/openid", "a@b.org", "carol", domain.id))
    for named in ({"id": "u1"}, {"name": "carol", "domain": {"name": "corp"}}):
        identity = {"methods": ["password"], "password": {"user": {**named, "password": "word"}}}
        assert error(world("POST", "/v3/auth/tokens", {"auth": {"identity": identity}}), 401)


def test_groups_of_a_source_count_until_their_time_has_passed() -> None:
    content = Content(projects=[Project(id="p", name="p")])
    external.put_group(content, ExternalGroup("g1", "ldap", "makers", "d1")).roles["p"] = ["member"]
    user = external.put_user(content, CAROL._replace(groups=("g1", "gone")))
    for frozen in (content, content.freeze()):
        assert frozen.roles_of(user, "p") == ["member"]
        assert frozen.members_of(frozen.groups[0]) == [user]
    user.external_until = 1.0
    assert (content.roles_of(user, "p"), content.groups_of(user)) == ([], [])


def test_group_of_ours_and_of_a_source_counts_once() -> None:
    user = external.put_user(content := Content(), CAROL)
    content.groups.append(Group(id="g1", name="makers", members=[user.id]))
    assert content.groups_of(user) == content.groups


def test_ids_differ_by_kind_domain_and_key() -> None:
    parts = [
        ("user", b"d", b"k"),
        ("group", b"d", b"k"),
        ("user", b"dk", b""),
        ("user", b"", b"dk"),
        ("user", b"d", b"l"),
    ]
    assert len({external.id_of(kind, *rest) for kind, *rest in parts}) == len(parts)  # type: ignore[arg-type]
