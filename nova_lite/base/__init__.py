"""Foundations that every other package may import. Nothing here imports another package of nova_lite.

- `exceptions`: every error that nova_lite raises on purpose, one module per subject
- `batching`: the primitive that combines concurrent requests into batches
- `futures`: responses that come later
- `concurrency`: eventlet or native threads; the only module that knows about eventlet
- `context`: the caller of a request, and its project
- `metrics`: counters, histograms and gauges for Prometheus
- `memory`: malloc arenas, heap trimming and garbage collection of a daemon
- `files`, `cpu_sets`, `plugins`, `version`: small helpers
- `failpoints`: named points at which tests inject faults
- `faults`: the seams at which they are installed
"""
