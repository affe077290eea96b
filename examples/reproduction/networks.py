"""A pretrained timm backbone at another input size, as a folder that `examples/train.py --model` takes.

Only `config.json` changes; the weights are the same. Transformers get the arguments that let them take images of any
size (a ViT interpolates its position embedding in every forward pass).
"""

import json
import os
import shutil
from pathlib import Path

from huggingface_hub import snapshot_download

from macs_hf.hub import hub_needed, is_local
from macs_hf.models import model_id


FILES = ("config.json", "model.safetensors")
ANY_SIZE = {"vit": {"dynamic_img_size": True}, "swin": {"strict_img_size": False}}


def at_size(model: str, size: int, root: Path) -> Path:
    """The folder below `root` with `model` (a backbone's name, Hub id or folder) for images of `size` pixels."""
    target = root / f"{Path(model).name}-{size}px"
    if all((target / name).exists() for name in FILES):
        return target
    path = model_id(model)
    if is_local(path):
        source = Path(path)
    else:
        with hub_needed(f"Model {path!r}", path, "model"):
            source = Path(snapshot_download(path, allow_patterns=list(FILES)))
    config = json.loads((source / "config.json").read_text())
    if "pretrained_cfg" not in config:
        raise ValueError(
            f"image_size={size}: {model!r} is not a timm model, so its input size cannot be changed here."
        )
    config["pretrained_cfg"] |= {"input_size": [3, size, size], "crop_pct": 1.0, "pool_size": None}
    kind = config["architecture"].partition("_")[0]
    if kind in ANY_SIZE:
        config["model_args"] = config.get("model_args", {}) | ANY_SIZE[kind]
    target.mkdir(parents=True, exist_ok=True)
    # Renamed when whole, since several processes may do this at once, and the files say that the folder is complete.
    parts = {name: target / f"{name}.{os.getpid()}" for name in FILES}
    shutil.copyfile(source / "model.safetensors", parts["model.safetensors"])
    parts["config.json"].write_text(json.dumps(config, indent=2) + "\n")
    for name, part in parts.items():
        part.rename(target / name)
    return target
