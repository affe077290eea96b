"""The whole page: three tabs, what passes between them, and how it is served."""

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

from ..hub import is_local, reason_of
from ..publishing.push import push_folder
from ..report.report import load_run
from ..report.rows import FAMILIES, SEVERITIES
from ..report.text import percent, text
from .audit import Audit, AuditRequest, audit, report_page, save_model
from .compare import comparison_page
from .jobs import (
    ANSWERS_AT_ONCE,
    AUDIT_SECONDS,
    AUDITS_AT_ONCE,
    KEPT_SECONDS,
    LOOPBACK,
    MAX_AUDITED_IMAGES,
    MAX_COMPARED_RUNS,
    MAX_IMAGE_SIZE,
    MAX_UPLOAD_BYTES,
    QUEUE_SIZE,
    VISITORS,
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


# ---- The page ----


TITLE = "Can its probabilities be trusted?"
HEADER = (
    f'<header class="macs head"><h1>{TITLE}</h1><p>Audit an image classifier: how often it is right, how sure it may '
    "be, what breaks it.</p></header>"
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
    first_page = report_page(run.report) if run is not None else NO_AUDIT
    with Page(root, title=TITLE, analytics_enabled=False, delete_cache=(600, KEPT_SECONDS)) as page:
        visitor = gr.State(Visitor(root / VISITORS_FOLDER), delete_callback=Visitor.leave)
        gr.HTML(HEADER, apply_default_css=False)
        with gr.Tabs():
            with gr.Tab("Audit", id="audit"):
                dataset_field, report, audited = audit_tab(
                    visitor, access, model or "", dataset, image_size, first_page
                )
            with gr.Tab("Try", id="try"):
                model_field, size_field, answer_after = try_tab(visitor, access, model or "", image_size)
            with gr.Tab("Compare", id="compare"):
                runs = compare_tab(visitor, access)

        def pass_on(who: Visitor, name: str, size: int | None) -> tuple:
            """The model that was just audited can be tried, and compared."""
            tried = (who.audit.request.model, who.audit.request.image_size) if who.audit is not None else (name, size)
            return *tried, gr.update(choices=run_choices(who, access))

        def published() -> tuple:
            """A model on the Hub may have been pushed with its report; looked up once, after the page is there."""
            found = hub_run(model)
            if found is None:
                return gr.skip(), gr.skip()
            return report_page(found.report), dataset or found.report.dataset

        if model is not None and not is_local(model):
            page.load(published, None, [report, dataset_field], **PRIVATE)
        fields = [model_field, size_field]
        passed_on = audited.then(pass_on, [visitor, *fields], [*fields, runs], **PRIVATE)
        answer_after(passed_on.then)  # to an image that was given while the field held another model
    return page


# ---- Audit ----


POLL_SECONDS = 0.25
CORRUPTED = {"None": 0, "100": 100, "500": 500, "All": None}
NO_AUDIT = (
    '<div class="macs empty"><p>Name a model and a dataset, and see whether its probabilities can be trusted, what '
    "breaks it, and what a temperature, one number that corrects how sure it is, does about it.</p></div>"
)


def audit_tab(
    visitor: gr.State, access: Access, model: str, dataset: str, image_size: int | None, first_page: str
) -> tuple[Component, gr.HTML, Any]:
    """
    A form, progress while it runs, the report, and the calibrated model to take away.

    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
        access ([`Access`]): What visitors may name.
        model, dataset, image_size: What the fields hold at first.
        first_page (`str`): What to show before the first audit.

    Returns:
        The field of the dataset, the report, and the event after which there may be a new audit.
    """
    fields, start, cancel = _form(model, dataset, image_size)
    status = gr.HTML(apply_default_css=False, elem_id="status")
    page = gr.HTML(first_page, apply_default_css=False, elem_id="report")
    with gr.Column(visible=False, elem_classes="take") as take:
        download_panel(visitor)

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
                yield {status: "", page: shown, take: gr.update(visible=found.report.has_temperature)}
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

    changed = [start, cancel, status, page, take]
    limits = {"concurrency_limit": AUDITS_AT_ONCE, "concurrency_id": "audit"}
    running = start.click(run, [visitor, *fields.values()], changed, **limits, **PRIVATE)
    # Gradio ignores a click while the last one's event is open, also after it has shown everything it had to show.
    usable = [gr.update(interactive=True), gr.update(visible=False)]
    ready = running.then(lambda: usable, None, [start, cancel], **PRIVATE)
    cancel.click(stop, visitor, None, queue=False, **PRIVATE)
    return fields["dataset"], page, ready


def _form(model: str, dataset: str, image_size: int | None) -> tuple[dict[str, Component], gr.Button, gr.Button]:
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
        "calibration_split": ("Calibration split", "validation"),
        "config": ("Configuration", "of the dataset"),
        "image_column": ("Image column", None),
        "label_column": ("Label column", None),
        "revision": ("Revision", "of the model"),
    }
    with gr.Accordion("More fields", open=image_size is not None), gr.Row():
        fields["image_size"] = size_field(image_size, "image-size")
        for name, (label, hint) in more.items():
            fields[name] = gr.Textbox(label=label, placeholder=hint, min_width=140)
    return fields, start, cancel


def size_field(value: int | None, elem_id: str) -> gr.Number:
    """The size of the images that a network gets, if not the one that its files state."""
    limits = {"precision": 0, "minimum": 8, "maximum": MAX_IMAGE_SIZE}
    return gr.Number(
        value, label="Image size", placeholder="the model's own", elem_id=elem_id, min_width=140, **limits
    )


def start_audit(visitor: Visitor, access: Access, fields: dict[str, Any]) -> Job:
    """
    Start the audit that a form asks for, in a thread.

    Args:
        visitor ([`Visitor`]): Who asks.
        access ([`Access`]): What they may name.
        fields (`dict`): What the form holds, by the names of the fields of [`AuditRequest`].
    """
    given = {name: value.strip() or None if isinstance(value, str) else value for name, value in fields.items()}
    given["model"] = access.check_model(given["model"] or "")
    given["dataset"] = "" if given["archive"] else access.check_dataset(given["dataset"] or "")
    given["images"] = max(2, min(int(given["images"] or MAX_AUDITED_IMAGES), MAX_AUDITED_IMAGES))
    given["corrupted_images"] = CORRUPTED[given["corrupted_images"]]
    request = AuditRequest(**given)
    folder = visitor.new_folder("audit")
    return Job(lambda job: audit(request, folder, job), None if access.is_private else AUDIT_SECONDS)


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


# ---- The calibrated model ----


DOWNLOAD_HEADER = (
    '<section class="macs part"><h3>Take it with you</h3><p class="hint">The model with its temperature folded into '
    "the head, its report, pictures and card. Whoever loads it needs no code of ours.</p></section>"
)


def download_panel(visitor: gr.State) -> None:
    """
    The calibrated model, to download or to push with the visitor's own token.

    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
    """
    gr.HTML(DOWNLOAD_HEADER, apply_default_css=False)
    with gr.Row():
        with gr.Column(min_width=260):
            prepare = gr.Button("Prepare the download", elem_id="prepare")
            download = gr.DownloadButton("Download the zip", visible=False, variant="primary", elem_id="download")
        with gr.Column(min_width=260):
            repo = gr.Textbox(label="Push it to", placeholder="user/name", elem_id="repo")
            token = gr.Textbox(
                label="Your token, which may write",
                info="Used for this push, and kept nowhere.",
                type="password",
                elem_id="token",
                html_attributes=gr.InputHTMLAttributes(autocomplete="off"),
            )
            private = gr.Checkbox(True, label="Private", elem_id="private")
            push = gr.Button("Push", elem_id="push")
    status = gr.HTML(apply_default_css=False, elem_id="take-status")

    def make(who: Visitor) -> tuple:
        try:
            path = zipped_model(who)
        except Exception as error:
            return gr.update(visible=False), notice(explain(error))
        return gr.update(value=str(path), visible=True), ""

    def send(who: Visitor, repo_id: str, secret: str, is_private: bool) -> tuple:
        """Also empties the field of the token."""
        return push_model(who, repo_id, secret, is_private), ""

    event = {"api_visibility": "private", "concurrency_limit": 1, "concurrency_id": "save"}
    prepare.click(make, visitor, [download, status], **event)
    push.click(send, [visitor, repo, token, private], [status, token], **event)


def zipped_model(visitor: Visitor) -> Path:
    """The zip of the calibrated model, in the visitor's folder."""
    found = _calibrated(visitor)
    name = "".join(part if part.isalnum() or part in "-_." else "-" for part in Path(found.report.model).name)
    name = f"{name.strip('.-') or 'model'}-calibrated"
    folder = visitor.new_folder("download")
    save_model(found, folder / name, name)
    made = shutil.make_archive(str(folder / name), "zip", folder, name)
    shutil.rmtree(folder / name)
    return Path(made)


def push_model(visitor: Visitor, repo_id: str, token: str, is_private: bool) -> str:
    """Push the calibrated model; returns what to show. The token is used and forgotten."""
    repo_id, token = repo_id.strip(), token.strip()
    if not token:  # without it, that of the server's owner would be used
        return notice("Paste a token of yours that may write, from https://huggingface.co/settings/tokens.")
    if not repo_id:
        return notice("Name the repository to push to: user/name.")
    try:
        folder = visitor.new_folder("push")
        save_model(_calibrated(visitor), folder, repo_id)
        commit = push_folder(folder, repo_id, private=is_private, token=token)
    except Exception as error:
        # Our own message ends with a command for the folder on the server, which is of no use here.
        reason = reason_of(error.__cause__) if error.__cause__ is not None else explain(error)
        return notice(f"Pushing to {repo_id} failed: {reason.replace(token, '***')}")
    finally:
        shutil.rmtree(visitor.folder / "push", ignore_errors=True)
    where = text(commit.repo_url)
    link = f'<a href="{where}" target="_blank" rel="noopener">{where}</a>'
    return f'<div class="notice note" role="status">Pushed: {link}</div>'


def _calibrated(visitor: Visitor) -> Audit:
    if visitor.audit is None or not visitor.audit.report.has_temperature:
        raise ValueError("There is no calibrated model yet: audit one and let it fit a temperature.")
    return visitor.audit


# ---- Try ----


NONE = "none"
CORRUPTIONS = [(NONE, NONE)] + [
    (f"{family}: {name.replace('_', ' ')}", name) for family, names in FAMILIES.items() for name in names
]
COVERAGES = (0.8, 0.9, 0.95, 0.99)
ACCURACIES = (0.9, 0.95, 0.99)
COLOURS = {AFTER: "#1f6cb0", BEFORE: "#8a97a8", ANSWERS: "#b9480f"}
NO_ANSWER = '<div class="macs empty"><p>Give it an image: drop it, paste it, or take one with the camera.</p></div>'


def try_tab(
    visitor: gr.State, access: Access, model: str, image_size: int | None
) -> tuple[gr.Textbox, gr.Number, Callable[[Any], Any]]:
    """
    One image through a model.

    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
        access ([`Access`]): What visitors may name.
        model, image_size: What the fields hold at first.

    Returns:
        The fields of the model and its size, and a function that lets the answer follow an event.
    """
    with gr.Row():
        with gr.Column(scale=3, min_width=290):
            model_field = gr.Textbox(model, label="Model", placeholder=MODEL_HINT, elem_id="try-model")
            size = size_field(image_size, "try-size")
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
    fields = [model_field, size, image, corruption, severity, coverage, accuracy]

    def show(who: Visitor, *values: Any) -> tuple:
        try:
            known, shown, drawn = try_page(who, access, *values)
        except Exception as error:
            known, shown, drawn = Calibration(), notice(explain(error)), None
        seen = [gr.update(visible=bool(levels)) for levels in (known.sets, known.answers)]
        return shown, gr.update(value=drawn, visible=drawn is not None), *seen

    limits = {"trigger_mode": "always_last", "concurrency_limit": ANSWERS_AT_ONCE, "concurrency_id": "try"}

    def answer_after(trigger: Any) -> Any:
        return trigger(show, [visitor, *fields], [page, curve, coverage, accuracy], **limits, **PRIVATE)

    typed = (event for field in (model_field, size) for event in (field.submit, field.blur))
    for trigger in (*typed, *(field.change for field in fields[2:])):
        answer_after(trigger)
    return model_field, size, answer_after


def _levels(shares: Sequence[float]) -> list[tuple[str, float]]:
    return [(f"{100 * share:.0f} %", share) for share in shares]


def try_page(
    visitor: Visitor,
    access: Access,
    name: str,
    size: int | None,
    image: str | None,
    corruption: str,
    severity: float,
    coverage: float,
    accuracy: float,
) -> tuple[Calibration, str, pd.DataFrame | None]:
    """What is known about the model's calibration, what it says of the image, and how that changes by severity."""
    if image is None:
        return Calibration(), NO_ANSWER, None
    name = access.check_model(name)
    audited = visitor.audit
    if audited is not None and (audited.request.model, audited.request.image_size) != (name, size):
        audited = None
    model = classifier(name, audited.report.model_revision if audited is not None else None, size)
    known = stored_calibration(model.config, model.temperature)
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


def compare_tab(visitor: gr.State, access: Access) -> gr.Dropdown:
    """
    Runs side by side; returns the choice of runs.

    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
        access ([`Access`]): What visitors may name.
    """
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
UPLOADS, VISITORS_FOLDER = "uploads", "visitors"
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
    for name in (UPLOADS, VISITORS_FOLDER):
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
