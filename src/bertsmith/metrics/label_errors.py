"""Confident learning: which labels are probably wrong, by out-of-fold probabilities."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError

Array = NDArray[np.float64]


def confident_joint(labels: NDArray[np.int64], chances: Array) -> Array:
    """How many rows with label i (rows) are probably of class j (columns), as counts (C, C).

    A row counts for a class if the class has at least the mean probability of the rows that are
    labelled so; for the likeliest of several. Rows of the result are scaled to the number of rows
    with each label (Northcutt et al., "Confident Learning", 2021).
    """
    count = chances.shape[1]
    seen = np.bincount(labels, minlength=count).astype(np.float64)
    own = np.bincount(labels, chances[np.arange(len(labels)), labels], count)
    limits = np.divide(own, seen, out=np.full(count, np.inf), where=seen > 0)
    above = chances >= limits - 1e-9
    likeliest = np.where(above, chances, -1.0).argmax(1)
    sure = above.any(1)
    joint = np.zeros((count, count))
    np.add.at(joint, (labels[sure], likeliest[sure]), 1)
    joint[np.arange(count), np.arange(count)] += (joint.sum(1) == 0) & (seen > 0)
    return joint * (seen / np.maximum(joint.sum(1), 1))[:, None]


def wrong_labels(labels: Sequence[int] | NDArray[np.int64], chances: Any) -> NDArray[np.int64]:
    """Return the numbers of the rows whose label is probably wrong, the surest first.

    For every pair of classes, as many rows as the confident joint counts are taken, those whose
    label is least probable beside the other one. Rows whose label is the likeliest one stay, and
    so does a class's last row.
    """
    numbers, matrix = np.asarray(labels, dtype=np.int64), np.asarray(chances, dtype=np.float64)
    if matrix.ndim != 2 or len(numbers) != len(matrix):
        raise BertsmithError("there must be one row of probabilities for each label")
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < matrix.shape[1]:
        raise BertsmithError("labels must be columns of the probabilities")
    joint = np.rint(confident_joint(numbers, matrix)).astype(int)
    own = matrix[np.arange(len(numbers)), numbers]
    suspect = np.zeros(len(numbers), dtype=bool)
    for label in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == label)
        for other in np.flatnonzero(joint[label]).tolist():
            if other != label:
                margins = matrix[rows, other] - own[rows]
                suspect[rows[np.argsort(-margins, kind="stable")[: joint[label, other]]]] = True
        if suspect[rows].all():
            suspect[rows[own[rows].argmax()]] = False
    suspect &= matrix.argmax(1) != numbers
    places = np.flatnonzero(suspect)
    return places[np.argsort(own[places], kind="stable")]
