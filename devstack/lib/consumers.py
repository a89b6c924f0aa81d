"""Programs of others against clouds of ``nova-lite dev``. Run by devstack/consumers.sh::

    consumers.py PROGRAM --directory DIRECTORY --nova-lite COMMAND [--provider FILE]

PROGRAM is ansible, fog, heat, horizon, libcloud, octavia, packer, rally, skyline or terraform. Exits with an error at
the first step that fails.
The result is stored in benchmarks/results/consumers, of which clients.py makes a table.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from clients import PROGRAMS as RESULTS
from clients import Cloud, plain, running_cloud

FILES = Path(__file__).resolve().parents[1] / "consumers"
BIN = Path(sys.executable).parent
#: Screenshots of Horizon that the documentation shows.
IMAGES = FILES.parents[1] / "docs/reference/images"


class Failure(Exception):
    """A step that failed."""


class Program(NamedTuple):
    """A program. ``run`` returns what has passed. ``versions``: by name, of the program and what it uses."""

    run: Callable[[Job], str]
    versions: Callable[[], dict[str, str]]


class Job(NamedTuple):
    """A program to run. ``directory`` is its own. ``clouds``: a file with the clouds of the users."""

    cloud: Cloud
    directory: Path
    clouds: Path
    provider: Path | None

    def run(self, *command: str | Path, statuses: tuple[int, ...] = (0,), **variables: str) -> str:
        """Run a command with the cloud of the user demo, and return its output. Log it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "PYTHON"))}
        variables = {"OS_CLIENT_CONFIG_FILE": str(self.clouds), "OS_CLOUD": "demo", **variables}
        environment = kept | {"PATH": f"{BIN}:{os.environ['PATH']}"} | variables
        began = time.monotonic()
        done = subprocess.run(
            [str(word) for word in command], cwd=self.directory, env=environment, capture_output=True, text=True
        )
        line = shlex.join(str(word) for word in command)[:110]
        with open(self.directory / "commands.log", "a") as log:
            log.write(f"$ {line}\n{done.stdout}{done.stderr}\n")
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)
        if done.returncode not in statuses:
            raise Failure(f"{line} failed ({self.directory}/commands.log):\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def openstack_rest(self, service: str, path: str) -> Any:
        """Return the answer of an API to the admin."""
        session = self.cloud.session
        return session.get(f"{getattr(session, service)}/{path}")

    def openstack(self, *arguments: str, user: str = "demo") -> str:
        return self.run(BIN / "openstack", *arguments, OS_CLOUD=user)


# --- Terraform


def terraform(job: Job) -> str:
    """Make a usual module, see no change in a second plan, change it, and destroy it; then all of it once more."""
    if job.provider is None:
        raise Failure("terraform: --provider must name the program terraform-provider-openstack.")
    module = (FILES / "terraform.tf").read_text()
    overrides = {"terraform-provider-openstack/openstack": str(job.provider.resolve().parent)}
    lines = "".join(f'    "{name}" = "{path}"\n' for name, path in overrides.items())
    settings = job.directory / "settings.tfrc"
    settings.write_text(f"provider_installation {{\n  dev_overrides {{\n{lines}  }}\n}}\n")

    def run(*arguments: str) -> str:
        variables = {"TF_CLI_CONFIG_FILE": str(settings), "CHECKPOINT_DISABLE": "1"}
        return job.run("terraform", *arguments, "-no-color", **variables)

    for _ in range(2):
        for text in (module, module.replace('role = "web"', 'role = "db"').replace("size  = 1", "size  = 2")):
            (job.directory / "main.tf").write_text(text)
            run("apply", "-auto-approve")
            run("plan", "-detailed-exitcode")  # 2 means that there are changes
        run("destroy", "-auto-approve")
    count = len(re.findall(r"^resource ", module, re.MULTILINE))
    return f"{count} resources made, changed in place and destroyed, twice; plans without changes"


# --- Heat


HEAT_PORT = 8004
SKYLINE_PORT = 9999


def heat(job: Job) -> str:
    """Make a stack, change it, and delete it, with an engine that finds the cloud by the catalog."""
    password = secrets.token_urlsafe(16)
    heat_accounts(job, password)
    with heat_storage(password):
        config = job.directory / "heat.conf"
        config.write_text(heat_config(job, password))
        job.run(BIN / "heat-manage", "--config-file", config, "db_sync")
        engine = [BIN / "heat-engine", "--config-file", config]
        api = [BIN / "heat-wsgi-api", "--host", "127.0.0.1", "--port", str(HEAT_PORT), "--", "--config-file", config]
        with daemon(job, "engine", engine), daemon(job, "api", api):
            wait_for_http(f"http://127.0.0.1:{HEAT_PORT}/")
            template = yaml.safe_load((FILES / "heat.yaml").read_text())
            job.openstack("stack", "create", "--wait", "-t", str(FILES / "heat.yaml"), "one")
            template["resources"]["server"]["properties"]["metadata"] = {"made-by": "heat, changed"}
            template["resources"]["volume"]["properties"]["size"] = 2
            changed = job.directory / "changed.yaml"
            changed.write_text(yaml.safe_dump(template))
            job.openstack("stack", "update", "--wait", "-t", str(changed), "one")
            stack = json.loads(job.openstack("stack", "show", "-f", "json", "one"))
            job.openstack("stack", "delete", "--yes", "--wait", "one")
    for noun in ("server", "volume", "router"):
        if left := json.loads(job.openstack(noun, "list", "-f", "json")):
            raise Failure(f"The stack has left {noun}: {left}")
    return f"a stack of {len(template['resources'])} resources created, changed ({stack['stack_status']}) and deleted"


def heat_accounts(job: Job, password: str) -> None:
    """Make Heat's entry in the catalog, its user, and the domain for users of stacks."""
    identity = f"{job.cloud.url}/identity/v3"

    def send(method: str, path: str, body: Any = None) -> Any:
        response = job.cloud.session.request(method, f"{identity}/{path}", json=body)
        return next(iter(response.json().values())) if response.content else None

    service = send("POST", "services", {"service": {"type": "orchestration", "name": "heat"}})
    endpoint = {"service_id": service["id"], "interface": "public", "region_id": "RegionOne", "url": heat_url()}
    send("POST", "endpoints", {"endpoint": endpoint})
    send("POST", "roles", {"role": {"name": "heat_stack_user"}})
    admin = send("GET", "roles?name=admin")[0]["id"]
    domain = send("POST", "domains", {"domain": {"name": "heat"}})["id"]
    project = send("GET", "projects?name=admin")[0]["id"]
    for name, home, target in (
        ("heat_domain_admin", domain, f"domains/{domain}"),
        ("heat", "default", f"projects/{project}"),
    ):
        user = send("POST", "users", {"user": {"name": name, "password": password, "domain_id": home}})
        send("PUT", f"{target}/users/{user['id']}/roles/{admin}")


def heat_url() -> str:
    return f"http://127.0.0.1:{HEAT_PORT}/v1/%(tenant_id)s"


@contextlib.contextmanager
def heat_storage(password: str) -> Iterator[None]:
    """Make a database, and a virtual host of the broker, while the context lasts. Needs root."""
    broker = ["rabbitmqctl", "--quiet"]
    remove: list[list[str]] = [
        ["mysql", "-e", "DROP DATABASE IF EXISTS consumers_heat; DROP USER IF EXISTS 'consumers_heat'@'127.0.0.1'"],
    ]
    subprocess.run(remove[0], check=True)
    make = (
        f"CREATE DATABASE consumers_heat; CREATE USER 'consumers_heat'@'127.0.0.1' IDENTIFIED BY '{password}'; "
        "GRANT ALL ON consumers_heat.* TO 'consumers_heat'@'127.0.0.1'"
    )
    try:
        subprocess.run(["mysql", "-e", make], check=True)
        for arguments, undo in (
            (["add_vhost", "consumers-heat"], ["delete_vhost", "consumers-heat"]),
            (["add_user", "consumers-heat", password], ["delete_user", "consumers-heat"]),
            (["set_permissions", "-p", "consumers-heat", "consumers-heat", ".*", ".*", ".*"], []),
        ):
            subprocess.run([*broker, *arguments], check=True, stdout=subprocess.DEVNULL)
            remove += [[*broker, *undo]] if undo else []
        yield
    finally:
        for command in reversed(remove):
            subprocess.run(command, check=False)


def heat_config(job: Job, password: str) -> str:
    identity = f"{job.cloud.url}/identity"
    paste = next(Path(sys.prefix).glob("**/heat/api-paste.ini"))
    account = f"auth_url = {identity}\nauth_type = password\nusername = heat\npassword = {password}\n"
    account += "user_domain_id = default\n"
    return f"""\
[DEFAULT]
transport_url = rabbit://consumers-heat:{password}@127.0.0.1:5672/consumers-heat
auth_encryption_key = {secrets.token_hex(16)}
stack_user_domain_name = heat
stack_domain_admin = heat_domain_admin
stack_domain_admin_password = {password}
num_engine_workers = 1
rpc_response_timeout = 600
[database]
connection = mysql+pymysql://consumers_heat:{password}@127.0.0.1/consumers_heat
[keystone_authtoken]
www_authenticate_uri = {identity}
project_name = admin
project_domain_id = default
{account}
[trustee]
{account}
[clients_keystone]
auth_uri = {identity}
[paste_deploy]
api_paste_config = {paste}
"""


@contextlib.contextmanager
def daemon(job: Job, name: str, command: list[Any]) -> Iterator[None]:
    with open(job.directory / f"{name}.log", "wb") as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, cwd=job.directory)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for_http(url: str) -> None:
    """Wait until a server answers, with an error or not."""
    for _ in range(240):
        try:
            urllib.request.urlopen(url, timeout=5)  # noqa: S310 our own
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.5)
    raise Failure(f"Nothing answers at {url}.")


