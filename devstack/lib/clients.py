"""The tests of OpenStack's own clients against clouds of ``nova-lite dev``, and the page of their results.

Run by devstack/clients.sh in the environment of the suites::

    clients.py run --directory DIRECTORY --nova-lite COMMAND [--gophercloud REPOSITORY] [--preloaded] SUITE...
    clients.py subset --directory DIRECTORY --nova-lite COMMAND [GROUP...]
    clients.py page    prints the page of benchmarks/results/clients/*.json and benchmarks/results/consumers/*.json
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import importlib.metadata
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sessions import Session

TOP = Path(__file__).resolve().parents[2]
RESULTS = TOP / "benchmarks/results/clients"
#: Results of consumers.py.
PROGRAMS = TOP / "benchmarks/results/consumers"
CAUSES = Path(__file__).with_name("client_causes.yaml")
SUBSET = Path(__file__).with_name("client_subset.yaml")

#: Users beside those of every cloud of ``nova-lite dev``.
SEED = {
    "projects": [{"name": "alt_demo"}],
    "users": [{"name": "alt_demo", "project": "alt_demo", "roles": ["member"]}],
    "images": [{"name": "nova-lite-guest-2", "content": "a second guest"}],
}

#: The suites make many things at a time, and leave some behind if a test fails.
OPTIONS = """\
[network]
networks_per_project = -1
fixed_ips_per_project = -1
[image]
import_hosts = download.cirros-cloud.net
[quota]
instances = -1
cores = -1
ram = -1
"""

#: Seconds that all tests of a suite, or one of a Go package, may take.
LIMIT = 3600
GO_LIMIT = 900

#: Names by which openstacksdk's tests look for clouds, with the users of ours.
SDK_CLOUDS = {"devstack-admin": "admin", "devstack": "demo", "devstack-alt": "alt_demo"}
SDK_ROOMS = ("compute", "network", "identity", "image", "block_storage", "cloud")
#: Name of an image that openstackclient's tests look for. It begins and ends as those of devstack.
OSC_IMAGE = "cirros-fake-disk"
FORKS = Path(__file__).with_name("openstack_forks.py")
OSC_ROOMS = ("compute/v2", "network/v2", "identity/v3", "image/v2", "volume/v3")

GO_PACKAGES = ("compute/v2", "identity/v3", "image/v2", "blockstorage/v3", "networking/v2/...")
#: Packages of the Placement API, which is to read only. Most of these tests change it.
GO_PLACEMENT = ("placement/v1",)
#: Modules of Debian's packages, by the names under which gophercloud imports them.
GO_MODULES = {
    "golang.org/x/crypto": "golang.org/x/crypto",
    "golang.org/x/sys": "golang.org/x/sys",
    "golang.org/x/term": "golang.org/x/term",
    "go.yaml.in/yaml/v3": "gopkg.in/yaml.v3",
}
#: Tests that load an image from the internet.
GO_DOWNLOADS = "^TestImageStage$"
GO_SOURCES = Path("/usr/share/gocode/src")

TEMPEST = """\
[DEFAULT]
log_file = {directory}/tempest-debug.log
[oslo_concurrency]
lock_path = {directory}/locks
[auth]
use_dynamic_credentials = true
create_isolated_networks = false
admin_username = admin
admin_password = {password}
admin_project_name = admin
admin_domain_name = Default
[identity]
auth_version = v3
uri_v3 = {url}/identity/v3
region = RegionOne
v3_endpoint_type = public
use_system_token = true
[identity-feature-enabled]
security_compliance = false
[service_available]
nova = true
glance = true
neutron = true
cinder = true
swift = false
horizon = false
[compute]
image_ref = {images[0]}
image_ref_alt = {images[1]}
fixed_network_name = private
flavor_ref = {flavors[0]}
flavor_ref_alt = {flavors[1]}
min_microversion = 2.1
max_microversion = {microversion}
min_compute_nodes = 2
build_interval = 1
build_timeout = 120
[compute-feature-enabled]
resize = true
snapshot = true
shelve = true
rescue = true
volume_multiattach = false
[image]
# Some tests upload random bytes in the first six formats. These need no header.
disk_formats = raw,ami,ari,aki,iso,raw,qcow2
container_formats = bare
[image-feature-enabled]
os_glance_reserved = true
image_format_enforcement = false
[network-feature-enabled]
# The tests of other extensions are skipped.
api_extensions = {extensions}
ipv6_subnet_attributes = true
[network]
public_network_id = {public}
floating_network_name = public
project_network_cidr = 10.100.0.0/16
[validation]
run_validation = false
[volume]
volume_size = 1
min_microversion = 3.0
max_microversion = {volume_microversion}
build_interval = 1
build_timeout = 60
[volume-feature-enabled]
snapshot = true
clone = true
extend_attached_volume = true
backup = true
"""


class Cloud(NamedTuple):
    """A running cloud. ``session``: its admin."""

    url: str
    password: str
    session: Session
    nova_lite: str  # version


class Job(NamedTuple):
    """A suite to run. ``directory`` is its own. ``preloaded``: commands are forks of one process."""

    cloud: Cloud
    directory: Path
    gophercloud: Path | None
    preloaded: bool = False


class Suite(NamedTuple):
    """A suite of tests. ``run`` returns its results as dicts of test, status and cause."""

    version: Callable[[Job], str]
    run: Callable[[Job], list[dict[str, str]]]


# --- the cloud


@contextmanager
def running_cloud(command: list[str], directory: Path) -> Iterator[Cloud]:
    """Run a cloud while the context lasts."""
    password = secrets.token_urlsafe(12)
    (directory / "seed.yaml").write_text(yaml.safe_dump(SEED))
    (directory / "options.conf").write_text(OPTIONS)
    options = ["--port", "0", "--hosts", "2", f"--password={password}", "--json", "--verbose"]
    options += ["--seed", f"{directory}/seed.yaml", "--config-file", f"{directory}/options.conf"]
    with open(directory / "cloud.log", "wb") as log:
        process = subprocess.Popen(
            [*command, "dev", *options, "--parent", str(os.getpid())], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                sys.exit(f"nova-lite dev did not start: {directory}/cloud.log says why.")
            url: str = json.loads(line)["url"]
            account = {"username": "admin", "password": password, "project_name": "admin"}
            version = subprocess.run(
                [*command, "dev", "--version"], stdout=subprocess.PIPE, check=True, text=True
            ).stdout
            yield Cloud(url, password, Session(f"{url}/identity/v3", account), version.strip())
        finally:
            process.terminate()
            process.wait()


def flavors_of(cloud: Cloud) -> list[str]:
    """Return ids of the flavors from 512 MB of memory, smallest first."""
    found = sorted(
        cloud.session.get(f"{cloud.session.compute}/flavors/detail")["flavors"], key=lambda item: item["ram"]
    )
    return [flavor["id"] for flavor in found if flavor["ram"] >= 512]


def images_of(cloud: Cloud) -> list[str]:
    """Return the id of the test guest's image, and that of the second one."""
    return [image["id"] for image in sorted(cloud.session.get(f"{cloud.session.image}/images")["images"], key=by_name)]


