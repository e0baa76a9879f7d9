"""The examples of docs/sdk.md run as they stand."""

import re
from pathlib import Path

import pytest

from tests.live import ROOT, LivePortal


def test_the_examples_run_one_after_the_other(
    portal: LivePortal,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SLIPWAY_URL", portal.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", portal.tokens["alice"])
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/sdk.md", "exec"), names)  # noqa: S102  (our own page)
    output = capsys.readouterr().out
    assert "alice@example.org" in output
    assert "not_found" in output
    assert (tmp_path / "audit.jsonl").stat().st_size > 0
