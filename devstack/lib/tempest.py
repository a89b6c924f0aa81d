"""Configuration of Tempest for a cloud, and the report of its results.

Run by devstack/tempest.sh in Tempest's environment::

    tempest.py configure DIRECTORY AUTH_URL    queries the cloud, and writes two workspace/etc/*.conf
    tempest.py report DIRECTORY <subunit       prints counts, writes report.md; status 1 after an unexpected failure
"""

from __future__ import annotations

import collections
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sessions import Session

PREFIX = "tempest.api.compute."
COPY = "tempest-alt"
SHARED = "tempest-shared"

OTHER = "other"
#: Names of class fixtures.
FIXTURES = ("setUpClass", "tearDownClass")

#: Patterns of a cause, a refused request, or a test's name, with the missing feature. The first match counts.
NEEDS = (
    (r"server action ([\w-]+)\) is not supported", r"later: the action \1"),
    (r"Neutron|No matching service found in the catalog", "Neutron"),
    (r"Floating ips are not available", "a pool of floating addresses: nova-lite-manage floating-pool create"),
    (r"auto_allocate|public_network_id|test_tenant_networks", "Neutron"),
    (r"encrypted", "encrypted volumes"),
    (r"(Resize|Live.?migration|Cold migration)(?: is)? not available|Less than 2 compute nodes", "two compute hosts"),
    (r"Change password", "a guest agent in the test guest"),
    (r"SPICE console", "SPICE consoles"),
    (r"Serial console", "a Tempest that does not add bytes to text"),
    (r"barbican|vTPM", "Barbican"),
    (r"RBAC new defaults", "a switch of Tempest for roles that are not Nova's"),
    (r"Instance validation tests|Validation (must|should) be enabled|FQDN hostname sanitization", "SSH into the guest"),
    (r"certified_image_ref", "image signatures"),
    (r"network service is not available", "Neutron"),
    (r"test_assisted_volume_snapshots", "snapshots for Cinder's drivers of files (os-assisted-volume-snapshots)"),
    (r"service role assigned", "a role that this identity API has not"),
    (r"microversion range", "a microversion that is not announced"),
    (r"skipped (until|because of) bug", "nothing: Tempest skips it everywhere"),
)

CONFIG = """\
[DEFAULT]
log_file = {directory}/tempest-debug.log
[oslo_concurrency]
lock_path = {directory}/locks
[auth]
use_dynamic_credentials = false
test_accounts_file = {directory}/accounts.yaml
# The tests of quotas make projects and users for themselves.
create_isolated_networks = false
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
# The network API. With it, Tempest leaves out the tests of the networks that compute itself knows.
neutron = {neutron}
cinder = true
swift = false
horizon = false
[compute]
image_ref = {images[0]}
image_ref_alt = {images[1]}
fixed_network_name = {network}
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
resize = {two_hosts}
cold_migration = {two_hosts}
live_migration = {two_hosts}
live_migrate_back_and_forth = {two_hosts}
block_migration_for_live_migration = true
snapshot = true
pause = true
suspend = true
shelve = true
rescue = true
# The test guest has no agent.
change_password = false
stable_rescue = true
ide_bus = true
swap_volume = true
volume_backed_live_migration = true
volume_multiattach = true
# Features that nova_lite does not serve are at the end of docs/reference/api.md.
vnc_console = true
# Its only test adds what it receives, which is bytes, to text, and takes that error for a broken connection.
serial_console = false
personality = true
attach_encrypted_volume = false
interface_attach = true
console_output = true
[image-feature-enabled]
os_glance_reserved = false
[network]
# The compute API takes floating addresses from pools by name; to the network API a pool is a network.
floating_network_name = {pool}
public_network_id = {pool_id}
[network-feature-enabled]
floating_ips = {has_pool}
[validation]
run_validation = false
[volume]
endpoint_type = public
region = {region}
volume_size = 1
volume_type_multiattach = {shared_type}
min_microversion = 3.0
max_microversion = 3.42
build_interval = 1
build_timeout = 300
[volume-feature-enabled]
snapshot = true
clone = true
extend_attached_volume = true
backup = false
"""


