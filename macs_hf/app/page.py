"""The whole page: three tabs, what passes between them, how it is served, and what it refuses."""

import atexit
import gc
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import datasets
import gradio as gr
import transformers
from gradio.components import Component
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from ..calibration.guarantees import ACCURACIES, COVERAGES
from ..exceptions import ArgumentError
from ..hub import is_local
from ..report.report import load_run
from ..report.rows import FAMILIES, SEVERITIES
from ..report.text import html_percent, html_text
from .audit import AuditRequest, audit, report_page, save_model
from .compare import comparison_page
from .jobs import LABELS, LOOPBACK, Job, Visitor, hub_run, is_run, notice
from .try_image import Answer, Calibration, answer, answer_page, audited_calibration, classifier
from .uploads import only_uploads, read_image


# ---- Limits ----


MAX_UPLOAD_BYTES = 500_000_000  # of any file
MAX_AUDITED_IMAGES = 50_000
MAX_COMPARED_RUNS = 6
IMAGE_SIZES = (8, 1024)  # pixels of a side, as the network gets it
AUDITS_AT_ONCE = 1  # the others wait
AUDIT_SECONDS = 600  # for visitors; the owner of a page waits for nobody else, and can cancel
ANSWERS_AT_ONCE = 2
QUEUE_SIZE = 20  # events that wait; further ones are refused
VISITORS = 200  # whose state is kept; that of the one who came first is dropped for another
KEPT_SECONDS = 3600  # files that visitors uploaded or downloaded


# ---- The page ----


TITLE = "Can its probabilities be trusted?"
HEADER = (
    f'<header class="macs head"><h1>{TITLE}</h1><p>Audit an image classifier: how often it is right, how sure it may '
    "be, what makes it fail.</p></header>"
)
EMPTY = '<div class="macs empty"><p>{}</p></div>'
# No event is an endpoint for programs.
PRIVATE = {"api_visibility": "private", "show_progress": "hidden"}
html = partial(gr.HTML, apply_default_css=False)


class Page(gr.Blocks):
    """Passes no file on to a function but those in `uploads`, whichever field and route they come through."""

    def __init__(self, uploads: Path, **options: Any) -> None:
        super().__init__(**options)
        self.uploads = uploads

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], state: Any, explicit_call: bool = False
    ) -> list[Any]:
        try:
            inputs = only_uploads(inputs, self.uploads)
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error
        return await super().preprocess_data(block_fn, inputs, state, explicit_call)


def build_page(
    visitor: Visitor, uploads: Path, model: str | None, dataset: str | None, image_size: int | None = None
) -> gr.Blocks:
    """
    Args:
        visitor ([`Visitor`]): Whoever opens the page gets a copy.
        uploads (`Path`): Where uploaded files are.
        model (`str`, *optional*): A model, or the folder of a finished run, whose report is shown at once.
        dataset (`str`, *optional*): What the field of the dataset holds at first.
        image_size (`int`, *optional*): What the fields of the size hold at first.
    """
    run = None
    if model is not None and is_run(model):
        run = load_run(model)
    elif model is not None and not is_local(model):
        run = hub_run(model)  # it may have been pushed with its report
    first = {"model": model or "", "dataset": dataset or (run.report.dataset if run is not None else "")}
    first["image_size"] = str(image_size or "")
    with Page(uploads, title=TITLE, analytics_enabled=False, delete_cache=(600, KEPT_SECONDS)) as page:
        who = gr.State(visitor, delete_callback=Visitor.leave)
        html(HEADER)
        with gr.Tabs():
            with gr.Tab("Audit", id="audit"):
                report, audited = _audit_tab(who, first)
                report.value = EMPTY.format(NO_AUDIT) if run is None else report_page(run.report)
            with gr.Tab("Try", id="try"):
                tried, answer_after = _try_tab(who, first)
            with gr.Tab("Compare", id="compare"):
                runs = _compare_tab(who, visitor.choices())

        def pass_on(who: Visitor, *typed: str) -> tuple:
            """The model that was just audited can be tried, and compared."""
            if who.audit is not None:
                typed = who.audit.request.model, str(who.audit.request.image_size or "")
            return *typed, gr.update(choices=who.choices())

        passed_on = audited.then(pass_on, [who, *tried], [*tried, runs], **PRIVATE)
        answer_after(passed_on.then)  # to an image that was given while the field held another model
    return page


