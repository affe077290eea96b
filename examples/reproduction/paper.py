"""The paper's numbers, from `paper.yaml`, one by one."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from .grid import AXES, Setting, setting
from .quantities import METRICS


DATA = Path(__file__).parent / "paper.yaml"
# Keys of a row that are neither a coordinate nor a metric.
NOT_METRICS = {"note", "cannot", "of", "metric", "baseline", "value", "tolerance", "what"}


class Number(NamedTuple):
    """
    One number the paper prints.

    Args:
        table (`str`): The grid's table.
        source (`str`): Where the paper prints it.
        of (`str`): `value` of a setting; `difference`, `relative` (%) or `ratio` to that of `baseline`; `mean` over
            the models of the table; `count`.
        metric (`str`): Key of `METRICS`.
        setting ([`Setting`]): Its coordinates.
        value, std (`float`): As printed; the standard deviation is over three seeds.
        tolerance (`float`): Ours and the paper's are equal within so much.
        baseline (`str`, *optional*): Method it is compared with.
        note (`str`, *optional*): Where the paper contradicts itself or is silent.
        cannot (`str`, *optional*): Why it cannot be reproduced.
        what (`str`, *optional*): In words, where the rest does not say it.
    """

    table: str
    source: str
    of: Literal["value", "difference", "relative", "ratio", "mean", "count"]
    metric: str
    setting: Setting
    value: float
    std: float | None
    tolerance: float
    baseline: str | None = None
    note: str | None = None
    cannot: str | None = None
    what: str | None = None


def load_paper(path: str | Path = DATA) -> tuple[list[Number], dict[str, str]]:
    """All numbers in the order of the file, and the note on each table."""
    data = yaml.safe_load(Path(path).read_text())
    numbers, notes = [], {}
    for name, table in data["tables"].items():
        if "note" in table:
            notes[name] = table["note"]
        common = table.get("common", {})
        for row in table.get("rows", ()):
            row = common | row
            for metric in METRICS:
                if metric in row:
                    value, std = row[metric] if isinstance(row[metric], list) else (row[metric], None)
                    numbers.append(_number(name, table["source"], row, metric, value, std, data["tolerance"]))
        for row in table.get("derived", ()):
            row = common | row
            numbers.append(_number(name, table["source"], row, row["metric"], row["value"], None, data["tolerance"]))
    return numbers, notes


def printed(numbers: list[Number], table: str) -> dict[tuple[Setting, str], Number]:
    """The values of one table by setting and metric."""
    return {(n.setting, n.metric): n for n in numbers if n.table == table and n.of == "value"}


def _number(
    table: str, source: str, row: dict[str, Any], metric: str, value: float, std: float | None, tolerances: dict
) -> Number:
    changes = {key: row[key] for key in row if key not in NOT_METRICS and key not in METRICS and key not in AXES}
    # `margin` is a metric and an argument; in the paper's rows it is the metric.
    key = setting(row.get("dataset", "*"), row.get("model", "*"), row["method"], **changes)
    return Number(
        table,
        source,
        row.get("of", "value"),
        metric,
        key,
        float(value),
        std,
        float(row.get("tolerance", tolerances[metric])),
        row.get("baseline"),
        row.get("note"),
        row.get("cannot"),
        row.get("what"),
    )
