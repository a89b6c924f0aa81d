"""Corners of the APIs that conformance suites ask for, and programs of today do not.

This is a second distribution. nova_lite finds its resources by their entry points (``conformance/pyproject.toml``), and
imports nothing of it. Without it these URLs are a 404.

Identity API:

- `policy_blobs`: policies of other services, as texts
- `domain_config`: configuration of single domains, as texts
- `endpoint_filters`: endpoints of single projects

Compute API:

- `tenant_networks`: the networks of a project, as in nova-network
- `not_served`: the routes that always fail

Both:

- `policies`: rules of the routes

The records of the identity API are nova_lite's own: `nova_lite.api.identity.records`.
"""
