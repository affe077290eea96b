"""The whole page: three tabs, and what passes between them."""

import gradio as gr

from ..hub.connection import is_local
from ..report.run import Run, load_run
from .access import Access
from .audit_tab import audit_tab
from .compare_tab import compare_tab
from .limits import KEPT_SECONDS
from .runs import hub_run, is_run, run_choices
from .try_tab import try_tab
from .visitor import Visitor


TITLE = "Can its probabilities be trusted?"
HEADER = (
    f'<header class="macs head"><h1>{TITLE}</h1><p>Audit an image classifier: how often it is right, how sure it may '
    "be, what breaks it.</p></header>"
)


def build_page(model: str | None, dataset: str | None, access: Access, root: str | None = None) -> gr.Blocks:
    """
    Args:
        model (`str`, *optional*): A model, or the folder of a finished run, whose report is shown at once.
        dataset (`str`, *optional*): What the field of the dataset holds at first.
        access ([`Access`]): What visitors may name.
        root (`str`, *optional*): Where visitors' folders are made.
    """
    run = load_run(model) if model is not None and is_run(model) else None
    dataset = dataset or (run.report.dataset if run is not None else "")
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(600, KEPT_SECONDS)) as page:
        visitor = gr.State(Visitor(root), delete_callback=Visitor.leave)
        gr.HTML(HEADER, apply_default_css=False)
        with gr.Tabs():
            with gr.Tab("Audit", id="audit"):
                audits = audit_tab(visitor, access, model or "", dataset, run_page(run))
            with gr.Tab("Try", id="try"):
                tried = try_tab(visitor, access, model or "")
            with gr.Tab("Compare", id="compare"):
                runs = compare_tab(visitor, access)

        def pass_on(who: Visitor, name: str) -> tuple:
            """The model that was just audited can be tried, and compared."""
            tried_name = who.audit.request.model if who.audit is not None else name
            return tried_name, gr.update(choices=run_choices(who, access))

        def published() -> tuple:
            """A model on the Hub may have been pushed with its report; looked up once, after the page is there."""
            found = hub_run(model)
            return (gr.skip(), gr.skip()) if found is None else (run_page(found), dataset or found.report.dataset)

        if model is not None and not is_local(model):
            page.load(published, None, [audits.page, audits.dataset], api_visibility="private", show_progress="hidden")
        passed_on = audits.finished.then(
            pass_on, [visitor, tried.model], [tried.model, runs], api_visibility="private", show_progress="hidden"
        )
        tried.answer_after(passed_on.then)  # to an image that was given while the field held another model
    return page


def run_page(run: Run | None) -> str | None:
    """The report of a finished run."""
    from .report_markup import report_page

    return None if run is None else report_page(run.report)
