"""Plans of ``nova-lite apply``: what they predict for random clouds and changes, and what each change costs."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from nova_lite.cmd.apply import document, mark, text
from nova_lite.cmd.apply import plan as plans
from nova_lite.cmd.apply.desired import Builder
from nova_lite.cmd.apply.effects import effects
from nova_lite.cmd.apply.plan import Key, Op, Place, Step, Thing
from tests.support.random_clouds import KEY, NETWORK, POOL, Clouds

ROUNDS = 1000 if os.environ.get("NOVA_LITE_LONG") == "1" else 60
SIZES = {"vcpus": 1, "ram": 64, "disk": 1, "ephemeral": 0, "swap": 0}
OTHERS: list[Key] = [
    ("network", NETWORK), ("network", POOL), ("image", "one"), ("image", "two"), ("flavor", "small"),
    ("flavor", "large"), ("security group", "default"),
]  # fmt: skip
FLAVORS = {"small": SIZES, "large": {**SIZES, "ram": 128, "disk": 2}}


def place(found: dict[Key, Thing] | None = None, others: list[Key] = OTHERS) -> Place:
    return Place(found or {}, {}, {key: ["id"] for key in others}, FLAVORS)


def things(tmp_path: Path, content: dict[str, Any]) -> dict[Key, Thing]:
    path = tmp_path / "cloud.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return Builder(document.load(str(path)).document, place()).build()


def described(tmp_path: Path, **content: Any) -> dict[Key, Thing]:
    return things(tmp_path, {"cloud": "shop", **content})


def server(name: str = "web", **values: Any) -> dict[str, Any]:
    return {"name": name, "flavor": "small", "image": "one", "networks": [NETWORK], **values}


def content_of(found: dict[Key, Thing]) -> dict[Key, Any]:
    """Return values and needs. What a thing uses follows from its relations, which are things, too."""
    return {key: (thing.values, thing.needs) for key, thing in found.items()}


def shown(steps: list[Step]) -> list[str]:
    return [f"{step.op} {text.title(step.key)}" for step in steps if not step.implied]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_steps_lead_from_any_cloud_to_any_other(tmp_path: Path, seed: int) -> None:
    clouds = Clouds(random.Random(seed), ["one", "two"], ["small", "large"])
    content, found = clouds.new("shop"), dict[Key, Thing]()
    for _ in range(4):
        desired = things(tmp_path, content)
        steps = plans.steps(desired, found)
        done = steps[: clouds.rng.randint(0, len(steps))]
        assert content_of(plans.simulate(found, steps)) == content_of(desired)
        interrupted = plans.simulate(found, done)
        again = plans.steps(desired, interrupted)
        assert content_of(plans.simulate(interrupted, again)) == content_of(desired)
        assert plans.steps(desired, desired) == []
        content, found = clouds.edited(content), desired
    assert plans.simulate(found, plans.steps({}, found)) == {}


def test_simulation_refuses_a_deletion_of_what_is_needed(tmp_path: Path) -> None:
    found = described(tmp_path, networks=[{"name": "inner", "cidr": "10.0.1.0/24"}])
    wrong = Step(Op.DELETE, ("network", "inner"), found["network", "inner"])
    with pytest.raises(ValueError, match="need it"):
        plans.simulate(found, [wrong])


def test_replaced_network_keeps_its_servers_and_gives_them_other_ports(tmp_path: Path) -> None:
    before = described(
        tmp_path, networks=[{"name": "inner", "cidr": "10.0.1.0/24"}], servers=[server(networks=["inner"])]
    )
    after = described(
        tmp_path, networks=[{"name": "inner", "cidr": "10.0.2.0/24"}], servers=[server(networks=["inner"])]
    )
    assert shown(plans.steps(after, before)) == [
        "delete interface web/inner",
        "delete port web/inner",
        "delete subnet inner",
        "create subnet inner",
        "create port web/inner",
        "create interface web/inner",
    ]


def test_replaced_server_keeps_its_port_and_gets_its_volume_back(tmp_path: Path) -> None:
    groups = [{"name": "apart", "policy": "affinity"}]
    values = {"server_groups": groups, "volumes": [{"name": "data", "size": 1, "server": "web"}]}
    before = described(tmp_path, servers=[server()], **values)
    after = described(tmp_path, servers=[server(server_group="apart")], **values)
    steps = plans.steps(after, before)
    assert shown(steps) == [
        "delete attachment data",
        "delete server web",
        "create server web",
        "create attachment data",
    ]
    (costs,) = [effects(step) for step in steps if step.key == ("server", "web") and step.op == Op.DELETE]
    assert "DATA LOSS" in costs[0]


def test_gateway_moves_only_without_floating_addresses(tmp_path: Path) -> None:
    values = {
        "networks": [{"name": "inner", "cidr": "10.0.1.0/24"}],
        "servers": [server(networks=["inner"])],
        "floating_addresses": [{"name": "www", "pool": POOL, "server": "web"}],
    }
    before = described(tmp_path, routers=[{"name": "out", "gateway": POOL, "subnets": ["inner"]}], **values)
    after = described(tmp_path, routers=[{"name": "out", "gateway": NETWORK, "subnets": ["inner"]}], **values)
    assert shown(plans.steps(after, before)) == [
        "delete association www",
        "delete router gateway out",
        "create router gateway out",
        "create association www",
    ]


@pytest.mark.parametrize(
    ("changes", "op", "words"),
    [
        ({"flavor": "large"}, Op.UPDATE, "DOWNTIME"),
        ({"image": "two"}, Op.UPDATE, "DATA LOSS, REBOOT"),
        ({"user_data": "#!/bin/sh\n"}, Op.UPDATE, "a change of user data rebuilds"),
        ({"metadata": {"a": "b"}}, Op.UPDATE, ""),
        ({"availability_zone": "nova"}, Op.DELETE, "DATA LOSS, DOWNTIME"),
    ],
)
def test_change_of_a_server_has_its_cost(tmp_path: Path, changes: dict[str, Any], op: Op, words: str) -> None:
    before = described(tmp_path, servers=[server()])
    steps = plans.steps(described(tmp_path, servers=[server(**changes)]), before)
    step = next(step for step in steps if not step.implied)
    assert (step.op, step.key) == (op, ("server", "web"))
    assert words in " ".join(effects(step))
    assert effects(step) or not words


def test_smaller_disk_is_a_new_server_and_a_smaller_volume_a_new_volume(tmp_path: Path) -> None:
    before = described(tmp_path, servers=[server(flavor="large")], volumes=[{"name": "data", "size": 2}])
    after = described(tmp_path, servers=[server()], volumes=[{"name": "data", "size": 1}])
    assert shown(plans.steps(after, before)) == [
        "delete volume data", "delete server web", "create server web", "create volume data",
    ]  # fmt: skip


def test_security_group_goes_after_the_ports_that_leave_it(tmp_path: Path) -> None:
    before = described(tmp_path, security_groups=[{"name": "web"}], servers=[server(security_groups=["web"])])
    after = described(tmp_path, servers=[server()])
    assert shown(plans.steps(after, before)) == ["update port web/private", "delete security group web"]


def test_new_key_pair_comes_after_the_old_one_which_goes_after_its_last_use(tmp_path: Path) -> None:
    key = {"name": "alice", "public_key": KEY}
    before = described(tmp_path, key_pairs=[key], servers=[server(key_pair="alice")])
    other = {"name": "alice", "public_key": f"{KEY}2"}
    after = described(tmp_path, key_pairs=[other], servers=[server("app", key_pair="alice"), server()])
    assert shown(plans.steps(after, before)) == [
        "create port app/private",
        "update server web",
        "delete key pair alice",
        "create key pair alice",
        "create server app",
    ]


def test_rows_show_values_reasons_and_costs(tmp_path: Path) -> None:
    before = described(tmp_path, servers=[server(metadata={"role": "a"})], volumes=[{"name": "data", "size": 1}])
    after = described(tmp_path, servers=[server(flavor="large", metadata={"role": "b"})])
    steps = plans.steps(after, before)
    assert list(text.rows(steps)) == [
        "    - delete volume data",
        "        DATA LOSS: all data of the volume are lost",
        "    ~ change server web",
        "        flavor.disk: 1 -> 2",
        '        flavor.name: "small" -> "large"',
        "        flavor.ram: 64 -> 128",
        '        metadata.role: "a" -> "b"',
        "        DOWNTIME: the server is stopped, may move to another host, and starts again; its data stay. "
        "It keeps running if hw:max_vcpus and hw:max_memory of both flavors allow it",
    ]
    assert text.summary(steps) == "0 to create, 1 to change, 0 to replace, 1 to delete"


def test_row_of_a_value_has_no_control_characters(tmp_path: Path) -> None:
    before = {("server", "web"): Thing("server", "web", {"description": "\x1b[2J"})}
    after = {("server", "web"): Thing("server", "web", {"description": ""})}
    assert all(row.isprintable() for row in text.rows(plans.steps(after, before)))


def test_fingerprint_follows_values_ids_others_and_users(tmp_path: Path) -> None:
    found = described(tmp_path, servers=[server()])
    same, other = place(found), described(tmp_path, servers=[server(tags=["blue"])])
    assert same.fingerprint() == place(dict(reversed(found.items()))).fingerprint()
    different = [
        place(other),
        place(found, OTHERS[1:]),
        Place(found, {("server", "web"): "id"}, same.others, FLAVORS),
        Place(found, {}, same.others, {}),
        Place(found, {}, same.others, FLAVORS, {("server", "web"): ["port"]}),
    ]
    assert len({same.fingerprint(), *(item.fingerprint() for item in different)}) == 6


def test_thing_that_others_use_is_an_obstacle_only_to_its_deletion(tmp_path: Path) -> None:
    found = described(tmp_path, networks=[{"name": "inner", "cidr": "10.0.1.0/24"}])
    used = Place(found, {}, {}, {}, {("subnet", "inner"): ["port a", "port b", "port c", "port d"]})
    changed = described(tmp_path, networks=[{"name": "inner", "cidr": "10.0.1.0/24", "dns": ["10.1.1.1"]}])
    assert used.obstacle(plans.steps(changed, found)) is None
    key, sentence = used.obstacle(plans.steps({}, found)) or (None, "")
    assert key == ("subnet", "inner") and sentence.endswith("use it: port a, port b, port c and 1 more.")


# --- marks


def test_mark_is_read_as_it_was_added() -> None:
    assert mark.read(mark.add("Web shop", "shop", "web 1")) == ("Web shop", "shop", "web 1", "")
    assert mark.read(mark.add("", "shop", "web", mark.digest("data"))) == ("", "shop", "web", mark.digest("data"))
    assert mark.read_key(mark.add_to_key(KEY, "shop")) == (KEY, "shop")


@pytest.mark.parametrize("words", [None, "", "web", "[nova-lite-apply:shop]", "[nova-lite-apply:shop/web] more"])
def test_text_without_a_mark_has_none(words: str | None) -> None:
    assert mark.read(words) is None


# --- mistakes


@pytest.mark.parametrize(
    ("content", "line", "sentence"),
    [
        ("cloud: [", 1, "this is no YAML"),
        ("cloud: shop\nservers: 3\n", 2, "Expected `array`, got `int`"),
        ("cloud: shop\nflavor: []\n", 0, "unknown field `flavor`"),
        ("cloud: Shop\n", 1, "matching regex"),
        ("cloud: shop\nnetworks:\n- name: a\n  cidr: 10.0.0.1/24\n", 4, "no range of addresses"),
        ("cloud: shop\nnetworks:\n- name: a\n  cidr: fd00::/64\n", 4, "not of IPv4"),
        ("cloud: shop\nrouters:\n- {name: a}\n- {name: a}\n", 4, "router a is there twice"),
        ("cloud: shop\ncloud: shop\n", 2, "cloud is there twice"),
        ("cloud: shop\nkey_pairs:\n- {name: a}\n", 3, "either public_key or file"),
        ("cloud: shop\nkey_pairs:\n- {name: a, file: none}\n", 3, "none is not a readable text"),
        ("cloud: shop\nsecurity_groups:\n- name: a\n  rules:\n  - {ports: 80}\n", 5, "ports need protocol"),
        ("cloud: shop\nvolumes:\n- {name: a, size: 1, server: b}\n", 3, "the file has no server b"),
        ("cloud: shop\nrouters:\n- name: a\n  gateway: none\n", 4, "there is no network none"),
        ("cloud: shop\nnetworks:\n- {name: private}\n", 3, "has a network private that this file did not make"),
        ("cloud: shop\nbackup_policies:\n- {name: a, schedule: {every: day}, retention: {}}\n", 3, "tags or all"),
    ],
)
def test_mistake_is_one_line_with_its_place(tmp_path: Path, content: str, line: int, sentence: str) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(content)
    with pytest.raises(document.Mistake) as caught:
        file = document.load(str(path))
        try:
            Builder(file.document, place()).build()
        except document.Mistake as error:
            raise document.Mistake(file.complaint(error)) from error
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: ") and sentence in message
    assert "\n" not in message


def test_anchor_that_contains_itself_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text("cloud: shop\nservers: &a [*a]\n")
    with pytest.raises(document.Mistake):
        document.load(str(path))
