"""Image classifiers: loading them from the Hub, timm or a folder, and saving timm backbones in timm's own layout."""
