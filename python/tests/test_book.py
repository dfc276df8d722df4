"""The book's page on Python: its code runs as it stands."""

import pathlib
import re

BOOK = pathlib.Path(__file__).parents[2] / "docs/book/src/python.md"


def test_the_code_of_the_book_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", BOOK.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    names = {}
    for block in blocks:
        exec(compile(block, str(BOOK), "exec"), names)
    assert "free runs" in capsys.readouterr().out
    assert len(names["table"]) > 0 and names["result"].json()
