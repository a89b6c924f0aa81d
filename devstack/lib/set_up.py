"""Steps of ``nova-lite-setup`` that stack.sh takes one by one: ``set_up.py STEP ANSWERS [ARGUMENT]...``, as root.

ANSWERS is a file for ``nova-lite-setup controller --answers``. The steps are the set-up's own. stack.sh adds what only
it has: several compute hosts on one machine, which are lines NAME HOST BROKER_ADDRESS of standard input, ports, and
other services. It starts broker, database server and daemons itself, since it also works without systemd.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nova_lite.base import exceptions, master_keys
from nova_lite.cmd import setup
from nova_lite.cmd.manage.keys import provide_key
from nova_lite.cmd.setup import broker, cluster, controller, machine, units
from nova_lite.cmd.setup.settings import Settings
from nova_lite.rpc import keys
from nova_lite.rpc.broker import Account

HEADER = "# Written by devstack/stack.sh; nova-lite.conf.sample explains every option of nova_lite."


class ComputeHost(NamedTuple):
    """Compute daemon of this machine. ``name``: of its service; ``broker_address``: by which it reaches the broker."""

    name: str
    host: str
    broker_address: str

    @property
    def file(self) -> Path:
        return controller.CONFIGURATION / f"{self.name}.conf"

    def account(self) -> Account:
        url = machine.setting(self.file, "DEFAULT", "transport_url")
        return broker.account(keys.COMPUTE, self.host, url, self.file)


def compute_hosts() -> list[ComputeHost]:
    return [ComputeHost(*line.split()) for line in sys.stdin.read().splitlines()]


def create_users(wanted: Settings) -> None:
    print(f"Users and directories: {units.create_users()}")


def create_keys(wanted: Settings) -> None:
    print(f"Keys of the controller: {controller.create_keys(wanted)}")
    for host in compute_hosts():
        provide_key(str(controller.KEYS), keys.COMPUTE, host.host, "root")
    # A stack of an earlier version has none.
    master_keys.provide(str(cluster.VOLUME_KEYS), machine.ids(cluster.CONDUCTOR))


def write_configuration(wanted: Settings, directory: str) -> None:
    """Write the set-up's files with the changes of ``directory``: options that replace or, if empty, remove its own."""
    machine.write(controller.CONFIGURATION / controller.PASTE, controller.paste(), "root", 0o644)
    made = controller.configuration(wanted)
    for host in compute_hosts():
        password = host.account().password if host.file.exists() else secrets.token_urlsafe(24)
        url = broker.url(keys.COMPUTE, password, host.host, address=host.broker_address)
        made[host.name] = {"DEFAULT": {"host": host.host, "transport_url": url}}
    for name, sections in made.items():
        merged = merge(sections, machine.sections(Path(directory) / f"{name}.conf"))
        machine.write(controller.CONFIGURATION / f"{name}.conf", machine.ini(merged, HEADER), controller.group_of(name))


def merge(sections: machine.Sections, changes: machine.Sections) -> machine.Sections:
    """Return sections with changes. An empty value removes an option."""
    made = {}
    for name in [*sections, *(name for name in changes if name not in sections)]:
        options = sections.get(name, {}) | changes.get(name, {})
        kept = {option: value for option, value in options.items() if value}
        if kept:
            made[name] = kept
    return made


def create_accounts(wanted: Settings) -> None:
    hosts = compute_hosts()
    accounts = [*controller.accounts(wanted.host), *(host.account() for host in hosts)]
    print(f"Message broker: {broker.provide_accounts(accounts)}")
    broker.remove_accounts(list(old_accounts(hosts)))


def old_accounts(hosts: list[ComputeHost]) -> Iterator[str]:
    """Yield the accounts of earlier versions: one for all daemons, then one for each service."""
    yield broker.PREFIX
    for host in hosts:
        yield f"{broker.PREFIX}-{host.name}"


def create_tables(wanted: Settings) -> None:
    print(controller.create_tables(wanted))


def create_admin(wanted: Settings, auth_url: str) -> None:
    print(controller.create_admin(wanted, auth_url))
    password = controller.admin_password(wanted.cloud)
    assert password is not None, "It was just stored."
    controller.store_cloud(wanted, auth_url, password)  # The port may be another one than that of the first run.


def install_units(wanted: Settings, *names: str) -> None:
    print(f"Changed units: {', '.join(machine.install_units(names)) or 'none'}")


STEPS: dict[str, Callable[..., None]] = {
    "users": create_users,
    "keys": create_keys,
    "configuration": write_configuration,
    "accounts": create_accounts,
    "tables": create_tables,
    "admin": create_admin,
    "units": install_units,
}

if __name__ == "__main__":
    step, answers, *arguments = sys.argv[1:]
    try:
        settings_of = setup.parser().parse_args(["controller", "--answers", answers])
        STEPS[step](setup.settings.read(settings_of), *arguments)
    except exceptions.NovaLiteException as error:
        sys.exit(error.message)
