"""Hashes of requirements restrict what a lock allows."""

from workers.node_agent.requirement_hashes import required_hashes, with_required_hashes

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
LOCK = f"""\
acme-tools==1.0 \\
    --hash={A} \\
    --hash={B}
six==1.16 \\
    --hash={C}
"""


def test_a_lock_has_only_hashes_that_requirements_allow() -> None:
    required = required_hashes(
        f"Acme.Tools[x]==1.0 ; os_name == 'posix' --hash={B} --hash={C}\nsix"
    )
    assert required == {"acme-tools": {B, C}}
    restricted = with_required_hashes(LOCK, required)
    assert restricted == (f"acme-tools==1.0 \\\n    --hash={B}\nsix==1.16 \\\n    --hash={C}\n")
    assert with_required_hashes(LOCK, {"acme-tools": {C}}) is None
    assert with_required_hashes("", {"acme-tools": {C}}) == ""


def test_without_hashes_a_lock_stays_as_it_is() -> None:
    assert required_hashes("six==1.16\n# --hash\n--pre\n") == {}
    assert with_required_hashes(LOCK, {}) == LOCK
