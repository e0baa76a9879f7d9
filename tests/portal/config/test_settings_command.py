"""The settings: where they come from, how they are explained, what a wrong one says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from portal.config.env import CLIENT_VARIABLES, Env, read_env, variable_of
from portal.config.env_file import SettingsError
from portal.config.explain import effective_settings, main
from portal.config.up import process_specs
from tests.processes import ROOT, clean_environment


def _dotenv(folder: Path, text: str) -> Path:
    path = folder / ".env"
    path.write_text(text)
    return path


def _row(environ: dict[str, str], dotenv: Path, variable: str) -> tuple[str, str]:
    rows = {row.variable: row for row in effective_settings(environ, dotenv)}
    return rows[variable].value, rows[variable].source


def test_the_environment_goes_before_the_file_and_the_file_before_the_default(
    tmp_path: Path,
) -> None:
    name = "SLIPWAY_PORTAL_PORT"
    dotenv = _dotenv(tmp_path, f"{name}=8100\n")
    assert _row({name: "8200"}, dotenv, name) == ("8200", "environment")
    assert _row({}, dotenv, name) == ("8100", ".env")
    assert _row({}, tmp_path / "none", name) == ("8000", "default")
    # An empty variable counts as not set, and hides the file: so the default holds.
    assert _row({name: ""}, dotenv, name) == ("8000", "default")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    environ = {
        "SLIPWAY_S3_SECRET_ACCESS_KEY": "hush-key",
        "DATABASE_URL": "postgresql://slipway:hush-db@db.example.org/slipway",
        "REDIS_URL": "redis://:hush-redis@redis.example.org/0",
        "SLIPWAY_EMAIL_URL": "smtp://ada:hush-mail@mail.example.org",
    }
    rows = list(effective_settings(environ, tmp_path / "none"))
    assert "hush" not in str(rows)
    shown = {row.variable: row.value for row in rows}
    assert shown["DATABASE_URL"] == "postgresql://slipway:***@db.example.org/slipway"
    assert shown["REDIS_URL"] == "redis://:***@redis.example.org/0"


def test_every_setting_has_a_meaning_and_an_example_that_is_accepted(tmp_path: Path) -> None:
    for row in effective_settings({}, tmp_path / "none"):
        assert row.meaning.endswith("."), row
        read_env({row.variable: row.example}, tmp_path / "none")


def test_the_table_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--explain"]) == 0
    table = capsys.readouterr().out
    for field in Env.model_fields:
        assert variable_of(field) in table


def test_the_same_is_there_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--json"])
    values = json.loads(capsys.readouterr().out)
    main(["--explain", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert values == {row["variable"]: row["value"] for row in rows}
    assert rows[0].keys() == {"variable", "value", "source", "default", "example", "meaning"}
    main([])
    assert f"SLIPWAY_DATA_DIR={values['SLIPWAY_DATA_DIR']}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SLIPWAY_PORTAL_PORT\n", r"\.env line 1 has no '='; write NAME=value"),
        ("SLIPWAY_PROTAL_PORT=1\n", "SLIPWAY_PROTAL_PORT is not .* did you mean SLIPWAY_PORTAL_"),
        ("SLIPWAY_PORTAL_PORT=99999\n", "SLIPWAY_PORTAL_PORT should be less than .*=8000"),
        ("DATABASE_URL=mysql://x\n", "DATABASE_URL must start with postgresql:.*for example"),
        ("SLIPWAY_LOG_LEVEL=loud\n", "SLIPWAY_LOG_LEVEL should be 'debug'.*SLIPWAY_LOG_LEVEL=info"),
    ],
)
def test_a_wrong_line_says_what_to_write(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(SettingsError, match=line) as raised:
        read_env({}, _dotenv(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        read_env({"SLIPWAY_PORTAL_PORT": "x", "SLIPWAY_NOTHING": "1"}, tmp_path / "none")
    assert len(str(raised.value).splitlines()) == 2


def test_a_file_that_is_no_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"\.env cannot be read .*fix or remove it"):
        read_env({}, tmp_path / ".env")


def test_what_the_command_line_reads_is_no_fault(tmp_path: Path) -> None:
    read_env(dict.fromkeys(CLIENT_VARIABLES, "x"), tmp_path / "none")


def test_a_redis_of_yours_is_not_started_by_us(tmp_path: Path) -> None:
    environ = {"SLIPWAY_DATA_DIR": str(tmp_path)}
    ours = process_specs(read_env(environ, tmp_path / "none"), {})
    others = ["tracking", "control", "portal", "gateway", "relay"]
    assert [spec.name for spec in ours] == ["redis", *others]
    environ["REDIS_URL"] = "redis://redis.example.org"
    yours = process_specs(read_env(environ, tmp_path / "none"), {})
    assert [spec.name for spec in yours] == others


def test_no_password_stands_on_a_command_line(tmp_path: Path) -> None:
    environ = {"SLIPWAY_DATA_DIR": str(tmp_path)}
    specs = process_specs(read_env(environ, tmp_path / "none"), {})
    password = (tmp_path / "keys" / "redis.key").read_text().strip()
    assert len(password) > 30
    assert not [spec for spec in specs if password in " ".join(spec.argv)]


def test_a_python_without_the_packages_is_told_what_to_run() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "manage.py", "up"],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"slipway: \w+ is not installed .*; run make setup.*\n", done.stderr)
