"""Long results of a notebook say on its page how much is not shown."""

from portal.notebooks.cell_renderer import MOST_LINES, render_outputs


def test_lines_and_pictures_that_are_not_shown_are_counted() -> None:
    text = "x" * 9_000 + "\n" + "line\n" * MOST_LINES
    picture = {"output_type": "display_data", "data": {"image/png": "AAAA"}, "metadata": {}}
    stream = {"output_type": "stream", "name": "stdout", "text": text}
    lines, pictures = render_outputs({"outputs": [stream, *[picture] * 23]})
    assert lines[0].endswith("x … (the beginning of 9,000 characters)")
    assert lines[-2:] == [
        "[1 more lines are not shown here; the notebook has them]",
        "[3 more pictures are not shown here; the notebook has them]",
    ]
    assert len(pictures) == 20
