"""The tab that tries a model on one image."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from ..report.corruption_names import FAMILIES, SEVERITIES
from .access import Access
from .job import explain
from .libraries import load_libraries
from .limits import ANSWERS_AT_ONCE
from .markup import notice
from .visitor import Visitor


if TYPE_CHECKING:
    from .model_calibration import Calibration


NONE = "none"
CORRUPTIONS = [(NONE, NONE)] + [
    (f"{family}: {name.replace('_', ' ')}", name) for family, names in FAMILIES.items() for name in names
]
COVERAGES = (0.8, 0.9, 0.95, 0.99)
ACCURACIES = (0.9, 0.95, 0.99)
EMPTY = '<div class="macs empty"><p>Give it an image: drop it, paste it, or take one with the camera.</p></div>'


class TryTab(NamedTuple):
    """The component that others need, and how its answer follows an event of theirs."""

    model: gr.Textbox
    answer_after: Callable[[Any], Any]


def try_tab(visitor: gr.State, access: Access, model: str) -> TryTab:
    """
    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
        access ([`Access`]): What visitors may name.
        model (`str`): What the field holds at first.
    """
    with gr.Row():
        with gr.Column(scale=3, min_width=290):
            model_field = gr.Textbox(
                model, label="Model", placeholder="google/vit-base-patch16-224, or a folder", elem_id="try-model"
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
            page = gr.HTML(EMPTY, apply_default_css=False, elem_id="answer")
            with gr.Row():
                coverage = gr.Radio(
                    _levels(COVERAGES),
                    value=0.9,
                    label="The prediction set shall hold the right class in",
                    visible=False,
                    elem_id="coverage",
                )
                accuracy = gr.Radio(
                    _levels(ACCURACIES),
                    value=0.95,
                    label="It shall answer only where it is right in",
                    visible=False,
                    elem_id="accuracy",
                )

    fields = [model_field, image, corruption, severity, coverage, accuracy]

    def show(who: Visitor, *values: Any) -> tuple:
        try:
            found, shown = try_page(who, access, *values)
        except Exception as error:
            found, shown = None, notice(explain(error))
        return shown, gr.update(visible=bool(found and found.sets)), gr.update(visible=bool(found and found.answers))

    event = {"api_visibility": "private", "show_progress": "hidden", "trigger_mode": "always_last"}
    event |= {"concurrency_limit": ANSWERS_AT_ONCE, "concurrency_id": "try"}

    def answer_after(trigger: Any) -> Any:
        return trigger(show, [visitor, *fields], [page, coverage, accuracy], **event)

    for trigger in (field.change for field in fields if field is not model_field):
        answer_after(trigger)
    for trigger in (model_field.submit, model_field.blur):
        answer_after(trigger)
    return TryTab(model_field, answer_after)


def _levels(shares: Sequence[float]) -> list[tuple[str, float]]:
    return [(f"{100 * share:.0f} %", share) for share in shares]


def try_page(
    visitor: Visitor,
    access: Access,
    name: str,
    image: str | None,
    corruption: str,
    severity: float,
    coverage: float,
    accuracy: float,
) -> "tuple[Calibration | None, str]":
    """What is known about the model's calibration, and what it says of the image, as HTML."""
    if image is None:
        return None, EMPTY
    load_libraries()
    from .answer_markup import answer_page
    from .model_calibration import audited_calibration, stored_calibration
    from .prediction import answer, classifier
    from .uploads import read_image

    name = access.check_model(name)
    audit = visitor.audit if visitor.audit is not None and visitor.audit.request.model == name else None
    model = classifier(name, audit.report.model_revision if audit is not None else None)
    known = stored_calibration(model.config, model.temperature)
    if audit is not None and audit.report.has_temperature:
        known = audited_calibration(audit.report, model.temperature)
    chosen = None if corruption == NONE else corruption
    found = answer(model, read_image(image), chosen, known)
    return known, answer_page(found, int(severity) if chosen else 0, chosen, coverage, accuracy)
