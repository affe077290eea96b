"""From logits to rows, on the device of the logits."""

import torch

from .checks import check_labels


MOST_CLASSES = 2**24  # whole numbers up to here are exact in float32


def sample_rows(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    Reduces logits to rows on their device, without waiting for it: for `Trainer.preprocess_logits_for_metrics`.

    Args:
        logits (`torch.Tensor` of shape `(n, classes)`):
            Logits of any floating type, at least two classes.
        labels (`torch.Tensor` of shape `(n,)`):
            Class ids.

    Returns:
        `torch.Tensor` of shape `(n, 6)`, float32 (exact for class ids below 2^24): label, prediction, confidence, nll,
        brier, margin. NaN logits give NaN; [`SampleRows.from_array`] names the row.
    """
    if logits.ndim != 2 or logits.shape[1] < 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must be (n, classes) with at least two classes and labels (n,), got {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}"
        )
    if logits.shape[1] > MOST_CLASSES:
        raise ValueError(f"{logits.shape[1]} classes are too many: rows hold class ids up to {MOST_CLASSES} exactly")
    labels = class_ids(labels, logits.shape[1])
    logits = logits.detach()
    logits = logits if logits.dtype == torch.float64 else logits.float()
    index = labels.to(logits.device)[:, None]
    log_probs = logits.log_softmax(dim=1)
    prediction = argmax(logits)
    label_logit, label_log_prob = logits.gather(1, index)[:, 0], log_probs.gather(1, index)[:, 0]
    probs = log_probs.exp()
    confidence = probs.gather(1, prediction[:, None])[:, 0]
    # 1 - 2 p[y] + sum of squares, arranged so that a confident, right prediction does not cancel
    label_prob = label_log_prob.exp()
    brier = (1 - label_prob) ** 2 + probs.square_().scatter_(1, index, 0.0).sum(dim=1)
    margin = label_logit - logits.scatter(1, index, -torch.inf).amax(dim=1)
    columns = (labels, prediction, confidence, label_log_prob.abs(), brier, margin)  # abs: no negative zero
    return torch.stack([column.to(logits.device, torch.float32) for column in columns], dim=1)


def class_ids(labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Labels as int64 class ids. Their range is checked on the CPU only, so as not to wait for an accelerator."""
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels must be whole class ids, got {labels.dtype}: convert them with labels.long()")
    labels = labels.to(torch.int64)
    if labels.device.type == "cpu":
        check_labels(labels, classes)
    return labels


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """The first largest entry of each row; on CPU by NumPy, which takes a quarter of the time."""
    return torch.from_numpy(logits.numpy().argmax(axis=1)) if logits.device.type == "cpu" else logits.argmax(dim=1)
