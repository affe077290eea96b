"""`examples/search.py`: which settings are tried, which ones go on, and a tiny search from its start to its end."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml


sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import search

from macs_hf.objective import METHODS, Objective


EXAMPLES = Path(__file__).parents[2] / "examples"


def trial(name: str, last: float, averaged: float, error: float = 0.01) -> dict[str, Any]:
    return {"name": name, "last": {"score": last}, "averaged": {"score": averaged}, "gain_standard_error": error}


def test_candidates_are_the_combinations_that_make_an_objective() -> None:
    choices = yaml.safe_load((EXAMPLES / "configs" / "search.yaml").read_text())["choices"]
    found = search.candidates(choices)
    # 3 weights x 3 kinds of noise x (no margin, margin, MixUp without margin)
    assert len(found) == 27
    assert not any(settings["mixup_alpha"] and settings["lambda_margin"] for settings in found.values())
    for settings in found.values():
        Objective(**settings)
    spaces = {(settings["noise_std"], settings["perturbation_space"]) for settings in found.values()}
    assert spaces == {(0.1, "normalized"), (0.05, "pixel"), (0.1, "pixel")}


def test_the_best_have_the_lowest_mean_over_seeds_of_either_weights() -> None:
    trials = [trial("a", 0.9, 0.5), trial("a", 0.9, 0.7), trial("b", 0.5, 0.9), trial("b", 0.6, 0.9)]
    trials += [trial("c", 0.4, 0.4), trial("c", 1.0, 1.0)]
    assert search.best(trials, 2) == ["b", "a"]  # 0.55, 0.6, 0.7


def test_averaged_weights_must_be_better_by_more_than_their_error() -> None:
    assert search.averaging_helps([trial("a", 0.52, 0.50, 0.01)])
    assert not search.averaging_helps([trial("a", 0.52, 0.50, 0.03)])
    assert not search.averaging_helps([trial("a", 0.50, 0.52, 0.01)])
    # Four trials have half the error of one.
    assert search.averaging_helps([trial("a", 0.52, 0.50, 0.03)] * 4)


@pytest.mark.slow
def test_a_tiny_search_ends_with_one_setting_and_continues_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"dataset": "digits", "model": "tiny", "method": "macs", "max_train_samples": 64, "ema_decay": 0.9}
    settings |= {"max_eval_samples": 120, "eval_strategy": "no", "corruptions": "none", "disable_tqdm": True}
    choices = {"lambda_consistency": [0.5], "noise": ["0.1 pixel"], "lambda_margin": [0.0, 0.1], "mixup_alpha": [0.0]}
    rounds = [{"epochs": 3, "seeds": [1, 2], "keep": 1}]
    study = {"settings": settings, "choices": choices, "rounds": rounds}
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(study))
    words = [
        str(tmp_path / "search.yaml"),
        "--output_dir",
        str(tmp_path / "out"),
        "--report",
        str(tmp_path / "r.json"),
    ]
    assert search.main(words) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["recommended"]["lambda_margin"] in (0.0, 0.1)
    assert len(found["trials"]) == 4
    for each in found["trials"]:
        for weights in ("last", "averaged"):
            assert each[weights]["score"] == pytest.approx((each[weights]["nll"] + each[weights]["corrupted_nll"]) / 2)
        # One step after another, so the average is another model than the last weights.
        assert each["last"]["score"] != each["averaged"]["score"]
    monkeypatch.setattr(search, "prepare", None)  # nothing is trained again
    assert search.search(study, tmp_path / "out")["trials"] == found["trials"]


def test_the_recommended_method_is_what_the_search_chose() -> None:
    found = json.loads((EXAMPLES.parent / "model_cards" / "study" / "search.json").read_text())
    assert not found["recommended"].pop("averaged_weights")
    settings = yaml.safe_load((EXAMPLES / "configs" / "search.yaml").read_text())["settings"]
    chosen = found["recommended"] | {"consistency_fraction": settings["consistency_fraction"]}
    objective = vars(Objective(**METHODS["recommended"]))
    assert {name: objective[name] for name in chosen} == chosen
    assert METHODS["recommended"].keys() <= chosen.keys()
