"""The wheel: it has every file the package reads, and works where there is no clone."""

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(*arguments: str, folder: Path, packages: Path | None = None) -> str:
    """Run Python in `folder`, where the wheel was installed into `packages`; returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and sdist, as `make dist` builds them."""
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), folder=folder)
    return folder


@pytest.fixture(scope="module")
def installed(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs Python outside the clone with the wheel's files; the dependencies are those of this environment."""
    packages, folder = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("elsewhere")
    (wheel,) = distributions.glob("*.whl")
    run(
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(packages),
        str(wheel),
        folder=folder,
    )
    # The clone may be installed in this environment too: the wheel must come first.
    home = run("-c", "import macs_hf; print(macs_hf.__file__)", folder=folder, packages=packages)
    assert Path(home.strip()) == packages / "macs_hf" / "__init__.py"
    return lambda *arguments: run(*arguments, folder=folder, packages=packages)


def test_the_wheel_has_every_file_of_the_package(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "macs_hf"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert packed == {name for name in tracked if (ROOT / name).exists()}
    assert "macs_hf/publishing/templates/model_card.md" in packed
    for metric in ("ece", "nll", "brier", "corruption_accuracy"):
        assert {f"macs_hf/metrics/modules/{metric}/{name}" for name in (f"{metric}.py", "README.md")} <= packed


def test_the_sdist_has_what_builds_the_wheel_and_little_more(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        top = {Path(name).parts[1] for name in archive.getnames()}
    assert {"macs_hf", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= top
    assert not top & {"model_cards", "tests"}
    assert sdist.stat().st_size < 1_000_000


def test_help_outside_the_clone(installed: Callable[..., str]) -> None:
    assert "train" in installed("-m", "macs_hf.cli", "--help")


def test_training_outside_the_clone(installed: Callable[..., str]) -> None:
    """A few steps on the embedded digits; every module of the package comes from the wheel."""
    installed(
        "-m", "macs_hf.cli", "train", "--dataset", "digits", "--model", "tiny", "--max_steps", "3",
        "--corruptions", "none", "--max_eval_samples", "120", "--output_dir", "run",
    )  # fmt: skip
    code = """
import sys
from pathlib import Path
import evaluate
from macs_hf import metrics

assert Path("run/README.md").read_text().startswith("---")
assert Path("run/model.safetensors").stat().st_size > 0
metric = evaluate.load(metrics.path("ece"))
assert metric.compute(predictions=[[0.75, 0.25]] * 4, references=[0, 0, 0, 1], probabilities=True)["ece"] == 0
files = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "macs_hf"]
print(*files, sep="|")
"""
    files = installed("-c", code).strip().splitlines()[-1].split("|")
    assert len(files) > 10
    assert not [file for file in files if Path(file).is_relative_to(ROOT)]
