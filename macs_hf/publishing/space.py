"""A Space that serves a published model: the page of `macs-hf app`, open to visitors.

The package is on no index, so the Space has a copy of it: it starts from what is in its repository, and from what its
requirements name.
"""

from importlib import metadata
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, SpaceCardData
from huggingface_hub.utils import httpx

from ..hub.connection import hub_api
from ..hub.failure_reasons import reason_of
from .card_settings import CardSettings


PACKAGE = Path(__file__).parents[1]
DISTRIBUTION = "macs-hf"
GRADIO_VERSION, PYTHON_VERSION = "6.31.0", "3.11"
PORT = "7860"  # where Spaces expect an app
MARK = "Made by `macs-hf push --space`."
APP = '''"""Serves {repo_id}. {mark} Pushing again replaces this file."""

from macs_hf.cli.main import main


raise SystemExit(main(["app", "{repo_id}", "--host", "0.0.0.0", "--port", "{port}"]))
'''
TEXT = """
# {name}

The page where [{repo_id}](https://huggingface.co/{repo_id}) can be audited and tried: how often it is right, how sure
it may be, and what breaks it. {mark}
"""


def push_space(repo_id: str, *, private: bool | None = None, token: str | None = None, folder: str | Path) -> str:
    """
    Make a Space of the same name as a model, or bring it up to date, in one commit.

    Args:
        repo_id (`str`): Of the model, with its owner; it is there already.
        private (`bool`, *optional*): Whether only its owner may see the Space.
        token (`str`, *optional*): In place of the one of HF_TOKEN or `hf auth login`.
        folder (`str` or `Path`): The run's folder, whose card says under which licence it is.

    Returns:
        `str`: The Space's address.

    Raises:
        `ValueError`: If there is a Space of this name that was not made here.
        `ConnectionError`: If it cannot be pushed.
    """
    api = hub_api(token)
    try:
        if private is None:
            private = api.model_info(repo_id).private  # a Space shows the model's name and card
        url = api.create_repo(repo_id, repo_type="space", space_sdk="gradio", private=private, exist_ok=True)
        there = _own_files(api, repo_id)
        files = space_files(repo_id, CardSettings.load(folder))
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(name, content) for name, content in sorted(files.items())
        ]
        operations += [CommitOperationDelete(name) for name in there if name not in files]
        api.create_commit(repo_id, operations, commit_message="Serve the model", repo_type="space")
    except httpx.HTTPError as error:
        raise ConnectionError(
            f"The model is pushed, but the Space {repo_id!r} is not: {reason_of(error)}. Push the same folder again."
        ) from error
    return str(url)


def space_files(repo_id: str, settings: CardSettings | None) -> dict[str, bytes]:
    """What the Space's repository holds, by path: the app, its requirements, its card, and a copy of the package."""
    name, version = repo_id.rpartition("/")[2], metadata.version(DISTRIBUTION)
    card = SpaceCardData(
        title=name,
        sdk="gradio",
        sdk_version=GRADIO_VERSION,
        python_version=PYTHON_VERSION,
        app_file="app.py",
        models=[repo_id],
        tags=["calibration", "image-classification", "macs"],
        license=settings.license if settings is not None and settings.license != "unknown" else None,
        colorFrom="blue",
        colorTo="gray",
        pinned=False,
        short_description="Can its probabilities be trusted?",
    )
    written = {
        "README.md": f"---\n{card.to_yaml()}\n---\n{TEXT.format(name=name, repo_id=repo_id, mark=MARK)}",
        "app.py": APP.format(repo_id=repo_id, mark=MARK, port=PORT),
        "requirements.txt": "".join(f"{line}\n" for line in requirements()),
        # What an installed package has: reports name its version.
        f"macs_hf-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n",
    }
    copied = {
        f"macs_hf/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return {name: content.encode() for name, content in written.items()} | copied


def requirements() -> list[str]:
    """What the package needs, without its extras; Spaces install Gradio themselves."""
    return [line for line in metadata.requires(DISTRIBUTION) or () if "extra ==" not in line]


def _own_files(api: HfApi, repo_id: str) -> list[str]:
    """The files of an earlier push; refused if the Space has an app that is not ours."""
    there = api.list_repo_files(repo_id, repo_type="space")
    if "app.py" not in there:
        return []
    app = Path(api.hf_hub_download(repo_id, "app.py", repo_type="space")).read_text(encoding="utf-8")
    if MARK not in app:
        raise ValueError(
            f"There is a Space {repo_id!r} already that serves something else. Rename or delete it, or push the model "
            "to another name."
        )
    return [name for name in there if name.startswith(("macs_hf/", "macs_hf-"))]
