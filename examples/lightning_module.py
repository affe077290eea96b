"""MaCS in a LightningModule: `supervise` in `training_step`, then a temperature folded into the head.

pip install lightning
python examples/lightning_module.py              # embedded digits, a small network, about a minute on a CPU
"""

import argparse
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from macs_hf import METHODS, Objective, PixelStats, fit_temperature, fold_temperature, supervise
from macs_hf.data import image_datasets, load_data
from macs_hf.models import load_classifier
from macs_hf.randomness import mix_seed


class MaCSModule(lightning.LightningModule):
    """An image classifier of transformers, trained with any objective; `pixel_stats` is for noise in pixel units."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        pixel_stats: PixelStats | None = None,
        learning_rate: float = 5e-3,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model, self.objective, self.pixel_stats = model, objective, pixel_stats
        self.learning_rate, self.seed = learning_rate, seed
        self.held_out: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: dict[str, Tensor], batch_index: int) -> Tensor:
        # Different noise in each step and process, but the same after resuming.
        seed = mix_seed(self.seed, self.current_epoch, batch_index, self.global_rank)
        images, labels = batch["pixel_values"], batch["labels"]
        parts = supervise(self.model, images, labels, self.objective, pixel_stats=self.pixel_stats, seed=seed)
        scalars = {name: value for name, value in parts._asdict().items() if value is not None and value.ndim == 0}
        self.log_dict(scalars, on_step=False, on_epoch=True)
        return parts.loss

    def on_validation_epoch_start(self) -> None:
        self.held_out.clear()

    def validation_step(self, batch: dict[str, Tensor]) -> None:
        logits = self.model(pixel_values=batch["pixel_values"]).logits
        self.held_out.append((logits.cpu(), batch["labels"].cpu()))
        self.log("val_nll", F.cross_entropy(logits, batch["labels"]), prog_bar=True)

    def test_step(self, batch: dict[str, Tensor]) -> None:
        logits = self.model(pixel_values=batch["pixel_values"]).logits
        self.log("test_nll", F.cross_entropy(logits, batch["labels"]))
        self.log("test_accuracy", (logits.argmax(1) == batch["labels"]).float().mean())

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.learning_rate, weight_decay=0.05)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.learning_rate, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def calibrate(self) -> float:
        """Fit the temperature on the last validation, fold it into the head and return it. For one process only."""
        logits, labels = (torch.cat(part) for part in zip(*self.held_out, strict=True))
        temperature = fit_temperature(logits, labels)
        fold_temperature(self.model, temperature)
        return temperature


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--method", default="macs", choices=("ce", "two_view_ce", "macs", "recommended"))
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args(argv)

    lightning.seed_everything(0)
    torch.set_num_threads(1)  # more threads only slow down so small a network
    splits = load_data(options.dataset)
    model, processor = load_classifier("tiny", splits.label_names)
    images, held_out, test = image_datasets(splits, processor)
    module = MaCSModule(model, Objective(**METHODS[options.method]), PixelStats.from_processor(processor))
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        module, DataLoader(images, batch_size=64, shuffle=True, drop_last=True), DataLoader(held_out, batch_size=256)
    )
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    test = DataLoader(test, batch_size=256)
    (before,) = trainer.test(module, test, verbose=False)
    temperature = module.calibrate()
    (after,) = trainer.test(module, test, verbose=False)
    nll = [found["test_nll"] for found in (before, after)]
    print(f"accuracy {after['test_accuracy']:.3f}, nll {nll[0]:.3f}, with temperature {temperature:.2f}: {nll[1]:.3f}")
    return {"logged": logged, "before": before, "after": after, "temperature": temperature}


if __name__ == "__main__":
    main()
