"""Records of the identity service.

- `identity_records`: users, projects, roles and keys, with one version
"""
