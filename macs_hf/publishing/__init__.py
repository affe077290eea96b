"""From a report and a folder to a model card and a Hub repository."""

from .access import check_push_access
from .card import CardSettings, model_card, write_card
from .push import PushError, push_folder


__all__ = [
    "CardSettings",
    "PushError",
    "check_push_access",
    "model_card",
    "push_folder",
    "write_card",
]
