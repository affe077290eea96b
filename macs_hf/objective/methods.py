"""The methods by name: each is what it sets of an [`Objective`]; everything else keeps its default."""

PLAIN = {"lambda_margin": 0.0, "lambda_consistency": 0.0}
AUGMIX = {"lambda_jsd": 12.0}

# `macs` is the paper to the letter, and stays so.
METHODS: dict[str, dict[str, float | str | bool]] = {
    "ce": PLAIN,
    "label_smoothing": PLAIN | {"label_smoothing_factor": 0.1},
    "focal": PLAIN | {"focal_gamma": 2.0},
    "mixup": PLAIN | {"mixup_alpha": 0.2},
    "augmix": PLAIN | AUGMIX,
    "mbls": PLAIN | {"lambda_mbls": 0.1},
    "perturb_augment": PLAIN | {"perturb_as_augmentation": True},
    "two_view_ce": PLAIN | {"two_view_cross_entropy": True},
    "margin_only": {"lambda_consistency": 0.0},
    "consistency_only": {"lambda_margin": 0.0},
    "macs": {},
    "macs_pixel": {"perturbation_space": "pixel"},
    "macs_augmix": AUGMIX,
}
