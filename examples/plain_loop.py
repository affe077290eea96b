"""MaCS in a plain PyTorch training loop: `supervise` replaces the forward pass and the loss.

python examples/plain_loop.py                    # embedded digits, a small network, about a minute on a CPU
python examples/plain_loop.py --method ce        # cross-entropy, in the same loop

After training, a temperature is fitted on held-out images and folded into the head, as `macs-hf train` does. Last, the
test images are measured before and after that.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from macs_hf import METHODS, Objective, PixelStats, SampleRows, fit_temperature, fold_temperature, supervise
from macs_hf.data import image_datasets, load_data
from macs_hf.metrics import summarize
from macs_hf.models import load_classifier


def train(
    model: nn.Module, images: Dataset, objective: Objective, pixel_stats: PixelStats | None, epochs: int
) -> list[float]:
    """Train the model, and return the loss of each step."""
    loader = DataLoader(images, batch_size=64, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=epochs * len(loader))
    losses = []
    model.train()
    for epoch in range(epochs):
        for batch in loader:
            # One forward pass for both views. `parts` has the loss, its terms, and the logits.
            parts = supervise(model, batch["pixel_values"], batch["labels"], objective, pixel_stats=pixel_stats)
            parts.loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(parts.loss.item())
        print(f"epoch {epoch + 1}: loss {losses[-1]:.3f}, cross-entropy {parts.cross_entropy_loss.item():.3f}")
    return losses


@torch.inference_mode()
def predict(model: nn.Module, images: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels."""
    model.eval()
    found = [(model(batch["pixel_values"]).logits, batch["labels"]) for batch in DataLoader(images, batch_size=256)]
    logits, labels = zip(*found, strict=True)
    return torch.cat(logits), torch.cat(labels)


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--method", default="macs", choices=("ce", "two_view_ce", "macs", "recommended"))
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args(argv)

    torch.manual_seed(0)
    torch.set_num_threads(1)  # more threads only slow down so small a network
    splits = load_data(options.dataset)
    model, processor = load_classifier("tiny", splits.label_names)
    images, held_out, test = image_datasets(splits, processor)
    objective = Objective(**METHODS[options.method])
    train(model, images, objective, PixelStats.from_processor(processor), options.epochs)

    results = {"before": summarize(SampleRows.from_logits(*predict(model, test)))}
    temperature = fit_temperature(*predict(model, held_out))
    fold_temperature(model, temperature, next(iter(DataLoader(held_out, batch_size=4)))["pixel_values"])
    results[f"with temperature {temperature:.2f}"] = summarize(SampleRows.from_logits(*predict(model, test)))
    for name, found in results.items():
        print(f"{name}: accuracy {found['accuracy']:.3f}, nll {found['nll']:.3f}, ece {found['ece']:.3f}")
    return results


if __name__ == "__main__":
    main()
