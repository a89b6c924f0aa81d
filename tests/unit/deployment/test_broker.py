"""devstack's broker listens at the chosen addresses only, and another's broker is left as it is."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[3]

ADDRESSES = """
source devstack/lib/common.sh
cd "$TOP"
source devstack/lib/rabbitmq.sh
has_systemd() { false; }
broker_answers() { [[ -n $VHOSTS ]]; }
rabbitmqctl() { [[ -z $VHOSTS ]] || printf '%s\\n' $VHOSTS; }
start_broker() { echo started; }
stop_broker() { echo stopped; }
epmd() { [[ -z $NODES ]] || printf 'name %s at port 25672\\n' $NODES; }
ss() { [[ $* == *src* ]] && echo there || printf 'LISTEN 0 128 %s 0.0.0.0:*\\n' $OPEN; }
BROKER_ETC=$1 BROKER_ADDRESS=$2
"${@:3}"
"""
PACKAGES = "# NODE_IP_ADDRESS=127.0.0.1\n\n"


def addresses(
    etc: pathlib.Path, address: str, *command: str, vhosts: str = "", nodes: str = "rabbit", sockets: str = ""
) -> str:
    done = subprocess.run(
        ["bash", "-c", ADDRESSES, "test", str(etc), address, *command],
        cwd=TOP,
        env={**os.environ, "VHOSTS": vhosts, "NODES": nodes, "OPEN": sockets},
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


EPMD_OPEN = "127.0.0.1:5672 127.0.0.1:25672 0.0.0.0:4369 [::]:4369"


def test_epmd_with_other_nodes_is_left_as_it_is_and_the_operator_told(tmp_path: pathlib.Path) -> None:
    """No restart of the broker would change where it listens: it does not end for the other nodes' sake."""
    nodes = "rabbit rabbitmqcli-77-rabbit couchdb"
    told = addresses(tmp_path, "127.0.0.1", "set_up_broker", vhosts="/", nodes=nodes, sockets=EPMD_OPEN)
    assert told == "started\n"
    hint = addresses(tmp_path, "127.0.0.1", "broker_hint", vhosts="/", nodes=nodes, sockets=EPMD_OPEN)
    assert hint.startswith("epmd listens at 0.0.0.0:4369 [::]:4369 and has other nodes (couchdb), so it is left")
    assert hint.count("\n") == 1


def test_epmd_of_the_broker_alone_that_is_open_to_all_ends_with_the_broker(tmp_path: pathlib.Path) -> None:
    arguments = (tmp_path, "127.0.0.1", "keep_broker_in")
    assert addresses(*arguments, vhosts="/", sockets=EPMD_OPEN) == "stopped\n"


def test_broker_that_is_open_to_all_beside_other_nodes_is_started_again(tmp_path: pathlib.Path) -> None:
    arguments = (tmp_path, "127.0.0.1", "keep_broker_in")
    assert addresses(*arguments, vhosts="/", nodes="rabbit couchdb", sockets="0.0.0.0:5672") == "stopped\n"
