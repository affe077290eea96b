"""The tab that compares runs."""

import gradio as gr

from .access import Access
from .job import explain
from .libraries import load_libraries
from .limits import MAX_COMPARED_RUNS
from .markup import notice
from .runs import run_choices, run_named
from .visitor import Visitor


EMPTY = (
    '<div class="macs empty"><p>Choose two or more, of the same test images: which is better in what, beyond chance?'
    "</p></div>"
)


def compare_tab(visitor: gr.State, access: Access) -> gr.Dropdown:
    """
    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
        access ([`Access`]): What visitors may name.

    Returns:
        `gr.Dropdown`: The choice of runs.
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
    page = gr.HTML(EMPTY, apply_default_css=False, elem_id="comparison")

    def show(who: Visitor, names: list[str]) -> str:
        if len(names) < 2:
            return EMPTY
        try:
            load_libraries()
            from .comparison_markup import comparison_page

            return comparison_page([run_named(name, who, access) for name in names])
        except Exception as error:
            return notice(explain(error))

    runs.change(
        show, [visitor, runs], page, api_visibility="private", show_progress="minimal", trigger_mode="always_last"
    )
    return runs
