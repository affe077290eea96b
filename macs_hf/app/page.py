"""The whole page: three tabs, what passes between them, how it is served, and what it refuses."""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import datasets
import gradio as gr
import pandas as pd
import transformers
from gradio.components import Component
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from ..exceptions import ArgumentError
from ..hub import is_local
from ..report.report import load_run
from ..report.rows import FAMILIES, SEVERITIES
from ..report.text import percent, text
from .audit import AuditRequest, audit, report_page, save_model
from .compare import comparison_page
from .jobs import (
    LOOPBACK,
    Access,
    Job,
    Visitor,
    explain,
    hub_run,
    is_run,
    notice,
    run_choices,
    run_named,
)
from .try_image import (
    AFTER,
    ANSWERS,
    BEFORE,
    Calibration,
    answer,
    answer_page,
    audited_calibration,
    classifier,
    severity_curve,
    stored_calibration,
)
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
MODEL_HINT = "google/vit-base-patch16-224, or a folder"
# No event is an endpoint for programs.
PRIVATE = {"api_visibility": "private", "show_progress": "hidden"}


class Page(gr.Blocks):
    """
    Passes no file on to a function but those that were uploaded, whichever field and route they come through.

    Args:
        root (`Path`): The app's own folder, which holds that of the `UPLOADS`.
        options: See `gr.Blocks`.
    """

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(**options)
        self.root = root

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], state: Any, explicit_call: bool = False
    ) -> list[Any]:
        try:
            inputs = only_uploads(inputs, self.root / UPLOADS)
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error
        return await super().preprocess_data(block_fn, inputs, state, explicit_call)


def build_page(
    model: str | None, dataset: str | None, access: Access, root: Path, image_size: int | None = None
) -> gr.Blocks:
    """
    Args:
        model (`str`, *optional*): A model, or the folder of a finished run, whose report is shown at once.
        dataset (`str`, *optional*): What the field of the dataset holds at first.
        access ([`Access`]): What visitors may name.
        root (`Path`): The app's own folder, for uploads and visitors.
        image_size (`int`, *optional*): What the fields of the size hold at first.
    """
    run = load_run(model) if model is not None and is_run(model) else None
    dataset = dataset or (run.report.dataset if run is not None else "")
    size = "" if image_size is None else str(image_size)
    with Page(root, title=TITLE, analytics_enabled=False, delete_cache=(600, KEPT_SECONDS)) as page:
        visitor = gr.State(Visitor(root / VISITED), delete_callback=Visitor.leave)
        gr.HTML(HEADER, apply_default_css=False)
        with gr.Tabs():
            with gr.Tab("Audit", id="audit"):
                fields, start, cancel = _form(model or "", dataset, size)
                report, audited = _audit_tab(visitor, access, fields, start, cancel)
                report.value = NO_AUDIT if run is None else report_page(run.report)
            with gr.Tab("Try", id="try"):
                tried, answer_after = _try_tab(visitor, access, model or "", size)
            with gr.Tab("Compare", id="compare"):
                runs = _compare_tab(visitor, access)

        def pass_on(who: Visitor, *typed: str) -> tuple:
            """The model that was just audited can be tried, and compared."""
            if who.audit is not None:
                typed = who.audit.request.model, str(who.audit.request.image_size or "")
            return *typed, gr.update(choices=run_choices(who, access))

        def published() -> tuple:
            """A model on the Hub may have been pushed with its report; looked up once, after the page is there."""
            found = hub_run(model)
            if found is None:
                return gr.skip(), gr.skip()
            return report_page(found.report), dataset or found.report.dataset

        if model is not None and not is_local(model):
            page.load(published, None, [report, fields["dataset"]], **PRIVATE)
        passed_on = audited.then(pass_on, [visitor, *tried], [*tried, runs], **PRIVATE)
        answer_after(passed_on.then)  # to an image that was given while the field held another model
    return page


# ---- Audit ----


POLL_SECONDS = 0.25
CORRUPTED = {"None": 0, "100": 100, "500": 500, "All": None}
NO_AUDIT = (
    '<div class="macs empty"><p>Name a model and a dataset, and see whether its probabilities can be trusted, what '
    "makes it fail, and what a temperature, one number that corrects how sure it is, does about it.</p></div>"
)
TAKE = (
    '<section class="macs part"><h3>Take it with you</h3><p class="hint">The model with its temperature folded into '
    "the head, its report, pictures and card. Whoever loads it needs no code of ours.</p></section>"
)


