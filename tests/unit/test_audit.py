"""Locked versions are compared with known vulnerabilities, by a service of this test."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
KNOWN = {("jinja2", "2.10"): [("PYSEC-2019-217", "CVE-2019-10906", "2.10.1")]}


class Service(http.server.BaseHTTPRequestHandler):
    """Service that knows `KNOWN`, and answers as osv.dev does."""

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        package = query["package"]
        vulnerabilities = [
            {
                "id": identifier,
                "aliases": [alias],
                "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": fixed}]}]}],
            }
            for identifier, alias, fixed in KNOWN.get((package["name"], query["version"]), [])
        ]
        body = json.dumps({"vulns": vulnerabilities} if vulnerabilities else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def audit(directory: Path, lock: str, url: str, accepted: str = "") -> tuple[int, list[str]]:
    (directory / "lock.txt").write_text(lock)
    (directory / "accepted").write_text(accepted)
    options = ["--osv-url", url, "--accepted", str(directory / "accepted"), str(directory / "lock.txt")]
    command = [sys.executable, str(TOP / "tools/audit.py"), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def test_old_version_fails_with_the_version_that_mends_it(tmp_path: Path, url: str) -> None:
    status, lines = audit(tmp_path, "jinja2==2.10\nmarkupsafe==3.0.3\n", url)
    assert (status, lines) == (1, ["jinja2 2.10: PYSEC-2019-217, fixed in 2.10.1"])


@pytest.mark.parametrize("name", ["PYSEC-2019-217", "CVE-2019-10906"])
def test_accepted_vulnerability_passes(tmp_path: Path, url: str, name: str) -> None:
    assert audit(tmp_path, "jinja2==2.10\n", url, f"# why\n{name} no template of a user is rendered\n")[0] == 0


def test_accepted_vulnerability_without_a_reason_fails(tmp_path: Path, url: str) -> None:
    status, lines = audit(tmp_path, "jinja2==2.10\n", url, "PYSEC-2019-217\n")
    assert status == 1
    assert lines[-1].endswith("PYSEC-2019-217 has no reason.")


def test_accepted_vulnerability_that_no_version_has_fails(tmp_path: Path, url: str) -> None:
    status, lines = audit(tmp_path, "jinja2==3.1.6\n", url, "PYSEC-2019-217 no template of a user is rendered\n")
    assert (status, lines) == (1, ["PYSEC-2019-217 is accepted, but no locked version has it"])


def test_whole_versions_pass(tmp_path: Path, url: str) -> None:
    assert audit(tmp_path, "jinja2==3.1.6\n", url)[0] == 0


def test_service_that_does_not_answer_is_named_and_fails_nothing(tmp_path: Path) -> None:
    status, lines = audit(tmp_path, "jinja2==2.10\n", "http://127.0.0.1:1/")
    assert status == 0
    assert lines[-1].startswith("NOT COMPARED with known vulnerabilities")


def test_file_that_cannot_be_read_fails(tmp_path: Path, url: str) -> None:
    assert audit(tmp_path, "jinja2>=2\n", url)[0] == 1
