"""The configuration of a Slurm cluster whose machines are all this one."""

from collections.abc import Sequence
from pathlib import Path


def slurm_conf(
    folder: Path,
    *,
    host: str,
    user: str,
    ports: Sequence[int],
    nodes: int,
    cpus: int,
    memory_mb: int,
) -> str:
    """Return a slurm.conf. The first port is that of slurmctld, the others are of the nodes."""
    lines = [
        "ClusterName=slipway",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        f"SlurmctldPort={ports[0]}",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket",
        "CredType=cred/munge",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,sched_min_interval=0",
        "AccountingStorageType=accounting_storage/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "ReturnToService=2",
        "EnforcePartLimits=ALL",
        "SlurmdTimeout=10",
        "KillWait=30",
        "MinJobAge=300",
        "SlurmdParameters=config_overrides",
    ]
    lines += [
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[number]} "
        f"CPUs={cpus} RealMemory={memory_mb} State=UNKNOWN"
        for number in range(1, nodes + 1)
    ]
    lines.append(f"PartitionName=short Nodes=n[1-{nodes}] DefaultTime=1 MaxTime=1 State=UP")
    lines.append(f"PartitionName=main Nodes=n[1-{nodes}] Default=YES MaxTime=60 State=UP")
    return "\n".join(lines) + "\n"


def with_lines(conf: str, lines: Sequence[str]) -> str:
    """Return a slurm.conf with other values, or more, for some of its parameters."""
    names = {line.partition("=")[0] for line in lines}
    kept = [line for line in conf.splitlines() if line.partition("=")[0] not in names]
    return "\n".join([*lines, *kept]) + "\n"
