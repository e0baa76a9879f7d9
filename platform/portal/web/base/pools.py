"""The picker of pools: where another scheduler allocates the nodes of a job."""

from django import forms

from portal.accounts.models import Project, User
from portal.compute.models import Pool
from portal.compute.models.pools import FULL_PRICE
from portal.compute.services.pool_accounts import unlinked_pools

_OWN_NODES = "Own nodes"


class PoolField(forms.CharField):
    """A pool that the project may use. The service that starts the work checks it.

    `unlinked` are the pools in which the person has no account yet, and needs one.
    """

    def __init__(self) -> None:
        super().__init__(
            label="Pool",
            required=False,
            max_length=48,
            help_text="In a pool another scheduler decides when and where it starts. The free "
            "places of each tier below are those of own nodes.",
            widget=forms.Select,
        )
        self.unlinked: list[Pool] = []

    @property
    def has_pools(self) -> bool:
        """Return True if there is anything to choose."""
        assert isinstance(self.widget, forms.Select)  # noqa: S101  (set above)
        return len(list(self.widget.choices)) > 1


def offer_pools(form: forms.Form, project: Project, user: User) -> None:
    """Fill the picker of a form that is about to be shown.

    A pool that the project may no longer use stays chosen: the refusal says which there are.
    """
    field = form.fields["pool"]
    assert isinstance(field, PoolField)  # noqa: S101  (declared by the form)
    assert isinstance(field.widget, forms.Select)  # noqa: S101  (set by the field)
    pools = list(Pool.objects.usable_by(project).order_by("name"))
    choices = [("", _OWN_NODES)]
    choices += [(pool.name, _label_of(pool)) for pool in pools]
    chosen = str(form["pool"].value() or "")
    if chosen and chosen not in dict(choices):
        choices.append((chosen, f"{chosen} · not available"))
    field.widget.choices = choices
    field.unlinked = unlinked_pools(pools, user)


def _label_of(pool: Pool) -> str:
    label = f"{pool.name} · {pool.engine_label}"
    if pool.price_percent == FULL_PRICE:
        return label
    return f"{label} · {pool.price_percent} % of the tier's price"
