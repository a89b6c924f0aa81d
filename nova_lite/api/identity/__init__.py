"""Identity service: users, projects, roles and tokens. It stands in for Keystone.

``[api] auth_strategy = standalone`` or ``http_basic`` is the built-in service. Users and projects are in one YAML file,
tokens need no storage, and only the API daemon takes part. ``[api] auth_strategy = keystone`` uses a real Keystone, and
the identity API is not needed.

Service::

    api/identity/directory.py      users file: users, projects and roles
    api/identity/passwords.py      password hashes
    api/identity/tokens.py         tokens, their keys and revocations
    api/identity/authority.py      log-in by password or token
    api/identity/throttle.py       delays after wrong passwords
    api/identity/catalog.py        service catalog
    conf/identity.py               options ``[identity]``
    policies/identity.py           rules
    cmd/manage/identity.py         ``nova-lite-manage user`` and ``project``

API, with Keystone's v3 endpoints::

    api/identity/app.py            log-in, tokens, and lists
    api/identity/management.py     changes of projects, users and roles
    api/identity/unserved.py       parts of Keystone that are refused
    api/identity/requests.py       validation of requests
    api/identity/views.py          responses
    api/identity/listing.py        filters of lists
    api/identity/versions.py       version document
    api/identity/faults.py         errors in Keystone's form

Authentication of requests to all APIs::

    api/middleware/standalone.py   by the built-in service
    api/middleware/keystone.py     by a real Keystone

Tests: ``tests/unit/api/identity``, ``tests/functional/test_standalone.py``.
"""