def _form(model: str, dataset: str, size: str) -> tuple[dict[str, Component], gr.Button, gr.Button]:
    """The fields, by the names that [`AuditRequest`] has for them, and the two buttons."""
    fields: dict[str, Component] = {}
    with gr.Row():
        with gr.Column(scale=5, min_width=280):
            fields["model"] = gr.Textbox(model, label="Model", placeholder=MODEL_HINT, elem_id="model")
            hint = "cifar10, user/photos, or a folder"
            fields["dataset"] = gr.Textbox(dataset, label="Dataset", placeholder=hint, elem_id="dataset")
        with gr.Column(scale=4, min_width=280):
            fields["archive"] = gr.File(
                label="or a zip of class folders", file_types=[".zip"], height=176, elem_id="archive"
            )
    with gr.Row():
        narrow, wide = {"scale": 2, "min_width": 130}, {"scale": 4, "min_width": 290}
        fields["split"] = gr.Textbox(label="Split", placeholder="test", elem_id="split", **narrow)
        limits = {"precision": 0, "minimum": 2, "maximum": MAX_AUDITED_IMAGES}
        fields["images"] = gr.Number(1000, label="Images, at most", elem_id="images", **limits, **narrow)
        label = "Images to corrupt, in 95 ways each"
        fields["corrupted_images"] = gr.Radio(list(CORRUPTED), value="None", label=label, elem_id="corrupted", **wide)
    with gr.Row():
        label = "Fit a temperature, on other images than it is tested on"
        fields["calibrate"] = gr.Checkbox(True, label=label, elem_id="calibrate", **wide)
        start = gr.Button("Audit", variant="primary", min_width=140, elem_id="start")
        cancel = gr.Button("Cancel", variant="stop", visible=False, min_width=140, elem_id="cancel")
    more = {
        "image_size": ("Image size", "its own"),
        "calibration_split": ("Calibration split", "validation"),
        "config": ("Configuration", "of the dataset"),
        "image_column": ("Image column", None),
        "label_column": ("Label column", None),
        "revision": ("Revision", "of the model"),
    }
    with gr.Accordion("More fields", open=bool(size)), gr.Row():
        for name, (label, hint) in more.items():
            value, place = size if name == "image_size" else "", name.replace("_", "-")
            fields[name] = gr.Textbox(value, label=label, placeholder=hint, min_width=140, elem_id=place)
    return fields, start, cancel


def _audit_tab(
    visitor: gr.State, access: Access, fields: dict[str, Component], start: gr.Button, cancel: gr.Button
) -> tuple[gr.HTML, Any]:
    """Progress, the report, the calibrated model to take away; and the event after which there may be a new audit."""
    status = gr.HTML(apply_default_css=False, elem_id="status")
    page = gr.HTML(apply_default_css=False, elem_id="report")
    with gr.Column(visible=False, elem_classes="take") as take:
        gr.HTML(TAKE, apply_default_css=False)
        with gr.Row():
            narrow = {"scale": 0, "min_width": 240}
            prepare = gr.Button("Prepare the download", elem_id="prepare", **narrow)
            download = gr.DownloadButton(
                "Download the zip", visible=False, variant="primary", elem_id="download", **narrow
            )
        take_status = gr.HTML(apply_default_css=False, elem_id="take-status")

    def run(who: Visitor, *values: Any) -> Iterator[dict]:
        yield {start: gr.update(interactive=False), cancel: gr.update(visible=True), status: progress_bar(None)}
        try:
            if who.job is not None:
                who.job.wait()  # one that was cancelled ends after its batch of images
            job = who.job = start_audit(who, access, dict(zip(fields, values, strict=True)))
            try:
                while not job.wait(POLL_SECONDS):
                    yield {status: progress_bar(job)}
            finally:
                job.cancel()  # does nothing if it is over; a visitor who left does not keep the server busy
            if job.error is not None:
                yield {status: notice(job.error)}
            elif job.result is not None:
                found = job.result
                who.keep(found)
                shown = report_page(found.report, found.mistakes, found.notes)
                seen = {take: gr.update(visible=found.report.has_temperature), download: gr.update(visible=False)}
                yield {status: "", page: shown, **seen}
            else:
                yield {status: notice("Cancelled.", "note")}
        except Exception as error:
            yield {status: notice(explain(error))}
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
            return gr.update(visible=False), notice(explain(error))

    limits = {"concurrency_limit": AUDITS_AT_ONCE, "concurrency_id": "audit"}
    changed = [start, cancel, status, page, take, download]
    running = start.click(run, [visitor, *fields.values()], changed, **limits, **PRIVATE)
    # Gradio ignores a click while the last one's event is open, also after it has shown everything it had to show.
    usable = [gr.update(interactive=True), gr.update(visible=False)]
    ready = running.then(lambda: usable, None, [start, cancel], **PRIVATE)
    cancel.click(stop, visitor, None, queue=False, **PRIVATE)
    prepare.click(make, visitor, [download, take_status], api_visibility="private", concurrency_limit=1)
    return page, ready


