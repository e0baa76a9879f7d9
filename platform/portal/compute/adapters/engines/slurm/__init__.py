"""Engine of pools in Slurm, by its commands or by slurmrestd."""
