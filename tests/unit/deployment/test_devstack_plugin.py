"""devstack/plugin.sh in the phases of a DevStack, with the functions of its own repository. Nothing is installed.

DEVSTACK_DIRECTORY names a checkout of https://opendev.org/openstack/devstack. Programs that change machines are fakes
that write a log. Of the plugin's calls as root, only the preparation of the shell is run.
"""

from __future__ import annotations

import configparser
import os
import pathlib
import shutil
import subprocess
from typing import NamedTuple

import pytest
from keystoneauth1 import loading

from nova_lite.cmd import setup
from nova_lite.conf import opts
from nova_lite.conf.service_client import plugin_opts

TOP = pathlib.Path(__file__).parents[3]
DAEMONS = {
    "nl-cond": ("conductor", "nova-lite-conductor"),
    "nl-sch": ("scheduler", "nova-lite-scheduler"),
    "nl-api": ("api", "nova-lite-api"),
    "nl-cpu": ("compute", "root"),
    "nl-novnc": ("novncproxy", "nova-lite-console"),
    "nl-serial": ("serialproxy", "nova-lite-console"),
}

LOCALRC = """
STACK_USER=$(id --user --name)
DEST={there}/stack
DATA_DIR={there}/data
HOST_IP=192.0.2.7
ADMIN_PASSWORD=admin
DATABASE_PASSWORD=database
RABBIT_PASSWORD=rabbit
SERVICE_PASSWORD=service
APACHE_CONF_DIR={there}/apache
enable_service tls-proxy
enable_plugin nova_lite https://example.org/nova_lite
"""

#: Calls of the plugin by stack.sh, unstack.sh and clean.sh, in their order.
PHASES = """
set -o errexit
TOP_DIR=$1 there=$2
source "$TOP_DIR/stackrc"
FILES=$TOP_DIR/files SYSTEMD_DIR=$there/units SYSTEMCTL="sudo systemctl" SSL_BUNDLE_FILE=$there/ca.pem
GetDistro
for part in database rpc_backend apache tls infra libraries horizon keystone glance nova placement cinder neutron; do
    source "$TOP_DIR/lib/$part"
done
initialize_database_backends
run_phase source
OVN_AGENT_CONF=$there/ovn_agent.ini
touch "$OVN_AGENT_CONF"
mkdir "$there/apache" "$there/units"
echo "services $ENABLED_SERVICES" >>"$there/log"
if is_service_enabled nova placement; then exit 1; fi
for phase in pre-install install post-config extra; do
    echo "# $phase" >>"$there/log"
    run_plugins stack "$phase"
done
(ENABLED_SERVICES=$SERVICES_FOR_TEMPEST && is_service_enabled nova && is_service_enabled n-novnc)
TEMPEST_CONFIG=$there/tempest.conf
run_plugins stack test-config
echo "# unstack" >>"$there/log"
run_plugins unstack
echo "# clean" >>"$there/log"
run_plugins clean
"""

SUDO = r"""#!/bin/bash
there=$(dirname "$(dirname "$0")")
case $1 in
grep | sed | tee) exec "$@" ;;
bash)
    script=$3 lib=$4
    shift 4
    echo "root $*" >>"$there/log"
    [[ $2 != configuration ]] || cp -r "$3" "$there/changes"
    exec bash -c "${script%\"\$@\"*} type -- \"\$1\" >/dev/null" "$lib" "$@"
    ;;
install)
    echo "sudo $*" >>"$there/log"
    [[ $* != */dev/stdin* ]] || cat >"$there/$(basename "${!#}")"
    ;;
*) echo "sudo $*" >>"$there/log" ;;
esac
"""

#: The compute host exists already, and nothing else.
OPENSTACK = """#!/bin/bash
echo "openstack $*" >>"$(dirname "$0")/../log"
[[ $* == *" list"* && $* != *"compute service list"* ]] || echo 1
"""

FAKES = {
    "sudo": SUDO,
    "openstack": OPENSTACK,
    "curl": "#!/bin/bash\necho 200\n",
    "a2query": "#!/bin/bash\n",
    # DevStack runs it without sudo as root.
    "apt-get": '#!/bin/bash\necho "apt-get $*" >>"$(dirname "$0")/../log"\n',
    "iscsi-iname": "#!/bin/bash\necho iqn.2026-11.org.example:fake\n",
}


