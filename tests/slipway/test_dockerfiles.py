"""Dockerfiles as the portal and nodes read them: images, copied files, and refusals by line."""

import pytest

from slipway.requirement_files.dockerfile import (
    MAX_BYTES,
    DockerfileRefused,
    is_dockerfile,
    parse_dockerfile,
)


@pytest.mark.parametrize(
    ("text", "images", "copies"),
    [
        ("FROM python:3.12-slim\nRUN true\n", ("python:3.12-slim",), ()),
        ("# c\n\nfrom  python\ncopy a.txt b/c.txt /x/\n", ("python",), ("a.txt", "b/c.txt")),
        ("FROM\tghcr.io/a/b:1@sha256:ab\n", ("ghcr.io/a/b:1@sha256:ab",), ()),
        ("ARG V=3.12\nARG T=$V-slim\nFROM python:${T}\n", ("python:3.12-slim",), ()),
        ("FROM python:${V:-3.12}\nENV a=$b\n", ("python:3.12",), ()),
        ("FROM x AS b\nFROM y\nCOPY --from=b /a /b\nCOPY --from=0 /a /b\n", ("x", "y"), ()),
        ("FROM x\nCOPY --from=busybox:1 /a /b\n", ("x", "busybox:1"), ()),
        ("FROM --platform=linux/amd64 x\nFROM scratch\n", ("x",), ()),
        ("FROM x\nRUN a && \\\n  # comment\n\n  b\nCOPY . /app\n", ("x",), None),
        ('FROM x\nCOPY ["a b.txt", "/c"]\n', ("x",), ("a b.txt",)),
        ("FROM x\nCOPY *.txt /c\n", ("x",), None),
        ("FROM x\nCOPY ../a.txt /c\n", ("x",), None),
        ("FROM x\nCOPY --chown=1:1 ./a.txt /c\n", ("x",), ("a.txt",)),
    ],
)
def test_images_and_copied_files_are_read(
    text: str, images: tuple[str, ...], copies: tuple[str, ...] | None
) -> None:
    dockerfile = parse_dockerfile(text)
    assert dockerfile.images == images
    assert dockerfile.copies == copies


@pytest.mark.parametrize(
    ("text", "number", "reason"),
    [
        ("", 1, "no FROM"),
        ("RUN true\n", 1, "FROM or ARG comes first"),
        ("FROM x\nINSTALL y\n", 2, "no instruction"),
        ("FROM x y\n", 1, "not FROM IMAGE"),
        ("FROM x\nRUN a \\", 2, "ends with a backslash"),
        ("# escape=`\nFROM x\n", 1, "continued with a backslash"),
        ("FROM x\nONBUILD RUN true\n", 2, "nothing is built from"),
        ("FROM x\nRUN --mount=type=cache,target=/x true\n", 2, "needs BuildKit"),
        ("FROM x\nCOPY --link a b\n", 2, "needs BuildKit"),
        ("FROM x\nRUN python3 <<EOF\nprint()\nEOF\n", 2, "need BuildKit"),
        ("FROM x\nADD https://example.org/a /a\n", 2, "ADD takes paths"),
        ("FROM x\nADD $URL /a\n", 2, "ADD takes paths"),
        ('FROM x\nADD ["ht\\u0074p://127.0.0.1/", "/a"]\n', 2, "ADD takes paths"),
        # Images of other projects, by the beginning of their id or by their name.
        ("FROM a\n", 1, "id of an image"),
        ("FROM sha256:0a\n", 1, "id of an image"),
        ("FR\\\nOM abc\n", 1, "id of an image"),
        ("ARG A=a\nFROM ${A}\n", 2, "id of an image"),
        ("FROM x\nCOPY --from=0123abcd /a /b\n", 2, "id of an image"),
        ("FROM slipway-project-image:x\n", 1, "belong to a project"),
        ("FROM docker.io/library/slipway-environment:x\n", 1, "belong to a project"),
        # Lines that Docker would read differently.
        ("FROM x\nRUN a \\\u00a0\nCOPY --from=a / /\n", 2, "U+00A0"),
        ("FROM x\nRUN a \\\r\r\nCOPY --from=a / /\n", 2, "U+000D"),
        ('FROM x\nCOPY --fr"om"=a / /\n', 2, "cannot be read"),
        ('FROM x\nCOPY --chown="a b" --from=a / /\n', 2, "cannot be read"),
        ("FROM x\nONBU\u0130LD COPY --from=a / /\n", 2, "no instruction"),
        ("ARG A='x'\nFROM $A\n", 2, "cannot be read"),
        ("FROM ${A#b}\n", 1, "only variables"),
        ("FROM x\n" + "RUN true\n" * 600, 501, "more than 500"),
        ("FROM x\n#" + "x" * MAX_BYTES, 1, "larger than 64 KiB"),
    ],
)
def test_a_refusal_names_the_line_and_the_reason(text: str, number: int, reason: str) -> None:
    with pytest.raises(DockerfileRefused) as refused:
        parse_dockerfile(text)
    assert refused.value.number == number
    assert reason in str(refused.value)
    assert refused.value.next_step


def test_dockerfiles_are_known_by_their_names() -> None:
    names = ("Dockerfile", "a/Dockerfile", "Dockerfile.gpu", "gpu.Dockerfile")
    assert all(map(is_dockerfile, names))
    assert not any(map(is_dockerfile, ("dockerfile", "Dockerfiles", "requirements.txt")))