def configure(directory: Path, url: str) -> None:
    accounts = yaml.safe_load((directory / "accounts.yaml").read_text())
    admin = next(account for account in accounts if "admin" in account["roles"])
    cloud = Session(url, admin)
    flavors = sorted(cloud.get(f"{cloud.compute}/flavors/detail")["flavors"], key=lambda flavor: flavor["ram"])
    if len(flavors) < 2:
        sys.exit("Tempest needs two flavors.")
    services = cloud.get(f"{cloud.compute}/os-services?binary=nova-compute")["services"]
    hosts = sum(service["state"] == "up" for service in services)
    if not cloud.network:
        sys.exit("Tempest needs the network API: [api] enabled_apis with network, and its endpoint in the catalog.")
    pools = cloud.get(f"{cloud.network}/networks?router:external=true")["networks"]
    values = {
        "pool": pools[0]["name"] if pools else "",
        "pool_id": pools[0]["id"] if pools else "",
        "has_pool": str(bool(pools)).lower(),
        "directory": directory,
        "url": url,
        "admin": admin,
        "region": cloud.region,
        "images": two_images(cloud),
        "shared_type": shared_type(cloud),
        "flavors": [flavor["id"] for flavor in flavors],
        "microversion": cloud.get(cloud.compute)["version"]["version"],
        "hosts": hosts,
        "two_hosts": str(hosts > 1).lower(),
    }
    network = cloud.get(f"{cloud.compute}/os-networks")["networks"][0]["label"]
    write(directory / "workspace/etc/tempest.conf", CONFIG.format(**values, neutron="true", network=network))
    write(directory / "workspace/etc/without-neutron.conf", CONFIG.format(**values, neutron="false", network=network))


def write(file: Path, text: str) -> None:
    file.touch()
    file.chmod(0o600)
    file.write_text(text)


def two_images(cloud: Session) -> list[str]:
    """Return ids of the two smallest bootable images; of a single image and its copy, if there is one only."""
    found = cloud.get(f"{cloud.image}/images?status=active&visibility=public")["images"]
    bootable = sorted(
        (image for image in found if image["disk_format"] not in ("aki", "ari")), key=lambda image: image["size"]
    )
    if not bootable:
        sys.exit("Tempest needs a public image that boots.")
    if len(bootable) == 1:
        bootable.append(copy_of(cloud, bootable[0]))
    return [image["id"] for image in bootable[:2]]


def shared_type(cloud: Session) -> str:
    """Return the name of a type whose volumes several servers can have. Make it if there is none."""
    if SHARED not in [kind["name"] for kind in cloud.get(f"{cloud.volume}/types")["volume_types"]]:
        body = {"name": SHARED, "extra_specs": {"multiattach": "<is> True"}}
        cloud.request("POST", f"{cloud.volume}/types", json={"volume_type": body})
    return SHARED


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
    cause: str = ""  # of a skip or failure, one line
    refused: str = ""  # the last request that failed, as in ``501 POST /servers/ID/action``


def results(stream: Any, prefix: str = PREFIX) -> list[Result]:
    """Return the last result of each test. Results of class fixtures count only without a test of the class.

    Their names are without the prefix.
    """
    from subunit import ByteStreamToStreamResult
    from testtools import StreamToDict

    found: dict[str, Result] = {}

    def add(test: dict[str, Any]) -> None:
        status = {"success": "passed", "skip": "skipped", "xfail": "skipped"}.get(test["status"], "failed")
        if test["status"] != "exists" and test["timestamps"][1] is not None and test["id"] != "stdout":
            name, details = short_name(test["id"], prefix), test["details"]
            for fixture in FIXTURES:
                found.pop(f"{name.rpartition('.')[0]}.{fixture}", None)
            found[name] = Result(name, status, cause_of(status, details), refused_in(details))

    summary = StreamToDict(add)
    summary.startTestRun()
    ByteStreamToStreamResult(stream, non_subunit_name="stdout").run(summary)
    summary.stopTestRun()
    return sorted(found.values())


def short_name(test: str, prefix: str = PREFIX) -> str:
    """Return a short name: ``a.b.setUpClass`` for ``setUpClass (tempest.api.compute.a.b)``; a test's name without
    tags.
    """
    fixture = re.fullmatch(r"(\w+) \((.*)\)", test)
    name = f"{fixture[2]}.{fixture[1]}" if fixture else test.partition("[")[0]
    return name.removeprefix(prefix)