def by_name(item: dict[str, Any]) -> str:
    return str(item["name"])


def extensions(cloud: Cloud) -> list[str]:
    """Return the extensions of the network API, by their aliases."""
    return [str(item["alias"]) for item in cloud.session.get(f"{cloud.session.network}/extensions")["extensions"]]


def public_network(cloud: Cloud) -> str:
    networks = cloud.session.get(f"{cloud.session.network}/networks?router:external=true")["networks"]
    return str(networks[0]["id"])


# --- suites in Python


def environment(**values: str) -> dict[str, str]:
    """Return the environment of a suite: without clouds that the caller may have named."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "PYTHON"))}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | values


def version_of(distribution: str) -> Callable[[Job], str]:
    return lambda job: importlib.metadata.version(distribution)


def subunit_results(stream: Path) -> list[dict[str, str]]:
    """Return the results in the stream, as clients.py of this directory stores them."""
    sys.path.insert(0, str(Path(__file__).parent))
    from tempest import results

    with open(stream, "rb") as file:
        return [
            {"test": result.test, "status": result.status, "cause": " ".join([result.cause, result.refused]).strip()}
            for result in results(file, prefix="")
        ]


def discovered(job: Job, package: str, rooms: Iterable[str], variables: dict[str, str]) -> list[dict[str, str]]:
    """Run the tests below the rooms of a package, one at a time. The working directory has ``CONTRIBUTING.rst``."""
    top = Path(str(importlib.metadata.distribution("openstacksdk").locate_file("")))
    found = []
    for room in rooms:
        arguments = ["discover", "-s", f"{top}/{package}/{room}", "-t", str(top)]
        found += subunit_run(job, room.replace("/", "-"), arguments, variables)
        print(f"{room}: {summary(found)}", flush=True)
    prefix = package.replace("/", ".") + "."
    return [result | {"test": result["test"].removeprefix(prefix)} for result in found]


def subunit_run(job: Job, name: str, arguments: Iterable[str], variables: dict[str, str]) -> list[dict[str, str]]:
    """Run tests in a process of their own, and return their results."""
    (job.directory / "CONTRIBUTING.rst").write_text("A file that tests upload as an image.\n")
    stream = job.directory / f"{name}.subunit"
    with open(stream, "wb") as output, open(f"{stream}.log", "wb") as log:
        subprocess.run(
            [sys.executable, "-m", "subunit.run", *arguments],
            stdout=output,
            stderr=log,
            cwd=job.directory,
            env=environment(**variables),
            timeout=LIMIT,
            check=False,
        )
    return subunit_results(stream)


def clouds_file(job: Job) -> Path:
    cloud = job.cloud
    common = {
        "auth_url": f"{cloud.url}/identity/v3",
        "password": cloud.password,
        "user_domain_id": "default",
    }
    clouds = {
        name: common | {"username": user, "project_name": user, "project_domain_id": "default"}
        for name, user in SDK_CLOUDS.items()
    }
    clouds["devstack-system-admin"] = common | {"username": "admin", "system_scope": "all"}
    file = job.directory / "clouds.yaml"
    named = {name: {"region_name": "RegionOne", "auth": auth} for name, auth in clouds.items()}
    file.write_text(yaml.safe_dump({"clouds": named}))
    return file


def remove_small_flavors(cloud: Cloud) -> None:
    """Remove flavors that openstacksdk's tests do not expect: they count those whose names begin with m1."""
    for flavor in cloud.session.get(f"{cloud.session.compute}/flavors/detail")["flavors"]:
        if flavor["ram"] < 512:
            cloud.session.request("DELETE", f"{cloud.session.compute}/flavors/{flavor['id']}")


