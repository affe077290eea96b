"""Repositories of the loopback Hub: commits of file maps, branches, and objects on disk, named by their sha256.

Objects are never deleted, as on the Hub: a file which was pushed and removed again is still in the history.
"""

import hashlib
import os
import secrets
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


# What the Hub writes into a new repository, shortened to the endings these tests meet.
LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".pkl", ".parquet", ".arrow", ".npz", ".npy", ".onnx", ".zip")
GIT_ATTRIBUTES = "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES).encode()


@dataclass(frozen=True)
class StoredFile:
    """One file of a commit. `oid` tells clients whether it changed: git's blob name, or the sha256 if it is in LFS."""

    oid: str
    sha256: str
    size: int
    lfs: bool


@dataclass(frozen=True)
class Commit:
    id: str
    title: str
    message: str
    parent: str | None
    files: dict[str, StoredFile]


@dataclass
class Repo:
    """A repository and its whole history. Changes go through [`Store`], which locks."""

    folder: Path
    kind: str
    id: str
    private: bool = False
    gated: str | bool = False
    sdk: str | None = None
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    pull_requests: list[dict[str, str]] = field(default_factory=list)  # the first is number 1, on `refs/pr/1`

    @property
    def owner(self) -> str:
        return self.id.split("/")[0]

    @property
    def url_path(self) -> str:
        return self.id if self.kind == "model" else f"{self.kind}s/{self.id}"

    def find(self, revision: str) -> Commit | None:
        """The commit of a branch or a full commit id."""
        revision = revision.removeprefix("refs/heads/")
        return self.commits.get(self.branches.get(revision) or revision)

    def history(self, revision: str = "main") -> Iterator[Commit]:
        """Commits from the newest to the first."""
        commit = self.find(revision)
        while commit is not None:
            yield commit
            commit = self.commits.get(commit.parent) if commit.parent else None

    def open_pull_request(self, target: str, **facts: str) -> str:
        """A branch for a proposal, which starts where its target is; returns its name."""
        self.pull_requests.append({"target": target, **facts})
        branch = f"refs/pr/{len(self.pull_requests)}"
        self.branches[branch] = self.branches[target]
        return branch

    def object_path(self, sha256: str) -> Path:
        return self.folder / "objects" / sha256

    def read(self, path: str, revision: str = "main") -> bytes | None:
        commit = self.find(revision)
        stored = commit.files.get(path) if commit else None
        return self.object_path(stored.sha256).read_bytes() if stored else None


class Store:
    """All repositories; their objects are under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.RLock()
        self.repos: dict[tuple[str, str], Repo] = {}

    def get(self, kind: str, repo_id: str) -> Repo | None:
        return self.repos.get((kind, repo_id))

    def create(self, kind: str, repo_id: str, *, private: bool = False, sdk: str | None = None) -> Repo:
        """A new repository; as on the Hub, its first commit holds `.gitattributes`."""
        repo = Repo(self.root / f"{kind}s" / repo_id, kind, repo_id, private=private, sdk=sdk)
        (repo.folder / "objects").mkdir(parents=True)
        with self.lock:
            self.repos[kind, repo_id] = repo
            files = {".gitattributes": self.add_bytes(repo, GIT_ATTRIBUTES)}
            self.commit(repo, "main", title="initial commit", add=files)
        return repo

    def add_bytes(self, repo: Repo, content: bytes) -> StoredFile:
        """Store a file which is committed as it is."""
        sha256 = self.add_object(repo, [content])
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return StoredFile(oid, sha256, len(content), lfs=False)

    def add_object(self, repo: Repo, chunks: Iterable[bytes], expected: str | None = None) -> str:
        """Store bytes under their sha256. Nothing is kept if `chunks` raises or the name is not the `expected` one."""
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=repo.folder, delete=False) as partial:
            try:
                for chunk in chunks:
                    digest.update(chunk)
                    partial.write(chunk)
                if expected not in (None, digest.hexdigest()):
                    raise ValueError(f"the bytes hash to {digest.hexdigest()}, not to {expected}")
            except BaseException:
                os.unlink(partial.name)
                raise
        os.replace(partial.name, repo.object_path(digest.hexdigest()))
        return digest.hexdigest()

    def lfs_file(self, repo: Repo, sha256: str) -> StoredFile | None:
        """The entry of an object which was uploaded before, or None if it never arrived."""
        path = repo.object_path(sha256)
        return StoredFile(sha256, sha256, path.stat().st_size, lfs=True) if path.is_file() else None

    def commit(
        self,
        repo: Repo,
        branch: str,
        *,
        title: str,
        message: str = "",
        add: dict[str, StoredFile] | None = None,
        delete: Iterable[str] = (),
    ) -> Commit:
        """Put a commit on `branch`."""
        with self.lock:
            parent = repo.commits.get(repo.branches.get(branch, ""))
            files = dict(parent.files) if parent else {}
            for path in delete:
                del files[path]
            files |= add or {}
            commit = Commit(secrets.token_hex(20), title, message, parent and parent.id, files)
            repo.commits[commit.id] = commit
            repo.branches[branch] = commit.id
        return commit
