"""devstack's accounts at the broker are those of `nova_lite.rpc.broker`, and each daemon comes by its own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from nova_lite.rpc import broker

TOP = pathlib.Path(__file__).parents[3]

ACCOUNTS = """
source devstack/lib/common.sh
cd "$TOP"
for component in rabbitmq config services; do source devstack/lib/$component.sh; done
COMPUTES=2
SECRETS=$1
$2
"""


def in_shell(secrets: pathlib.Path, command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", ACCOUNTS, "test", str(secrets), command], cwd=TOP, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_each_daemon_has_an_account(tmp_path: pathlib.Path) -> None:
    lines = [line.split() for line in in_shell(tmp_path, "broker_accounts").splitlines()]
    assert [(name, role) for name, role, _ in lines] == [
        *((name, name) for name in ("conductor", "scheduler", "api", "console", "manage")),
        ("compute-1", "compute"),
        ("compute-2", "compute"),
    ]
    hosts = {host for _, role, host in lines if role == "compute"}
    assert len(hosts) == 2


def test_urls_differ_and_their_secrets_are_roots_alone(tmp_path: pathlib.Path) -> None:
    secrets = tmp_path / "secrets"
    urls = [in_shell(secrets, f"broker_url {name}").strip() for name in ("api", "compute-1", "api")]
    assert urls[0] == urls[2] != urls[1]
    assert urls[0].startswith("rabbit://nova-lite-api:") and urls[0].endswith("@127.0.0.1:5672/nova-lite")
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o077 for path in secrets.iterdir()] == [0, 0]


def test_definitions(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broker-compute").write_text("s3cret")
    script = TOP / "devstack/lib/broker.py"
    done = subprocess.run(
        [sys.executable, str(script), "vhost", "prefix", str(tmp_path)],
        input="compute compute host-1\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "s3cret" not in done.stdout
    made = json.loads(done.stdout)
    (user,) = made["users"]
    kept = base64.b64decode(user["password_hash"])
    assert kept[4:] == hashlib.sha256(kept[:4] + b"s3cret").digest()
    found, who = broker.permissions("compute", "host-1"), {"user": "prefix-compute", "vhost": "vhost"}
    assert user["name"] == "prefix-compute" and user["tags"] == []
    assert made["permissions"] == [who | {"configure": found.configure, "write": found.write, "read": found.read}]
    topics = who | {"exchange": "nova_lite", "write": found.topic_write, "read": found.topic_read}
    assert made["topic_permissions"] == [topics]


ADDRESSES = """
source devstack/lib/common.sh
cd "$TOP"
source devstack/lib/rabbitmq.sh
has_systemd() { false; }
broker_answers() { [[ -n $VHOSTS ]]; }
rabbitmqctl() { printf '%s\\n' $VHOSTS; }
BROKER_ETC=$1 BROKER_ADDRESS=$2
"${@:3}"
"""
PACKAGES = "# NODE_IP_ADDRESS=127.0.0.1\n\n"


def addresses(etc: pathlib.Path, address: str, *command: str, vhosts: str = "") -> str:
    done = subprocess.run(
        ["bash", "-c", ADDRESSES, "test", str(etc), address, *command],
        cwd=TOP,
        env={**os.environ, "VHOSTS": vhosts},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_broker_address_is_written_once_and_removed(tmp_path: pathlib.Path) -> None:
    env, listeners = tmp_path / "rabbitmq-env.conf", tmp_path / "conf.d/nova-lite.conf"
    env.write_text(PACKAGES)
    for _ in range(2):
        addresses(tmp_path, "127.0.0.1", "write_broker_addresses")
        assert listeners.read_text() == "listeners.tcp.1 = 127.0.0.1:5672\n"
        assert env.read_text().startswith(PACKAGES) and env.read_text().count("ERL_EPMD_ADDRESS=127.0.0.1") == 1
    addresses(tmp_path, "10.0.0.5", "write_broker_addresses")
    assert listeners.read_text() == "listeners.tcp.1 = 127.0.0.1:5672\nlisteners.tcp.2 = 10.0.0.5:5672\n"
    assert addresses(tmp_path, "127.0.0.1", "broker_is_anothers") == "", "what devstack wrote is its own"
    addresses(tmp_path, "127.0.0.1", "forget_broker_addresses")
    assert env.read_text() == PACKAGES
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["rabbitmq-env.conf"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("rabbitmq.conf", ""),
        ("advanced.config", "[].\n"),
        ("conf.d/10-site.conf", "listeners.tcp.1 = 10.0.0.1:5672\n"),
        ("rabbitmq-env.conf", PACKAGES + "NODENAME=rabbit@site\n"),
    ],
)
def test_anothers_configuration_is_left_as_it_is(tmp_path: pathlib.Path, file: str, text: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    told = addresses(tmp_path, "127.0.0.1", "keep_broker_in")
    assert told.startswith("The broker is left as it is: ") and str(path) in told
    assert [(item, item.read_text()) for item in tmp_path.rglob("*") if item.is_file()] == [(path, text)]


def test_a_broker_that_others_use_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    ours = "/ nova-lite nova-lite-cinder"
    assert addresses(tmp_path, "127.0.0.1", "broker_is_anothers", vhosts=ours) == ""
    told = addresses(tmp_path, "127.0.0.1", "keep_broker_in", vhosts=f"{ours} billing")
    assert told == "The broker is left as it is: its virtual host billing is not ours.\n"
    assert list(tmp_path.iterdir()) == []
