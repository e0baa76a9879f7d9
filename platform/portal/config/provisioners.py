"""Registers the provisioners of node groups, with what this installation gives them."""

from portal.compute.adapters.provisioners.docker_engine.kind import DockerProvisionerKind
from portal.compute.adapters.provisioners.ec2.kind import Ec2ProvisionerKind
from portal.compute.adapters.provisioners.local import LocalProvisionerKind
from portal.compute.provisioners import register_provisioner
from portal.config.env import env
from portal.config.local_node import portal_url

_ENV = env()
_local = LocalProvisionerKind(_ENV.data_dir, portal_url(_ENV), _ENV.job_python)
register_provisioner("local", _local)
register_provisioner("docker", DockerProvisionerKind(_ENV.internal_url or _ENV.url))
register_provisioner("ec2", Ec2ProvisionerKind(_ENV.url))