HINTS = {
    "model": "google/vit-base-patch16-224, or a folder",
    "dataset": "cifar10, user/photos, or a folder",
    "split": "test",
    "image_size": "its own",
    "calibration_split": "validation",
    "dataset_config": "of the dataset",
    "model_revision": "of the model",
}
MORE = ("image_size", "calibration_split", "dataset_config", "image_column", "label_column", "model_revision")


def _field(name: str, first: dict[str, str], prefix: str = "", **options: Any) -> gr.Textbox:
    place = prefix + name.replace("_", "-")
    return gr.Textbox(first.get(name, ""), label=LABELS[name], placeholder=HINTS.get(name), elem_id=place, **options)


def parsed_size(typed: str | None) -> int | None:
    """The field “Image size”; empty is the model's own. (Gradio's field for numbers sends an empty one as 0.)"""
    low, high = IMAGE_SIZES
    if not typed:
        return None
    if not (typed.isdecimal() and low <= int(typed) <= high):
        raise ArgumentError("image_size", f"is not a number of pixels from {low} to {high}.", typed)
    return int(typed)


# ---- Audit ----


POLL_SECONDS = 0.25
CORRUPTED = {"None": 0, "100": 100, "500": 500, "All": None}
NO_AUDIT = (
    "Name a model and a dataset, and see whether its probabilities can be trusted, what makes it fail, and what a "
    "temperature, one number that corrects how sure it is, does about it."
)
TAKE = (
    '<section class="macs part"><h3>Take it with you</h3><p class="hint">The model with its temperature folded into '
    "the head, its report, pictures and card. Whoever loads it needs no code of ours.</p></section>"
)


def _audit_tab(visitor: gr.State, first: dict[str, str]) -> tuple[Component, Any]:
    """Returns the report, and the event after which there may be a new audit."""
    fields: dict[str, Component] = {}  # by the names that `AuditRequest` has for them
    with gr.Row():
        with gr.Column(scale=5, min_width=280):
            fields |= {name: _field(name, first) for name in ("model", "dataset")}
        with gr.Column(scale=4, min_width=280):
            zips = {"file_types": [".zip"], "height": 176, "elem_id": "archive"}
            fields["archive"] = gr.File(label="or a zip of class folders", **zips)
    with gr.Row():
        narrow, wide = {"scale": 2, "min_width": 130}, {"scale": 4, "min_width": 290}
        fields["split"] = _field("split", first, **narrow)
        limits = {"precision": 0, "minimum": 2, "maximum": MAX_AUDITED_IMAGES, "elem_id": "images"}
        fields["max_samples"] = gr.Number(1000, label="Images, at most", **limits, **narrow)
        label = "Images to corrupt, in 95 ways each"
        fields["corruption_samples"] = gr.Radio([*CORRUPTED], value="None", label=label, elem_id="corrupted", **wide)
    with gr.Row():
        label = "Fit a temperature, on other images than it is tested on"
        fields["calibrate"] = gr.Checkbox(True, label=label, elem_id="calibrate", **wide)
        start = gr.Button("Audit", variant="primary", min_width=140, elem_id="start")
        cancel = gr.Button("Cancel", variant="stop", visible=False, min_width=140, elem_id="cancel")
    with gr.Accordion("More fields", open=bool(first["image_size"])), gr.Row():
        fields |= {name: _field(name, first, min_width=140) for name in MORE}
    status, page = html(elem_id="status"), html(elem_id="report")
    with gr.Column(visible=False, elem_classes="take") as take:
        html(TAKE)
        with gr.Row():
            narrow = {"scale": 0, "min_width": 240}
            prepare = gr.Button("Prepare the download", elem_id="prepare", **narrow)
            shown = {"visible": False, "variant": "primary", "elem_id": "download"}
            download = gr.DownloadButton("Download the zip", **shown, **narrow)
        take_status = html(elem_id="take-status")

    def run(who: Visitor, *values: Any) -> Iterator[dict]:
        yield {start: gr.update(interactive=False), cancel: gr.update(visible=True), status: progress_bar(None)}
        try:
            if who.job is not None:
                who.job.wait()  # one that was cancelled ends after its batch of images
            job = who.job = start_audit(who, dict(zip(fields, values, strict=True)))
            try:
                while not job.wait(POLL_SECONDS):
                    yield {status: progress_bar(job)}
            finally:
                job.cancel()  # does nothing if it is over; a visitor who left does not keep the server busy
            if job.result is None:
                yield {status: notice(job.error) if job.error else notice("Cancelled.", "note")}
                return
            found = job.result
            who.keep(found)
            seen = {take: gr.update(visible=found.report.has_temperature), download: gr.update(visible=False)}
            yield {status: "", page: report_page(found.report, found.mistakes, found.notes), **seen}
        except Exception as error:
            yield {status: notice(error)}
        finally:
            # Models and figures refer to themselves, and Python would let many pile up beside its loaded libraries.
            gc.collect()

    def stop(who: Visitor) -> None:
        if who.job is not None:
            who.job.cancel()  # `run` shows it

    def make(who: Visitor) -> tuple:
        try:
            return gr.update(value=str(zipped_model(who)), visible=True), ""
        except Exception as error:
            return gr.update(visible=False), notice(error)

    limits = {"concurrency_limit": AUDITS_AT_ONCE, "concurrency_id": "audit"}
    changed = [start, cancel, status, page, take, download]
    running = start.click(run, [visitor, *fields.values()], changed, **limits, **PRIVATE)
    # Gradio ignores a click while the last one's event is open, also after it has shown everything it had to show.
    usable = [gr.update(interactive=True), gr.update(visible=False)]
    ready = running.then(lambda: usable, None, [start, cancel], **PRIVATE)
    cancel.click(stop, visitor, None, queue=False, **PRIVATE)
    prepare.click(make, visitor, [download, take_status], api_visibility="private", concurrency_limit=1)
    return page, ready