# --- Libcloud


def libcloud(job: Job) -> str:
    """Make and remove a server with a volume and a floating address."""
    job.run(sys.executable, FILES / "libcloud_flow.py", job.cloud.url, job.cloud.password)
    return "server, volume, floating address, key pair, security group and snapshot made and removed"


# --- fog, Packer


def fog(job: Job) -> str:
    """Make and remove a server with a network, a router, a volume and a floating address."""
    job.run("ruby", FILES / "fog_flow.rb", job.cloud.url, job.cloud.password)
    return "network, router, server, volume, floating address and security group made and removed"


def packer(job: Job) -> str:
    """Make an image of a server that Packer starts."""
    network = job.openstack_rest("network", "networks?name=private")["networks"][0]["id"]
    values = {"url": job.cloud.url, "password": job.cloud.password, "network": network}
    variables = [word for name, value in values.items() for word in ("-var", f"{name}={value}")]
    job.run("packer", "build", "-color=false", *variables, FILES / "packer.json", CHECKPOINT_DISABLE="1")
    (image,) = job.openstack_rest("image", "images?name=packed")["images"]
    if (image["status"], image["tags"]) != ("active", ["packed"]):
        raise Failure(f"Packer's image is not as it should be: {image}")
    return "an image made of a server, with a tag"


