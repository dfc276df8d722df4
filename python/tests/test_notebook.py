"""The notebook, executed as a reader would."""

import pytest
from test_results import EXAMPLES


def test_from_a_trace_to_a_figure():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for needed in ("ipykernel", "matplotlib", "pandas"):
        pytest.importorskip(needed)
    notebook = nbformat.read(EXAMPLES / "trace.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    lines = [line for cell in code for line in cell.source.splitlines() if line.strip()]
    assert len(lines) <= 10
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}
    ).execute()
    kinds = {kind for output in code[-1].outputs for kind in output.get("data", {})}
    assert "image/png" in kinds
