"""`macs-hf app [MODEL_OR_RUN]`: audit, try and compare classifiers in the browser."""

import argparse
import time

from .options import add_options
from .process import ends_on_signals, plain_errors


MISSING = "The app needs Gradio 6.31 or later, which is not installed. Install it with `pip install 'gradio>=6.31'`."


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf app", vars(options)):
        try:
            import gradio  # noqa: F401
        except ImportError as error:
            raise ImportError(MISSING) from error
        from ..app.page import serve

        with ends_on_signals("macs-hf app", lambda: "What visitors uploaded is deleted."):
            page = serve(
                options.model,
                options.dataset,
                image_size=options.image_size,
                host=options.host,
                port=options.port,
                open_browser=options.open,
            )
            print(f"The app is at {page.local_url} (Ctrl-C ends it).", flush=True)
            while page.is_running:
                time.sleep(0.1)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf app", description="Audit, try and compare image classifiers in the browser."
    )
    parser.add_argument(
        "model", metavar="MODEL_OR_RUN", nargs="?", help="Hub id, timm name, local folder, or folder of a finished run"
    )
    parser.add_argument("--dataset", help="benchmark name, Hub id or local folder")
    add_options(parser, "image_size")
    parser.add_argument("--port", type=int, help="port to listen at (default: the first free one from 7860 on)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at (default: 127.0.0.1, this machine alone). At others, visitors may name only what "
        "is given here and what is public on the Hub",
    )
    parser.add_argument("--open", action="store_true", help="show it in the browser")
    return parser
