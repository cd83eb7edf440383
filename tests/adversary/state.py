"""The state directory, memory limits, the start."""
