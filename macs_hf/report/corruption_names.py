"""The names of the corruption benchmark: 19 corruptions in five families, five severities."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}
CORRUPTIONS: tuple[str, ...] = tuple(name for family in FAMILIES.values() for name in family)
STANDARD_15: tuple[str, ...] = CORRUPTIONS[:15]
MEANS = {"mean15": STANDARD_15, "mean19": CORRUPTIONS}
SEVERITIES = (1, 2, 3, 4, 5)
