"""Snippets of shell that no test types as they stand, each with the reason."""

from typing import Final

INSTALLS: Final = "installs Slipway into the folder it stands in, on fixed ports"
OTHER_MACHINE: Final = "names addresses, folders or machines that a reader has"
OTHER_SCHEDULER: Final = "needs a cluster of Slurm, Ray or Kubernetes"
CONTAINERS: Final = "needs Docker"
FRAMEWORKS: Final = "needs packages of an index on the internet"
NODE_GROUPS: Final = "needs days of a node group"
EARLIER_OBJECT: Final = "goes on with a model, an endpoint or data that the reader has"
PLACEHOLDER: Final = "has an id or an address in it that a reader puts there"
REPOSITORY: Final = "needs another repository beside this one"
OTHER_PYTHON: Final = "needs another Python on the node"
PERSON: Final = "waits for a person: a terminal, a browser or an approval"
SETTINGS: Final = "states a setting, and runs nothing"
SUITE: Final = "is a suite of the tests itself"

# By page, the beginning of each snippet.
NOT_TYPED: Final[dict[str, dict[str, str]]] = {
    "CONTRIBUTING.md": {
        "make setup-dev": SUITE,
        ".venv/bin/python -m pytest tests/portal/api/test_openapi.py": SUITE,
    },
    "README.md": {"make up": INSTALLS},
    "docs/backup.md": {
        ".venv/bin/python manage.py backup /backups": OTHER_MACHINE,
        ".venv/bin/python manage.py backup nightly": OTHER_MACHINE,
        "SLIPWAY_DATA_DIR=/srv/slipway": OTHER_MACHINE,
    },
    "docs/datasets.md": {
        "slipway dataset push digits": EARLIER_OBJECT,
        "slipway dataset push people": EARLIER_OBJECT,
        "slipway dataset versions digits": EARLIER_OBJECT,
        "slipway train train.py --dataset": EARLIER_OBJECT,
    },
    "docs/deploying.md": {
        "deploy/compose/init": CONTAINERS,
        "docker run": CONTAINERS,
        "docker compose ps": CONTAINERS,
        "git pull": CONTAINERS,
        "docker compose run": CONTAINERS,
    },
    "docs/endpoints.md": {
        "slipway endpoint create": EARLIER_OBJECT,
        "slipway endpoint promote": EARLIER_OBJECT,
    },
    "docs/environments.md": {
        "slipway env create modern": OTHER_PYTHON,
        "slipway env create geo": FRAMEWORKS,
        "slipway env audit": FRAMEWORKS,
        "slipway notebook start lab": FRAMEWORKS,
    },
    "docs/frameworks.md": {
        "slipway train train.py --watch": FRAMEWORKS,
        ".venv/bin/python bench/frameworks.py": FRAMEWORKS,
    },
    "docs/install.md": {
        "pip install http": INSTALLS,
        "pip install --force-reinstall": INSTALLS,
        "export SLIPWAY_URL": INSTALLS,
    },
    "docs/kubernetes.md": {
        "kubectl create namespace vision": OTHER_SCHEDULER,
        "kubectl create namespace slipway": OTHER_SCHEDULER,
    },
    "docs/mlflow.md": {
        "export MLFLOW_TRACKING_URI": PLACEHOLDER,
        "PYTHONPATH=platform": REPOSITORY,
    },
    "docs/monitoring.md": {"slipway endpoint monitoring export": EARLIER_OBJECT},
    "docs/node-groups.md": {
        "slipway node-group create gpu --provisioner ec2": OTHER_MACHINE,
        "docker build": CONTAINERS,
    },
    "docs/notebooks.md": {
        "slipway notebook start": PERSON,
        "slipway workspace ls": EARLIER_OBJECT,
    },
    "docs/operating.md": {
        "python manage.py settings": OTHER_MACHINE,
        "slipway node edit": OTHER_MACHINE,
        "slipway project edit": EARLIER_OBJECT,
        "slipway node join": OTHER_MACHINE,
        "SLIPWAY_ALLOWED_HOSTS=": SETTINGS,
        "curl --fail": INSTALLS,
        "python manage.py backup": OTHER_MACHINE,
        "python manage.py migrate": OTHER_MACHINE,
        "SLIPWAY_CONDA_CHANNELS=": SETTINGS,
        "SLIPWAY_IMAGE_REGISTRY=": SETTINGS,
    },
    "docs/pipelines.md": {"slipway pipeline run": PERSON},
    "docs/pools.md": {
        "slipway train": OTHER_SCHEDULER,
        "slipway endpoint create": OTHER_SCHEDULER,
        "slipway pool create": OTHER_SCHEDULER,
        "slipway pool usage": OTHER_SCHEDULER,
    },
    "docs/predictions.md": {"PYTHONPATH=platform": REPOSITORY},
    "docs/quickstart.md": {"git clone": INSTALLS, "cd slipway": INSTALLS},
    "docs/ray.md": {
        "slipway train": FRAMEWORKS,
        "slipway job dashboard": PLACEHOLDER,
        "slipway notebook start": FRAMEWORKS,
        "slipway pool create": OTHER_SCHEDULER,
    },
    "docs/reports.md": {
        "slipway note show": EARLIER_OBJECT,
        "slipway report show": PLACEHOLDER,
    },
    "docs/schedules.md": {
        "slipway schedule create nightly": PLACEHOLDER,
        "curl -X POST": PLACEHOLDER,
    },
    "docs/service-accounts.md": {
        "slipway service-account token revoke": PLACEHOLDER,
        "slipway schedule create": PLACEHOLDER,
    },
    "docs/slurm.md": {
        "slipway pool create gpu --engine slurm --setting partition": OTHER_SCHEDULER,
        "slipway pool link": OTHER_SCHEDULER,
        "slipway pool helper": OTHER_SCHEDULER,
        "tmux new": OTHER_SCHEDULER,
        "python manage.py slurm_key": OTHER_SCHEDULER,
        "slipway pool create gpu --engine slurm --setting rest_url": OTHER_SCHEDULER,
    },
    "docs/spend.md": {"slipway spend --overhead": NODE_GROUPS},
    "docs/training.md": {
        "slipway train train.py --python": OTHER_PYTHON,
        "slipway train train.py     ": FRAMEWORKS,
        "slipway train train.py --backend docker": CONTAINERS,
        "slipway job shell": PERSON,
    },
    "examples/digits/README.md": {"pip install": FRAMEWORKS, "python make_csv.py": FRAMEWORKS},
    "examples/flows/README.md": {"slipway pipeline run": PERSON},
    "examples/tabular/README.md": {"python train.py": FRAMEWORKS, "slipway train": FRAMEWORKS},
    "examples/text/README.md": {"python train.py": FRAMEWORKS, "slipway train": FRAMEWORKS},
}
