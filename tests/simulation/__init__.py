"""A whole cloud in one process, from a seed: its daemons, bus, database, disks and clock under one scheduler.

- `scheduler`: tasks in virtual time, which run in an order of the seed, and die
- `primitives`: the standard library's clocks, threads, random numbers, files and SQLite, made of the scheduler
- `bus`: messages between daemons, which are late, lost, doubled, or cut off
- `disks`: what a power cut leaves of the files of hosts
- `plan`: requests of users and faults of a run, by its seed
- `cloud`: the daemons of a run
- `witness`: records a run, and finds what is wrong with it
- `runs`: runs of many seeds, each in a child of one process; and the shrinking of a failing one
- `past_faults`: faults that this project has had, made again
- `undone`: protections and past faults, and the page's tables of the seeds that find them
"""
