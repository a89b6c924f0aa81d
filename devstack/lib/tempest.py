"""Tempest's configuration for a cloud, and what is told of its results.

Run by devstack/tempest.sh in Tempest's environment:

tempest.py configure DIRECTORY AUTH_URL          asks the cloud what there is; writes workspace/etc/tempest.conf
tempest.py report DIRECTORY EXCLUDED <subunit    prints counts, writes report.md; status 1 when a test failed
"""

from __future__ import annotations

import collections
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml

PREFIX = "tempest.api.compute."
COPY = "tempest-alt"
TIMEOUT = 60

CONFIG = """\
[DEFAULT]
log_file = {directory}/tempest-debug.log
[oslo_concurrency]
lock_path = {directory}/locks
[auth]
use_dynamic_credentials = false
test_accounts_file = {directory}/accounts.yaml
admin_username = {admin[username]}
admin_password = {admin[password]}
admin_project_name = {admin[project_name]}
admin_domain_name = Default
[identity]
auth_version = v3
uri_v3 = {url}
region = {region}
v3_endpoint_type = public
[service_available]
nova = true
glance = true
# Without it Tempest leaves out most tests of servers; with accounts of its own it never asks a network service.
neutron = true
cinder = false
swift = false
horizon = false
[compute]
image_ref = {images[0]}
image_ref_alt = {images[1]}
flavor_ref = {flavors[0]}
flavor_ref_alt = {flavors[1]}
endpoint_type = public
region = {region}
min_microversion = 2.1
max_microversion = {microversion}
min_compute_nodes = {hosts}
build_interval = 1
build_timeout = 300
[compute-feature-enabled]
# The filters that the scheduler has by default and Tempest has tests for.
scheduler_enabled_filters = DifferentHostFilter,SameHostFilter,ServerGroupAffinityFilter,ServerGroupAntiAffinityFilter
# What there is not: see the table of server actions in docs/api.md.
resize = false
cold_migration = false
live_migration = false
snapshot = false
pause = false
suspend = false
shelve = false
rescue = false
change_password = false
vnc_console = false
personality = false
attach_encrypted_volume = false
interface_attach = false
console_output = true
[image-feature-enabled]
os_glance_reserved = false
[validation]
run_validation = false
"""


class Session:
    """A project's token and its catalog."""

    def __init__(self, url: str, account: dict[str, Any]) -> None:
        domain = {"id": "default"}
        user = {"name": account["username"], "password": account["password"], "domain": domain}
        body = {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": account["project_name"], "domain": domain}},
        }
        answer = requests.post(f"{url}/auth/tokens", json={"auth": body}, timeout=TIMEOUT)
        answer.raise_for_status()
        self._headers = {"X-Auth-Token": answer.headers["X-Subject-Token"]}
        endpoints = {
            service["type"]: endpoint
            for service in answer.json()["token"]["catalog"]
            for endpoint in service["endpoints"]
            if endpoint["interface"] == "public"
        }
        self.region: str = endpoints["compute"]["region"]
        self.compute: str = endpoints["compute"]["url"].rstrip("/")
        self.image: str = endpoints["image"]["url"].rstrip("/") + "/v2"

    def request(self, method: str, url: str, **arguments: Any) -> requests.Response:
        headers = self._headers | arguments.pop("headers", {})
        answer = requests.request(method, url, headers=headers, timeout=TIMEOUT, **arguments)
        answer.raise_for_status()
        return answer

    def get(self, url: str) -> Any:
        return self.request("GET", url).json()


def configure(directory: Path, url: str) -> None:
    accounts = yaml.safe_load((directory / "accounts.yaml").read_text())
    admin = next(account for account in accounts if "admin" in account["roles"])
    cloud = Session(url, admin)
    flavors = sorted(cloud.get(f"{cloud.compute}/flavors/detail")["flavors"], key=lambda flavor: flavor["ram"])
    if len(flavors) < 2:
        sys.exit("Tempest needs two flavors.")
    services = cloud.get(f"{cloud.compute}/os-services?binary=nova-compute")["services"]
    values = {
        "directory": directory,
        "url": url,
        "admin": admin,
        "region": cloud.region,
        "images": two_images(cloud),
        "flavors": [flavor["id"] for flavor in flavors],
        "microversion": cloud.get(cloud.compute)["version"]["version"],
        "hosts": sum(service["state"] == "up" for service in services),
    }
    file = directory / "workspace/etc/tempest.conf"
    file.touch()
    file.chmod(0o600)
    file.write_text(CONFIG.format(**values))


def two_images(cloud: Session) -> list[str]:
    """Ids of two images that boot, the smallest ones; where there is one only, of it and a copy."""
    found = cloud.get(f"{cloud.image}/images?status=active&visibility=public")["images"]
    bootable = sorted(
        (image for image in found if image["disk_format"] not in ("aki", "ari")), key=lambda image: image["size"]
    )
    if not bootable:
        sys.exit("Tempest needs a public image that boots.")
    if len(bootable) == 1:
        bootable.append(copy_of(cloud, bootable[0]))
    return [image["id"] for image in bootable[:2]]


