"""Identity service: users, projects, roles and tokens. It stands in for Keystone.

``[api] auth_strategy = standalone`` or ``http_basic`` is the built-in service. Its records are in the database, and
each process of the API daemon has a copy of them. ``keystone`` uses a real Keystone, without the identity API.

Service::

    api/identity/records.py            users, projects, roles, and what belongs to them
    api/identity/content.py            all records together, and how to look them up
    api/identity/directory.py          changes of users, projects, groups, domains and their roles
    api/identity/replica.py            copy of all records in a process
    api/identity/conductor_store.py    the records at the conductor
    base/sealing.py                    secrets in messages
    conductor/identity.py              the records, for API daemons
    api/identity/users_file.py         import of the files of earlier versions
    objects/identity.py                records, as they are sent and stored
    db/identity/identity_records.py    rows of records, and their version
    api/identity/passwords.py          password hashes
    api/identity/tokens.py             tokens, their keys and revocations
    api/identity/authority.py          log-in by password or token
    api/identity/throttle.py           delays after wrong passwords
    api/identity/domain_directory.py   users and groups of a directory server, and log-in by its passwords
    api/identity/ldap.py               client of the directory server
    api/identity/oidc.py               checks of tokens of OpenID Connect providers
    api/identity/mapping_rules.py      rules by which claims become users and groups
    api/identity/external.py           records of users from elsewhere
    api/identity/gate.py               limits for remote services that log-ins need
    api/identity/catalog.py            service catalog
    api/identity/credential_box.py     encryption of secrets in records
    api/identity/ec2_signature.py      signatures of AWS
    api/identity/one_time_codes.py     one-time codes (TOTP)
    conf/identity.py                   options ``[identity]``; beside it ``[ldap]`` and ``[oidc]``
    policies/identity.py               rules
    cmd/manage/identity.py             ``nova-lite-manage user`` and ``project``

API, with Keystone's v3 endpoints, one module for each kind of resource:

- `app`, `resource`: the application, and the base of its resources
- `logins`, `provider_logins`, `caller`: tokens, by passwords or identity providers; projects of the caller
- `users`, `groups`, `projects`, `domains`: accounts and their containers
- `assignments`, `roles`: roles of users and groups in projects, domains and the system; roles of operators
- `app_credentials`, `access_rules`: application credentials, and the requests that they allow
- `credentials`: EC2 credentials, keys of one-time codes
- `trusts`: roles that a user gives to another one, as Heat needs them
- `federation`: identity providers, their protocols, mappings
- `services`, `limits`: services, endpoints and regions of operators; unified limits of other services
- `requests`, `views`, `listing`: validation of requests; responses; filters of lists
- `versions`, `faults`: version document; errors in Keystone's form

Entry points add resources of other packages, such as those of ``conformance/`` in this repository.

Authentication of requests to all APIs::

    api/middleware/standalone.py       by the built-in service
    api/middleware/keystone.py         by a real Keystone

Tests: ``tests/unit/api/identity``, ``tests/functional/test_standalone.py``.
"""
