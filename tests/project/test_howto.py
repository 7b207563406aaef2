"""The how-to pages: their code runs, from the first block to the last."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guide_pages import BLOCK, ROOT, run

HOWTO = ROOT / "docs" / "howto"
NAMES = sorted(path.stem for path in HOWTO.glob("*.md") if BLOCK.search(path.read_text("utf-8")))
NEEDS_TORCH = {"calibrate"}


def test_the_contents_list_every_page():
    contents = (HOWTO / "index.md").read_text(encoding="utf-8").split("```{toctree}")[1].split()
    pages = {path.stem for path in HOWTO.glob("*.md")} - {"index"}
    assert pages | {"../large"} <= set(contents)
    assert {"calibrate", "check", "ci", "perplexity", "sampling", "scipy"} <= set(NAMES)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=(pytest.mark.torch, pytest.mark.slow)) if n in NEEDS_TORCH else n
        for n in NAMES
    ],
)
def test_the_code_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = run((HOWTO / f"{name}.md").read_text(encoding="utf-8"), BLOCK)
    if name == "calibrate":
        assert printed.startswith("overconfident: says ")
        assert (tmp_path / "report.html").stat().st_size > 50_000
        assert (tmp_path / "calibrator.json").exists()
        before, after = map(float, re.findall(r"^ECE (?:before|after ) ([\d.]+)", printed, re.M))
        assert after < 0.05 < before
    elif name == "ci":
        assert printed.startswith("ECE 0.0")
    elif name == "check":
        assert "integers do not wrap  fails" in printed


@pytest.mark.slow
def test_the_code_for_more_than_memory_runs(tmp_path, monkeypatch):
    """docs/large.md, with the files and the frame that it speaks of."""
    parquet, dask = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("dask.dataframe")
    import pandas as pd
    import pyarrow as pa

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    logits = 4.0 * rng.normal(size=(600, 3))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    columns = {f"logit_{c}": logits[:, c] for c in range(3)}
    table = pa.table({**columns, "label": labels})
    (tmp_path / "shards").mkdir()
    for path in ("predictions.parquet", "shards/a.parquet"):
        parquet.write_table(table, path)

    def run_on_workers(part):
        batches = ({"logits": logits[i::4], "labels": labels[i::4]} for i in range(4))
        return part(batches)

    frame = dask.from_pandas(pd.DataFrame({**columns, "label": labels}), npartitions=3)
    text = (ROOT / "docs" / "large.md").read_text(encoding="utf-8")
    printed = run(text, BLOCK, dask_frame=frame, run_on_workers=run_on_workers)
    assert printed.count("ECE") >= 2
    assert (tmp_path / "report.html").stat().st_size > 50_000
