"""What a model card says beyond its report, as data beside the card, so that it can be rendered again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..disk.atomic_writes import write_text_atomically
from ..disk.secrets import redact
from ..report.serialization import from_plain, to_plain


SETTINGS_FILE = "card.json"


@dataclass(frozen=True)
class CardSettings:
    """
    Args:
        name (`str`): Title, and name in the `model-index`.
        repo_id (`str`, *optional*): Where the model is on the Hub; the snippets otherwise load `folder`.
        license (`str`, *optional*, defaults to `"unknown"`): One of the Hub's
            [licence names](https://huggingface.co/docs/hub/repositories-licenses).
        base_model (`str`, *optional*): Hub id of the model whose weights training started from.
        datasets (`tuple[str, ...]`, *optional*): Hub ids of the data it was trained on.
        timm (`bool`, *optional*, defaults to `False`): Whether timm can load the checkpoint.
        tags (`tuple[str, ...]`, *optional*): Added to the usual ones.
        language (`str`, *optional*): For classes named in one language.
        pictures (`tuple[str, ...]`, *optional*): File names beside the card, of those in `report.run.PICTURES`.
        gallery (`bool`, *optional*, defaults to `False`): Whether the card also shows `mistakes.png`, which has test
            images in it, and a push includes it.
        temperature (`float`, *optional*): Folded into the model, as its config says; stated if there is no report.
        folder (`str`, *optional*): Where the model is on this disk, relative to the current folder; `name` if that is
            not known, or not to be told.
    """

    name: str
    repo_id: str | None = None
    license: str = "unknown"
    base_model: str | None = None
    datasets: tuple[str, ...] = ()
    timm: bool = False
    tags: tuple[str, ...] = ()
    language: str | None = None
    pictures: tuple[str, ...] = ()
    gallery: bool = False
    temperature: float | None = None
    folder: str | None = None

    def save(self, folder: str | PathLike[str]) -> Path:
        path = Path(folder) / SETTINGS_FILE
        write_text_atomically(path, redact(json.dumps(to_plain(self), indent=2)) + "\n")
        return path

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> CardSettings | None:
        """The settings in a run's folder; `None` if it has none."""
        path = Path(folder) / SETTINGS_FILE
        if not path.is_file():
            return None
        try:
            return from_plain(cls, json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} cannot be used: {error}. Correct it, or delete it and README.md.") from error
