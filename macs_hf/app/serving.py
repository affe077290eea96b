"""Serve the page, with limits."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import gradio as gr

from .access import LOOPBACK, Access
from .libraries import start_loading
from .limits import MAX_UPLOAD_BYTES, QUEUE_SIZE, VISITORS
from .page import build_page
from .tools import add_tools


ROOM = Path(__file__).parent
STYLES = (ROOM.parent / "publishing" / "templates" / "report.css", ROOM / "style.css")
FONTS = ("ui-sans-serif", "system-ui", "sans-serif")
MONO_FONTS = ("ui-monospace", "monospace")


def serve(
    model: str | None = None,
    dataset: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    mcp: bool = False,
    open_browser: bool = False,
) -> gr.Blocks:
    """
    Serve the page, from threads of this process.

    Args:
        model, dataset (`str`, *optional*): See [`build_page`].
        host (`str`, *optional*, defaults to this machine alone): The address to listen at. At any other, visitors may
            not name folders of this machine, or what only its owner's token may read.
        port (`int`, *optional*): A free one from 7860 on, if not given.
        mcp (`bool`, *optional*, defaults to `False`): Also serve the audit as a tool for language models.
        open_browser (`bool`, *optional*, defaults to `False`): Show it in the browser.

    Returns:
        `gr.Blocks`: It has the address, `local_url`, and can be waited for, `block_thread()`.
    """
    root = tempfile.mkdtemp(prefix="macs-hf-app-")  # readable by this user alone
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    os.environ["GRADIO_TEMP_DIR"] = root
    access = Access(tuple(filter(None, (model, dataset))), is_private=host in LOOPBACK)
    page = build_page(model, dataset, access, root)
    if mcp:
        with page:
            add_tools(access, root)
    page.queue(max_size=QUEUE_SIZE, default_concurrency_limit=4, api_open=False)
    with page:  # the first visitor sees the form before the libraries that measure are loaded, which takes seconds
        page.load(start_loading, queue=False, api_visibility="private", show_progress="hidden")
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
        mcp_server=mcp,
        ssr_mode=False,
        pwa=False,
        footer_links=[],
        theme=theme(),
        css="".join(style.read_text(encoding="utf-8") for style in STYLES),
        inbrowser=open_browser,
        prevent_thread_lock=True,
    )
    if page.mcp_error is not None:
        page.close(verbose=False)
        raise ImportError(f"Tools for language models need `pip install 'gradio[mcp]'` ({page.mcp_error}).")
    return page


def theme() -> gr.themes.Base:
    """Calm, and without fonts from elsewhere."""
    return gr.themes.Base(primary_hue="blue", neutral_hue="slate", radius_size="md", font=FONTS, font_mono=MONO_FONTS)
