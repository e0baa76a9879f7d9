"""Packages that algorithms need beyond Optuna, which an installation may lack."""

from importlib.util import find_spec

from portal.core.errors import InvalidInput

_PACKAGES = {"cma-es": ("cmaes",), "gp": ("torch", "scipy")}


def require_packages(algorithm: str) -> None:
    """Raise InvalidInput if a package that the algorithm needs is not installed.

    Nothing is imported: the control worker alone runs algorithms, from the same environment.
    """
    missing = [name for name in _PACKAGES.get(algorithm, ()) if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise InvalidInput(
            f"The algorithm {algorithm} needs {names}, not installed beside the portal.",
            code="algorithm_not_installed",
            field="algorithm",
            next_step="Use tpe-multivariate, or let an administrator install it in the "
            f"environment of the portal: pip install {' '.join(missing)}",
        )