def start_audit(visitor: Visitor, fields: dict[str, Any]) -> Job:
    """Start the audit that a form asks for, in a thread; its fields by the names that [`AuditRequest`] has."""
    given = {name: value.strip() or None if isinstance(value, str) else value for name, value in fields.items()}
    given["model"] = visitor.checked(given["model"] or "", "model")
    given["dataset"] = "" if given["archive"] else visitor.checked(given["dataset"] or "", "dataset")
    given["max_samples"] = given["max_samples"] or MAX_AUDITED_IMAGES
    given["image_size"] = parsed_size(given["image_size"])
    given["corruption_samples"] = CORRUPTED[given["corruption_samples"]]
    request, folder = AuditRequest(**given), visitor.new_folder("audit")
    return Job(lambda job: audit(request, folder, job), None if visitor.is_owner else AUDIT_SECONDS)


def progress_bar(job: Job | None) -> str:
    """What is being done, how far it is and how long it will take; without a job, it waits."""
    share, said = 0.0, "Waiting for its turn"
    if job is not None and job.is_cancelled:
        said = "Cancelled, it ends after this batch of images"
    elif job is not None:
        seconds, share = monotonic() - job.since, min(1, job.done / job.total) if job.total else 0.0
        left = f", about {seconds / share - seconds:.0f} s left" if share else ""
        said = html_text(job.stage)
        said += f": {html_percent(share, 0)}{left}" if job.total else f", {seconds:.0f} s"
    bar = f'<span class="bar"><i style="width:{share:.1%}"></i></span>'
    return f'<div class="macs progress" role="status"><p>{said}</p>{bar}</div>'


def zipped_model(visitor: Visitor) -> Path:
    """The zip of the calibrated model, in the visitor's folder."""
    found = visitor.audit
    if found is None or not found.report.has_temperature:
        raise ValueError("There is no calibrated model yet: audit one and let it fit a temperature.")
    name = re.sub(r"[^\w.-]", "-", Path(found.report.model).name).strip(".-") or "model"
    folder = visitor.new_folder("download") / f"{name}-calibrated"
    save_model(found, folder, folder.name)
    return Path(shutil.make_archive(str(folder), "zip", folder.parent, folder.name))


# ---- Try ----


CORRUPTIONS = [(f"{family}: {name.replace('_', ' ')}", name) for family, names in FAMILIES.items() for name in names]
NO_ANSWER = "Give it an image: drop it, paste it, or take one with the camera."


