"""Connections of openstacksdk."""

from __future__ import annotations

import openstack
import openstack.exceptions
from openstack.connection import Connection

from tests.functional.cloud import PASSWORDS, Cloud


def connect(cloud: Cloud, user: str) -> Connection:
    return openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        region_name="RegionOne",
        auth={
            "auth_url": cloud.identity_url,
            "username": user,
            "password": PASSWORDS[user],
            "project_name": user,
            "user_domain_id": "default",
            "project_domain_id": "default",
        },
    )
