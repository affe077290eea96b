"""A setting in words. Its label has the arguments as they are typed; people read tables and figures."""

# Empty: the heading of the table says it.
WORDS = {
    ("consistency_fraction", "0.25"): "on a quarter",
    ("perturbation_space", "pixel"): "pixel noise",
    ("perturbed_share", "0.2"): "equal weights",
    ("corruptions", "none"): "",
    ("corrupted", "at_original_size"): "",
}
NUMBERS = {
    "max_train_samples": "{} images",
    "num_train_epochs": "{} epochs",
    "learning_rate": "learning rate {}",
    "lambda_consistency": "weight {}",
}


def in_words(label: str) -> str:
    """The method and what was changed.

    ```python
    >>> in_words("two_view_ce, consistency_fraction=0.25, perturbation_space=pixel")
    'two_view_ce, on a quarter, pixel noise'

    ```
    """
    method, *changes = label.split(", ")
    return ", ".join([method, *filter(None, map(_change, changes))])


def in_markdown(label: str) -> str:
    """The same with the method as code, and both sides of a difference."""
    sides = (in_words(side).partition(",") for side in label.split(" minus "))
    return " minus ".join(f"`{method}`{comma}{changes}" for method, comma, changes in sides)


def _change(text: str) -> str:
    name, _, value = text.partition("=")
    return WORDS.get((name, value), NUMBERS.get(name, f"{name} {{}}").format(value))