# --- Horizon


def horizon(job: Job) -> str:
    """Use Horizon in a browser. Keep its screenshots for the documentation."""
    from horizon_pages import use_horizon

    try:
        result = use_horizon(job.cloud, job.directory)
    except AssertionError as error:
        raise Failure(f"{error} ({job.directory}/horizon.log)") from error
    for picture in job.directory.glob("horizon-*.png"):
        shutil.copy(picture, IMAGES)
    return result


# --- Ansible, Rally


def ansible(job: Job) -> str:
    """Make a server with all around it, see no change in a second run, and remove everything."""
    settings = {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false"}
    interpreter = ["-e", f"ansible_python_interpreter={sys.executable}"]
    output = job.run(BIN / "ansible-playbook", *interpreter, FILES / "ansible.yaml", **settings)
    (passed,) = re.findall(r"\bok=(\d+) .*failed=0 ", output)
    return f"{passed} tasks of members and admins, no change in a second run"


def rally(job: Job) -> str:
    """Run scenarios of the services with users of Rally's own. None of them may fail."""
    admin = {"username": "admin", "password": job.cloud.password, "project_name": "admin"}
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    platform = {"auth_url": f"{job.cloud.url}/identity/v3", "region_name": "RegionOne", "admin": admin | domains}
    files = {"spec.json": {"openstack": platform}, "task.json": yaml.safe_load((FILES / "rally.yaml").read_text())}
    for name, content in files.items():
        (job.directory / name).write_text(json.dumps(content))  # Rally reads no YAML with references
    (job.directory / "rally.conf").write_text(f"[database]\nconnection = sqlite:///{job.directory}/rally.db\n")

    def run(*arguments: str) -> str:
        return job.run(BIN / "rally", "--config-file", "rally.conf", *arguments, HOME=str(job.directory))

    run("db", "create")
    run("env", "create", "--name", "dev", "--spec", "spec.json")
    run("task", "start", "task.json")
    run("task", "report", "--json", "--out", "report.json")
    found = json.loads((job.directory / "report.json").read_text())["tasks"][0]["subtasks"]
    failed = [item["title"] for item in found if not all(work["pass_sla"] for work in item["workloads"])]
    if failed:
        raise Failure(f"Scenarios failed ({job.directory}/report.json): {', '.join(failed)}")
    return f"{len(found)} scenarios of identity, servers, networks, volumes and images"


# --- Octavia, Skyline


def octavia(job: Job) -> str:
    """Make and delete a pair of amphorae and a virtual address by Octavia's drivers, with local disks and volumes."""
    for driver in ("volume_noop_driver", "volume_cinder_driver"):
        job.run(sys.executable, FILES / "octavia_flow.py", job.cloud.url, job.cloud.password, driver, OS_CLOUD="admin")
    job.run(sys.executable, FILES / "octavia_network_flow.py", job.cloud.url, job.cloud.password, OS_CLOUD="admin")
    return "its drivers of compute, images, volumes and networks: a pair of amphorae and a virtual address"


def skyline(job: Job) -> str:
    """List servers, volumes and snapshots by the extension routes of Skyline's API server."""
    import skyline_apiserver

    settings = {
        "default": {"database_url": f"sqlite:///{job.directory}/skyline.db", "log_dir": str(job.directory)},
        "openstack": {
            "keystone_url": f"{job.cloud.url}/identity/v3/",
            "system_project": "admin",
            "system_user_name": "admin",
            "system_user_password": job.cloud.password,
        },
    }
    file = job.directory / "skyline.yaml"
    file.touch(0o600)
    file.write_text(yaml.safe_dump(settings))
    migrations = Path(skyline_apiserver.__file__).parent / "db/alembic/alembic.ini"
    variables = {"OS_CONFIG_DIR": str(job.directory)}
    job.run(BIN / "alembic", "-c", migrations, "upgrade", "head", **variables)
    address = f"http://127.0.0.1:{SKYLINE_PORT}"
    server = ["env", f"OS_CONFIG_DIR={job.directory}", BIN / "uvicorn", "skyline_apiserver.main:app"]
    with daemon(job, "skyline", [*server, "--host", "127.0.0.1", "--port", SKYLINE_PORT]):
        wait_for_http(f"{address}/docs")
        job.run(sys.executable, FILES / "skyline_flow.py", address, job.cloud.password)
    return "servers, volumes, snapshots, ports and services listed by its API server"


# --- versions


def distributions(*names: str) -> Callable[[], dict[str, str]]:
    """Return the function that looks for the versions of Python's distributions."""
    return lambda: {name: importlib.metadata.version(name) for name in names}


def printed(name: str, *command: str) -> Callable[[], dict[str, str]]:
    """Return the function that finds a version in what a command prints."""

    def versions() -> dict[str, str]:
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        found = re.search(r"\d+(\.\d+)+", output)
        return {name: found[0] if found else "unknown"}

    return versions


#: The gem's version, which Debian's package has, too.
FOG_VERSION = (
    "puts Gem.loaded_specs['fog-openstack']&.version || Gem::Specification.find_by_name('fog-openstack').version"
)

PROGRAMS = {
    "ansible": Program(ansible, distributions("ansible", "openstacksdk")),
    "fog": Program(fog, printed("fog-openstack", "ruby", "-e", FOG_VERSION)),
    "heat": Program(heat, distributions("openstack-heat", "python-heatclient")),
    "horizon": Program(horizon, distributions("horizon", "Django")),
    "libcloud": Program(libcloud, distributions("apache-libcloud")),
    "octavia": Program(octavia, distributions("octavia")),
    "packer": Program(packer, printed("packer", "packer", "version")),
    "rally": Program(rally, distributions("rally", "rally-openstack")),
    "skyline": Program(skyline, distributions("skyline-apiserver")),
    "terraform": Program(terraform, printed("terraform", "terraform", "version")),
}


def clouds_of(cloud: Cloud) -> dict[str, Any]:
    common = {"user_domain_id": "default", "project_domain_id": "default", "password": cloud.password}
    return {
        "clouds": {
            name: {
                "auth": {
                    "auth_url": f"{cloud.url}/identity/v3",
                    "username": name,
                    "project_name": name,
                    **common,
                },
                "region_name": "RegionOne",
            }
            for name in ("admin", "demo")
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--nova-lite", required=True)
    parser.add_argument("--provider", type=Path)
    arguments = parser.parse_args()
    directory = arguments.directory / arguments.program
    subprocess.run(["rm", "-rf", str(directory)], check=True)
    directory.mkdir(parents=True)
    program = PROGRAMS[arguments.program]
    began = time.monotonic()
    with running_cloud(shlex.split(arguments.nova_lite), directory) as cloud:
        clouds = directory / "clouds.yaml"
        clouds.write_text(yaml.safe_dump(clouds_of(cloud)))
        stored = {
            "program": arguments.program,
            "versions": program.versions(),
            "date": datetime.date.today().isoformat(),
            "nova_lite": cloud.nova_lite,
        }
        try:
            result = {"status": "passed", "text": program.run(Job(cloud, directory, clouds, arguments.provider))}
        except Failure as failure:
            result = {"status": "failed", "text": plain(str(failure))}
            print(failure, file=sys.stderr)
    stored |= result | {"seconds": round(time.monotonic() - began)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{arguments.program}.json").write_text(json.dumps(stored, indent=1) + "\n")
    print(f"{arguments.program} {stored['status']} with nova_lite {cloud.nova_lite}: {stored['text']}")
    sys.exit(stored["status"] != "passed")


if __name__ == "__main__":
    main()
