"""The metadata at the head of a README.md: what the Hub reads from it, and mistakes for which it refuses a card.

Only those that a generated model card can make: a YAML tag, a value which is no number, or a malformed id.
"""

import math
import re
from typing import Any

import yaml
from huggingface_hub import repocard_data


_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def read_metadata(content: str) -> dict[str, Any]:
    """The YAML block of a README.md; `{}` if there is none."""
    block = re.match(r"---\n(.*?)\n---(\n|$)", content, re.DOTALL)
    return (yaml.safe_load(block[1]) if block else None) or {}


def card_errors(content: str) -> list[str]:
    """What the Hub would refuse in a README.md; an empty list if nothing."""
    try:
        metadata = read_metadata(content)
        index = metadata.get("model-index")
        results = repocard_data.model_index_to_eval_results(index)[1] if index is not None else []
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        return [f"metadata that cannot be read: {error!r}"]
    errors = [f"{result.metric_type} must be a finite number" for result in results if not _is_number(result)]
    for key in ("tags", "metrics", "datasets", "base_model", "language", "license"):
        values = metadata.get(key, [])
        values = [values] if isinstance(values, str) and key not in ("tags", "metrics") else values
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            errors.append(f"{key} must be a list of strings, not {values!r}")
        elif key in ("datasets", "base_model"):
            errors += [
                f"{key} holds {value!r}, which is no repository id" for value in values if not _ID.fullmatch(value)
            ]
    return errors


def _is_number(result: repocard_data.EvalResult) -> bool:
    return isinstance(result.metric_value, int | float) and math.isfinite(result.metric_value)
