"""The calibrated model, to download or to push with the visitor's own token."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr

from ..hub.failure_reasons import reason_of
from ..report.markup import text
from .job import explain
from .markup import notice
from .visitor import Visitor


if TYPE_CHECKING:
    from .auditing import Audit


HEADER = (
    '<section class="macs part"><h3>Take it with you</h3><p class="hint">The model with its temperature folded into '
    "the head, its report, pictures and card. Whoever loads it needs no code of ours.</p></section>"
)


def download_panel(visitor: gr.State) -> None:
    """
    Args:
        visitor (`gr.State`): Holds a [`Visitor`].
    """
    gr.HTML(HEADER, apply_default_css=False)
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
    from .auditing import save_model

    audit = _audit_of(visitor)
    name = file_name(audit.report.model)
    folder = visitor.new_folder("download")
    save_model(audit, folder / name, name)
    made = shutil.make_archive(str(folder / name), "zip", folder, name)
    shutil.rmtree(folder / name)
    return Path(made)


def push_model(visitor: Visitor, repo_id: str, token: str, is_private: bool) -> str:
    """Push the calibrated model; returns what to show. The token is used and forgotten."""
    from ..publishing.push import push_folder
    from .auditing import save_model

    repo_id, token = repo_id.strip(), token.strip()
    if not token:  # without it, that of the server's owner would be used
        return notice("Paste a token of yours that may write, from https://huggingface.co/settings/tokens.")
    if not repo_id:
        return notice("Name the repository to push to: user/name.")
    try:
        folder = visitor.new_folder("push")
        save_model(_audit_of(visitor), folder, repo_id)
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


def file_name(model: str) -> str:
    """A model's name as that of a folder."""
    kept = "".join(character if character.isalnum() or character in "-_." else "-" for character in Path(model).name)
    return f"{kept.strip('.-') or 'model'}-calibrated"


def _audit_of(visitor: Visitor) -> "Audit":
    if visitor.audit is None or not visitor.audit.report.has_temperature:
        raise ValueError("There is no calibrated model yet: audit one and let it fit a temperature.")
    return visitor.audit
