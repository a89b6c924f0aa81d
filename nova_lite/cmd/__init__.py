"""Entry points: one module per daemon and command line tool. Each chooses the concurrency mode first."""
