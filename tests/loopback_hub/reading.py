"""What the clients read from the loopback Hub, and who may read what."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from loopback_hub.card import read_metadata
from loopback_hub.connection import Connection, HubError
from loopback_hub.store import Commit, Repo


class Reading(Connection):
    """Answers which change nothing; see `hub.routes`."""

    # Who may do what

    def repo(self, *, write: bool = False, contents: bool = False) -> Repo:
        """The repository of the request; `contents` are what a gated repository keeps back."""
        kind, repo_id = self.args["kind"] or "model", self.args["id"]
        repo = self.server.store.get(kind, repo_id)
        if repo is None or (repo.private and not self.belongs(repo)):
            raise HubError(404 if self.account else 401, f"Repository {repo_id} not found", "RepoNotFound")
        if write:
            self.require_write(repo.owner)
        if contents and repo.gated and not self.belongs(repo):
            message = f"Access to {kind} {repo_id} is restricted and you are not in the authorized list."
            raise HubError(403 if self.account else 401, message, "GatedRepo")
        return repo

    def belongs(self, repo: Repo) -> bool:
        return self.account is not None and repo.owner in (self.account.user, *self.account.orgs)

    def require_write(self, owner: str) -> None:
        if self.account is None:
            raise HubError(401, "Invalid username or password.")
        if owner not in (self.account.user, *self.account.orgs):
            raise HubError(403, f"You don't have the rights to write under the namespace {owner}")
        if self.account.role != "write":
            raise HubError(403, "Forbidden: you must use a write token to change a repository")

    def commit_of(self, repo: Repo, revision: str | None = None) -> Commit:
        revision = revision or self.args["rev"] or "main"
        commit = repo.find(revision)
        if commit is None:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    # Users

    def on_whoami(self) -> None:
        if self.account is None:
            raise HubError(401, "Invalid username or password.")
        user, role, orgs = self.account
        access = {"type": "access_token", "accessToken": {"displayName": "tests", "role": role}}
        orgs = [{"type": "org", "name": org, "roleInOrg": role} for org in orgs]
        self.send_json({"type": "user", "id": user, "name": user, "fullname": user, "orgs": orgs, "auth": access})

    def on_auth_check(self) -> None:
        self.repo(write=bool(self.args["write"]), contents=True)
        self.send_json({})

    # Reading a repository

    def on_info(self) -> None:
        repo = self.repo()
        self.send_json(self._info(repo, self.commit_of(repo)))

    def _info(self, repo: Repo, commit: Commit) -> dict[str, Any]:
        card = read_metadata((repo.read("README.md", commit.id) or b"").decode())
        info = {
            "id": repo.id,
            "author": repo.owner,
            "sha": commit.id,
            "private": repo.private,
            "gated": repo.gated,
            "tags": list(card.get("tags") or ()),
            "cardData": {key: value for key, value in card.items() if key != "model-index"},
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
            "sdk": repo.sdk,
        }
        return info | {key: card[key] for key in ("pipeline_tag", "library_name", "model-index") if key in card}

    def on_tree(self) -> None:
        repo = self.repo()
        entries = _entries(self.commit_of(repo))
        path = self.args["path"]
        if path and entries.get(path, {}).get("type") != "directory":
            raise HubError(404, f"{path} does not exist", "EntryNotFound")
        prefix = f"{path}/" if path else ""
        deep = self.query.get("recursive", ["false"])[0].lower() in ("true", "1")
        below = [name for name in entries if name.startswith(prefix) and (deep or "/" not in name[len(prefix) :])]
        self.send_json([entries[name] for name in below])

    def on_paths_info(self) -> None:
        repo = self.repo()
        entries = _entries(self.commit_of(repo))
        if self.headers.get("Content-Type", "").startswith("application/json"):
            paths = json.loads(self.body)["paths"]
        else:
            paths = parse_qs(self.body.decode()).get("paths", [])
        self.send_json([entries[path] for path in paths if path in entries])

    def on_resolve(self) -> None:
        repo = self.repo(contents=True)
        commit = self.commit_of(repo)
        path = self.args["path"]
        stored = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.id}
        if stored is None:
            raise HubError(404, f"{path} does not exist in {repo.id}", "EntryNotFound", **headers)
        headers["ETag"] = f'"{stored.oid}"'
        if not stored.lfs:
            self.send_file(repo.object_path(stored.sha256), headers)
            return
        headers |= {"X-Linked-ETag": f'"{stored.sha256}"', "X-Linked-Size": str(stored.size)}
        self.send_bytes(b"", 302, Location=self._object_url(repo, stored.sha256), **headers)

    def on_download(self) -> None:
        self.send_file(self._object(), {"ETag": f'"{self.args["oid"]}"'})

    def _object_url(self, repo: Repo, oid: str) -> str:
        # Like the Hub's storage another host: clients read the headers of its redirect, and send it no token.
        return f"http://localhost:{self.server.server_port}/objects/{self.server.key}/{repo.kind}/{repo.id}/{oid}"

    def _signed_repo(self) -> Repo:
        repo = self.server.store.get(self.args["kind"], self.args["id"])
        if repo is None or self.args["key"] != self.server.key:
            raise HubError(403, "the link is not signed by this server")
        return repo

    def _object(self) -> Path:
        path = self._signed_repo().object_path(self.args["oid"])
        if not path.is_file():
            raise HubError(404, f"object {self.args['oid']} was not uploaded")
        return path


def _entries(commit: Commit) -> dict[str, dict[str, Any]]:
    """The files of a commit and the folders above them, by path, as the tree lists them."""
    entries: dict[str, dict[str, Any]] = {}
    for path, stored in sorted(commit.files.items()):
        for folder in reversed(Path(path).parents[:-1]):
            name = folder.as_posix()
            entries.setdefault(name, {"type": "directory", "path": name, "oid": name, "size": 0})
        entries[path] = {"type": "file", "path": path, "oid": stored.oid, "size": stored.size}
        if stored.lfs:
            entries[path]["lfs"] = {"oid": stored.sha256, "size": stored.size, "pointerSize": 0}
    return entries