def _try_tab(visitor: gr.State, first: dict[str, str]) -> tuple[list[Component], Callable[[Any], Any]]:
    """One image through a model; returns the fields of model and size, and what lets the answer follow an event."""
    with gr.Row():
        with gr.Column(scale=3, min_width=290):
            with gr.Row():
                named = [_field("model", first, "try-", min_width=150, scale=2)]
                named += [_field("image_size", first, "try-", min_width=110)]
            image = gr.Image(
                label="Image",
                type="filepath",
                image_mode=None,  # decoded here, after its size was checked
                sources=["upload", "clipboard", "webcam"],
                height=220,
                elem_id="try-image",
            )
            corruption = gr.Dropdown(CORRUPTIONS, label="Corruption", elem_id="corruption")
            severity = gr.Slider(
                0, len(SEVERITIES), 0, step=1, label="Severity, 0 for none", buttons=[], elem_id="severity"
            )
        with gr.Column(scale=7, min_width=300):
            page = html(EMPTY.format(NO_ANSWER), elem_id="answer")
            with gr.Row():
                label = "The prediction set shall hold the right class in"
                coverage = _levels(COVERAGES, 0.9, label, "coverage")
                label = "It shall answer only where it is right in"
                accuracy = _levels(ACCURACIES, 0.95, label, "accuracy")
    chosen = [image, corruption, severity, coverage, accuracy]

    def show(who: Visitor, name: str, size: str, image: str | None, corruption: str, *options: float) -> tuple:
        severity, coverage, accuracy = options
        known, shown = Calibration(), EMPTY.format(NO_ANSWER)
        try:
            if image is not None:
                found = try_image(who, name, size, image, corruption, int(severity))
                known, shown = found.calibration, answer_page(found, coverage, accuracy)
        except Exception as error:
            shown = notice(error)
        return shown, *(gr.update(visible=bool(levels)) for levels in (known.sets, known.answers))

    limits = {"trigger_mode": "always_last", "concurrency_limit": ANSWERS_AT_ONCE, "concurrency_id": "try"}

    def answer_after(trigger: Any) -> Any:
        return trigger(show, [visitor, *named, *chosen], [page, coverage, accuracy], **limits, **PRIVATE)

    for trigger in [part for field in named for part in (field.submit, field.blur)] + [each.change for each in chosen]:
        answer_after(trigger)
    return named, answer_after


def _levels(shares: Sequence[float], first: float, label: str, place: str) -> gr.Radio:
    choices = [(f"{100 * share:.0f} %", share) for share in shares]
    return gr.Radio(choices, value=first, label=label, visible=False, elem_id=place)


def try_image(
    visitor: Visitor, name: str, typed_size: str, image: str, corruption: str | None, severity: int
) -> Answer:
    """What a model says of an uploaded image, with what the visitor's audit found if it was of this model."""
    name, size, audited = visitor.checked(name, "model"), parsed_size(typed_size.strip()), visitor.audit
    if audited is not None and (audited.request.model, audited.request.image_size) != (name, size):
        audited = None
    model = classifier(name, audited.report.model_revision if audited is not None else None, size)
    known = model.stored
    if audited is not None and audited.report.has_temperature:
        known = audited_calibration(audited.report, known.temperature)
    return answer(model, read_image(image), corruption, severity, known)


# ---- Compare ----


NO_COMPARISON = "Choose two or more, of the same test images: which is better in what, beyond chance?"


def _compare_tab(visitor: gr.State, choices: list[str]) -> gr.Dropdown:
    """Runs side by side; returns the choice of runs."""
    info = "The first is the reference. You may also type a folder, or the id of a model with a report on the Hub."
    many = {"multiselect": True, "max_choices": MAX_COMPARED_RUNS, "allow_custom_value": True}
    runs = gr.Dropdown(choices, value=[], **many, label="Runs", info=info, elem_id="runs")
    page = html(EMPTY.format(NO_COMPARISON), elem_id="comparison")

    def show(who: Visitor, names: list[str]) -> str:
        try:
            return comparison_page([who.run(name) for name in names]) if len(names) > 1 else page.value
        except Exception as error:
            return notice(error)

    event = {"api_visibility": "private", "show_progress": "minimal", "trigger_mode": "always_last"}
    runs.change(show, [visitor, runs], page, **event)
    return runs


# ---- Serving ----


ROOM = Path(__file__).parent
STYLES = (ROOM.parent / "rendering" / "templates" / "report.css", ROOM / "style.css")
# Calm, and without fonts from elsewhere.
THEME = gr.themes.Base(
    primary_hue="blue",
    neutral_hue="slate",
    radius_size="md",
    font=("ui-sans-serif", "system-ui", "sans-serif"),
    font_mono=("ui-monospace", "monospace"),
)
EVERYWHERE = ("0.0.0.0", "::", "")  # all addresses of this machine
FOREIGN = (
    "This page answers at its own address only, and not to other sites. Open it as `macs-hf app` says; to let others "
    "open it, at any address, start it with --host 0.0.0.0."
)


