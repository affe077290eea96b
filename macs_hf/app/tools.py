"""The audit as a tool for programs and language models (MCP), if it is asked for."""

import json
from typing import Any

import gradio as gr

from ..report.verdict import verdict
from .access import Access
from .audit_tab import start_audit
from .job import explain
from .limits import AUDITS_AT_ONCE
from .visitor import Visitor


def add_tools(access: Access, root: str | None) -> None:
    """
    Add the tool to the page that is being built.

    Args:
        access ([`Access`]): What callers may name.
        root (`str`, *optional*): Where their folders are made.
    """

    def audit_classifier(model: str, dataset: str, split: str = "test", images: int = 500) -> dict[str, Any]:
        """
        Measure an image classifier: accuracy, calibration with intervals and noise floor, and a fitted temperature.

        Args:
            model: Hub id of an image classifier, such as google/vit-base-patch16-224.
            dataset: Hub id of a dataset with the classes of the model.
            split: The split to measure on.
            images: At most this many images of it.
        """
        visitor = Visitor(root)
        fields = {"model": model, "dataset": dataset, "archive": None, "split": split, "images": images}
        try:
            job = start_audit(visitor, access, fields | {"corrupted_images": "None", "calibrate": True})
            job.wait()
        except ValueError as error:
            raise gr.Error(explain(error), print_exception=False) from error
        finally:
            visitor.leave()
        if job.result is None:
            raise gr.Error(job.error, print_exception=False)
        found = verdict(job.result.report)
        said = {"headline": found.headline, "ability": found.ability, "confidence": found.confidence}
        return said | {"notes": list(job.result.notes), "report": json.loads(job.result.report.to_json())}

    gr.api(audit_classifier, concurrency_limit=AUDITS_AT_ONCE, concurrency_id="audit")
