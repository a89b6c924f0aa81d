"""Values of the options of networks."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from tests.support.config_drives import make_conf


@pytest.mark.parametrize("text", ["300.0.0.0/8", "10.0.0.1/8", "fe80::%lo/64", "10.0.0.0%lo/8", "word"])
def test_range_that_is_no_ipv4_network_is_refused(text: str) -> None:
    conf = make_conf()
    with pytest.raises(ValueError):
        conf.set_override("project_ranges", [text], "network")


@pytest.mark.parametrize(
    ("group", "option"), [("vxlan", "local_ip"), (None, "my_ip"), ("api", "metadata_listen"), ("api", "listen")]
)
def test_address_with_a_zone_is_refused(group: str | None, option: str) -> None:
    conf: cfg.ConfigOpts = make_conf()
    with pytest.raises(ValueError):
        conf.set_override(option, "fe80::1%lo", group)


def test_range_is_an_ipv4_network() -> None:
    conf = make_conf()
    conf.set_override("project_ranges", ["10.0.0.0/8"], "network")
    assert conf.network.project_ranges == ["10.0.0.0/8"]