class Gate:
    """
    Refuses requests for another address than the page's, or from another site, before Gradio sees them.

    Any site in the owner's browser can send requests to this machine, and one whose name is made to lead here can read
    the answers too; `Host` and `Origin` still say where it comes from. A page for all addresses cannot know its names,
    and takes nobody for its owner. Files that Gradio would fetch elsewhere, here or on the network, are refused too.

    Args:
        app (`Callable`): What answers the other requests (ASGI).
        host (`str`): The address that the page listens at.
        uploads (`Path`): Where uploaded files are.
    """

    def __init__(self, app: Callable, host: str, uploads: Path) -> None:
        self.app, self.host, self.uploads = app, host.lower(), uploads

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        answer = self.app
        if scope["type"] in ("http", "websocket"):
            if not self._is_own(Headers(scope=scope)):
                answer = PlainTextResponse(FOREIGN, 403)
            elif not self._is_uploaded(scope["path"]):
                answer = PlainTextResponse("There is no such file here.", 403)
        await answer(scope, receive, send)

    def _is_own(self, headers: Headers) -> bool:
        if self.host in EVERYWHERE:
            return True
        names, origins = headers.getlist("host"), headers.getlist("origin")
        try:
            known = [self._is_known(urlsplit(f"//{name}").hostname or "") for name in names]
        except ValueError:
            return False
        # Behind a tunnel the port is another one, so an origin is compared with what the request names.
        own = [f"http://{name.lower()}" for name in names]
        return len(names) == 1 and all(known) and all(origin.lower() in own for origin in origins)

    def _is_known(self, name: str) -> bool:
        if name in LOOPBACK or name == self.host:
            return True
        return self.host not in LOOPBACK and bool(ip_address(name))  # a number leads nowhere else

    def _is_uploaded(self, path: str) -> bool:
        if "/gradio_api/proxy=" in path or "/gradio_api/file/" in path or "/gradio_api/process_recording" in path:
            return False  # the last gives ffmpeg what a visitor sends
        _, mark, name = path.partition("/gradio_api/file=")
        try:
            return not mark or Path(name).resolve().is_relative_to(self.uploads.resolve())
        except (ValueError, OSError):
            return False


def serve(
    model: str | None = None,
    dataset: str | None = None,
    *,
    image_size: int | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = False,
) -> gr.Blocks:
    """
    Serve the page, with limits, from threads of this process.

    Args:
        model, dataset, image_size: See [`build_page`].
        host (`str`, *optional*, defaults to this machine alone): The address to listen at. At any other, visitors may
            not name folders of this machine, or what only its owner's token may read.
        port (`int`, *optional*): A free one from 7860 on, if not given.
        open_browser (`bool`, *optional*, defaults to `False`): Show it in the browser.

    Returns:
        `gr.Blocks`: It has the address, `local_url`, and can be waited for, `block_thread()`.
    """
    root = Path(tempfile.mkdtemp(prefix="macs-hf-app-"))  # readable by this user alone
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    # What Gradio stores can be fetched by whoever knows its name, what visitors have cannot.
    uploads, visitors = root / "uploads", root / "visitors"
    for folder in (uploads, visitors):
        folder.mkdir()
    os.environ["GRADIO_TEMP_DIR"] = str(uploads)
    datasets.disable_progress_bars()  # the page shows how far the work is
    transformers.utils.logging.disable_progress_bar()
    visitor = Visitor(visitors, tuple(filter(None, (model, dataset))), is_owner=host in LOOPBACK)
    page = build_page(visitor, uploads, model, dataset, image_size)
    page.queue(max_size=QUEUE_SIZE, default_concurrency_limit=4, api_open=False)
    page.launch(
        server_name=host,
        server_port=port,
        share=False,
        quiet=True,
        max_file_size=MAX_UPLOAD_BYTES,
        state_session_capacity=VISITORS,
        enable_monitoring=False,
        run_history=False,  # would keep the fields of a form, also a token, in the browser
        mcp_server=False,
        ssr_mode=False,
        pwa=False,
        app_kwargs={"middleware": [Middleware(Gate, host=host, uploads=uploads)]},
        footer_links=[],
        theme=THEME,
        css="".join(style.read_text(encoding="utf-8") for style in STYLES),
        inbrowser=open_browser,
        prevent_thread_lock=True,
    )
    return page