def sdk_variables(job: Job) -> dict[str, str]:
    """Return the variables by which openstacksdk's tests find the cloud. Make the cloud what they expect."""
    remove_small_flavors(job.cloud)
    return {
        "OS_CLIENT_CONFIG_FILE": str(clouds_file(job)),
        "OS_CLOUD": "devstack-admin",
        "OPENSTACKSDK_IMAGE": "nova-lite-guest",
        "OPENSTACKSDK_FLAVOR": "m1.tiny",
        "OPENSTACKSDK_FUNC_TEST_TIMEOUT": "60",
        "OS_TEST_TIMEOUT": "120",
        "OS_LOG_CAPTURE": "1",
        "OS_STDOUT_CAPTURE": "1",
    }


def openstacksdk(job: Job) -> list[dict[str, str]]:
    return discovered(job, "openstack/tests/functional", SDK_ROOMS, sdk_variables(job))


def openstackclient(job: Job) -> list[dict[str, str]]:
    """Run the tests with the commands of ``openstack``, or with forks of one process that has loaded it."""
    make_image(job.cloud, OSC_IMAGE)
    variables = {"OS_CLIENT_CONFIG_FILE": str(clouds_file(job)), "OS_CLOUD": "devstack-admin"}
    with contextlib.ExitStack() as ended:
        if job.preloaded:
            variables["PATH"] = f"{ended.enter_context(preloaded(job.directory))}:{environment()['PATH']}"
        return discovered(job, "openstackclient/tests/functional", OSC_ROOMS, variables)


@contextmanager
def preloaded(directory: Path) -> Iterator[Path]:
    """Yield a directory with a command ``openstack`` that a process with the loaded client runs in a fork."""
    commands, socket = directory / "bin", directory / "openstack.socket"
    commands.mkdir()
    script = commands / "openstack"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {FORKS} run {socket} "$@"\n')
    script.chmod(0o755)
    with open(directory / "forks.log", "wb") as log:
        # The client looks for clouds.yaml in the directory in which it was loaded.
        server = subprocess.Popen(
            [sys.executable, str(FORKS), "serve", str(socket)],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=directory,
            env=environment(),
        )
        try:
            assert server.stdout is not None
            if not server.stdout.readline():
                sys.exit(f"openstackclient was not loaded: {directory}/forks.log says why.")
            yield commands
        finally:
            server.terminate()
            server.wait()


def make_image(cloud: Cloud, name: str) -> None:
    """Make a public image. The guests of these clouds are fake, and so is what is in it."""
    described = {"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"}
    image = cloud.session.request("POST", f"{cloud.session.image}/images", json=described).json()
    kind = {"Content-Type": "application/octet-stream"}
    cloud.session.request("PUT", f"{cloud.session.image}/images/{image['id']}/file", data=b"a guest", headers=kind)


