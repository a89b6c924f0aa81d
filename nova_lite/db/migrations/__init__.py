"""The schema of the database, and its versions.

- `versions`: migrations, in order
- `contracts`: scripts that remove what older code needs
- `env`: runs Alembic's migrations on the connection that `nova_lite.db.migrations.schema` opened
- `schema`: the schema's version: migrate the database, or report that a migration is needed
- `tables`: helpers of the migrations that create tables
"""
