"""Data and the process: places of tasks, late writes, flushes, reservations."""
