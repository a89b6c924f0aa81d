from __future__ import annotations

import shutil

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.virt import images


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    values = cfg.ConfigOpts()
    configuration.register_opts(values)
    values([], default_config_files=[])
    return values


@pytest.fixture
def qemu_img(conf: cfg.ConfigOpts) -> images.QemuImg:
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img is not installed")
    return images.QemuImg(conf)
