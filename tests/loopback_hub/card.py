"""The metadata at the head of a README.md: what the Hub reads from it, and the mistakes for which it refuses a card.

Only a part of the Hub's rules, those a generated model card can break: a card which passes here may still be refused
there, but not for a YAML tag, a value which is no number, an unknown licence or a malformed id.
"""

import math
import re
from typing import Any

import yaml


# The common ones of the Hub's list.
LICENSES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause cc cc0-1.0 cc-by-2.0 cc-by-3.0 cc-by-4.0
    cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-4.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 gpl
    gpl-2.0 gpl-3.0 lgpl lgpl-3.0 mit mpl-2.0 odbl odc-by openrail other pddl unknown unlicense wtfpl
    """.split()  # noqa: SIM905
)
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_LISTS_OF_STRINGS = ("tags", "metrics", "datasets", "base_model", "language", "license")
_LISTS_ONLY = ("tags", "metrics")


def read_metadata(content: str) -> dict[str, Any]:
    """The YAML block of a README.md; `{}` if there is none.

    Raises:
        `ValueError`: if the block is not plain YAML (a Python object tag, say) or not a mapping.
    """
    block = re.match(r"\ufeff?\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)", content, re.DOTALL)
    if block is None:
        return {}
    try:
        metadata = yaml.safe_load(block[1])
    except yaml.YAMLError as error:
        raise ValueError(f"YAML: {error}") from error
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise ValueError(f"the metadata must be a mapping, not {type(metadata).__name__}")
    return metadata


def card_errors(content: str) -> list[str]:
    """What the Hub would refuse in a README.md; an empty list if nothing."""
    try:
        metadata = read_metadata(content)
    except ValueError as error:
        return [str(error)]
    errors = []
    for key in _LISTS_OF_STRINGS:
        value = metadata.get(key)
        values = [value] if isinstance(value, str) and key not in _LISTS_ONLY else value
        if value is not None and not (isinstance(values, list) and all(isinstance(v, str) for v in values)):
            errors.append(f'"{key}" must be a list of strings, not {value!r}')
        elif key == "license":
            errors += [
                f'"license" must be one of the known ones, not {v!r}' for v in values or () if v not in LICENSES
            ]
        elif key in ("datasets", "base_model"):
            errors += [f'"{key}" holds {v!r}, which is no repository id' for v in values or () if not _ID.fullmatch(v)]
    for key in ("pipeline_tag", "library_name"):
        if not isinstance(metadata.get(key, ""), str):
            errors.append(f'"{key}" must be a string, not {metadata[key]!r}')
    return errors + _model_index_errors(metadata.get("model-index"))


def _model_index_errors(index: Any) -> list[str]:
    if index is None:
        return []
    if not (isinstance(index, list) and all(isinstance(model, dict) for model in index)):
        return ['"model-index" must be a list of mappings']
    errors = []
    for i, model in enumerate(index):
        here = f'"model-index[{i}]'
        if not isinstance(model.get("name"), str):
            errors.append(f'{here}.name" is required')
        results = model.get("results")
        if not (isinstance(results, list) and all(isinstance(result, dict) for result in results)):
            errors.append(f'{here}.results" must be a list of mappings')
            continue
        for j, result in enumerate(results):
            for section, keys in {"task": ("type",), "dataset": ("type", "name")}.items():
                for key in keys:
                    if not isinstance((result.get(section) or {}).get(key), str):
                        errors.append(f'{here}.results[{j}].{section}.{key}" is required')
            if not result.get("metrics"):
                errors.append(f'{here}.results[{j}].metrics" is required')
            for k, metric in enumerate(result.get("metrics") or ()):
                value = metric.get("value")
                if not isinstance(metric.get("type"), str):
                    errors.append(f'{here}.results[{j}].metrics[{k}].type" is required')
                if value is None or (isinstance(value, float) and not math.isfinite(value)):
                    errors.append(f'{here}.results[{j}].metrics[{k}].value" must be a finite number, not {value!r}')
    return errors
