"""MaCS in timm's training step: what timm's own script does for each batch, with another loss.

python examples/timm_step.py                                # embedded digits, a small ResNet from timm
python examples/timm_step.py --model resnet18 --epochs 10

timm's script computes `loss = loss_fn(model(input), target)`. Here it is `loss = supervise(model, input, target,
objective).loss`. timm's optimiser, schedule, gradient scaler and averaged weights stay as they are.
"""

import argparse
from typing import Any

import timm
import torch
from timm.data import resolve_model_data_config
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, NativeScaler, accuracy
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import ViTImageProcessor

from macs_hf import METHODS, Objective, PixelStats, fit_temperature, fold_temperature, supervise
from macs_hf.data import image_datasets, load_data


def train_step(
    model: nn.Module,
    input: Tensor,
    target: Tensor,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    loss_scaler: NativeScaler,
    model_ema: ModelEmaV3,
    step: int,
    pixel_stats: PixelStats | None = None,
) -> Tensor:
    """Take one step, and return the loss."""
    with torch.autocast(input.device.type, enabled=input.is_cuda):
        loss = supervise(model, input, target, objective, pixel_stats=pixel_stats).loss
    optimizer.zero_grad()
    loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    model_ema.update(model, step=step)
    return loss.detach()


@torch.inference_mode()
def predict(model: nn.Module, loader: DataLoader) -> tuple[Tensor, Tensor]:
    """Logits and labels."""
    model.eval()
    found = [(model(batch["pixel_values"]), batch["labels"]) for batch in loader]
    logits, labels = zip(*found, strict=True)
    return torch.cat(logits), torch.cat(labels)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--model", default="test_resnet", help="a timm name; trained from scratch")
    parser.add_argument("--method", default="macs", choices=("ce", "two_view_ce", "macs", "recommended"))
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args(argv)

    torch.manual_seed(0)
    splits = load_data(options.dataset)
    model = timm.create_model(options.model, num_classes=len(splits.label_names))
    settings = resolve_model_data_config(model)
    # The digits at 32 pixels, normalised as the model expects.
    processor = ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=settings["mean"], image_std=settings["std"]
    )
    images, held_out, test = image_datasets(splits, processor)
    loader = DataLoader(images, batch_size=64, shuffle=True, drop_last=True)
    held_out, test = (DataLoader(part, batch_size=256) for part in (held_out, test))

    optimizer = create_optimizer_v2(model, opt="adamw", lr=3e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=options.epochs * len(loader), warmup_t=10, t_in_epochs=False)
    model_ema = ModelEmaV3(model, decay=0.99, use_warmup=True)
    objective, loss_scaler, step = Objective(**METHODS[options.method]), NativeScaler(), 0
    pixel_stats = PixelStats(tuple(settings["mean"]), tuple(settings["std"]))
    for epoch in range(options.epochs):
        model.train()
        losses = AverageMeter()
        for batch in loader:
            step += 1
            schedule.step_update(step)
            inputs = batch["pixel_values"], batch["labels"]
            loss = train_step(model, *inputs, objective, optimizer, loss_scaler, model_ema, step, pixel_stats)
            losses.update(loss.item(), len(batch["labels"]))
        print(f"epoch {epoch + 1}: loss {losses.avg:.3f}")

    best = model_ema.module
    before = predict(best, test)
    temperature = fit_temperature(*predict(best, held_out))
    fold_temperature(best, temperature, next(iter(held_out))["pixel_values"][:4])
    after = predict(best, test)
    (top1,) = accuracy(*after, topk=(1,))
    nll = {name: nn.functional.cross_entropy(*found).item() for name, found in (("before", before), ("after", after))}
    print(
        f"top-1 {top1.item():.2f} %, nll {nll['before']:.3f}, with temperature {temperature:.2f}: {nll['after']:.3f}"
    )
    return {"top1": top1.item(), "temperature": temperature, "nll": nll}


if __name__ == "__main__":
    main()