def copy_of(cloud: Session, image: dict[str, Any]) -> dict[str, Any]:
    wanted = {key: image[key] for key in ("disk_format", "container_format", "min_disk", "min_ram")}
    body = wanted | {"name": COPY, "visibility": "public"}
    copied: dict[str, Any] = cloud.request("POST", f"{cloud.image}/images", json=body).json()
    data = cloud.request("GET", f"{cloud.image}/images/{image['id']}/file", stream=True)
    kind = {"Content-Type": "application/octet-stream"}
    cloud.request("PUT", f"{cloud.image}/images/{copied['id']}/file", data=data.iter_content(1 << 20), headers=kind)
    return copied


class Result(NamedTuple):
    test: str  # without tempest.api.compute; a class's set-up that failed is its ``setUpClass``
    status: str  # passed, failed, skipped
    cause: str  # of a skip or failure, one line


def results(stream: Any) -> list[Result]:
    from subunit import ByteStreamToStreamResult
    from testtools import StreamToDict

    found: list[Result] = []

    def add(test: dict[str, Any]) -> None:
        status = {"success": "passed", "skip": "skipped", "xfail": "skipped"}.get(test["status"], "failed")
        if test["status"] != "exists" and test["timestamps"][1] is not None:
            found.append(Result(short_name(test["id"]), status, cause_of(status, test["details"])))

    summary = StreamToDict(add)
    summary.startTestRun()
    ByteStreamToStreamResult(stream, non_subunit_name="stdout").run(summary)
    summary.stopTestRun()
    return [result for result in sorted(found) if result.test != "stdout"]


def short_name(test: str) -> str:
    """Of ``setUpClass (tempest.api.compute.a.b)`` ``a.b.setUpClass``; of a test its name without tags."""
    fixture = re.fullmatch(r"(\w+) \((.*)\)", test)
    name = f"{fixture[2]}.{fixture[1]}" if fixture else test.partition("[")[0]
    return name.removeprefix(PREFIX)


def cause_of(status: str, details: dict[str, Any]) -> str:
    if status == "passed":
        return ""
    if status == "skipped":
        return details["reason"].as_text().strip() if "reason" in details else ""
    text = "\n".join(detail.as_text() for name, detail in details.items() if name.startswith("traceback"))
    errors = re.findall(
        r"^[\w.]+(?:Error|Exception|Timeout|Mismatch\w*|[A-Z]\w+): .*(?:\n(?:Details|Body): .*)?", text, re.M
    )
    return " ".join(errors[-1].split()) if errors else " ".join(text.split()[-40:])


def exclusions(file: Path, tests: Iterable[str]) -> list[tuple[str, str, int]]:
    """Each line's expression, its cause, and how many of the tests it leaves out that no line before it does."""
    left = list(tests)
    found = []
    for line in file.read_text().splitlines():
        expression, _, cause = (part.strip() for part in line.partition("#"))
        if expression:
            rest = [test for test in left if not re.search(expression, test)]
            found.append((expression, cause, len(left) - len(rest)))
            left = rest
    return found


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines]


def counts(found: list[Result]) -> list[tuple[Any, ...]]:
    by_group: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in found:
        by_group[result.test.partition(".")[0]][result.status] += 1
        by_group["total"][result.status] += 1
    order = sorted(by_group, key=lambda group: (group == "total", group))
    return [(group, *(by_group[group][status] for status in ("passed", "failed", "skipped"))) for group in order]


def grouped(found: list[Result], status: str) -> list[tuple[str, str]]:
    """Cause and tests, with one row per cause."""
    tests: dict[str, list[str]] = collections.defaultdict(list)
    for result in found:
        if result.status == status:
            tests[result.cause].append(f"`{result.test}`")
    return [(cause, ", ".join(names)) for cause, names in sorted(tests.items())]


def report(directory: Path, excluded: Path) -> int:
    found = results(sys.stdin.buffer)
    tests = (directory / "all-tests").read_text().splitlines()
    by_group = table(("group", "passed", "failed", "skipped"), counts(found))
    lines = ["# Tempest's compute tests", "", *by_group]
    lines += ["", "## Failed", "", *table(("cause", "tests"), grouped(found, "failed"))]
    lines += ["", "## Skipped", "", *table(("cause", "tests"), grouped(found, "skipped"))]
    left_out = [(f"`{expression}`", count, cause) for expression, cause, count in exclusions(excluded, tests)]
    lines += ["", "## Left out", "", *table(("tests", "number", "cause"), left_out)]
    (directory / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(by_group))
    print(f"Causes: {directory / 'report.md'}")
    return int(not found or any(result.status == "failed" for result in found))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["configure", directory, url]:
            configure(Path(directory), url)
        case ["report", directory, excluded]:
            sys.exit(report(Path(directory), Path(excluded)))
        case _:
            sys.exit(__doc__)