def start_audit(visitor: Visitor, access: Access, fields: dict[str, Any]) -> Job:
    """
    Start the audit that a form asks for, in a thread.

    Args:
        visitor ([`Visitor`]): Who asks.
        access ([`Access`]): What they may name.
        fields (`dict`): What the form holds, by the names of the fields of [`AuditRequest`].
    """
    given = {name: value.strip() or None if isinstance(value, str) else value for name, value in fields.items()}
    given["model"] = access.check(given["model"] or "", "model")
    given["dataset"] = "" if given["archive"] else access.check(given["dataset"] or "", "dataset")
    given["images"] = max(2, min(int(given["images"] or MAX_AUDITED_IMAGES), MAX_AUDITED_IMAGES))
    given["image_size"] = parsed_size(given["image_size"])
    given["corrupted_images"] = CORRUPTED[given["corrupted_images"]]
    request = AuditRequest(**given)
    folder = visitor.new_folder("audit")
    return Job(lambda job: audit(request, folder, job), None if access.is_private else AUDIT_SECONDS)


def parsed_size(typed: str | None) -> int | None:
    """The field “Image size”; empty is the model's own."""
    low, high = IMAGE_SIZES
    typed = (typed or "").strip()
    if not typed:
        return None
    if not (typed.isdecimal() and low <= int(typed) <= high):
        raise ArgumentError(
            "image_size", f"is not a number of pixels from {low} to {high}. Leave it empty for the model's own.", typed
        )
    return int(typed)


def progress_bar(job: Job | None) -> str:
    """What is being done, how far it is and how long it will take; without a job, it waits."""
    share, said = 0.0, "Waiting for its turn"
    if job is not None and job.is_cancelled:
        said = "Cancelled, it ends after this batch of images"
    elif job is not None and not job.total:
        said = f"{text(job.stage)}, {job.seconds:.0f} s"
    elif job is not None:
        share = min(0.99, job.done / job.total)
        said = f"{text(job.stage)}: {percent(share, 0)}"
        if 0 < share < 0.99:
            said += f", about {job.seconds * (1 - share) / share:.0f} s left"
        said += f" ({job.done:,} of about {job.total:,} times through the network)"
    return (
        f'<div class="macs progress" role="status"><p>{said}</p><span class="bar"><i style="width:{100 * share:.1f}%">'
        "</i></span></div>"
    )


def zipped_model(visitor: Visitor) -> Path:
    """The zip of the calibrated model, in the visitor's folder."""
    found = visitor.audit
    if found is None or not found.report.has_temperature:
        raise ValueError("There is no calibrated model yet: audit one and let it fit a temperature.")
    name = "".join(part if part.isalnum() or part in "-_." else "-" for part in Path(found.report.model).name)
    name = f"{name.strip('.-') or 'model'}-calibrated"
    folder = visitor.new_folder("download")
    save_model(found, folder / name, name)
    made = shutil.make_archive(str(folder / name), "zip", folder, name)
    shutil.rmtree(folder / name)
    return Path(made)


# ---- Try ----


