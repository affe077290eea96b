"""Where the mean hides trouble: the published model on each class, and on each group that the rows name."""

from typing import TypedDict

import numpy as np

from ..metrics import confusion_matrix, group_measures
from ..metrics.groups import MAX_GROUPS
from ..report.groups import ConfusionMatrix, GroupTable
from ..report.guarantees import Guarantees
from ..report.rows import SampleRows


class Tables(TypedDict):
    """Fields of the report."""

    classes: GroupTable | None
    confusion: ConfusionMatrix | None
    groups: GroupTable | None


def group_tables(
    rows: SampleRows,
    class_names: tuple[str, ...],
    group_column: str | None,
    covered: np.ndarray | None = None,
    guarantees: Guarantees | None = None,
) -> Tables:
    """
    Measures of each class and each group, and the confusion matrix.

    Args:
        rows ([`SampleRows`]): Of the model as it is published.
        class_names (`tuple[str, ...]`): One for each class. With more than 1,000 there are no tables of classes; the
            rows hold all that they would say.
        group_column (`str`, *optional*): What `rows.group` is called.
        covered (`np.ndarray` of shape `(n,)` and type `bool`, *optional*): Whether the prediction set of each sample
            holds its class, for the sets of `guarantees.shown_set`.
        guarantees ([`Guarantees`], *optional*): With the coverage that was promised.
    """
    coverage = {}
    if covered is not None:
        coverage = {"covered": covered, "promised_coverage": guarantees.shown_set.coverage}
    found = Tables(classes=None, confusion=None, groups=None)
    if len(class_names) <= MAX_GROUPS:
        found["classes"] = group_measures(rows, names=class_names, **coverage)
        found["confusion"] = confusion_matrix(rows, len(class_names), names=class_names)
    if rows.group is not None:
        found["groups"] = group_measures(rows, rows.group, column=group_column or "group", **coverage)
    return found
