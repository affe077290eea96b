"""The tab that audits a model: a form, progress while it runs, the report, and the calibrated model to take away."""

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

import gradio as gr
from gradio.components import Component

from ..report.markup import percent, text
from .access import Access
from .job import Job, Progress, explain
from .libraries import load_libraries
from .limits import AUDITS_AT_ONCE, MAX_AUDITED_IMAGES
from .markup import notice
from .model_download import download_panel
from .visitor import Visitor


POLL_SECONDS = 0.25
ENDING = Progress("Cancelled, it ends after this batch of images", 0, 0, 0.0)
CORRUPTED = {"None": 0, "100": 100, "500": 500, "All": None}
EMPTY = (
    '<div class="macs empty"><p>Name a model and a dataset, and see whether its probabilities can be trusted, what '
    "breaks it, and what a temperature, one number that corrects how sure it is, does about it.</p></div>"
)


class AuditTab(NamedTuple):
    """The components that others need."""

    dataset: gr.Textbox
    page: gr.HTML
    finished: Any  # the event after which there may be a new audit


def audit_tab(visitor: gr.State, access: Access, model: str, dataset: str, first_page: str | None) -> AuditTab:
    """
    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
        access ([`Access`]): What visitors may name.
        model, dataset (`str`): What the fields hold at first.
        first_page (`str`, *optional*): What to show before the first audit.
    """
    fields, start, cancel = _form(model, dataset)
    status = gr.HTML(apply_default_css=False, elem_id="status")
    page = gr.HTML(first_page or EMPTY, apply_default_css=False, elem_id="report")
    with gr.Column(visible=False, elem_classes="take") as take:
        download_panel(visitor)

    def run(who: Visitor, *values: Any) -> Iterator[dict]:
        yield {start: gr.update(interactive=False), cancel: gr.update(visible=True), status: progress_bar(None)}
        if who.job is not None and who.job.is_running and not who.job.is_cancelled:
            yield {status: notice("An audit of yours is still running. Cancel it, or wait.")}
            return
        try:
            while who.job is not None and not who.job.wait(POLL_SECONDS):
                yield {status: progress_bar(ENDING)}
            job = who.job = start_audit(who, access, dict(zip(fields, values, strict=True)))
            try:
                while not job.wait(POLL_SECONDS):
                    yield {status: progress_bar(ENDING if job.is_cancelled else job.progress)}
            finally:
                job.cancel()  # does nothing if it is over; a visitor who left does not keep the server busy
            if job.error is not None:
                yield {status: notice(job.error)}
            elif job.result is not None:
                who.keep(job.result)
                has_temperature = job.result.report.has_temperature
                yield {status: "", page: audit_page(job.result), take: gr.update(visible=has_temperature)}
            else:
                yield {status: notice("Cancelled.", "note")}
        except Exception as error:
            yield {status: notice(explain(error))}
        finally:
            # Trainers and figures refer to themselves, and Python would let many pile up beside its loaded libraries.
            gc.collect()

    def stop(who: Visitor) -> None:
        if who.job is not None:
            who.job.cancel()  # `run` shows it

    private = {"api_visibility": "private", "show_progress": "hidden"}
    running = start.click(
        run,
        [visitor, *fields.values()],
        [start, cancel, status, page, take],
        concurrency_limit=AUDITS_AT_ONCE,
        concurrency_id="audit",
        **private,
    )
    # Gradio ignores a click while the last one's event is open, also after it has shown everything it had to show.
    ready = running.then(
        lambda: (gr.update(interactive=True), gr.update(visible=False)), None, [start, cancel], **private
    )
    cancel.click(stop, visitor, None, queue=False, **private)
    return AuditTab(fields["dataset"], page, ready)


