"""Clusters of frameworks over the ranks of a job.

Rank 0 starts the head, the other ranks join it, and the script runs on rank 0 alone once all have
joined. Runs in the ranks, in the environment of the job: standard library only.
"""
