"""Lines of requirements files, as people write them: what they mean, and why one is refused."""

import pytest

from slipway.requirement_files.lines import (
    LineKind,
    RequirementRefused,
    parse_canonical,
    parse_lines,
)

_H = "a" * 64


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("numpy", LineKind.PACKAGE, "numpy"),
        ("Torch[extra_1] >=2, <3 ; python_version < '3.14'  # why", LineKind.PACKAGE, None),
        (f"six==1.0 \\\n  --hash=sha256:{_H} \\\n  --hash=sha256:{_H}", LineKind.PACKAGE, None),
        ("\ufeffsix", LineKind.PACKAGE, "six"),
        ("acme@https://example.org/a.whl", LineKind.PACKAGE, "acme@https://example.org/a.whl"),
        ("git+https://h/x.git@v1#egg=x[y]", LineKind.PACKAGE, "x[y] @ git+https://h/x.git@v1"),
        ("-e git+https://h/x.git#egg=x", LineKind.PACKAGE, "x @ git+https://h/x.git"),
        ("https://h/a_b-1-py3-none-any.whl", LineKind.PACKAGE, None),
        ("-r base.txt", LineKind.FILE, "base.txt"),
        ("-rbase.txt", LineKind.FILE, "base.txt"),
        ("--requirement=base.txt", LineKind.FILE, "base.txt"),
        ("-c pins.txt", LineKind.CONSTRAINTS, "pins.txt"),
        ("-e .[dev]", LineKind.PROJECT, ".[dev]"),
        ("./lib", LineKind.PROJECT, "./lib"),
        ("wheels/acme-1.0-py3-none-any.whl", LineKind.ARCHIVE, None),
        ("./acme-1.0-py3-none-any.whl[gpu] ; python_version < '3.13'", LineKind.ARCHIVE, None),
        (f"./acme-1.0-py3-none-any.whl --hash=sha256:{_H}", LineKind.ARCHIVE, None),
        ("acme[a,b] @ file:./w/acme-1.0-py3-none-any.whl", LineKind.ARCHIVE, None),
        ("file:w/acme-1.0.tar.gz#egg=acme", LineKind.ARCHIVE, None),
        ("dist/acme-1.0.tar.gz", LineKind.ARCHIVE, None),
        ("--find-links ./wheels", LineKind.LOCAL_LINKS, "./wheels"),
        ("-f file:wheels", LineKind.LOCAL_LINKS, "file:wheels"),
        ("-i https://p.example.org/wheels", LineKind.INDEX, "https://p.example.org/wheels"),
        ("--extra-index-url=https://p.example.org/s", LineKind.EXTRA_INDEX, None),
        ("-f https://p.example.org/links.html", LineKind.FIND_LINKS, None),
        ("--no-binary :all:", LineKind.NO_BINARY, ":all:"),
        ("--only-binary numpy,scipy", LineKind.ONLY_BINARY, "numpy,scipy"),
        ("--pre", LineKind.PRE, ""),
    ],
)
def test_what_pip_accepts_is_understood(text: str, kind: LineKind, value: str | None) -> None:
    (line,) = parse_lines(text)
    assert line.kind == kind
    assert value is None or line.value == value


@pytest.mark.parametrize(
    ("text", "number", "reason", "way"),
    [
        ("six\n\nnumpy &&", 3, "neither a package with versions", "scikit-learn==1.7.0"),
        ("six==1 \\\n --hash=sha256:x\nok", 1, "a hash has the form", ""),
        ("a\nb \\\n  ==1\nhttp://h/x.whl", 4, "changed on the way", "https"),
        ("# \\\ngit+ssh://git@h/x.git", 2, "no SSH key", "git+https"),
        ("git+https://h/x.git", 1, "does not tell the name", "NAME @ git+https://h/x.git"),
        ("x @ file:///etc/passwd", 1, "no files of your machine", "-e ./acme"),
        ("/srv/me/x", 1, "no such folder of your machine", "by its path from there"),
        ("hg+https://h/x#egg=x", 1, "no other version control", "git repository"),
        ("--trusted-host h", 1, "administrator", "pip configuration"),
        ("--find-links /srv/wheels", 1, "not the address of an index", "https://"),
        ("./w/acme 1.0.whl", 1, "no line for an archive", "acme[gpu] @ file:./wheels/"),
        ("acme @ file:./a-1.0.tar.gz#subdirectory=x", 1, "#subdirectory", "NAME @ file:PATH"),
        ("./../acme-1.0.whl && id", 1, "no line for an archive", "For example"),
        ("--index-url https://u:secret@h/s", 1, "a password", "secret of the project"),
        ("-r https://h/r.txt", 1, "may change between two builds", "submitted folder"),
        ("six==${VERSION}", 1, "do not travel", "value itself"),
        ("six --install-option=x", 1, "other than --hash", ""),
        ("six ; import os", 1, "marker has an unknown form", "python_version"),
        ("--wish", 1, "--wish is not supported", ""),
    ],
)
def test_a_refusal_names_the_line_the_reason_and_the_way(
    text: str, number: int, reason: str, way: str
) -> None:
    with pytest.raises(RequirementRefused, match=reason) as refused:
        parse_lines(text, file="dev.txt")
    assert f"Line {number} of dev.txt" in str(refused.value)
    assert way in refused.value.next_step
    assert "secret" not in str(refused.value)


def test_requirements_without_a_folder_name_no_files() -> None:
    (line,) = parse_canonical("--constraint six==1.0")
    assert (line.kind, line.text) == (LineKind.CONSTRAINT, "--constraint six==1.0")
    stored = f"acme @ file:acme-1.0-py3-none-any.whl#sha256={_H}"
    files = ("-r base.txt", "-e .", "./a-1-py3-none-any.whl", "-c pins.txt", "-f wheels", stored)
    for text in files:
        with pytest.raises(RequirementRefused, match="came without files"):
            parse_canonical(text)


def test_an_archive_is_named_by_its_digest_and_not_by_its_path() -> None:
    (line,) = parse_lines("acme[gpu]@ file:./w/acme-1.0-py3-none-any.whl ; python_version > '3'")
    assert line.archive is not None
    canonical = line.archive.canonical(_H)
    assert canonical == (
        f"acme[gpu] @ file:acme-1.0-py3-none-any.whl#sha256={_H} ; python_version > '3'"
    )
    links = f"--find-links file:acme-1.0.tar.gz#sha256={_H}"
    lines = parse_canonical(f"{canonical}\n{links}", has_archives=True)
    assert [line.sha256 for line in lines] == [_H, _H]
    assert [line.text for line in lines] == [canonical, links]
    for text in (
        f"acme @ file:w/acme-1.0-py3-none-any.whl#sha256={_H}",
        f"acme @ file:acme%2F-1.0.whl#sha256={_H}",
        f"acme @ file:acme-1.0.whl#sha256={_H}&sha256={'b' * 64}",
        "acme @ file:acme-1.0.whl",
        f"file:acme-1.0-py3-none-any.whl#sha256={_H}",
        f"-f file:w/acme-1.0-py3-none-any.whl#sha256={_H}",
    ):
        with pytest.raises(RequirementRefused, match="came without files"):
            parse_canonical(text, has_archives=True)
