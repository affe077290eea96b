"""Per-sample rows."""

import numpy as np
import pytest
import torch

from macs_hf.metrics import expected_calibration_error
from macs_hf.report.rows import SampleRows, sample_rows


def random_batch(seed: int, n: int = 64, classes: int = 5, scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, classes, generator=generator), torch.randint(0, classes, (n,), generator=generator)


def test_more_classes_than_float32_can_number() -> None:
    with pytest.raises(ValueError, match="16777217 classes are too many"):
        sample_rows(torch.zeros(1, 1).expand(1, 2**24 + 1), torch.tensor([0]))


def test_probabilities_in_bfloat16_are_noticed() -> None:
    probabilities = torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]]).bfloat16()
    with pytest.warns(UserWarning, match="look like probabilities"):
        expected_calibration_error(probabilities, [0, 1, 1])
    with pytest.warns(UserWarning, match="look like probabilities"):
        SampleRows.from_logits(probabilities, torch.tensor([0, 1, 1]))


def test_rows_by_hand() -> None:
    logits = torch.tensor([[0.0, np.log(3)], [np.log(3), 0.0]])
    expected = [[0, 1, 0.75, np.log(4), 1.125, -np.log(3)], [0, 0, 0.75, np.log(4 / 3), 0.125, np.log(3)]]
    rows = sample_rows(logits, torch.tensor([0, 0]))
    assert rows.dtype == torch.float32
    np.testing.assert_allclose(rows, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_and_untouched_inputs(dtype: torch.dtype) -> None:
    logits, labels = random_batch(0)
    logits = logits.to(dtype).requires_grad_()
    kept = logits.detach().clone()
    rows = sample_rows(logits, labels)
    torch.testing.assert_close(rows, sample_rows(kept.double(), labels), rtol=1e-5, atol=1e-6)
    assert torch.equal(logits, kept) and not rows.requires_grad


def test_the_first_of_equal_logits_is_predicted() -> None:
    assert sample_rows(torch.zeros(1, 3), torch.tensor([2]))[0, 1] == 0


def test_a_confident_right_prediction() -> None:
    rows = SampleRows.from_logits(torch.tensor([[12.0, 0.0], [300.0, 0.0]]), torch.tensor([0, 0]))
    assert rows.brier[0] == pytest.approx(2 * np.exp(-24), rel=0.02)  # 1 - 2 p + p^2 would be lost in rounding
    assert (rows.confidence[1], rows.nll[1], rows.brier[1]) == (1, 0, 0)
    assert not np.signbit(rows.nll[1])


def test_nan_names_the_row() -> None:
    logits, labels = random_batch(0)
    logits[7, 2] = torch.nan
    with pytest.raises(ValueError, match=r"confidence of row 7 must be a finite number"):
        SampleRows.from_logits(logits, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, 1.5, 1.0], "class ids"),
        ([0, 2, 1], "Label 2 of row 1"),
        ([0, 1, -100], "Label -100 of row 2"),
    ],
)
def test_labels_are_checked(labels: list, message: str) -> None:
    logits, labels = torch.zeros(3, 2), torch.tensor(labels)
    for function in (SampleRows.from_logits, sample_rows):
        with pytest.raises(ValueError, match=message):
            function(logits, labels)


def test_columns_are_checked() -> None:
    with pytest.raises(ValueError, match=r"\(n, 6\), got \(3, 5\)"):
        SampleRows.from_array(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="n > 0"):
        SampleRows.from_array(np.zeros((0, 6)))
