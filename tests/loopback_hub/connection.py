"""One HTTP/1.1 connection of the loopback Hub: bodies in, answers and file ranges out, faults on the way."""

import json
import re
import socket
import struct
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


if TYPE_CHECKING:
    from loopback_hub.server import HubServer


_API = r"/api/(?P<kind>model|dataset|space)s"
_ID = r"/(?P<id>[^/]+/[^/]+|[^/]+)"  # "gpt2", without an owner, is asked for as well
_REV = r"/(?P<rev>[^/]+)"  # slashes of branch names come as %2F
_WEB = r"/(?:(?P<kind>dataset|space)s/)?(?P<id>[^/]+/[^/]+?|[^/]+?)"
_OBJECT = r"/objects/(?P<key>\w+)/(?P<kind>\w+)/(?P<id>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})"

# Name of a request (a method `on_<name>` answers it), its HTTP methods and path.
ROUTES = tuple(
    (name, methods.split(), re.compile(path))
    for name, methods, path in (
        ("whoami", "GET", "/api/whoami-v2"),
        ("create", "POST", "/api/repos/create"),
        ("validate_yaml", "POST", "/api/validate-yaml"),
        ("info", "GET", _API + _ID + f"(?:/revision{_REV})?"),
        ("tree", "GET", _API + _ID + f"/tree{_REV}(?:/(?P<path>.+))?"),
        ("paths_info", "POST", _API + _ID + f"/paths-info{_REV}"),
        ("preupload", "POST", _API + _ID + f"/preupload{_REV}"),
        ("commit", "POST", _API + _ID + f"/commit{_REV}"),
        ("branch", "POST", _API + _ID + f"/branch{_REV}"),
        ("settings", "PUT", _API + _ID + "/settings"),
        ("auth_check", "GET", _API + _ID + "/auth-check(?P<write>/write)?"),
        ("lfs_batch", "POST", _WEB + r"\.git/info/lfs/objects/batch"),
        ("upload", "PUT", _OBJECT),
        ("verify", "POST", _OBJECT),
        ("download", "GET HEAD", _OBJECT),
        ("resolve", "GET HEAD", _WEB + f"/resolve{_REV}/(?P<path>.+)"),
    )
)


class Account(NamedTuple):
    user: str
    role: str = "write"
    orgs: tuple[str, ...] = ()


@dataclass
class Fault:
    """What happens to the next `times` requests of a route: an HTTP `status`, or a connection cut at some point."""

    route: str
    status: int | None
    cut: str | None
    times: int
    skip: int
    ending: str
    retry_after: int | None


class Request(NamedTuple):
    """An answered request. `status` is 0 if the connection was cut."""

    method: str
    path: str
    route: str | None
    user: str | None
    status: int


class HubError(Exception):
    """An answer which is an error; `code` decides the client's exception type."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, headers


class Cut(Exception):
    """The connection ends here, without an answer."""


class Connection(BaseHTTPRequestHandler):
    """Finds the route of a request, reads the body, and calls the `on_<route>` of a subclass."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "HubServer"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        found = ((name, p.fullmatch(url.path)) for name, methods, p in ROUTES if self.command in methods)
        self.route, match = next(((name, match) for name, match in found if match), (None, None))
        self.args = {key: value and unquote(value) for key, value in match.groupdict().items()} if match else {}
        self.account: Account | None = None
        self.incoming = self._body_chunks()
        self.body, self.answer_lost, self.file_cut = b"", False, False
        try:
            try:
                self._answer(self.server.take_fault(self.route, url.path))
            except HubError as error:
                self._send_error(error)
            except (Cut, ConnectionError):
                raise
            except Exception as error:  # 501: clients repeat a 500 for 23 seconds, which looks like a hang
                traceback.print_exc()
                self._send_error(HubError(501, f"the loopback Hub failed: {error!r}"))
        except Cut:
            self._log(0)
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST, not FIN

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self, fault: Fault | None) -> None:
        if fault and fault.cut == "body":
            self.rfile.read(int(self.headers.get("Content-Length") or 0) // 2)
            raise Cut
        if fault and fault.cut == "hang":
            self.server.stopped.wait()
            raise Cut
        if self.route != "upload" or (fault and fault.status):  # uploads are streamed to disk
            self.body = b"".join(self.incoming)
        if fault and fault.status:
            later = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            raise HubError(fault.status, "injected fault", **later)
        self.answer_lost = fault is not None and fault.cut == "answer"
        self.file_cut = fault is not None and fault.cut == "file"
        if token := self.headers.get("Authorization", "").removeprefix("Bearer ").strip():
            self.account = self.server.accounts.get(token)
            if self.account is None:
                raise HubError(401, "Invalid credentials in Authorization header")
        if self.route is None:
            raise HubError(404, f"the loopback Hub does not serve {self.command} {self.path}")
        getattr(self, f"on_{self.route}")()

    def _body_chunks(self) -> Iterator[bytes]:
        """The request's body, of a known length or chunked."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self._some(self.rfile.readline()).split(b";")[0], 16):
                yield self._some(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length") or 0)
            while left:
                chunk = self._some(self.rfile.read(min(left, 1 << 20)))
                left -= len(chunk)
                yield chunk

    def _some(self, received: bytes) -> bytes:
        if not received:
            raise Cut  # by the client
        return received

    def send_json(self, content: Any, status: int = 200, **headers: str) -> None:
        body = json.dumps(content, default=str).encode()  # dates in a card's metadata
        self.send_bytes(body, status, **{"Content-Type": "application/json", **headers})

    def send_bytes(self, content: bytes, status: int = 200, **headers: str) -> None:
        self._send_head(status, len(content), headers)
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_file(self, path: Path, headers: dict[str, str]) -> None:
        """A file, or the range of it that was asked for."""
        size = path.stat().st_size
        first, last, status = 0, size - 1, 200
        headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
        if asked := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "").strip()):
            start, end = asked.groups()
            first = int(start) if start else max(size - int(end or 0), 0)  # "-5": the last five
            last = min(int(end), last) if start and end else last
            if first > last:
                raise HubError(416, f"no bytes {start}-{end} in {size}", **{"Content-Range": f"bytes */{size}"})
            status = 206
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self._send_head(status, last - first + 1, headers)
        if self.command != "HEAD" and last >= first:
            sent = (last - first + 1) // (2 if self.file_cut else 1)
            with path.open("rb") as file:
                self.connection.sendfile(file, first, sent)
            if self.file_cut:
                raise Cut

    def _send_error(self, error: HubError) -> None:
        for _ in self.incoming:
            pass  # what is left of the body would be taken for the next request
        headers = {"X-Error-Message": ascii(error.message)[1:-1], **error.headers}
        if error.code:
            headers["X-Error-Code"] = error.code
        self.send_json({"error": error.message}, error.status, **headers)

    def _send_head(self, status: int, length: int, headers: dict[str, str]) -> None:
        if self.answer_lost:
            raise Cut
        self._log(status)
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _log(self, status: int) -> None:
        user = self.account.user if self.account else None
        self.server.requests.append(Request(self.command, self.path, self.route, user, status))

    def log_message(self, *args: Any) -> None:
        """Quiet: `HubServer.requests` is the log."""