NONE = "none"
CORRUPTIONS = [(NONE, NONE)] + [
    (f"{family}: {name.replace('_', ' ')}", name) for family, names in FAMILIES.items() for name in names
]
COVERAGES = (0.8, 0.9, 0.95, 0.99)
ACCURACIES = (0.9, 0.95, 0.99)
COLOURS = {AFTER: "#1f6cb0", BEFORE: "#8a97a8", ANSWERS: "#b9480f"}
NO_ANSWER = '<div class="macs empty"><p>Give it an image: drop it, paste it, or take one with the camera.</p></div>'


def _try_tab(
    visitor: gr.State, access: Access, model: str, size: str
) -> tuple[list[gr.Textbox], Callable[[Any], Any]]:
    """One image through a model; returns the fields of model and size, and what lets the answer follow an event."""
    with gr.Row():
        with gr.Column(scale=3, min_width=290):
            with gr.Row():
                model_field = gr.Textbox(
                    model, label="Model", placeholder=MODEL_HINT, min_width=150, scale=2, elem_id="try-model"
                )
                size_field = gr.Textbox(
                    size, label="Image size", placeholder="its own", min_width=110, elem_id="try-size"
                )
            image = gr.Image(
                label="Image",
                type="filepath",
                image_mode=None,  # decoded here, after its size was checked
                sources=["upload", "clipboard", "webcam"],
                height=220,
                elem_id="try-image",
            )
            corruption = gr.Dropdown(CORRUPTIONS, value=NONE, label="Corruption", elem_id="corruption")
            severity = gr.Slider(0, len(SEVERITIES), 0, step=1, label="Severity", buttons=[], elem_id="severity")
        with gr.Column(scale=7, min_width=300):
            page = gr.HTML(NO_ANSWER, apply_default_css=False, elem_id="answer")
            curve = gr.LinePlot(
                x="severity",
                y="confidence",
                color="curve",
                color_map=COLOURS,
                y_lim=[0, 1],
                y_axis_format="%",
                title="Confidence as the image gets worse",
                height=260,
                visible=False,
                buttons=[],
                elem_id="curve",
            )
            with gr.Row():
                label = "The prediction set shall hold the right class in"
                coverage = gr.Radio(_levels(COVERAGES), value=0.9, label=label, visible=False, elem_id="coverage")
                label = "It shall answer only where it is right in"
                accuracy = gr.Radio(_levels(ACCURACIES), value=0.95, label=label, visible=False, elem_id="accuracy")
    named, chosen = [model_field, size_field], [image, corruption, severity, coverage, accuracy]

    def show(who: Visitor, *values: Any) -> tuple:
        try:
            known, shown, drawn = try_page(who, access, *values)
        except Exception as error:
            known, shown, drawn = Calibration(), notice(explain(error)), None
        seen = [gr.update(visible=bool(levels)) for levels in (known.sets, known.answers)]
        return shown, gr.update(value=drawn, visible=drawn is not None), *seen

    limits = {"trigger_mode": "always_last", "concurrency_limit": ANSWERS_AT_ONCE, "concurrency_id": "try"}

    def answer_after(trigger: Any) -> Any:
        return trigger(show, [visitor, *named, *chosen], [page, curve, coverage, accuracy], **limits, **PRIVATE)

    for field in named:
        answer_after(field.submit)
        answer_after(field.blur)
    for field in chosen:
        answer_after(field.change)
    return named, answer_after


def _levels(shares: Sequence[float]) -> list[tuple[str, float]]:
    return [(f"{100 * share:.0f} %", share) for share in shares]


def try_page(
    visitor: Visitor,
    access: Access,
    name: str,
    typed_size: str,
    image: str | None,
    corruption: str,
    severity: float,
    coverage: float,
    accuracy: float,
) -> tuple[Calibration, str, pd.DataFrame | None]:
    """What is known about the model's calibration, what it says of the image, and how that changes by severity."""
    if image is None:
        return Calibration(), NO_ANSWER, None
    name, size = access.check(name, "model"), parsed_size(typed_size)
    audited = visitor.audit
    if audited is not None and (audited.request.model, audited.request.image_size) != (name, size):
        audited = None
    model = classifier(name, audited.report.model_revision if audited is not None else None, size)
    known = stored_calibration(model.model.config, model.temperature)
    if audited is not None and audited.report.has_temperature:
        known = audited_calibration(audited.report, model.temperature)
    chosen = None if corruption == NONE else corruption
    found = answer(model, read_image(image), chosen, known)
    shown = answer_page(found, int(severity) if chosen else 0, chosen, coverage, accuracy)
    return known, shown, severity_curve(found, accuracy) if chosen else None


