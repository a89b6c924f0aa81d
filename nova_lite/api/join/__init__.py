"""The join API: with a token, a machine becomes a host; and hosts fetch the signed list of trusted keys.

Parts: `nova_lite.base.join_requests` (tokens), `nova_lite.db.hosts.joins` (records), `nova_lite.cmd.registrar`
(accounts, certificates, and signatures), `nova_lite.rpc.trust` (what hosts believe), `nova_lite.cmd.setup.compute` (the
machine).
"""
