"""Attacks by datasets: damaged, empty, hostile, or not what they say."""

from pathlib import Path

import pytest
from attacks import changes
from attacks.changes import (
    EXECUTED,
    HOSTILE_CODE,
    Change,
    labels,
    of_test,
    only,
    picture,
    remove,
    rename,
    saved,
    write,
)
from attacks.changes import truncate as cut
from attacks.conftest import Attack
from datasets import ClassLabel, DatasetDict, Value
from PIL import Image


UNREADABLE = "cannot be read (file "
DAMAGED = "Dataset 'photos' cannot be loaded"
DISAGREE = "The splits disagree about column 'label'"
GREEN = Image.new("RGB", (64, 64), (9, 90, 9))
NO_FILE = "---\nconfigs:\n- config_name: default\n  data_files: nope/*.png\n---\n"
ODD_FEATURE = '{"features": {"image": {"_type": "os.system"}}}'

DATASET = [
    # Images
    ("truncated PNG in test", "photos", UNREADABLE, cut("photos/test/ant/0.png")),
    ("truncated PNG in train", "photos", UNREADABLE, cut("photos/train/ant/0.png")),
    ("truncated JPEG", "photos", UNREADABLE, picture("photos/test/ant/9.jpg", GREEN, 0.5)),
    ("empty image file", "photos", UNREADABLE, write("photos/test/bee/1.png", "")),
    ("a page in place of an image", "photos", UNREADABLE, write("photos/test/bee/1.png", "<html>404</html>")),
    ("an image of floats", "photos", "which value is white", picture("photos/test/ant/9.tiff", changes.FLOATS)),
    ("a decompression bomb", "photos", "decompression bomb", write("photos/test/ant/9.png", changes.bomb())),
    ("an image that is a pipe", "photos", "it is no file", changes.pipes),
    ("a row without an image", "photos", "there is none", changes.each_split(changes.without_first_image)),
    ("truncated image, measured", "evaluate --dataset photos", UNREADABLE, cut("photos/test/ant/0.png")),
    # Folders and files
    (
        "one class folder",
        "photos",
        "Only one class was found in the folder 'photos': 'ant'",
        remove("photos/train/bee", "photos/test/bee"),
    ),
    ("an empty folder", "photos", "doesn't contain any data files", changes.emptied("photos")),
    ("only text", "photos", "Dataset 'photos' has 0 image columns", only("a.txt", "hello")),
    ("a table without images", "photos", "Dataset 'photos' has 0 image columns", only("train.csv", "a,b\n1,2\n")),
    ("damaged Parquet", "photos", "Parquet magic bytes not found", only("train.parquet", "PAR1xxxx")),
    ("damaged JSON", "photos", DAMAGED, only("train.json", "[{]")),
    ("damaged archive", "photos", "File is not a zip file", only("train.zip", b"PK\x03\x04xx")),
    ("README with bad YAML", "photos", "while parsing a flow", write("photos/README.md", "---\nconfigs: [\n---\n")),
    ("README that is a list", "photos", "should be a dict", write("photos/README.md", "---\n- a\n---\n")),
    ("README of no file", "photos", "No (supported) data files found", write("photos/README.md", NO_FILE)),
    ("a loading script", "photos", "scripts are no longer supported", write("photos/photos.py", HOSTILE_CODE)),
    ("metadata of no file", "photos", DAMAGED, write("photos/train/metadata.csv", "file_name,label\nx.png,1\n")),
    ("metadata, no names", "photos", "`file_name`", write("photos/train/metadata.csv", "name,label\nx.png,1\n")),
    ("damaged metadata", "photos", "JSON parse error", write("photos/train/metadata.jsonl", "{not json\n")),
    ("saved split without state", "train", "No such file", remove("data/train/state.json")),
    ("damaged list of splits", "train", "'data' cannot be loaded", write("data/dataset_dict.json", "{")),
    ("saved split outside", "train", "No such files", write("data/dataset_dict.json", '{"splits": ["../../x"]}')),
    ("damaged saved table", "train", "Expected to be able", cut("data/train/data-00000-of-00001.arrow")),
    ("an unknown feature", "train", "'os.system' not found", write("data/train/dataset_info.json", ODD_FEATURE)),
    # Labels
    ("labels of -1", "photos", "marks 8 rows without a label", labels([-1, 1])),
    ("labels beyond the classes", "photos", "Label 5 of row 0 in split 'test'", saved(changes.label_outside)),
    ("missing labels", "photos", "are missing (None)", labels([None, 1])),
    ("labels that are floats", "photos", "holds float64, not one class per image", labels([0.5, 1.5])),
    ("several labels per image", "photos", "not one class per image", labels([[0, 1], [1]])),
    ("one class", "photos", "has 1 class (3) in column 'label'", labels(3)),
    ("text in one split", "photos", DISAGREE, of_test(lambda s: s.cast_column("label", Value("string")))),
    ("other classes", "photos", DISAGREE, of_test(lambda s: s.cast_column("label", ClassLabel(names=["x", "y"])))),
    ("no labels", "photos", "no label column", changes.each_split(lambda split: split.remove_columns("label"))),
    ("two columns of labels", "photos", "2 of them class labels (a, b)", changes.each_split(changes.two_labels)),
    ("two columns of images", "photos", "has 2 image columns", changes.each_split(changes.two_images)),
    # Splits
    ("other columns", "photos", "has no column 'image'", of_test(lambda s: s.rename_column("image", "picture"))),
    ("an empty split", "photos", "is empty", of_test(lambda split: split.select([]))),
    ("one image", "photos", "too few to split off", saved(lambda s: DatasetDict(train=s["train"].select([0])))),
    ("one class in train", "photos", "are of class 'ant'", changes.of_train(lambda s: s.select([0, 2, 4, 6]))),
    ("no split to train on", "photos", "has no split 'train' to", rename("photos/train", "photos/validation")),
]


@pytest.mark.parametrize(
    ("words", "sentence", "change"), [row[1:] for row in DATASET], ids=[row[0] for row in DATASET]
)
def test_datasets(words: str, sentence: str, change: Change, attack: Attack, place: Path) -> None:
    attack(words, sentence, change)
    assert not list(place.rglob(EXECUTED))