def tempest(package: str) -> Callable[[Job], list[dict[str, str]]]:
    """Return the function that runs the tests of a package, of Tempest's or of a plug-in of it."""

    def run(job: Job) -> list[dict[str, str]]:
        workspace, regex = tempest_workspace(job), rf"^{re.escape(package)}\."
        log = job.directory / "tempest.log"
        in_workspace(workspace, log, "tempest", "run", "--concurrency", "1", "--regex", regex)
        stream = job.directory / "tempest.subunit"
        with open(stream, "wb") as output:
            subprocess.run(
                ["stestr", "last", "--subunit"], cwd=workspace, env=environment(), stdout=output, check=False
            )
        tests = job.directory / "tests"
        in_workspace(workspace, tests, "tempest", "run", "--list-tests", "--regex", regex)
        found = without_fixtures(subunit_results(stream), tests.read_text().splitlines())
        return [result | {"test": result["test"].removeprefix(f"{package}.")} for result in found]

    return run


def in_workspace(workspace: Path, output: Path, *command: str) -> None:
    """Run a command of Tempest, whatever its status. Its output goes into the file."""
    with open(output, "wb") as file:
        subprocess.run(command, cwd=workspace, env=environment(), stdout=file, stderr=file, timeout=LIMIT, check=False)


def tempest_workspace(job: Job) -> Path:
    """Make a directory with Tempest's configuration for the cloud."""
    cloud, workspace = job.cloud, job.directory / "workspace"
    subprocess.run(
        ["tempest", "init", "--workspace-path", f"{job.directory}/workspaces.yaml", str(workspace)],
        env=environment(),
        check=True,
    )
    versions = cloud.session.get(f"{cloud.url}/volume/")["versions"]
    values = {
        "directory": job.directory,
        "url": cloud.url,
        "password": cloud.password,
        "images": images_of(cloud),
        "flavors": flavors_of(cloud),
        "public": public_network(cloud),
        "extensions": ",".join(extensions(cloud)),
        "microversion": cloud.session.get(cloud.session.compute)["version"]["version"],
        "volume_microversion": versions[0]["version"],
    }
    (workspace / "etc/tempest.conf").write_text(TEMPEST.format(**values))
    return workspace


def without_fixtures(found: list[dict[str, str]], tests: Iterable[str]) -> list[dict[str, str]]:
    """Replace the result of a class's set-up by that of each test of the class, which has not run because of it."""
    names = [test.partition("[")[0] for test in tests]
    by_class: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        by_class[name.rpartition(".")[0]].append(name)
    ran = {result["test"] for result in found}
    results: dict[str, dict[str, str]] = {}
    for result in found:
        group, _, fixture = result["test"].rpartition(".")
        missing = [name for name in by_class[group] if name not in ran] if fixture == "setUpClass" else []
        for name in missing or [result["test"]]:
            results[name] = result | {"test": name}
    return sorted(results.values(), key=lambda result: result["test"])


# --- gophercloud


