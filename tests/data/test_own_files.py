"""Files that a dataset names: only its own are opened, from a folder or the Hub, also as a stream; class folders."""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Features
from huggingface_hub import HfApi
from loopback_hub.server import HubServer
from PIL import Image

from macs_hf.data.images import ImageDataset
from macs_hf.data.own_files import ForeignFileError
from macs_hf.data.sources import DatasetSource, load_splits, source_of
from macs_hf.data.streaming import stream_splits
from macs_hf.data.transforms import is_readable
from macs_hf.exceptions import ArgumentError

from .small_datasets import LOADERS, encoded, picture, table


def decode_only(image: Image.Image) -> dict[str, Any]:
    return {}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` sleeps when a stream of Parquet ends."""
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with a picture for each class, and `secret.png` and a link to it beside them."""
    picture(9).save(tmp_path / "secret.png")
    for first, label in ((0, "cat"), (20, "dog")):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(20):
            picture(first + number).save(tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


def rows_at(place: Path, *paths: str) -> None:
    """A Parquet file whose images are these files."""
    place.parent.mkdir(parents=True, exist_ok=True)
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=["cat", "dog"])})
    images = [{"bytes": encoded(picture(n)), "path": "a.png"} for n in range(60)]
    images += [{"bytes": None, "path": path} for path in paths]
    labels = pa.array([number % 2 for number in range(len(images))])
    columns = {"image": pa.array(images, features.arrow_schema.field("image").type), "label": labels}
    pq.write_table(pa.table(columns).replace_schema_metadata(features.arrow_schema.metadata), place)


def all_rows(source: DatasetSource) -> Iterator[int]:
    """How many images there are, read as a whole and as a stream."""
    splits = load_splits(source)
    yield sum(len(ImageDataset(part, "image", "label", decode_only, "x").check_images()) for part in splits[:3])
    splits = stream_splits(source, 100)
    yield len(list(splits.train)) + len(splits.validation) + len(splits.test)


@pytest.mark.parametrize("place", ["cat/1.png", "zip"])
def test_files_in_the_folder_of_a_dataset_are_its_own(
    place: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "zip":
        lines = [f"{label}/{number}.png,{label}\n" for label in ("cat", "dog") for number in range(20)]
        (photos / "metadata.csv").write_text("file_name,label\n" + "".join(lines))
        shutil.make_archive(str(tmp_path / "all"), "zip", photos)
        shutil.rmtree(photos)
        (tmp_path / "all.zip").rename(photos.mkdir() or photos / "all.zip")
        assert len(load_splits(source_of(str(photos))).train) == 32
    else:
        monkeypatch.chdir(photos)
        rows_at(photos / "data" / "train.parquet", str(photos / place), place)
        assert list(all_rows(source_of(str(photos / "data" / "..")))) == [62, 62]


@pytest.mark.parametrize(
    "path",
    [
        "{}/photos/../secret.png",
        "{}/photos/link.png",
        "{}/photos/linked/secret.png",
        "secret.png",
        "file://{}/secret.png",
        "hf://datasets/alice/private@main/a.png",
        "zip://a.png::http://127.0.0.1:9/a.zip",
        "{}/secret.png::{}/photos/train.parquet",
    ],
)
def test_a_row_of_a_folder_that_names_a_file_elsewhere(
    path: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(photos)
    rows_at(photos / "train.parquet", path.replace("{}", str(tmp_path)))
    (photos / "link.png").symlink_to(tmp_path / "secret.png")
    (photos / "linked").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for load in LOADERS:
        with pytest.raises(ForeignFileError, match=r"in row 60 of split 'train'"):
            load(source_of(str(photos)))


@pytest.mark.parametrize("how", ["link", "README", "saved"])
def test_a_folder_whose_files_are_elsewhere(how: str, photos: Path, tmp_path: Path) -> None:
    if how == "link":
        (photos / "cat" / "x.png").symlink_to(tmp_path / "secret.png")
    elif how == "README":
        rows_at(tmp_path / "secret.parquet")
        (photos / "README.md").write_text(
            f"---\nconfigs:\n- config_name: default\n  data_files: {tmp_path}/*.parquet\n---"
        )
    else:
        table([0, 1] * 20).save_to_disk(tmp_path / "other")
        table([0, 1] * 20).save_to_disk(photos)
        state = json.loads((photos / "state.json").read_text())
        state["_data_files"] = [{"filename": f"{tmp_path}/other/data-00000-of-00001.arrow"}]
        (photos / "state.json").write_text(json.dumps(state))
    with pytest.raises(ForeignFileError, match=str(tmp_path)):
        load_splits(source_of(str(photos)))


def test_a_class_folder_that_is_a_link_is_not_left_out(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos / "cat", tmp_path / "bird")
    (photos / "bird").symlink_to(tmp_path / "bird")
    with pytest.raises(ArgumentError, match=r"'bird'.* is a link"):
        load_splits(source_of(str(photos)))


@pytest.fixture
def data_hub(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.endpoint)
    return hub


def pushed(folder: Path) -> DatasetSource:
    HfApi().create_repo("alice/photos", repo_type="dataset", exist_ok=True)
    HfApi().upload_folder(repo_id="alice/photos", repo_type="dataset", folder_path=folder)
    return source_of("alice/photos")


def test_files_of_a_repository_are_its_own(data_hub: HubServer, photos: Path) -> None:
    assert list(all_rows(pushed(photos))) == [40, 40]
    rows_at(photos / "train.parquet", "hf://datasets/alice/photos@main/cat/1.png")
    (photos / "README.md").write_text("---\nconfigs:\n- config_name: default\n  data_files: train.parquet\n---")
    assert list(all_rows(pushed(photos))) == [61, 61]


@pytest.mark.parametrize(
    "path", ["{}/secret.png", "hf://datasets/alice/private@main/a.png", "hf://datasets/alice/photos@main/../b/a.png"]
)
def test_a_row_of_a_repository_that_names_a_file_elsewhere(
    path: str, data_hub: HubServer, photos: Path, tmp_path: Path
) -> None:
    rows_at(tmp_path / "data" / "train.parquet", path.format(tmp_path))
    source = pushed(tmp_path / "data")
    for load in LOADERS:
        with pytest.raises(ForeignFileError, match=r"'alice/photos' .* in row 60 of split 'train'"):
            load(source)


@pytest.mark.parametrize("on_hub", [False, True])
def test_no_other_host_is_asked(on_hub: bool, data_hub: HubServer, photos: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.2)
        address = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/a.parquet"
        config = {"config_name": "default", "data_files": [{"split": "train", "path": ["cat/*", address]}]}
        (photos / "README.md").write_text(f"---\nconfigs: {json.dumps([config])}\n---\n")
        source = pushed(photos) if on_hub else source_of(str(photos))
        for load in LOADERS[: 1 + on_hub]:
            with pytest.raises(ForeignFileError, match=address):
                load(source)
        with pytest.raises(TimeoutError):
            elsewhere.accept()


def test_an_eps_image_is_not_run(photos: Path) -> None:
    picture(1).save(photos / "cat" / "0.eps")
    assert not is_readable({"bytes": (photos / "cat" / "0.eps").read_bytes(), "path": None})


# ---- Class folders ----


@pytest.mark.parametrize(
    ("places", "named"),
    [
        (["train/cat", "train/train", "test/cat", "test/train"], "'test/train'"),
        (["train/cat", "train/steam train"], "'train/steam train'"),  # whose images would be read twice
        (["val/cat", "val/test", "train/cat", "train/test"], "'(val|train)/test'"),
        (["car", "steam train", "bike"], "'bike'"),
        (["train/cat", "train/dog", "train/d\nog", "test/cat", "test/dog"], r"'train/d\\nog'"),
    ],
)
def test_class_folders_that_would_move_or_disappear(places: list[str], named: str, tmp_path: Path) -> None:
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        picture(len(place)).save(tmp_path / place / "1.png")
    for load in LOADERS:
        with pytest.raises(ArgumentError, match=named):
            load(source_of(str(tmp_path)))


def test_folders_beside_the_splits_are_left_alone(tmp_path: Path) -> None:
    for place in ("training/cat", "training/trainer", "val/cat", "val/trainer", "extra/cat", "figures", ".old/cat"):
        (tmp_path / place).mkdir(parents=True)
        for number in range(4):
            picture(number).save(tmp_path / place / f"{number}.png")
    splits = load_splits(source_of(str(tmp_path)), ("validation", "test"))
    assert (len(splits.validation), splits.label_names) == (8, ["cat", "trainer"])
