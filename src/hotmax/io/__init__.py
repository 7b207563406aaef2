"""Files of logits in, probabilities out. Never pickle.

    >>> import tempfile, pathlib, numpy as np, hotmax as hm
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "predictions.npz"
    >>> np.savez(path, logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 1])
    >>> predictions = hm.io.read(path)
    >>> predictions.logits.shape, predictions.labels.tolist()
    ((2, 2), [0, 1])
    >>> folder.cleanup()

| file | logits | labels | names of the classes |
|---|---|---|---|
| .npz | array `logits` | array `labels` | array `classes` |
| .npy | the array | another file | |
| .safetensors | tensor `logits` | tensor `labels` | a JSON list `classes` in the metadata |
| .csv, .tsv | a column for each class | a column | the names of the columns |
| .parquet | a list column, or a column for each class | a column | the names of the columns |
| .json, .jsonl | responses of an LLM's API: the options listed | a key | a list `options` |

Labels are integers, or text that names a class; "label", "y" and "target" are read as "labels" is.
Large .npy and .safetensors files, and large arrays that are stored uncompressed in an .npz, are
memory-mapped. .parquet needs pyarrow: pip install "hotmax[files]".

`source` reads any number of rows in blocks: a directory, a pattern or a list of such files, a zarr
array, a Dask array or frame.
"""

from hotmax.calibration.source import Source
from hotmax.io.predictions import Predictions, read
from hotmax.io.sources import source
from hotmax.io.token_logprobs import TokenLogprobs
from hotmax.io.writing import write

__all__ = ["Predictions", "Source", "TokenLogprobs", "read", "source", "write"]
