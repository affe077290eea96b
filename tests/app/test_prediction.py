"""One image through a model: probabilities before and after calibration, sets, and the same image getting worse."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification

from macs_hf.app.model_calibration import Calibration, stored_calibration
from macs_hf.app.prediction import answer, classifier
from macs_hf.corruptions import corrupt

from .small_run import ANSWERS, CLASSES, SETS, picture, save_model


TEMPERATURE = 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("trying") / "model", temperature=TEMPERATURE, promises=True)


def logits_of(folder: Path, pixels: torch.Tensor) -> torch.Tensor:
    """By transformers alone, of uint8 images at the network's size."""
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]
    with torch.no_grad():
        return model(**processor(images, return_tensors="pt")).logits.double()


def test_what_is_stored_in_the_config_is_known(folder: Path) -> None:
    model = classifier(str(folder))
    known = stored_calibration(model.config, model.temperature)
    assert (known.before, known.after, known.is_known) == (1.0, TEMPERATURE, True)
    assert known.sets == {float(level): value for level, value in SETS.items()}
    assert known.answers == {float(level): value for level, value in ANSWERS.items()}
    assert model.label_names == tuple(CLASSES)


def test_probabilities_are_those_of_transformers(folder: Path) -> None:
    image, model = picture(1, 5), classifier(str(folder))
    (reading,) = answer(model, image, None, stored_calibration(model.config, model.temperature)).readings
    logits = logits_of(
        folder, torch.tensor(list(image.tobytes()), dtype=torch.uint8).view(1, 32, 32, 3).permute(0, 3, 1, 2)
    )
    torch.testing.assert_close(torch.tensor(reading.after).double(), logits[0].softmax(0), rtol=1e-4, atol=1e-6)
    before = (logits[0] * TEMPERATURE).softmax(0)
    torch.testing.assert_close(torch.tensor(reading.before).double(), before, rtol=1e-4, atol=1e-6)
    assert reading.confidence == max(reading.after) and reading.after[reading.prediction] == reading.confidence


def test_sets_hold_the_classes_below_the_threshold(folder: Path) -> None:
    model = classifier(str(folder))
    (reading,) = answer(model, picture(0, 1), None, stored_calibration(model.config, model.temperature)).readings
    for coverage, threshold in stored_calibration(model.config, model.temperature).sets.items():
        expected = {index for index, share in enumerate(reading.after) if 1 - share <= threshold} or {
            reading.prediction
        }
        members = reading.members[coverage]
        assert set(members) == expected
        assert [reading.after[index] for index in members] == sorted((reading.after[i] for i in members), reverse=True)


def test_it_gets_the_corruptions_of_the_benchmark(folder: Path) -> None:
    image, model = picture(2, 7), classifier(str(folder))
    found = answer(model, image, "gaussian_noise", Calibration())
    pixels = torch.tensor(list(image.tobytes()), dtype=torch.uint8).view(1, 32, 32, 3).permute(0, 3, 1, 2)
    worse = torch.cat([pixels, *(corrupt(pixels, "gaussian_noise", severity) for severity in (1, 2, 3, 4, 5))])
    for place, shown in enumerate(found.pictures):
        assert list(shown.tobytes()) == worse[place].permute(1, 2, 0).flatten().tolist()
    expected = (logits_of(folder, worse) * TEMPERATURE).softmax(1)
    found = torch.tensor([reading.after for reading in found.readings]).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_visitors_share_a_model_that_none_of_them_changes(folder: Path) -> None:
    assert classifier(str(folder)) is classifier(str(folder))
