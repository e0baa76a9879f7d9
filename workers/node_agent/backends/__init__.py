"""Ways to run a task on this machine: one file each, one port, one contract test for all."""
