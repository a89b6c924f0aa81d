"""The conductor's long jobs: what an accepted action goes through, step by step.

Functions that take a `UnitOfWork` run inside one transaction and only do SQL. Classes send messages, and open their
own transactions between them.
"""
