"""The dataset that the options of a command name."""

from typing import Any

from ..data.sources import DatasetSource, source_of


def chosen_source(options: Any) -> DatasetSource:
    """
    Args:
        options (`Namespace` or dataclass): Of a command. Not every command has `calibration_split`, `train_split`,
            `horizontal_flip` and `group_column`.
    """
    given = vars(options)
    return source_of(
        options.dataset,
        options.dataset_config,
        options.image_column,
        options.label_column,
        validation_split=given.get("calibration_split"),
        test_split=options.split,
        **{name: given.get(name) for name in ("train_split", "horizontal_flip", "group_column")},
    )
