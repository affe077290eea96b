"""What the clients ask of the loopback Hub: who may read and change what, and the answers."""

import base64
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from loopback_hub.card import card_errors, read_metadata
from loopback_hub.connection import Connection, HubError
from loopback_hub.store import LFS_SUFFIXES, Commit, Repo, StoredFile


class Api(Connection):
    """The answers to `ROUTES`."""

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

    # Changing repositories

    def on_create(self) -> None:
        payload = json.loads(self.body)
        kind, owner = payload.get("type") or "model", payload.get("organization")
        owner = owner or (self.account.user if self.account else "")
        self.require_write(owner)
        if not re.fullmatch(r"[\w-][\w.-]*", payload["name"]):
            raise HubError(400, f"Invalid repo name: {payload['name']!r}")
        repo_id = f"{owner}/{payload['name']}"
        store = self.server.store
        with store.lock:
            repo = store.get(kind, repo_id)
            status = 409 if repo else 200
            private = payload.get("visibility") == "private"
            repo = repo or store.create(kind, repo_id, private=private, sdk=payload.get("sdk"))
        answer = {"url": f"{self.server.endpoint}/{repo.url_path}", "name": repo_id, "id": repo_id}
        if status == 409:
            answer["error"] = f"You already created this {kind} repo"
        self.send_json(answer, status)

    def on_settings(self) -> None:
        repo, payload = self.repo(write=True), json.loads(self.body)
        if "visibility" in payload:
            repo.private = payload["visibility"] == "private"
        repo.gated = payload.get("gated", repo.gated)
        self.send_json({})

    def on_validate_yaml(self) -> None:
        self.send_json({"errors": [], "warnings": []})  # a commit is refused for them

    # Changing a repository

    def _changed_repo(self, proposed: bool) -> Repo:
        """Its owners may change a repository; everybody who can see it and has a token that writes may propose to."""
        repo = self.repo(write=not proposed, contents=True)
        if proposed and self.account is None:
            raise HubError(401, "Invalid username or password.")
        if proposed and self.account.role != "write":
            raise HubError(403, "Forbidden: you must use a write token to open a pull request")
        return repo

    def on_preupload(self) -> None:
        repo = self._changed_repo("create_pr" in self.query)
        current = self.commit_of(repo).files
        files = []
        for file in json.loads(self.body)["files"]:
            path, sample = file["path"], base64.b64decode(file.get("sample") or "")
            lfs = file["size"] > 0 and (path.endswith(LFS_SUFFIXES) or file["size"] > 10 << 20 or b"\0" in sample)
            stored = current.get(path)
            oid, mode = stored and stored.oid, "lfs" if lfs else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.send_json({"files": files})

    def on_lfs_batch(self) -> None:
        payload = json.loads(self.body)
        repo = self._changed_repo("ref" not in payload)  # the client names a branch, but for a pull request
        objects = []
        for wanted in payload["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if not repo.object_path(wanted["oid"]).is_file():
                url = self._object_url(repo, wanted["oid"])
                entry["actions"] = {"upload": {"href": url, "header": {}}, "verify": {"href": url}}
            objects.append(entry)
        self.send_json({"transfer": "basic", "objects": objects})

    def on_upload(self) -> None:
        repo = self._signed_repo()
        try:
            self.server.store.add_object(repo, self.incoming, expected=self.args["oid"])
        except ValueError as error:
            raise HubError(400, str(error)) from error
        self.send_bytes(b"")

    def on_verify(self) -> None:
        self._object()
        self.send_json({})

    def on_commit(self) -> None:
        proposed = "create_pr" in self.query
        repo, branch, store = self._changed_repo(proposed), self.args["rev"], self.server.store
        if branch not in repo.branches:
            raise HubError(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        lines = [json.loads(line) for line in self.body.splitlines() if line.strip()]
        header: dict[str, Any] = {}
        add: dict[str, StoredFile] = {}
        delete: list[str] = []
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    header = value
                case "file":
                    content = base64.b64decode(value["content"])
                    if value["path"] == "README.md" and (errors := card_errors(content.decode())):
                        raise HubError(400, "Invalid metadata in README.md: " + "; ".join(errors).replace("\n", " "))
                    add[value["path"]] = store.add_bytes(repo, content)
                case "lfsFile":
                    stored = store.lfs_file(repo, value["oid"])
                    if stored is None:
                        raise HubError(400, f"LFS object {value['oid']} of {value['path']} was never uploaded")
                    add[value["path"]] = stored
                case "deletedFile":
                    delete.append(value["path"])
                case key:
                    raise HubError(400, f"this Hub does not know the commit operation {key!r}")
        with store.lock:
            expected = header.get("parentCommit")
            if expected not in (None, repo.branches[branch]):
                raise HubError(412, f"A commit has happened since {expected}. Please refresh and try again.")
            title, message = header.get("summary", ""), header.get("description", "")
            if proposed:
                author = self.account.user
                branch = repo.open_pull_request(branch, title=title, description=message, author=author)
            commit = store.commit(repo, branch, title=title, message=message, add=add, delete=delete)
        page = f"{self.server.endpoint}/{repo.url_path}"
        answer = {"success": True, "commitOid": commit.id, "commitUrl": f"{page}/commit/{commit.id}", "hookOutput": ""}
        if proposed:
            answer["pullRequestUrl"] = f"{page}/discussions/{len(repo.pull_requests)}"
        self.send_json(answer)

    def on_branch(self) -> None:
        repo, name = self.repo(write=True), self.args["rev"]
        start = json.loads(self.body or b"{}").get("startingPoint") or "main"
        if name in repo.branches:
            raise HubError(409, f"Reference {name} already exists")
        repo.branches[name] = self.commit_of(repo, start).id
        self.send_json({})


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
