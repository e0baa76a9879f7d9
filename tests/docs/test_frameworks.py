"""The page of frameworks has the rows of the matrix, in order, each with its quickstart."""

from bench.framework_rows import FOLDER, ROWS
from bench.frameworks_page import COLUMNS, read_lines


def test_the_page_has_every_row_of_the_matrix() -> None:
    assert list(read_lines()) == [row.title for row in ROWS]
    widths = {line.replace("\\|", "").count("|") for line in read_lines().values()}
    assert widths == {len(COLUMNS) + 1}


def test_every_row_is_a_quickstart_and_every_quickstart_a_row() -> None:
    assert {folder.name for folder in FOLDER.iterdir()} == {row.name for row in ROWS}
    for row in ROWS:
        assert (row.folder / "train.py").is_file()
        assert (row.folder / "requirements.txt").read_text().strip()


def test_rows_say_what_the_quickstarts_register() -> None:
    for row in ROWS:
        script = (row.folder / "train.py").read_text()
        if row.model:
            assert f'registered_model_name="{row.model}"' in script
        else:
            assert "registered_model_name" not in script
