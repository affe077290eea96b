"""A Hub on 127.0.0.1 for tests: it keeps repositories on disk and speaks what the unmodified clients call.

    with HubServer(tmp_path) as hub:
        subprocess.run([sys.executable, "train.py", "--push_to_hub"], env={**os.environ, **hub.env(ALICE)})
        hub.files("alice/resnet")["README.md"]

Uploads go through LFS (`env` sets `HF_HUB_DISABLE_XET=1`). Not here: xet, discussions, git itself, rate limits, and
most of the Hub's checks of cards. `connection.ROUTES` names the clients' requests; `inject` makes any of them fail.
"""

import json
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from loopback_hub.api import Api
from loopback_hub.connection import Account, Fault, Request
from loopback_hub.store import Repo, Store


# Long enough to be looked for in the bytes of a pushed repository.
ALICE = "hf_aliceWrites4kTq9ZpLx2"
ALICE_READS = "hf_aliceReads7mWd3VcNb8"
BOB = "hf_bobWrites1rYs6HfJg5"
ACCOUNTS = {
    ALICE: Account("alice", orgs=("lab",)),
    ALICE_READS: Account("alice", "read", ("lab",)),
    BOB: Account("bob"),
}


class HubServer(ThreadingHTTPServer):
    """The server, its repositories and its faults; a context manager which serves from a thread of this process.

    Args:
        root (`Path`): where files are kept.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, root: Path | str) -> None:
        super().__init__(("127.0.0.1", 0), Api)
        self.root = Path(root)
        self.store = Store(self.root)
        self.accounts = ACCOUNTS
        self.requests: list[Request] = []
        self.key = secrets.token_hex(8)  # stands for the signature of the storage's links, which carry no token
        self.stopped = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()

    def env(self, token: str | None = ALICE, home: Path | None = None) -> dict[str, str]:
        """Environment variables for a client process, to be laid over `os.environ`.

        Args:
            token (`str`, *optional*): whose token; None for an anonymous client.
            home (`Path`, *optional*): the client's `HF_HOME`, a fresh folder by default: nothing is cached.
        """
        home = home or self.root / "clients" / secrets.token_hex(4)
        home.mkdir(parents=True, exist_ok=True)
        caches = {"HF_HUB_CACHE": "hub", "HF_DATASETS_CACHE": "datasets", "HF_EVALUATE_CACHE": "evaluate"}
        caches |= {"HF_MODULES_CACHE": "modules", "HF_TOKEN_PATH": "token"}
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_TOKEN": token or "",
            "HUGGING_FACE_HUB_TOKEN": "",
            "HF_HOME": str(home),
            **{name: str(home / folder) for name, folder in caches.items()},  # the environment may have its own
            "HF_HUB_OFFLINE": "0",  # it would block loopback as well
            "TRANSFORMERS_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def inject(
        self,
        route: str,
        *,
        status: int | None = None,
        cut: str | None = None,
        times: int = 1,
        skip: int = 0,
        ending: str = "",
        retry_after: int | None = None,
    ) -> None:
        """Let the next `times` requests of `route` fail, after letting `skip` of them through.

        Args:
            route (`str`): a name in `ROUTES`.
            status (`int`, *optional*): answer with it: 503, 401, 403, 507 (disk full), ... The clients repeat 408,
                429, 500, 502, 503, 504 and cuts up to five times, over 23 s; but not `commit` or `create`.
            cut (`str`, *optional*): `"body"` resets the connection in the middle of the request's body, `"answer"`
                does the request and resets the connection instead of answering, `"file"` after half of a file,
                `"hang"` never answers.
            ending (`str`, *optional*): only requests whose path ends so, such as those of one file.
            retry_after (`int`, *optional*): seconds that the answer asks the client to wait.
        """
        with self._lock:
            self._faults.append(Fault(route, status, cut, times, skip, ending, retry_after))

    def take_fault(self, route: str | None, path: str) -> Fault | None:
        with self._lock:
            fault = next((f for f in self._faults if f.route == route and path.endswith(f.ending)), None)
            if fault is None:
                return None
            if fault.skip:
                fault.skip -= 1
                return None
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)
            return fault

    def counts(self) -> Counter[str]:
        """How often each route was asked for."""
        return Counter(request.route or "unknown" for request in self.requests)

    def repo(self, repo_id: str, kind: str = "model") -> Repo:
        """A repository, whoever may see it."""
        repo = self.store.get(kind, repo_id)
        assert repo is not None, f"no {kind} {repo_id!r} here: {sorted(self.store.repos)}"
        return repo

    def files(self, repo_id: str, kind: str = "model", revision: str = "main") -> dict[str, bytes]:
        """The files of one revision."""
        repo = self.repo(repo_id, kind)
        return {path: repo.object_path(file.sha256).read_bytes() for path, file in repo.find(revision).files.items()}

    def stored_bytes(self, repo_id: str, kind: str = "model") -> Iterator[tuple[str, bytes]]:
        """Every byte kept for a repository, as (name, contents): all revisions and messages, uncommitted uploads.

        To look for secrets; compressed files (PNG, parquet, ...) would have to be opened.
        """
        repo = self.repo(repo_id, kind)
        messages = [(commit.title, commit.message) for commit in repo.commits.values()]
        yield "messages", json.dumps(messages + repo.pull_requests).encode()
        names = {f.sha256: path for commit in repo.commits.values() for path, f in commit.files.items()}
        for path in sorted(p for p in repo.folder.rglob("*") if p.is_file()):
            yield names.get(path.name, path.name), path.read_bytes()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client which went away is no failure of the server; anything else is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def leaks(hub: HubServer, repo_id: str) -> set[str]:
    """Files of a repository, in any commit, that hold a token."""
    tokens = (ALICE.encode(), ALICE_READS.encode(), BOB.encode())
    return {path for path, content in hub.stored_bytes(repo_id) if any(token in content for token in tokens)}