# ---- Compare ----


NO_COMPARISON = (
    '<div class="macs empty"><p>Choose two or more, of the same test images: which is better in what, beyond chance?'
    "</p></div>"
)


def _compare_tab(visitor: gr.State, access: Access) -> gr.Dropdown:
    """Runs side by side; returns the choice of runs."""
    runs = gr.Dropdown(
        run_choices(Visitor(), access),
        value=[],
        multiselect=True,
        max_choices=MAX_COMPARED_RUNS,
        allow_custom_value=True,
        label="Runs",
        info="The first is the reference. You may also type a folder, or the id of a model with a report on the Hub.",
        elem_id="runs",
    )
    page = gr.HTML(NO_COMPARISON, apply_default_css=False, elem_id="comparison")

    def show(who: Visitor, names: list[str]) -> str:
        if len(names) < 2:
            return NO_COMPARISON
        try:
            return comparison_page([run_named(name, who, access) for name in names])
        except Exception as error:
            return notice(explain(error))

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


# An app's folder: what Gradio stores there can be fetched by whoever knows its name, what visitors have cannot.
UPLOADS, VISITED = "uploads", "visitors"
EVERYWHERE = ("0.0.0.0", "::", "")  # all addresses of this machine


class Gate:
    """
    Refuses requests for another address than the page's, or from another site, before Gradio sees them.

    Any site in the owner's browser can send requests to this machine, and one whose name is made to lead here can read
    the answers too; `Host` and `Origin` still say where it comes from. A page for all addresses cannot know its names,
    and takes nobody for its owner. Files that Gradio would fetch elsewhere, here or on the network, are refused too.

    Args:
        app (`Callable`): What answers the other requests (ASGI).
        host (`str`): The address that the page listens at.
        folder (`Path`): Of the uploads.
    """

    def __init__(self, app: Callable, host: str, folder: Path) -> None:
        self.app, self.host, self.folder = app, host.lower(), folder

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif not self._is_own(Headers(scope=scope)):
            said = "This page answers at its own address only, and not to other sites. Open it as `macs-hf app` says; "
            said += "to let others open it, at any address, start it with --host 0.0.0.0."
            await PlainTextResponse(said, 403)(scope, receive, send)
        elif not self._is_uploaded(scope["path"]):
            await PlainTextResponse("There is no such file here.", 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

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
        return self.host not in LOOPBACK and _is_address(name)  # a number leads nowhere else

    def _is_uploaded(self, path: str) -> bool:
        if "/gradio_api/proxy=" in path or "/gradio_api/file/" in path:
            return False
        _, mark, name = path.partition("/gradio_api/file=")
        try:
            return not mark or Path(name).resolve().is_relative_to(self.folder.resolve())
        except (ValueError, OSError):
            return False


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
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
    for name in (UPLOADS, VISITED):
        (root / name).mkdir()
    os.environ["GRADIO_TEMP_DIR"] = str(root / UPLOADS)
    datasets.disable_progress_bars()  # the page shows how far the work is
    transformers.utils.logging.disable_progress_bar()
    access = Access(tuple(filter(None, (model, dataset))), is_private=host in LOOPBACK)
    page = build_page(model, dataset, access, root, image_size)
    page.queue(max_size=QUEUE_SIZE, default_concurrency_limit=4, api_open=False)
    page.launch(
        server_name=host,
        server_port=port,
        share=False,
        quiet=True,
        show_error=False,
        allowed_paths=[],
        max_file_size=MAX_UPLOAD_BYTES,
        state_session_capacity=VISITORS,
        enable_monitoring=False,
        run_history=False,  # would keep the fields of a form, also a token, in the browser
        mcp_server=False,
        ssr_mode=False,
        pwa=False,
        app_kwargs={"middleware": [Middleware(Gate, host=host, folder=root / UPLOADS)]},
        footer_links=[],
        theme=THEME,
        css="".join(style.read_text(encoding="utf-8") for style in STYLES),
        inbrowser=open_browser,
        prevent_thread_lock=True,
    )
    return page
