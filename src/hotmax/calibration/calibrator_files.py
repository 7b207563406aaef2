"""Calibrators from files: any that hotmax writes, as the class that was saved."""

from __future__ import annotations

import os

from hotmax._core.reading import bounded, first_line, reading, strict_json
from hotmax.calibration.calibrators import Calibrator, calibrator_of
from hotmax.calibration.group_temperature import (
    GROUP_FORMAT,
    GroupTemperatureScaling,
    group_temperatures_of,
)
from hotmax.calibration.parameters import FORMAT, LONGEST_FILE, MOST_LISTS, MOST_OBJECTS
from hotmax.calibration.sigmoids import SIGMOID_FORMAT, SigmoidCalibrator, sigmoids_of


def load(path: str | os.PathLike[str]) -> Calibrator | SigmoidCalibrator | GroupTemperatureScaling:
    """Read a calibrator that `save` has written: of the class that was saved.

    Files may come from anywhere: types, lengths and ranges are checked against a schema, so that
    what is loaded gives probabilities. A file has 128 MiB and 4,194,304 classes at most.

    Raises:
        ValueError: If the file is not a calibrator or is damaged; it names the file.
        OSError: If it is not there or may not be read.

    Example:
        >>> import tempfile, pathlib, hotmax as hm
        >>> fitted = hm.calibration.TemperatureScaling().fit([[4.0, 0.0], [4.0, 1.0]], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.save(pathlib.Path(folder) / "calibrator.json")
        ...     loaded = hm.calibration.load(pathlib.Path(folder) / "calibrator.json")
        >>> type(loaded).__name__, loaded.temperature_ == fitted.temperature_
        ('TemperatureScaling', True)
    """
    with reading(path):
        text = bounded(path, LONGEST_FILE, "a calibrator")
        if text.count(b"[") > MOST_LISTS or text.count(b"{") > MOST_OBJECTS:
            raise ValueError(f"{path} is not a {FORMAT}: it has too many lists or objects")
        try:
            data = strict_json(text)
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {first_line(error)}") from None
        try:
            if type(data) is dict and data.get("format") == SIGMOID_FORMAT:
                return sigmoids_of(data)
            if type(data) is dict and data.get("format") == GROUP_FORMAT:
                return group_temperatures_of(data)
            return calibrator_of(data)
        except ValueError as error:
            raise ValueError(f"{path} {error}") from None
