"""An output notebook that is too large is shortened by cell, stays valid, and says so."""

import json
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.notebook_outputs import truncate_notebook
from tests.portal.notebooks.notebooks import code, notebook

_LIMIT = 20_000
_TEXT = st.text(st.characters(codec="utf-8"), max_size=6_000)


def _picture(size: int) -> dict[str, Any]:
    data = {"image/png": "A" * size, "text/plain": "<Figure>"}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text.splitlines(keepends=True)}


def _with(*outputs: list[dict[str, Any]]) -> bytes:
    cells = [code(f"x = {number}", count=number) for number in range(len(outputs))]
    for number, cell in enumerate(cells):
        cell |= {"outputs": outputs[number], "id": f"cell-{number}"}
    return notebook(*cells)


def _read(content: bytes) -> Any:
    parsed = nbformat.reads(content.decode("utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(parsed)
    return parsed


def test_what_fits_stays_as_it_is_byte_for_byte() -> None:
    content = _with([_stream("a\nb\n")], [_picture(50)])
    shortened = truncate_notebook(content, len(content))
    assert (shortened.content, shortened.cells, shortened.sentence) == (content, [], "")


def test_the_large_cell_is_shortened_and_the_others_stay_whole() -> None:
    lines = "".join(f"line {number} ä€😀\n" for number in range(20_000))
    shortened = truncate_notebook(
        _with([_stream("before\n")], [_stream(lines)], [_picture(900)]), _LIMIT
    )
    assert len(shortened.content) <= _LIMIT
    before, large, picture = _read(shortened.content).cells
    assert before.outputs[0].text == "before\n"
    assert picture.outputs[0].data["image/png"] == "A" * 900
    head, sentence, tail = large.outputs
    assert lines.startswith(head.text)
    assert lines.endswith(tail.text)
    assert (sentence.output_type, sentence.name) == ("stream", "stderr")
    total = large.metadata.slipway.total_bytes
    left_out = large.metadata.slipway.left_out_bytes
    assert total > left_out > total - _LIMIT > len(lines)
    assert shortened.cells == [(2, left_out, total)]
    assert "of the 418.9 KiB that this cell printed and showed are left out" in sentence.text
    assert shortened.sentence.startswith("cell 2: ")


def test_pictures_and_errors_are_kept_whole_or_left_out() -> None:
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t" * 90_000]}
    shortened = truncate_notebook(
        _with([_stream("a\n"), _picture(90_000), error, _stream("z\n")]), _LIMIT
    )
    (cell,) = _read(shortened.content).cells
    assert [output.text for output in cell.outputs if "slipway" not in output.text] == [
        "a\n",
        "z\n",
    ]
    assert len(cell.outputs) == 3


def test_a_source_that_is_too_large_by_itself_is_refused_with_its_size() -> None:
    content = notebook(code("x = 1\n" * 9_000, count=1, prints="hello"))
    with pytest.raises(ValueError, match="KiB without any output"):
        truncate_notebook(content, _LIMIT)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(_TEXT.map(_stream), st.integers(0, 9_000).map(_picture)), max_size=5),
        max_size=4,
    )
)
def test_whatever_was_printed_the_notebook_is_valid_and_within_the_limit(
    outputs: list[list[dict[str, Any]]],
) -> None:
    content = _with(*outputs)
    shortened = truncate_notebook(content, 9_000)
    assert len(shortened.content) <= max(9_000, 0)
    cells = _read(shortened.content).cells
    assert len(cells) == len(outputs)
    numbers = {number for number, _, _ in shortened.cells}
    for number, (cell, before) in enumerate(
        zip(cells, json.loads(content)["cells"], strict=True), 1
    ):
        if number not in numbers:
            joined = [
                output | ({"text": "".join(output["text"])} if "text" in output else {})
                for output in before["outputs"]
            ]
            assert [dict(output) for output in cell.outputs] == joined
