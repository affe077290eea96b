"""The base of the `evaluate` modules of logits: features, arrays in place of Arrow, and adding batches quickly.

The scripts in `modules/` import this module and not the class: `evaluate.load` takes the first metric class that it
finds in a script. Nothing else of the package imports `evaluate`.
"""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np
import pyarrow as pa

from .scores import CHUNK, as_array


class LogitsMetric(evaluate.Metric):
    """A metric of `(n, classes)` logits or probabilities and `(n,)` class ids; a subclass defines `_compute`.

    The class attributes are the fields of `evaluate.MetricInfo` with these names.
    """

    description = ""
    citation = ""
    inputs_description = ""
    reference_urls: tuple[str, ...] = ()

    def _info(self) -> evaluate.MetricInfo:
        info = evaluate.MetricInfo(
            description=self.description,
            citation=self.citation,
            inputs_description=self.inputs_description,
            features=datasets.Features(
                {"predictions": datasets.Sequence(datasets.Value("float32")), "references": datasets.Value("int64")}
            ),
            reference_urls=list(self.reference_urls),
        )
        info.format = "numpy"  # refused by the constructor for lists, since they may be ragged; ours never are
        return info

    def compute(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> dict[str, float] | None:
        """Compute the metric. Arrays given here in a single process are used directly, without Arrow."""
        if predictions is None or references is None or self.writer is not None or self.num_process > 1:
            return super().compute(predictions=predictions, references=references, **kwargs)
        return self._compute(predictions, references, **kwargs)

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add a batch. Rows are kept in float32."""
        if kwargs:
            raise ValueError(f"Bad inputs for evaluation module: {list(kwargs)}; it takes predictions and references")
        predictions, references = as_array(predictions), as_array(references)
        if predictions.ndim != 2 or references.shape != predictions.shape[:1]:
            raise ValueError(
                f"Mismatch: predictions must have the shape (n, classes) and references (n,), "
                f"got {predictions.shape} and {references.shape}"
            )
        # Tables of the array's own memory: `evaluate` would turn every number into a Python object, so that 10,000 x
        # 1000 logits take seconds and over a gigabyte.
        classes = predictions.shape[1]
        step = max(1, 4 * CHUNK // max(1, classes))
        for start in range(0, len(predictions), step):
            rows = np.ascontiguousarray(predictions[start : start + step], dtype=np.float32)
            offsets = np.arange(0, rows.size + 1, classes, dtype=np.int32)
            column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.reshape(-1)))
            if self.writer is None:
                self.selected_feature_format = self.features
                self._init_writer()
            labels = pa.array(references[start : start + step])
            self.writer.write_table(pa.table({"predictions": column, "references": labels}))
