"""All SQL there is: tables, queries by noun, migrations. Nothing outside the conductor imports from here.

Query functions take a `UnitOfWork` first and return typed objects (or rows, within the conductor). They never commit:
`Database.write` does, once per message.
"""
