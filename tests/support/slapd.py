"""A real directory server (slapd of OpenLDAP) with users and groups, on free ports of loopback."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.http_site import make_certificate
from tests.support.ports import free_port, is_open
from tests.support.waiting import wait_for

SUFFIX = "dc=example,dc=org"
ROOT_DN, ROOT_PASSWORD = f"cn=admin,{SUFFIX}", "root's"
PEOPLE, GROUPS = f"ou=people,{SUFFIX}", f"ou=groups,{SUFFIX}"

_CONFIG = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {path}/slapd.pid
TLSCertificateFile {certificate}
TLSCertificateKeyFile {key}
# Accepts a bind without a password as an anonymous one, as Active Directory does.
allow bind_anon_cred
database mdb
suffix "{suffix}"
rootdn "{root_dn}"
rootpw {root_password}
directory {path}/data
maxsize 10485760
access to attrs=userPassword by anonymous auth by * none
access to * by users read by * none
"""


class Slapd:
    """The running server. ``certificate``: that of its authority. ``process``: may be stopped and continued."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        (path / "data").mkdir()
        self.certificate, key = make_certificate(path)
        self.port, self.tls_port = free_port(), free_port()
        config = path / "slapd.conf"
        config.write_text(
            _CONFIG.format(
                path=path,
                certificate=self.certificate,
                key=key,
                suffix=SUFFIX,
                root_dn=ROOT_DN,
                root_password=ROOT_PASSWORD,
            )
        )
        urls = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        urls += f" ldap://127.0.0.2:{self.port} ldaps://127.0.0.2:{self.tls_port}"
        # AppArmor of Ubuntu would confine the program at its own path to the system's directories.
        program = shutil.copy(shutil.which("slapd") or "/usr/sbin/slapd", path / "slapd")
        self.process = subprocess.Popen(
            [program, "-f", str(config), "-h", urls, "-d", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()
        self.add(SUFFIX, objectClass=["dcObject", "organization"], dc="example", o="Example")
        for dn, name in ((PEOPLE, "people"), (GROUPS, "groups")):
            self.add(dn, objectClass="organizationalUnit", ou=name)

    def add(self, dn: str, **attributes: Any) -> None:
        lines = [f"dn:: {_encoded(dn)}"]
        for name, values in attributes.items():
            for value in values if isinstance(values, list) else [values]:
                lines.append(f"{name}:: {_encoded(value)}")
        self._run("ldapadd", "\n".join(lines) + "\n")

    def add_user(self, name: str, password: str, rdn: str = "") -> str:
        """Add a user, and return the DN."""
        dn = f"uid={rdn or name},{PEOPLE}"
        more = {"mail": f"{rdn or name}@example.org", "userPassword": password}
        self.add(dn, objectClass="inetOrgPerson", uid=name, cn=name, sn=name, **more)
        return dn

    def add_group(self, name: str, *members: str) -> str:
        dn = f"cn={name},{GROUPS}"
        self.add(dn, objectClass="groupOfNames", cn=name, member=[*members])
        return dn

    def modify(self, dn: str, change: str) -> None:
        self._run("ldapmodify", f"dn: {dn}\nchangetype: modify\n{change}\n")

    def delete(self, dn: str) -> None:
        self._run("ldapdelete", f"{dn}\n")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _run(self, command: str, text: str) -> None:
        url = f"ldap://127.0.0.1:{self.port}"
        subprocess.run(
            [command, "-x", "-H", url, "-D", ROOT_DN, "-w", ROOT_PASSWORD],
            input=text,
            text=True,
            check=True,
            capture_output=True,
        )

    def _wait(self) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, "slapd has ended"
            return is_open(self.port)

        wait_for("slapd answers", answers, 60)


@contextlib.contextmanager
def running(path: Path) -> Iterator[Slapd]:
    server = Slapd(path)
    try:
        yield server
    finally:
        server.stop()


def _encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()