def _form(model: str, dataset: str) -> tuple[dict[str, Component], gr.Button, gr.Button]:
    """The fields, by the names that [`AuditRequest`] has for them, and the two buttons."""
    with gr.Row():
        with gr.Column(scale=5, min_width=280):
            model_field = gr.Textbox(
                model, label="Model", placeholder="google/vit-base-patch16-224, or a folder", elem_id="model"
            )
            dataset_field = gr.Textbox(
                dataset, label="Dataset", placeholder="cifar10, user/photos, or a folder", elem_id="dataset"
            )
        with gr.Column(scale=4, min_width=280):
            archive = gr.File(
                label="or a zip of class folders",
                file_types=[".zip"],
                height=176,
                elem_id="archive",
            )
    with gr.Row():
        split = gr.Textbox(label="Split", placeholder="test", scale=2, min_width=130, elem_id="split")
        images = gr.Number(
            1000,
            label="Images, at most",
            precision=0,
            minimum=2,
            maximum=MAX_AUDITED_IMAGES,
            scale=2,
            min_width=130,
            elem_id="images",
        )
        corrupted = gr.Radio(
            list(CORRUPTED),
            value="None",
            label="Images to corrupt, in 95 ways each",
            scale=4,
            min_width=290,
            elem_id="corrupted",
        )
    with gr.Row():
        calibrate = gr.Checkbox(
            True,
            label="Fit a temperature, on other images than it is tested on",
            scale=4,
            min_width=290,
            elem_id="calibrate",
        )
        start = gr.Button("Audit", variant="primary", scale=1, min_width=140, elem_id="start")
        cancel = gr.Button("Cancel", variant="stop", visible=False, scale=1, min_width=140, elem_id="cancel")
    with gr.Accordion("More fields", open=False), gr.Row():
        calibration_split = gr.Textbox(label="Calibration split", placeholder="validation", min_width=140)
        config = gr.Textbox(label="Configuration", placeholder="of the dataset", min_width=140)
        image_column = gr.Textbox(label="Image column", min_width=140)
        label_column = gr.Textbox(label="Label column", min_width=140)
        revision = gr.Textbox(label="Revision", placeholder="of the model", min_width=140)
    fields = {
        "model": model_field,
        "dataset": dataset_field,
        "archive": archive,
        "split": split,
        "calibration_split": calibration_split,
        "config": config,
        "image_column": image_column,
        "label_column": label_column,
        "revision": revision,
        "images": images,
        "corrupted_images": corrupted,
        "calibrate": calibrate,
    }
    return fields, start, cancel


def start_audit(visitor: Visitor, access: Access, fields: dict[str, Any]) -> Job:
    """
    Start the audit that a form asks for, in a thread.

    Args:
        visitor ([`Visitor`]): Who asks.
        access ([`Access`]): What they may name.
        fields (`dict`): What the form holds, by the names of the fields of [`AuditRequest`].
    """
    load_libraries()
    from .auditing import AuditRequest, audit

    given = {name: value.strip() or None if isinstance(value, str) else value for name, value in fields.items()}
    given["model"] = access.check_model(given["model"] or "")
    given["dataset"] = "" if given["archive"] else access.check_dataset(given["dataset"] or "")
    given["images"] = max(2, min(int(given["images"] or MAX_AUDITED_IMAGES), MAX_AUDITED_IMAGES))
    given["corrupted_images"] = CORRUPTED[given["corrupted_images"]]
    request = AuditRequest(**given)
    folder = visitor.new_folder("audit")
    return Job(lambda job: audit(request, folder, job))


def audit_page(found: Any) -> str:
    from .report_markup import report_page

    return report_page(found.report, found.mistakes, found.notes)


def progress_bar(progress: Progress | None) -> str:
    """What is being done, how far it is and how long it will take."""
    if progress is None:
        progress = Progress("Waiting for its turn", 0, 0, 0.0)
    said = text(progress.stage) + (f", {progress.seconds:.0f} s" if progress.seconds else "")
    share = 0.0
    if progress.total:
        share = min(0.99, progress.done / progress.total)
        said = f"{text(progress.stage)}: {percent(share, 0)}"
        if progress.done and share < 0.99:
            said += f", about {progress.seconds * (1 - share) / share:.0f} s left"
        said += f" ({progress.done:,} of about {progress.total:,} times through the network)"
    return (
        f'<div class="macs progress" role="status"><p>{said}</p><span class="bar"><i style="width:{100 * share:.1f}%">'
        "</i></span></div>"
    )
