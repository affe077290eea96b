"""Choose the settings of `METHODS["recommended"]` by successive halving, on validation images only.

MACS_HF_ASSETS=DIR python examples/search.py examples/configs/search.yaml --output_dir runs/search   # continues
python examples/search.py examples/configs/search.yaml --output_dir runs/search --report FILE.json   # what was found
"""

import argparse
import itertools
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from reproduction.grid import expand

from macs_hf.calibration import fit_temperature
from macs_hf.cli.train import prepare
from macs_hf.cli.train_arguments import parse
from macs_hf.evaluation.byte_images import ByteImages
from macs_hf.evaluation.corruption_benchmark import evaluate_corruptions, forward_of
from macs_hf.metrics import negative_log_likelihood
from macs_hf.objective import Objective
from macs_hf.report.corruption_names import CORRUPTIONS, STANDARD_15
from macs_hf.training.averaging import restore_raw_weights
from macs_hf.training.trainer import MaCSTrainer


EXTRA_CORRUPTIONS = tuple(name for name in CORRUPTIONS if name not in STANDARD_15)
Settings = dict[str, float | str]


@dataclass(frozen=True)
class Round:
    """Candidates are trained for `epochs` with each of the `seeds`, and `keep` of them go on."""

    epochs: int
    seeds: tuple[int, ...]
    keep: int


def candidates(choices: dict[str, list[Any]]) -> dict[str, Settings]:
    """All combinations that make an objective, by name."""
    found = {}
    for values in itertools.product(*choices.values()):
        chosen = dict(zip(choices, values, strict=True))
        std, space = chosen.pop("noise").split()
        settings = chosen | {"noise_std": float(std), "perturbation_space": space}
        try:
            Objective(**settings)
        except ValueError:
            continue
        found["-".join(f"{name}_{value}" for name, value in settings.items())] = settings
    return found


def best(trials: list[dict[str, Any]], keep: int) -> list[str]:
    """The names of the candidates with the lowest mean score over seeds, averaged weights or not, best first."""
    scores: dict[str, dict[str, list[float]]] = {}
    for trial in trials:
        of_name = scores.setdefault(trial["name"], {"last": [], "averaged": []})
        for weights, values in of_name.items():
            values.append(trial[weights]["score"])
    ranked = sorted(scores, key=lambda name: min(np.mean(values) for values in scores[name].values()))
    return ranked[:keep]


def averaging_helps(trials: list[dict[str, Any]]) -> bool:
    """Whether averaged weights are better than the last ones by more than the standard error over images."""
    gains = [trial["last"]["score"] - trial["averaged"]["score"] for trial in trials]
    error = np.mean([trial["gain_standard_error"] ** 2 for trial in trials]) ** 0.5 / len(trials) ** 0.5
    return bool(np.mean(gains) > error)


def run_trial(name: str, settings: Settings, epochs: int, seed: int, common: dict[str, Any], root: Path) -> dict:
    """Train one candidate and score it; a trial that is there already is read."""
    folder = root / f"{name}-epochs_{epochs}-seed{seed}"
    record = folder / "trial.json"
    if record.is_file():
        return json.loads(record.read_text())
    start = time.monotonic()
    flags = {key: expand(value) for key, value in common.items()} | settings
    flags |= {"num_train_epochs": epochs, "seed": seed, "output_dir": folder}
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    script, args = parse(words)
    prepared = prepare(script, args)
    trainer = prepared.trainer
    trainer.train(resume_from_checkpoint=prepared.checkpoint)
    averaged, averaged_images = score(trainer)
    restore_raw_weights(trainer.model, folder / f"checkpoint-{trainer.state.global_step}")
    last, last_images = score(trainer)
    gain = last_images - averaged_images
    trial = {"name": name, "settings": settings, "epochs": epochs, "seed": seed, "averaged": averaged, "last": last}
    trial["gain_standard_error"] = float(gain.std(ddof=1) / len(gain) ** 0.5)
    trial["seconds"] = round(time.monotonic() - start, 1)
    record.write_text(json.dumps(trial, indent=2) + "\n")
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return trial


def score(trainer: MaCSTrainer) -> tuple[dict[str, float], np.ndarray]:
    """What decides, with its parts, and the same for each validation image."""
    logits, labels = trainer.predict_logits(trainer.eval_dataset)
    temperature = fit_temperature(logits, labels)
    table = evaluate_corruptions(
        forward_of(trainer.model, trainer.pixel_stats),
        ByteImages(trainer.eval_dataset, ("pixel_values", "labels"), trainer.pixel_stats),
        temperature=temperature,
        corruptions=EXTRA_CORRUPTIONS,
        design="spread",
        params="cifar",
        batch_size=trainer.args.eval_batch_size,
        progress=False,
    )
    rows = trainer.predict_rows(trainer.eval_dataset, (temperature,))[0]
    # Each image is seen under one corruption; its entries under the others are NaN.
    corrupted = np.nanmean(table.rows.scaled_nll, axis=1)
    found = {
        "temperature": temperature,
        "accuracy": float((logits.argmax(1) == labels).mean()),
        "nll": negative_log_likelihood(logits / temperature, labels),
        "corrupted_accuracy": float(np.mean([cell.accuracy for row in table.cells.values() for cell in row.values()])),
        "corrupted_nll": float(corrupted.mean()),
    }
    return found | {"score": (found["nll"] + found["corrupted_nll"]) / 2}, (rows.nll + corrupted) / 2


def search(study: dict[str, Any], root: Path) -> dict[str, Any]:
    """Run all rounds, and say what was found."""
    left = candidates(study["choices"])
    rounds, everything = [], []
    for stage in (Round(entry["epochs"], tuple(entry["seeds"]), entry["keep"]) for entry in study["rounds"]):
        trials = []
        for position, (name, settings) in enumerate(left.items()):
            for seed in stage.seeds:
                trial = run_trial(name, settings, stage.epochs, seed, study["settings"], root)
                shown = ", ".join(f"{weights} {trial[weights]['score']:.4f}" for weights in ("last", "averaged"))
                print(f"[{position + 1}/{len(left)}] {stage.epochs} epochs, {name}, seed {seed}: {shown}", flush=True)
                trials.append(trial)
        names = best(trials, stage.keep)
        rounds.append({"epochs": stage.epochs, "seeds": stage.seeds, "candidates": len(left), "best": names})
        everything += trials
        left = {name: left[name] for name in names}
    (winner,) = left
    last = [trial for trial in trials if trial["name"] == winner]
    return {
        "recommended": left[winner] | {"averaged_weights": averaging_helps(last)},
        "hours": round(sum(trial["seconds"] for trial in everything) / 3600, 2),
        "rounds": rounds,
        "trials": everything,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="A search file, as examples/configs/search.yaml.")
    parser.add_argument("--output_dir", type=Path, default=Path("runs", "search"), help="Where the trials are.")
    parser.add_argument("--report", type=Path, help="Write what was found to this file.")
    options = parser.parse_args(argv)
    found = search(yaml.safe_load(options.study.read_text()), options.output_dir)
    print(json.dumps({name: found[name] for name in ("recommended", "hours", "rounds")}, indent=2))
    if options.report:
        options.report.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