def cause_of(status: str, details: dict[str, Any]) -> str:
    if status == "passed":
        return ""
    if status == "skipped":
        return details["reason"].as_text().strip() if "reason" in details else ""
    text = "\n".join(detail.as_text() for name, detail in details.items() if name.startswith("traceback"))
    if command := re.search(
        r"Command '(.*)' returned non-zero exit status \d+\.\nstdout:.*?\nstderr:\n(.*)", text, re.S
    ):
        return f"{command[1]}: {' '.join(command[2].split())}"
    errors = re.findall(
        r"^[\w.]+(?:Error|Exception|Timeout|Mismatch\w*|[A-Z]\w+): .*(?:\n(?:Details|Body): .*)?", text, re.M
    )
    return " ".join(errors[-1].split()) if errors else " ".join(text.split()[-40:])


def refused_in(details: dict[str, Any]) -> str:
    logged = "\n".join(detail.as_text() for name, detail in details.items() if "logging" in name)
    requests = re.findall(r"Request \([^)]*\): ([45]\d\d [A-Z]+) https?://[^/]+(\S*)", logged)
    return " ".join(requests[-1]) if requests else ""


def need_of(result: Result) -> str | None:
    """Return the feature that a failed test needs and this cloud lacks; None for a failure without such a reason."""
    for expression, need in NEEDS:
        if match := re.search(expression, f"{result.cause} | {result.refused} | {result.test}", re.IGNORECASE):
            return re.sub("(?<=the action )[A-Z]", lambda first: first[0].lower(), match.expand(need))
    return None


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


def grouped(found: list[Result], status: str) -> list[tuple[str, int, str, str]]:
    """Return need, number, cause and tests, one row per cause."""
    tests: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for result in found:
        if result.status == status:
            told = f"{result.cause} ({result.refused})" if status == "failed" and result.refused else result.cause
            told = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}", "ID", told)
            tests[need_of(result) or OTHER, told].append(f"`{result.test}`")
    return [(need, len(names), cause, ", ".join(names)) for (need, cause), names in sorted(tests.items())]


def needs(found: list[Result]) -> list[tuple[Any, ...]]:
    """Return the numbers of failed and skipped tests by missing feature."""
    by_need: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in found:
        if result.status != "passed":
            by_need[need_of(result) or OTHER][result.status] += 1
    return [(need, count["failed"], count["skipped"]) for need, count in sorted(by_need.items())]


def report(directory: Path) -> int:
    found = results(sys.stdin.buffer)
    by_group = table(("group", "passed", "failed", "skipped"), counts(found))
    by_need = table(("what it needs", "failed", "skipped"), needs(found))
    head = ("what it needs", "number", "cause", "tests")
    lines = ["# Tempest's compute tests", "", *by_group, "", *by_need]
    lines += ["", "A class that cannot be set up, or is skipped as a whole, counts once: as its `setUpClass`."]
    lines += ["", "## Failed", "", *table(head, grouped(found, "failed"))]
    lines += ["", "## Skipped", "", *table(head, grouped(found, "skipped"))]
    (directory / "report.md").write_text("\n".join(lines) + "\n")
    failed = {re.sub(rf"\.({'|'.join(FIXTURES)})$", "", item.test) for item in found if item.status == "failed"}
    (directory / "failed").write_text("".join(f"{re.escape(PREFIX + test)}\\b\n" for test in sorted(failed)))
    print("\n".join([*by_group, "", *by_need, ""]))
    print(f"Causes: {directory / 'report.md'}")
    count = collections.Counter(result.status for result in found)
    wrong = sum(result.status == "failed" and need_of(result) is None for result in found)
    print(f"{count['passed']} passed, {count['failed']} failed ({wrong} of unknown cause), {count['skipped']} skipped")
    return int(not found or wrong > 0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["configure", directory, url]:
            configure(Path(directory), url)
        case ["report", directory]:
            sys.exit(report(Path(directory)))
        case _:
            sys.exit(__doc__)
