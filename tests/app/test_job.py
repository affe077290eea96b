"""Work in a thread: watched, stopped, and explained."""

import logging
import threading

import pytest
import torch

from macs_hf.app.job import UNEXPECTED, Job, images_in, with_fields


def test_the_result_and_how_far_it_was() -> None:
    seen, go = threading.Event(), threading.Event()

    def work(job: Job) -> str:
        job.step(stage="Measuring", total=10)
        job.step(4)
        seen.set()
        go.wait(10)
        job.step(3)
        return "done"

    job = Job(work)
    assert seen.wait(10) and not job.wait(0.01)
    progress = job.progress
    assert (progress.stage, progress.done, progress.total, job.is_running) == ("Measuring", 4, 10, True)
    go.set()
    assert job.wait(10)
    assert (job.result, job.error, job.progress.done, job.is_running) == ("done", None, 7, False)


def test_cancelled_work_ends_at_its_next_step() -> None:
    steps, cancelled = [], threading.Event()

    def work(job: Job) -> None:
        steps.append(1)
        job.step()
        cancelled.wait(10)
        steps.append(2)
        job.step()
        steps.append(3)

    job = Job(work)
    assert not job.is_cancelled
    job.cancel()
    assert job.is_cancelled
    cancelled.set()
    assert job.wait(10)
    assert 3 not in steps and (job.result, job.error) == (None, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("Dataset 'x' has no split 'y'. Name one with test_split=..."), "in the field “Split”"),
        (FileNotFoundError("no such thing"), "no such thing"),
        (KeyError("inside"), UNEXPECTED),
    ],
)
def test_errors_are_sentences(error: Exception, said: str, capsys: pytest.CaptureFixture) -> None:
    def work(job: Job) -> None:
        raise error

    job = Job(work)
    assert job.wait(10)
    assert said in job.error and "MACS_HF" not in job.error
    assert ("KeyError" in capsys.readouterr().err) == (said == UNEXPECTED)  # the owner learns of bugs


def test_notes_are_the_warnings_of_its_own_thread() -> None:
    logger = logging.getLogger("macs_hf.data.splits")
    ready, go = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        ready.set()
        go.wait(10)
        for _ in range(2):
            logger.warning("fitted on a tenth of train: name another with validation_split=...")

    job = Job(work)
    ready.wait(10)
    logger.warning("somebody else's")
    go.set()
    assert job.wait(10)
    assert job.notes == ["fitted on a tenth of train: name another in the field “Calibration split”"]
    assert not any(type(handler).__name__ == "_Notes" for handler in logging.getLogger("macs_hf").handlers)


def test_arguments_get_the_names_of_fields() -> None:
    assert with_fields("Name one with image_column=... or label_column=...") == (
        "Name one in the field “Image column” or “Label column”"
    )


def test_images_of_a_call() -> None:
    images = torch.zeros(5, 3, 4, 4)
    assert images_in((images,), {}) == images_in((), {"pixel_values": images}) == 5
