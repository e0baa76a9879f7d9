"""Registers the engines of pools, with what this installation gives them."""

import sys

from portal.compute.adapters.engines.kubernetes.kind import KubernetesEngineKind
from portal.compute.adapters.engines.local import LocalEngineKind
from portal.compute.adapters.engines.ray_cluster.kind import RayEngineKind
from portal.compute.adapters.engines.slurm.kind import SlurmEngineKind
from portal.compute.engines import register_engine
from portal.config import keys
from portal.config.env import env
from portal.config.local_node import portal_url

_ENV = env()
register_engine("local", LocalEngineKind(_ENV.data_dir, portal_url(_ENV), _ENV.job_python))
register_engine(
    "slurm",
    SlurmEngineKind(_ENV.url, sys.executable, _ENV.job_python, keys=keys.slurm_keys(_ENV.data_dir)),
)
register_engine("ray", RayEngineKind(_ENV.url, sys.executable, _ENV.job_python))
register_engine("kubernetes", KubernetesEngineKind(_ENV.url))
