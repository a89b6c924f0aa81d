"""Histories, after Jepsen's manner: clients do random things while a nemesis breaks daemons; what was seen is judged
afterwards.

`run` makes a history and writes it to a file (`events`), `checker` holds it against the rules of the operations'
rows (`rules`): ``python -m tests.faults.history``, or ``devstack/faults.sh --history``.
"""
