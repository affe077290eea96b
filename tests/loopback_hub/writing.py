"""What the clients change on the loopback Hub: repositories, uploads, commits, pull requests and branches."""

import base64
import json
import re
from typing import Any

from loopback_hub.card import card_errors, read_metadata
from loopback_hub.connection import HubError
from loopback_hub.reading import Reading
from loopback_hub.store import LFS_SUFFIXES, Repo, StoredFile


class Api(Reading):
    """All answers of the Hub; see `hub.routes`."""

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
        content = json.loads(self.body)["content"]
        errors = [{"message": message} for message in card_errors(content)]
        empty = not errors and not read_metadata(content)
        warnings = [{"message": "empty or missing yaml metadata in repo card"}] if empty else []
        self.send_json({"errors": errors, "warnings": warnings}, 400 if errors else 200)

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
                case "deletedFolder":
                    delete.append(value["path"].rstrip("/") + "/")
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
