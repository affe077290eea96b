"""How soon the app is there, what an audit in it costs over the command line, and what it keeps, printed as JSON.

    pip install ".[browser]"     # in a clone; and Chromium: apt-get install chromium
    python examples/benchmarks/app.py --output app.json

- The first page: from the start of the process until the form can be used, in Chromium; beside it a page of Gradio
  with one button.
- An audit of a small network on `digits`, from the click to the report on the page; beside it `macs-hf calibrate`,
  which measures the same. Once as people type it, and once in a process that has all libraries loaded, as the app has.
  They take turns; a ratio is the median over rounds of (app / command in the same round).
- Memory of the app after each of some audits in a row, of one visitor and then of as many who come and go.

CPU seconds are of the process that serves the page or runs the command: other programs may be running.
"""

import argparse
import contextlib
import io
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gradio
import torch
import transformers
from playwright.sync_api import Browser, Error, Page, sync_playwright
from side_by_side import machine, publish, resident_kilobytes

from macs_hf.cli.main import main as macs_hf
from macs_hf.models.loading import load_classifier
from macs_hf.models.saving import save_classifier


COMMAND = (sys.executable, "-m", "macs_hf.cli")
BARE = "import gradio, sys; page = gradio.Blocks()\nwith page: gradio.Button(elem_id='start')\n"
BARE += "page.launch(server_port=int(sys.argv[1]), quiet=True, ssr_mode=False)"
PATIENCE = 600_000  # milliseconds


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=3, help="for the first page")
    parser.add_argument("--rounds", type=int, default=3, help="of audits in the app and from the command line")
    parser.add_argument("--audits", type=int, default=10, help="in a row, for the memory")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A process that serves a page; its last word is the port."""
    port = free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, str(port)], **quiet)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def opened(chromium: Browser, url: str) -> Page:
    """The page, when the button of its form can be clicked."""
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    while True:
        try:
            page.goto(url)
            break
        except Error:  # it does not listen yet
            time.sleep(0.05)
    page.wait_for_selector("#start:not([disabled])")
    return page


def first_page(chromium: Browser, *command: str) -> dict[str, float]:
    begin = time.monotonic()
    with started(*command) as (process, url):
        page = opened(chromium, url)
        found = {"seconds": time.monotonic() - begin, "cpu_seconds": cpu_seconds(process.pid)}
    page.close()
    return found


def first_pages(chromium: Browser, starts: int) -> dict:
    commands = {"app": (*COMMAND, "app", "--port"), "gradio_with_one_button": (sys.executable, "-c", BARE)}
    found = [{name: first_page(chromium, *command) for name, command in commands.items()} for _ in range(starts)]
    return {
        clock: {name: summary([r[name][clock] for r in found]) for name in commands}
        | {"app_over_gradio": summary([r["app"][clock] / r["gradio_with_one_button"][clock] for r in found])}
        for clock in ("seconds", "cpu_seconds")
    }


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int) -> float:
    return round(resident_kilobytes("VmRSS", pid) / 1000, 1)


def audit(page: Page) -> None:
    """From the click until the report is on the page."""
    page.locator("#start").click()
    page.locator("#status .progress").wait_for()
    page.wait_for_selector("#start:not([disabled])")
    page.wait_for_function("!document.querySelector('#status .progress')")
    if page.locator("#status [role=alert]").count():
        raise RuntimeError(page.locator("#status").inner_text())
    page.locator("#report .verdict h2").wait_for()


def timed(work: Callable[[], object], cpu: Callable[[], float]) -> dict[str, float]:
    begin, spent = time.monotonic(), cpu()
    work()
    return {"seconds": time.monotonic() - begin, "cpu_seconds": cpu() - spent}


def in_this_process(words: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        macs_hf(words)


def as_typed(words: list[str]) -> None:
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def of_children() -> float:
    found = os.times()
    return found.children_user + found.children_system


def audits(chromium: Browser, model: Path, folder: Path, rounds: int) -> dict:
    """The app beside the command line."""
    words = ["calibrate", str(model), "--dataset", "digits", "--output_dir", str(folder / "calibrated"), "--cpu"]
    with started(*COMMAND, "app", str(model), "--dataset", "digits", "--port") as (app, url):
        page = opened(chromium, url)
        sides = {
            "app": (lambda: audit(page), lambda: cpu_seconds(app.pid)),
            "command": (lambda: as_typed(words), of_children),
            "command_in_a_warm_process": (lambda: in_this_process(words), time.process_time),
        }
        for name in ("app", "command_in_a_warm_process"):
            timed(*sides[name])
        found = [{name: timed(*side) for name, side in sides.items()} for _ in range(rounds)]
    commands = [name for name in sides if name != "app"]
    return {
        clock: {name: summary([r[name][clock] for r in found]) for name in sides}
        | {f"app_over_{name}": summary([r["app"][clock] / r[name][clock] for r in found]) for name in commands}
        for clock in ("seconds", "cpu_seconds")
    }


def memory(chromium: Browser, model: Path, count: int) -> dict:
    """Resident megabytes of a fresh app after each audit."""
    found = {"one_visitor": [], "visitors_who_come_and_go": []}
    with started(*COMMAND, "app", str(model), "--dataset", "digits", "--port") as (app, url):
        page = opened(chromium, url)
        for _ in range(count):
            audit(page)
            found["one_visitor"].append(megabytes(app.pid))
        page.close()
        for _ in range(count):
            page = opened(chromium, url)
            audit(page)
            page.close()
            found["visitors_who_come_and_go"].append(megabytes(app.pid))
    first, *_, last = found["one_visitor"]
    return {"megabytes_after_each_audit": found, "last_over_first": round(last / first, 3)}


def summary(values: list[float]) -> dict[str, float]:
    shown = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: round(value, 2) for name, value in shown.items()}


def main() -> None:
    args = parse()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        model = folder / "digits"
        save_classifier(*load_classifier("tiny", [str(digit) for digit in range(10)]), model)
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
        chromium = playwright.chromium.launch(**options)
        report = {
            "machine": machine(),
            "settings": {key: value for key, value in vars(args).items() if key != "output"},
            "first_page": first_pages(chromium, args.starts),
            "audit": audits(chromium, model, folder, args.rounds),
            "memory": memory(chromium, model, args.audits),
            "versions": {
                "gradio": gradio.__version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }
        chromium.close()
    publish(report, args.output, indent=1)


if __name__ == "__main__":
    main()
