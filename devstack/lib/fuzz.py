"""Rounds of schemathesis against a cloud, by several users. Run by devstack/fuzz.sh in schemathesis's environment:

fuzz.py DIRECTORY AUTH_URL REQUESTS SEED      status 1 when an answer was wrong
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import yaml
from sessions import Session

HERE = Path(__file__).resolve().parent
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "no_leak",
)
#: Requests per operation and round, besides the boundary values of its schemas.
EXAMPLES = 10
FLAVOR = "fuzz"


class Party(NamedTuple):
    name: str
    session: Session
    mark: str  # in the names of all that is made for it

    def environment(self, other: Party | None) -> dict[str, str]:
        own = {"NOVA_LITE_TOKEN": self.session.token, "NOVA_LITE_MARK": self.mark}
        foreign = {"NOVA_LITE_OTHER_TOKEN": other.session.token, "NOVA_LITE_OTHER_MARK": other.mark} if other else {}
        return own | foreign


class Outcome(NamedTuple):
    requests: int
    failures: int


class Fuzzing:
    def __init__(self, directory: Path, auth_url: str) -> None:
        self.directory = directory
        accounts = yaml.safe_load((directory / "accounts.yaml").read_text())
        parties = {account["project_name"]: Session(auth_url, account) for account in accounts}
        self.one, self.two, self.admin = (
            Party(name, session, f"mark-{secrets.token_hex(8)}") for name, session in parties.items()
        )

    def round(self, number: int, seed: int) -> Outcome:
        """Run two members concurrently, then the admin, who may see everything and so has no foreign secrets."""
        self.make_flavor()
        outcomes = []
        for at_once in (((self.one, self.two, 0), (self.two, self.one, 1)), ((self.admin, None, 2),)):
            running = [
                (party.name, self.start(party, other, number, seed + 3 * number + offset))
                for party, other, offset in at_once
            ]
            outcomes += [self.finish(name, number, process) for name, process in running]
        return Outcome(sum(outcome.requests for outcome in outcomes), sum(outcome.failures for outcome in outcomes))

    def make_flavor(self) -> None:
        """Create a flavor for servers: admins delete existing ones."""
        url = f"{self.admin.session.compute}/flavors"
        flavor = {"id": FLAVOR, "name": FLAVOR, "ram": 64, "vcpus": 1, "disk": 1}
        if FLAVOR not in {item["id"] for item in self.admin.session.get(url)["flavors"]}:
            self.admin.session.request("POST", url, json={"flavor": flavor})

    def start(self, party: Party, other: Party | None, number: int, seed: int) -> subprocess.Popen[bytes]:
        where = urlsplit(party.session.compute)
        root = f"{where.scheme}://{where.netloc}"
        command = [
            str(self.directory / "venv/bin/schemathesis"),
            "--config-file",
            str(HERE / "fuzzing.toml"),
            "run",
            f"{root}/openapi.json",
            "--url",
            f"{root}/v2.1",
            "--phases",
            "coverage,fuzzing",
            "--continue-on-failure",
            "--checks",
            ",".join(CHECKS),
            "--suppress-health-check",
            "all",
            "--warnings",
            "off",
            "--no-shrink",
            "--no-color",
            "--max-examples",
            str(EXAMPLES),
            "--seed",
            str(seed),
            "--generation-database",
            "none",
            "--report",
            "json",
            "--report-json-path",
            str(self.file(party.name, number, "json")),
        ]
        environment = {
            **os.environ,
            **party.environment(other),
            "NOVA_LITE_URL": root,
            "NOVA_LITE_FUZZ_SEED": str(seed),
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SCHEMATHESIS_HOOKS": "fuzzing",
        }
        with self.file(party.name, number, "log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.directory)

    def finish(self, name: str, number: int, process: subprocess.Popen[bytes]) -> Outcome:
        """Return the outcome. A schemathesis that stopped early is a failure, whatever it counted."""
        process.wait()
        report = self.file(name, number, "json")
        if not report.exists():
            print(f"{name}: no report; see {self.file(name, number, 'log')}")
            return Outcome(0, 1)
        told = json.loads(report.read_text())
        cases = told["test_cases"]
        failures = cases["with_failures"] + len(told["errors"]) + (not told["complete"])
        print(f"{name}: {cases['generated']} requests, {failures} failures", flush=True)
        if failures:
            print(f"    each of them: {self.file(name, number, 'log')}", flush=True)
        return Outcome(cases["generated"], failures)

    def file(self, name: str, number: int, kind: str) -> Path:
        return self.directory / f"{name}-{number}.{kind}"


def main(directory: Path, auth_url: str, requests: int, seed: int) -> int:
    print(f"Seed {seed}", flush=True)
    for report in directory.glob("*-*.json"):
        report.unlink()
    fuzzing = Fuzzing(directory, auth_url)
    sent = failures = number = 0
    while sent < requests:
        outcome = fuzzing.round(number, seed)
        sent += outcome.requests
        failures += outcome.failures
        number += 1
        if not outcome.requests:
            break
    print(f"{sent} requests, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
