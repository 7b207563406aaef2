"""Valid files of every format that hotmax reads: what the fuzzer damages and forges."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32) * 3
Y = np.arange(12) % 3
NAMES = ["cat", "dog", "fox"]

PARAMETERS = {
    "identity": {},
    "temperature": {"temperature": 2.0},
    "platt": {"line": [1.5, -0.25]},
    "beta": {"line": [1.5, 0.5, -0.25]},
    "ensemble": {"temperature": "inf", "shares": [0.5, 0.25, 0.25]},
    "vector": {"temperature": 2.0, "diagonal": [0.1, 0.2, 0.3], "bias": [0.0, 1.0, -1.0]},
    "matrix": {
        "temperature": 2.0,
        "diagonal": [0.1, 0.2, 0.3],
        "bias": [0.0, 1.0, -1.0],
        "off_diagonal": [[0.0, 0.1, 0.2], [0.1, 0.0, 0.2], [0.3, 0.1, 0.0]],
    },
    "isotonic": {"knots": [[0.1, 0.4, 0.9]] * 3, "values": [[0.0, 0.5, 1.0]] * 3},
    "histogram": {"edges": [[0.0, 0.3, 0.7, 1.0]] * 3, "values": [[0.1, 0.4, 0.9]] * 3},
}


@dataclass(frozen=True)
class Original:
    """A valid file; `role`: what it is to hotmax; `kind`: how it is forged."""

    name: str
    content: bytes
    role: str  # predictions, labels, names, rows or calibrator
    kind: str  # npy, npz, safetensors, parquet, json or text


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(save=np.savez, **arrays):
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def parquet(columns, **options):
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def csv(header, labels):
    lines = [",".join([*map(repr, row), str(y)]) for row, y in zip(X.tolist(), labels, strict=True)]
    return "\n".join([*([header] if header else []), *lines, ""]).encode()


def calibrator(method):
    classes = 2 if method in ("platt", "beta") else 3
    kind = "TemperatureScaling" if method == "temperature" else "Calibrator"
    top = {"format": "hotmax calibrator", "version": 1, "class": kind}
    top |= {"method": method, "input": "logits"}
    top |= {"penalty": 1.0, "bins": 15, "classes": classes, "parameters": PARAMETERS[method]}
    return json.dumps(top).encode()


def all_originals():
    words = [NAMES[y] for y in Y]
    arrays = {"logits": X, "labels": Y, "classes": np.array(NAMES)}
    metadata = {"classes": json.dumps(NAMES)}
    columns = {**dict(zip(NAMES, X.T, strict=True)), "label": words}
    text = "".join(f"{word}\n" for word in words).encode()
    predictions = [
        ("a.npy", npy(X), "npy"),
        ("f.npy", npy(np.asfortranarray(X.astype(np.float64))), "npy"),
        ("a.npz", npz(**arrays), "npz"),
        ("z.npz", npz(np.savez_compressed, **arrays), "npz"),
        ("a.safetensors", save({"logits": X, "labels": Y}, metadata), "safetensors"),
        ("a.csv", csv("cat,dog,fox,label", words), "text"),
        ("n.csv", csv("", Y), "text"),
        ("t.tsv", csv("cat,dog,fox,label", Y).replace(b",", b"\t"), "text"),
        ("c.parquet", parquet(columns, write_page_checksum=True), "parquet"),
        ("l.parquet", parquet({"logits": X.tolist(), "y": Y}, compression="zstd"), "parquet"),
    ]
    labels = [("y.npy", npy(Y), "npy"), ("y.npz", npz(labels=Y), "npz"), ("y.txt", text, "text")]
    rows = "\n".join(" ".join(map(str, row)) for row in X.tolist()).encode()
    return [
        *(Original(name, content, "predictions", kind) for name, content, kind in predictions),
        *(Original(name, content, "labels", kind) for name, content, kind in labels),
        Original("names.txt", "\n".join(NAMES).encode(), "names", "text"),
        Original("rows.txt", rows, "rows", "text"),
        *(Original(f"{name}.json", calibrator(name), "calibrator", "json") for name in PARAMETERS),
    ]
