"""Protection of servers by their metadata, flavor, image and project."""

from __future__ import annotations

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import protection
from nova_lite.objects.protection import Protection


def test_server_is_not_protected_by_default() -> None:
    assert protection.of_server({}, {}, {}, by_default=False) == Protection()


def test_each_setting_is_taken_from_the_server_before_flavor_image_and_project() -> None:
    server, flavor = {"ha:priority": "7"}, {"ha:restart": "never", "ha:priority": "1", "ha:delay": "30"}
    image = {"ha_restart": "always", "ha_local_disk": "rebuild", "ha:attempts": "5"}
    found = protection.of_server(server, flavor, image, by_default=True)
    assert found == Protection(restart=False, priority=7, delay=30, attempts=5, rebuild=True, source="flavor")
    assert protection.of_server(server, {}, image, by_default=False).source == "image"
    assert protection.of_server({}, {}, {}, by_default=True) == Protection(restart=True, source="project")


@pytest.mark.parametrize("value", ["Always", "", "always\n", "yes", "1"])
def test_wrong_value_protects_nothing(value: str) -> None:
    assert not protection.of_server({}, {}, {"ha:restart": value}, by_default=False).restart


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ha:restart", "yes", "always or never"),
        ("ha:priority", "1000", "0 to 999"),
        ("ha:priority", "-1", "0 to 999"),
        ("ha:priority", "٣", "0 to 999"),
        ("ha:delay", "1.5", "seconds"),
        ("ha:attempts", "0", "1 to 99"),
        ("ha:local-disk", "lose", "keep or rebuild"),
        ("ha:restarts", "always", "ha:restart, ha:priority"),
    ],
)
def test_wrong_setting_is_refused_with_the_right_values(key: str, value: str, words: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match=words):
        protection.check({key: value})


def test_right_settings_and_other_keys_are_accepted() -> None:
    right = {"restart": "always", "priority": "0", "delay": "0", "attempts": "99", "local-disk": "rebuild"}
    protection.check({f"ha:{name}": value for name, value in right.items()} | {"hw:x": "y", "haha": "z"})
