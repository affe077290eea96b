"""Which image of the benchmark is seen under which corruption, and what that means for means and their errors.

With x[i, c] the result of image i under corruption c (its mean over severities), n[c] the images seen under c, and
weights w[c] that add up to 1, a mean under corruption is

    sum over c of w[c] * mean over the images of c of x[i, c]  =  mean over i of v[i],
    v[i] = n * sum over the c that i was seen under of w[c] * x[i, c] / n[c].

Images that were seen under the same corruptions form a stratum, of which there is one in the crossed design and one
per corruption in the spread design. Images are independent draws and strata are independent of each other, so the
variance of the mean is the sum over strata of n[s] * variance within s of v, over n^2.
"""

import numpy as np


def contributions(results: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    What each image contributes to a mean under corruption, and the stratum that it belongs to.

    Args:
        results (`np.ndarray` of shape `(..., images, corruptions)`): NaN where an image was not seen, the same in
            all of the leading axes, such as seeds.
        weights (`np.ndarray` of shape `(corruptions,)`): Of the corruptions in the mean.

    Returns:
        `(..., images)`, whose mean over images is the mean under corruption, and int64 `(images,)`.
    """
    seen = ~np.isnan(results.reshape(-1, *results.shape[-2:])[0])
    counts = seen.sum(axis=0)
    shares = seen * (len(seen) * weights / np.maximum(counts, 1))
    strata = np.unique(seen, axis=0, return_inverse=True)[1].reshape(-1)
    return (np.nan_to_num(results) * shares).sum(axis=-1), strata


def standard_error(results: np.ndarray) -> float | None:
    """Of the mean over the columns of `results` (see [`contributions`]), or `None` if a stratum has a single image."""
    values, strata = contributions(results, np.full(results.shape[1], 1 / results.shape[1]))
    sizes = np.bincount(strata)
    if sizes.min() < 2:
        return None
    centred = values - (np.bincount(strata, weights=values) / sizes)[strata]
    variances = np.bincount(strata, weights=centred**2) / (sizes - 1)
    return float((sizes * variances).sum() ** 0.5 / len(values))
