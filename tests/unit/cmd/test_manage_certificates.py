"""``nova-lite-manage certificates``: certificates of libvirt hosts."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from nova_lite.base import exceptions
from nova_lite.base.host_certificates import CA_KEY, CERTIFICATES, KEYS, Authority
from tests.support.manage import Tool


@pytest.fixture
def directory(tool: Tool) -> Path:
    path = tool.path / "keys"
    tool.configure(f"[rpc]\nkeys_directory = {path}")
    return path / "hosts"


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def create(tool: Tool, host: str, *options: str) -> None:
    tool("certificates", "create", host, *options)


def test_certificate_names_its_host_and_addresses(tool: Tool, directory: Path) -> None:
    create(tool, "host-1", "--address", "192.0.2.1", "--address", "2001:db8::1", "--address", "one.example.org")
    authority, made = certificate(directory / "ca-cert.pem"), certificate(directory / "host-1/server-cert.pem")
    made.verify_directly_issued_by(authority)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["host-1", "one.example.org"]
    addresses = [ipaddress.ip_address(text) for text in ("192.0.2.1", "2001:db8::1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    lifetime = made.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < lifetime < datetime.timedelta(days=366)
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_encipherment, usage.key_cert_sign) == (True, True, False)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_files_have_the_names_that_qemu_expects(tool: Tool, directory: Path, tmp_path: Path) -> None:
    output = tmp_path / "pki"
    create(tool, "host-1", "--address", "192.0.2.1", "--output", str(output), "--days", "30")
    assert {path.name for path in output.iterdir()} == {"ca-cert.pem", *CERTIFICATES, *KEYS, "consoles"}
    consoles = {"ca-cert.pem", "server-cert.pem", "server-key.pem"}
    assert {path.name for path in (output / "consoles").iterdir()} == consoles
    assert (output / "ca-cert.pem").read_bytes() == (directory / "ca-cert.pem").read_bytes()
    for name in CERTIFICATES:
        key = load_pem_private_key((output / name.replace("cert", "key")).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.public_key() == certificate(output / name).public_key()


def test_private_keys_are_private(tool: Tool, directory: Path) -> None:
    create(tool, "host-1", "--address", "192.0.2.1")
    private = [directory / CA_KEY, *(directory / "host-1" / name for name in KEYS)]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700


def test_certificate_is_renewed_by_the_same_authority(tool: Tool, directory: Path) -> None:
    create(tool, "host-1", "--address", "192.0.2.1")
    authority, first = certificate(directory / "ca-cert.pem"), certificate(directory / "host-1/server-cert.pem")
    create(tool, "host-1", "--address", "192.0.2.1")
    second = certificate(directory / "host-1/server-cert.pem")
    assert certificate(directory / "ca-cert.pem") == authority
    assert second.serial_number != first.serial_number
    assert second.public_key() != first.public_key()
    second.verify_directly_issued_by(authority)


def verifies(certificate: Path, trusted: Path) -> bool:
    """Check a chain as qemu does, which ignores the purposes of certificates."""
    chain, anchors = (x509.load_pem_x509_certificates(path.read_bytes()) for path in (certificate, trusted))
    issuers = {item.subject: item for item in (*chain[1:], *anchors)}
    item = chain[0]
    while item not in anchors:
        issuer = issuers.get(item.issuer)
        if issuer is None or issuer == item:
            return False
        item.verify_directly_issued_by(issuer)
        item = issuer
    return True


def test_console_of_a_host_trusts_the_proxies_and_no_other_host(tool: Tool, directory: Path) -> None:
    for host in ("host-1", "host-2"):
        create(tool, host, "--address", "192.0.2.1")
    tool("certificates", "proxy", "proxy-1")
    trusted = directory / "host-1/consoles/ca-cert.pem"
    proxy = directory / "proxy-proxy-1"
    assert verifies(proxy / "client-cert.pem", trusted)
    assert verifies(directory / "host-1/consoles/server-cert.pem", trusted)
    for name in ("client-cert.pem", "consoles/server-cert.pem"):
        assert not verifies(directory / "host-2" / name, trusted), name
    for host in ("host-1", "host-2"):
        assert verifies(directory / host / "consoles/server-cert.pem", proxy / "ca-cert.pem")
    assert not verifies(proxy / "client-cert.pem", directory / "host-1/ca-cert.pem"), "a proxy is no host"
    assert {path.name for path in proxy.iterdir()} == {"ca-cert.pem", "client-cert.pem", "client-key.pem"}
    assert (proxy / "client-key.pem").stat().st_mode & 0o777 == 0o600


def test_host_with_a_long_name_gets_a_certificate(tool: Tool, directory: Path) -> None:
    host = "h" * 200
    create(tool, host, "--address", "192.0.2.1")
    for name in ("server-cert.pem", "consoles/server-cert.pem"):
        made = certificate(directory / host / name)
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [host]


@pytest.mark.parametrize(
    ("host", "address", "why"),
    [("../evil", "192.0.2.1", "is not a host name"), ("host-1", "192.0.2.1/24", "is not a host name")],
)
def test_invalid_names_are_refused(tool: Tool, directory: Path, host: str, address: str, why: str) -> None:
    assert why in tool.fails("certificates", "create", host, "--address", address)
    assert not directory.exists()


def test_directory_that_is_no_authority_is_an_error_of_configuration(tmp_path: Path) -> None:
    (tmp_path / CA_KEY).write_text("what")
    (tmp_path / "ca-cert.pem").write_text("what")
    authority = Authority(str(tmp_path))
    authority.create()
    with pytest.raises(exceptions.ConfigurationError, match="is no authority"):
        authority.issue("host-1", ["192.0.2.1"], str(tmp_path / "host-1"), 1)


def test_rotated_key_of_a_host_renews_its_certificates(tool: Tool, directory: Path) -> None:
    tool("keys", "create", "compute", "host-1")
    create(tool, "host-1", "--address", "192.0.2.1", "--address", "one.example.org", "--days", "90")
    names = ("server-cert.pem", "client-cert.pem", "consoles/server-cert.pem")
    before = {name: certificate(directory / "host-1" / name) for name in names}
    said = tool("keys", "rotate", "compute", "host-1")
    assert f"The certificates of host-1 in {directory}/host-1 are renewed" in said
    for name in names:
        after = certificate(directory / "host-1" / name)
        assert after.serial_number != before[name].serial_number
        for kind in (x509.SubjectAlternativeName, x509.ExtendedKeyUsage):
            found, expected = (made.extensions.get_extension_for_class(kind).value for made in (after, before[name]))
            assert found == expected
    lifetime = certificate(directory / "host-1/server-cert.pem").not_valid_after_utc - datetime.datetime.now(
        datetime.UTC
    )
    assert datetime.timedelta(days=89) < lifetime < datetime.timedelta(days=91)


def test_rotated_key_of_the_proxies_renews_their_certificate(tool: Tool, directory: Path) -> None:
    tool("keys", "create", "console", "proxy-1")
    tool("certificates", "proxy", "proxy-1")
    before = certificate(directory / "proxy-proxy-1/client-cert.pem")
    tool("keys", "rotate", "console", "proxy-1")
    assert certificate(directory / "proxy-proxy-1/client-cert.pem").serial_number != before.serial_number


@pytest.mark.parametrize("options", [("compute", "host-2"), ("api", "host-1"), ("compute", "host-1", "--stage")])
def test_rotated_key_renews_no_other_certificates(tool: Tool, directory: Path, options: tuple[str, ...]) -> None:
    for role, host in (("compute", "host-1"), ("compute", "host-2"), ("api", "host-1")):
        tool("keys", "create", role, host)
    create(tool, "host-1", "--address", "192.0.2.1")
    before = certificate(directory / "host-1/server-cert.pem")
    tool("keys", "rotate", *options)
    assert certificate(directory / "host-1/server-cert.pem") == before
    assert not (directory / "host-2").exists()


def test_list_shows_how_long_certificates_are_valid(tool: Tool, directory: Path, tmp_path: Path) -> None:
    assert tool.json("certificates", "list") == []
    create(tool, "host-1", "--address", "192.0.2.1", "--days", "90", "--output", str(tmp_path / "pki"))
    create(tool, "host-2", "--address", "192.0.2.2")
    tool("certificates", "proxy", "proxy-1")
    listed = {row["file"]: row for row in tool.json("certificates", "list")}
    expected = (
        "ca-cert.pem",
        "host-2/server-cert.pem",
        "host-2/consoles/server-cert.pem",
        "proxy-proxy-1/client-cert.pem",
    )
    assert {f"{directory}/{name}" for name in expected} < listed.keys()
    assert not any("host-1" in row["names"] for row in listed.values())
    of_host = {row["file"]: row for row in tool.json("certificates", "list", str(tmp_path / "pki"))}
    row = of_host[f"{tmp_path}/pki/server-cert.pem"]
    assert (row["names"], row["days_left"]) == ("host-1, 192.0.2.1", 89)
    (tmp_path / "pki/server-cert.pem").write_text("what")
    assert "is no certificate" in tool.fails("certificates", "list", str(tmp_path / "pki"))
