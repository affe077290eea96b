"""Image classifiers: loading them from the Hub, timm or a folder, and saving timm backbones in timm's own layout."""

from .loading import BACKBONES, FROM_SCRATCH, load_classifier, load_pretrained


__all__ = ["BACKBONES", "FROM_SCRATCH", "load_classifier", "load_pretrained"]