class Run(NamedTuple):
    """Result of all phases. ``log``: what the plugin and DevStack's functions would have run, by phase."""

    directory: pathlib.Path
    log: dict[str, list[str]]

    def options(self, *names: str) -> dict[str, dict[str, str]]:
        """Return the options of files that the plugin writes for daemons."""
        parser = configparser.RawConfigParser(default_section="")
        parser.read(self.directory / "changes" / f"{name}.conf" for name in names)
        return {section: dict(parser.items(section)) for section in parser.sections()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    checkout = os.environ.get("DEVSTACK_DIRECTORY")
    if checkout is None:
        pytest.skip("DEVSTACK_DIRECTORY does not name a checkout of DevStack (docs/howto/devstack.md).")
    there = tmp_path_factory.mktemp("devstack")
    shutil.copytree(checkout, there / "devstack", ignore=shutil.ignore_patterns(".git"))
    (there / "devstack/localrc").write_text(LOCALRC.format(there=there))
    (there / "stack").mkdir()
    (there / "stack/nova_lite").symlink_to(TOP)
    programs = there / "programs"
    programs.mkdir()
    for name, text in FAKES.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", PHASES, "stack.sh", str(there / "devstack"), str(there)],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    log: dict[str, list[str]] = {"": []}
    for line in (there / "log").read_text().splitlines():
        if line.startswith("# "):
            log[line[2:]] = []
        else:
            log[[*log][-1]].append(line)
    return Run(there, log)


def test_settings_replace_nova_and_placement(run: Run) -> None:
    services = run.log[""][0].removeprefix("services ").split(",")
    assert set(DAEMONS) <= set(services)
    assert {"key", "g-api", "c-api", "q-svc", "rabbit", "tempest"} <= set(services)
    assert not [name for name in services if name.startswith(("n-", "placement"))]


def test_install_phase_installs_packages_and_the_checkout(run: Run) -> None:
    assert run.log["pre-install"] == []
    log = run.log["install"]
    called = [line.split()[1] for line in log if line.startswith("root")]
    assert called == ["eval", "make_directories", "install_checkout"]
    assert any(line.startswith("apt-get") and "open-iscsi" in line for line in log)
    assert any("pip install os-brick" in line for line in log)
    assert (run.directory / "initiatorname.iscsi").read_text() == "InitiatorName=iqn.2026-11.org.example:fake\n"


def test_configuration_phase_registers_the_api_and_takes_the_steps_of_the_set_up(run: Run) -> None:
    log = run.log["post-config"]
    assert any(line.startswith("openstack") and " user create nova " in line for line in log)
    urls = [line for line in log if "endpoint create" in line]
    assert any("https://192.0.2.7/compute/v2.1" in line for line in urls)
    steps = [line.split()[2] for line in log if line.startswith("root set_up")]
    assert steps == ["users", "keys", "configuration", "accounts", "tables"]
    assert any(line.startswith("sudo install") and line.endswith(" /etc/nova-lite/ca-bundle.pem") for line in log)


def test_answers_are_those_of_the_set_up(run: Run) -> None:
    parsed = setup.parser().parse_args(["controller", "--answers", str(run.directory / "answers.yaml")])
    settings = setup.settings.read(parsed)
    assert (settings.address, settings.region, settings.database) == ("127.0.0.1", "RegionOne", "sqlite")


@pytest.mark.parametrize("daemon", ["api", "conductor", "compute"])
def test_configuration_has_only_options_of_nova_lite(run: Run, daemon: str) -> None:
    known: dict[str, set[str]] = {}
    for group, members in opts.list_opts():
        known.setdefault(group or "DEFAULT", set()).update(opt.dest for opt in members)
    plugin = {opt.dest for opt in plugin_opts()}
    for section, options in run.options("nova-lite", daemon).items():
        allowed = known.get(section, set()) | (plugin if "auth_type" in options else set())
        allowed |= {"interface", "region_name", "cafile", "valid_interfaces"} if "auth_type" in options else set()
        allowed |= {"auth_type", "auth_url", "www_authenticate_uri"} if section == "keystone_authtoken" else set()
        names = {name.replace("-", "_") for name in options}
        assert names <= {(name or "").replace("-", "_") for name in allowed}, section


def test_daemons_use_the_services_of_devstack(run: Run) -> None:
    api = run.options("nova-lite", "api")
    assert (api["image"]["backend"], api["network"]["backend"], api["volume"]["backend"]) == (
        "glance",
        "neutron",
        "cinder",
    )
    assert api["api"]["auth_strategy"] == "keystone"
    assert api["api"]["compute_link_prefix"] == "https://192.0.2.7/compute"
    conductor = run.options("conductor")
    assert set(conductor) == {"glance", "neutron", "cinder"}
    agent = (run.directory / "ovn_agent.ini").read_text()
    assert "metadata_proxy_shared_secret = service" in agent
    assert api["neutron"]["metadata_proxy_shared_secret"] == "service"
    for section in conductor.values():
        assert (section["auth_url"], section["username"]) == ("https://192.0.2.7/identity", "nova")
        assert section["cafile"] == "/etc/nova-lite/ca-bundle.pem"
        assert loading.get_plugin_loader(section["auth_type"])


def test_each_daemon_has_a_unit_with_its_user_and_files(run: Run) -> None:
    for service, (daemon, user) in DAEMONS.items():
        unit = (run.directory / f"units/devstack@{service}.service").read_text()
        assert f"ExecStart = /opt/nova-lite/venv/bin/nova-lite-{daemon} " in unit
        assert f"--config-file /etc/nova-lite/{daemon}.conf" in unit
        assert f"User = {user}\n" in unit
        assert f"sudo systemctl start devstack@{service}.service" in run.log["extra"]
    proxy = (run.directory / "apache/nova-lite-api.conf").read_text()
    assert 'ProxyPass "/compute" "http://127.0.0.1:8774"' in proxy


def test_flavors_are_those_of_devstack(run: Run) -> None:
    flavors = [line.split()[-1] for line in run.log["extra"] if "flavor create" in line]
    assert {"m1.tiny", "ds512M"} <= set(flavors)


def test_unstack_stops_the_daemons_and_removes_guests(run: Run) -> None:
    stopped = [line.split("@")[1] for line in run.log["unstack"] if line.startswith("sudo systemctl stop")]
    assert stopped == [f"{service}.service" for service in DAEMONS]
    calls = [line.split()[1] for line in run.log["unstack"] if line.startswith("root")]
    assert calls == ["remove_guests", "drop_broker", "eval"]
    assert run.log["clean"] == ["root remove_files_and_links", "root remove_users"]