def go_version(job: Job) -> str:
    """Return the version of the sources as git describes it."""
    command = ["git", "-C", str(job.gophercloud), "describe", "--tags"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def gophercloud(*packages: str) -> Callable[[Job], list[dict[str, str]]]:
    """Return the function that runs these packages of acceptance tests."""
    return lambda job: go_tests(job, packages)


def go_tests(job: Job, packages: Iterable[str]) -> list[dict[str, str]]:
    if job.gophercloud is None:
        sys.exit("gophercloud: --gophercloud must name a clone of its repository.")
    sources = job.directory / "sources"
    sources.mkdir()
    archive = subprocess.run(["git", "-C", str(job.gophercloud), "archive", "HEAD"], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(sources)], input=archive.stdout, check=True)
    use_debian_modules(sources)
    cloud = job.cloud
    flavors = [acceptance_flavor(cloud, name, ram) for name, ram in (("m1.acctest", 512), ("m1.resize", 768))]
    variables = {
        "OS_AUTH_URL": f"{cloud.url}/identity/v3",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": cloud.password,
        "OS_PROJECT_NAME": "admin",
        "OS_DOMAIN_ID": "default",
        "OS_REGION_NAME": "RegionOne",
        "OS_IMAGE_ID": images_of(cloud)[0],
        "OS_FLAVOR_ID": flavors[0],
        "OS_FLAVOR_ID_RESIZE": flavors[1],
        "OS_POOL_NAME": "public",
        "OS_EXTGW_ID": public_network(cloud),
        "OS_NETWORK_NAME": "private",
        "OS_BRANCH": "master",
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
        "GOCACHE": str(job.directory.parent / "go-cache"),
        "GOPATH": str(job.directory.parent / "go"),
    }
    found = []
    for package in packages:
        command = ["go", "test", "-tags", "acceptance", "-json", "-p", "1", "-parallel", "1", f"-timeout={GO_LIMIT}s"]
        command += ["-skip", GO_DOWNLOADS]
        output = subprocess.run(
            [*command, f"./internal/acceptance/openstack/{package}"],
            cwd=sources,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout
        (job.directory / f"{package.replace('/', '-')}.json").write_text(output)
        found += go_results(output)
        print(f"{package}: {summary(found)}", flush=True)
    return found


def acceptance_flavor(cloud: Cloud, name: str, ram: int) -> str:
    """Make a flavor with an ephemeral disk, which some tests need, and return its id."""
    flavor = {"name": name, "ram": ram, "vcpus": 1, "disk": 10, "OS-FLV-EXT-DATA:ephemeral": 10}
    answer = cloud.session.request("POST", f"{cloud.session.compute}/flavors", json={"flavor": flavor})
    return str(answer.json()["flavor"]["id"])


def use_debian_modules(sources: Path) -> None:
    """Replace the modules that gophercloud needs by Debian's packages of them."""
    text = "module github.com/gophercloud/gophercloud/v2\n\ngo 1.22\n"
    for name, directory in GO_MODULES.items():
        copy = sources / ".modules" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", str(GO_SOURCES / directory), str(copy)], check=True)
        (copy / "go.mod").write_text(f"module {name}\n\ngo 1.20\n")
        major = "v3.0.0" if name.endswith("/v3") else "v0.0.0"
        text += f"\nrequire {name} {major}\nreplace {name} => ./.modules/{name}\n"
    (sources / "go.mod").write_text(text)
    (sources / "go.sum").unlink(missing_ok=True)


def go_results(output: str) -> list[dict[str, str]]:
    """Return the results of the tests, without those of their parts, in the output of ``go test -json``."""
    texts: dict[str, list[str]] = collections.defaultdict(list)
    found = []
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        package = event.get("Package", "").rpartition("acceptance/openstack/")[2]
        test = f"{package}.{event['Test'].partition('/')[0]}" if "Test" in event else ""
        if event["Action"] == "output" and test:
            texts[test].append(event["Output"].strip())
        elif event["Action"] in ("pass", "fail", "skip") and test and "/" not in event["Test"]:
            status = {"pass": "passed", "fail": "failed", "skip": "skipped"}[event["Action"]]
            found.append({"test": test, "status": status, "cause": "" if status == "passed" else go_cause(texts[test])})
    return found


def go_cause(lines: list[str]) -> str:
    """Return the message of the failure, or the last message of a test."""
    text = "\n".join(line for line in lines if line and not line.startswith(("===", "---")))
    messages = re.split(r"^\w+\.go:\d+: ", re.sub(r"\x1b\[[\d;]*m", "", text), flags=re.MULTILINE)
    failures = [message for message in messages if re.match(r"Failure in|Unable|Error|panic", message)]
    return " ".join((failures or messages)[-1].split())[:500]


# --- a subset


def tempest_variables(job: Job) -> dict[str, str]:
    return {"TEMPEST_CONFIG_DIR": str(tempest_workspace(job) / "etc")}


#: Suites of the subset: where their tests are, and what tells them of the cloud.
SELECTABLE: dict[str, tuple[str, Callable[[Job], dict[str, str]]]] = {
    "openstacksdk": ("openstack.tests.functional", sdk_variables),
    "tempest": ("tempest.api", tempest_variables),
}


def subset(directory: Path, command: list[str], names: Iterable[str]) -> bool:
    """Run groups of the subset, by default all, against one cloud. Return whether every test of them has passed."""
    known: list[dict[str, Any]] = yaml.safe_load(SUBSET.read_text())
    wanted = set(names)
    if unknown := wanted - {group["group"] for group in known}:
        sys.exit(f"No group of {SUBSET.name}: {', '.join(sorted(unknown))}")
    groups = [group for group in known if not wanted or group["group"] in wanted]
    subprocess.run(["rm", "-rf", str(directory)], check=True)
    directory.mkdir(parents=True)
    faults: list[str] = []
    with running_cloud(command, directory) as cloud:
        for suite, (package, variables) in SELECTABLE.items():
            chosen = [group for group in groups if group["suite"] == suite]
            if not chosen:
                continue
            job = Job(cloud, directory, None)
            tests = [f"{package}.{test}" for group in chosen for test in group["tests"]]
            found = subunit_run(job, suite, tests, variables(job))
            print(f"{suite}: {summary(found)}", flush=True)
            for group in chosen:
                faults += faults_of(group, package, found)
    print("\n".join(faults))
    return not faults


def faults_of(group: dict[str, Any], package: str, found: list[dict[str, str]]) -> list[str]:
    """Return a line for each test of the group that has not passed, and for each name that is no test's."""
    lines = []
    for name in group["tests"]:
        results = [result for result in found if f"{result['test']}.".startswith(f"{package}.{name}.")]
        lines += [
            f"{group['group']}: {result['test']} {result['status']}: {result['cause']}"
            for result in results
            if result["status"] != "passed"
        ]
        if not results:
            lines.append(f"{group['group']}: {package}.{name} has not run: its name or its module is wrong.")
    return lines


# --- results


SUITES = {
    "openstacksdk": Suite(version_of("openstacksdk"), openstacksdk),
    "openstackclient": Suite(version_of("python-openstackclient"), openstackclient),
    "gophercloud": Suite(go_version, gophercloud(*GO_PACKAGES)),
    "gophercloud-placement": Suite(go_version, gophercloud(*GO_PLACEMENT)),
    "neutron-tempest-plugin": Suite(version_of("neutron-tempest-plugin"), tempest("neutron_tempest_plugin.api")),
} | {
    f"tempest-{room}": Suite(version_of("tempest"), tempest(f"tempest.api.{room}"))
    for room in ("identity", "image", "volume", "network", "compute")
}


def summary(found: list[dict[str, str]]) -> str:
    count = collections.Counter(result["status"] for result in found)
    return ", ".join(f"{count[status]} {status}" for status in ("passed", "failed", "skipped"))


def run(name: str, directory: Path, command: list[str], sources: Path | None, preloaded: bool) -> None:
    """Run a suite against a cloud of its own, and write its results."""
    suite = SUITES[name]
    subprocess.run(["rm", "-rf", str(directory)], check=True)
    directory.mkdir(parents=True)
    with running_cloud(command, directory) as cloud:
        job = Job(cloud, directory, sources, preloaded)
        found = suite.run(job)
        stored: dict[str, Any] = {
            "suite": name,
            "version": suite.version(job),
            "date": datetime.date.today().isoformat(),
            "nova_lite": cloud.nova_lite,
            "passed": sorted(result["test"] for result in found if result["status"] == "passed"),
            "failed": told(found, "failed"),
            "skipped": told(found, "skipped"),
        }
        if name == "openstackclient":
            stored["preloaded"] = preloaded
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n")
    print(f"{name}: {summary(found)}")


def told(found: list[dict[str, str]], status: str) -> dict[str, str]:
    """Return the causes by test, without ids, addresses of the cloud and places in files."""
    return {result["test"]: plain(result["cause"]) for result in found if result["status"] == status}


def plain(cause: str) -> str:
    cause = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|\b[0-9a-f]{32}\b", "ID", cause)
    cause = re.sub(r"https?://127\.0\.0\.1:\d+", "", cause)
    return re.sub(r"(/[\w.+-]+){3,}/site-packages/", "", cause)[:400]


# --- the page

KINDS = {
    "feature": "not supported",
    "difference": "intended difference",
    "suite": "assumption of the suite",
    "defect": "defect",
}
#: Kinds of failures that are no fault of the cloud.
EXPECTED = ("feature", "difference", "suite")
UNKNOWN = {"kind": "unknown", "cause": "Not examined."}


def causes() -> list[dict[str, str]]:
    found: list[dict[str, str]] = yaml.safe_load(CAUSES.read_text())
    return found


def cause_of(suite: str, test: str, text: str, known: list[dict[str, str]]) -> dict[str, str]:
    """Return the first known cause whose pattern is in the suite's name, the test's name and its message."""
    line = f"{suite} {test} | {text}"
    return next((cause for cause in known if re.search(cause["match"], line)), UNKNOWN)


def stored_in(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(directory.glob("*.json"))]


def programs_table(programs: Iterable[dict[str, Any]]) -> list[str]:
    """Return the lines of the results of programs."""
    rows = [
        "| {} | {} | {} | {}: {} | {} s |".format(
            result["program"],
            ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
            result["date"],
            result["status"],
            cell(" ".join(result["text"].split())),
            result["seconds"],
        )
        for result in programs
    ]
    return ["", PROGRAMS_HEAD, "| Program | Versions | Date | Result | Took |", "|---|---|---|---|---|", *rows]


class Target(NamedTuple):
    """A number of passed tests to reach. ``tests`` matches the names of the tests that count."""

    suite: str
    name: str
    tests: str
    target: str
    reached: Callable[[int, int, int], bool]  # of the tests that there are, passed ones and applicable ones


TARGETS = (
    Target("gophercloud", "gophercloud", "", "95 % of applicable", lambda tests, passed, apply: passed >= 0.95 * apply),
    Target(
        "openstacksdk",
        "openstacksdk, compute",
        r"(cloud\.test_)?compute\.",
        "all",
        lambda tests, passed, apply: passed == tests,
    ),
    Target(
        "openstacksdk",
        "openstacksdk, network",
        r"(cloud\.test_)?network\.",
        "all",
        lambda tests, passed, apply: passed == tests,
    ),
    Target("tempest-identity", "tempest-identity", "", "150", lambda tests, passed, apply: passed >= 150),
    Target("tempest-image", "tempest-image", "", "60", lambda tests, passed, apply: passed >= 60),
    Target("tempest-network", "tempest-network", "", "200", lambda tests, passed, apply: passed >= 200),
    Target("tempest-volume", "tempest-volume", "", "150", lambda tests, passed, apply: passed >= 150),
)


def targets_table(stored: list[dict[str, Any]], known: list[dict[str, str]]) -> list[str]:
    """Return the lines of the targets: how many tests there are, and why the others have not passed."""
    suites = {run["suite"]: run for run in stored}
    lines = [
        "",
        TARGETS_HEAD,
        "| Tests | Target | Tests there are | Passed | Intended difference | Not supported | Assumption of the suite "
        "| Defect or unknown | Skipped | Reached |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for item in TARGETS:
        run = suites.get(item.suite, {"passed": [], "failed": {}, "skipped": {}})
        passed = sum(bool(re.match(item.tests, test)) for test in run["passed"])
        skipped = sum(bool(re.match(item.tests, test)) for test in run["skipped"])
        failed = {
            test: cause_of(item.suite, test, text, known)["kind"]
            for test, text in run["failed"].items()
            if re.match(item.tests, test) and not test.endswith(".tearDownClass")
        }
        kinds = collections.Counter(failed.values())
        wrong = len(failed) - sum(kinds[kind] for kind in EXPECTED)
        tests = passed + skipped + len(failed)
        reached = "yes" if item.reached(tests, passed, passed + wrong) else "no"
        counts = " | ".join(str(kinds[kind]) for kind in ("difference", "feature", "suite"))
        lines.append(
            f"| {item.name} | {item.target} | {tests} | {passed} | {counts} | {wrong} | {skipped} | {reached} |"
        )
    return lines


def page(stored: list[dict[str, Any]], programs: list[dict[str, Any]]) -> str:
    """Return the page of the results of suites and programs."""
    known = causes()
    lines = [
        PAGE_HEAD,
        "| Suite | Version | Date | Passed | Failed | Skipped | Passed of all | Applicable | Of these |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    details: list[str] = []
    for run in stored:
        name, passed = run["suite"], len(run["passed"])
        by_cause: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for test, text in run["failed"].items():
            cause = cause_of(name, test, text, known)
            by_cause[cause["kind"], cause["cause"]].append(test)
        wrong = sum(len(tests) for (kind, _), tests in by_cause.items() if kind not in EXPECTED)
        applicable = passed + wrong
        ran = passed + len(run["failed"])
        skipped = len(run["skipped"])
        counts = (
            f"{passed} | {ran - passed} | {skipped} | {share(passed, ran)} | {applicable} | {share(passed, applicable)}"
        )
        lines.append(f"| {name} | {run['version']} | {run['date']} | {counts} |")
        details += ["", f"## {name}", ""]
        if run.get("preloaded"):
            details += [PRELOADED, ""]
        if by_cause:
            details += ["| Failed | Kind | Cause | Tests |", "|---|---|---|---|"]
        details += [
            f"| {len(tests)} | {KINDS.get(kind, kind)} | {cell(cause)} | {shortened(tests)} |"
            for (kind, cause), tests in sorted(by_cause.items(), key=lambda item: (item[0][0], -len(item[1])))
        ]
        skips = collections.Counter(re.sub(r"\b[\d.]+\b", "N", reason) for reason in run["skipped"].values())
        if skips:
            details += ["", "| Skipped | Reason that the suite gives |", "|---|---|"]
        details += [f"| {number} | {cell(reason[:120] or 'none')} |" for reason, number in skips.most_common()]
    return "\n".join([*lines, *targets_table(stored, known), *programs_table(programs), *details]) + "\n"


def share(passed: int, ran: int) -> str:
    return f"{100 * passed / ran:.1f} %" if ran else "-"


def shortened(tests: list[str]) -> str:
    """Return the classes of the tests, or their names in Go, with the number of each."""
    groups = collections.Counter(re.sub(r"\.(test_\w+|setUpClass|tearDownClass)(\[.*)?$", "", test) for test in tests)
    shown = [f"`{group}`" + (f" ({number})" if number > 1 else "") for group, number in sorted(groups.items())]
    return ", ".join(shown[:MOST_CLASSES]) + (
        f", {len(shown) - MOST_CLASSES} more" if len(shown) > MOST_CLASSES else ""
    )


#: Classes of tests that a row of the page names at most.
MOST_CLASSES = 2


def cell(text: str) -> str:
    return text.replace("|", "\\|")


PRELOADED = """\
`devstack/clients.sh --preloaded openstackclient`: each command ran in a fork of one process that had loaded the client.
Without the option the suite starts `openstack` itself, which takes hours."""

TARGETS_HEAD = """\
## Targets

These numbers were set before the suites ran. The reasons for those not reached:

- Tempest has fewer tests of identity than the target.
- openstacksdk's network tests skip what they find no extension for. Others want an address of a router outside, and a
  server's test wants two networks with the same addresses.
"""

PROGRAMS_HEAD = """\
## Programs

`sudo devstack/consumers.sh all` installs programs and runs each against a cloud of its own. It prints a table and has a
status. [Programs that use the APIs](consumers.md) has what they found.
"""

PAGE_HEAD = """\
<!-- Made by devstack/clients.sh --page from benchmarks/results/{clients,consumers}/*.json. -->
# Results of OpenStack's client suites

The test suites of OpenStack's own clients ran against this cloud. Each suite ran against a cloud of
[`nova-lite dev`](../howto/test-against-a-cloud.md) of its own, with two hosts and fake guests, one test at a time:

```
devstack/clients.sh tempest-volume openstacksdk
```

"Passed of all" counts every test that ran. If the set-up of a class of Tempest fails or is skipped, each test of the
class counts.

The kinds of failures were assigned after the runs, by patterns of names and messages
(`devstack/lib/client_causes.yaml`). Not every failure was examined by itself. A test is "applicable" if it passed, or
failed because of a defect or for an unknown reason. So this share depends on what is called a missing feature or an
intended difference, and is no measure of compatibility by itself.

- The suites ran on two days, against several revisions (`nova_lite` in their files). The machine was very busy.
- Each failure was examined, except for some of Neutron's own tests (`neutron-tempest-plugin`).
- Tempest's network tests know which extensions of Neutron there are, and skip those of others.
- `TestImageStage` of gophercloud is left out after its first run, because it loads an image from the internet.
- Tempest's compute tests have not been run in this way. They ran on real guests ([Tempest results](tempest.md)).

Each failed test with its message is in `benchmarks/results/clients`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="clients.py", description="Run the tests of OpenStack's clients.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--gophercloud", type=Path)
    running.add_argument("--preloaded", action="store_true", help="run openstack in forks of one process")
    running.add_argument("suites", nargs="+", choices=sorted(SUITES))
    selecting = commands.add_parser("subset")
    selecting.add_argument("groups", nargs="*")
    commands.add_parser("page")
    for subparser in (running, selecting):
        subparser.add_argument("--directory", type=Path, required=True)
        subparser.add_argument("--nova-lite", required=True)
    arguments = parser.parse_args()
    if arguments.command == "subset":
        sys.exit(not subset(arguments.directory / "subset", shlex.split(arguments.nova_lite), arguments.groups))
    if arguments.command == "page":
        print(page(stored_in(RESULTS), stored_in(PROGRAMS)), end="")
        return
    for name in arguments.suites:
        command = shlex.split(arguments.nova_lite)
        run(name, arguments.directory / name, command, arguments.gophercloud, arguments.preloaded)


if __name__ == "__main__":
    main()
