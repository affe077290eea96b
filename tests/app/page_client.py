"""Talks to a served page as a browser does, without one: each client is a visitor of its own."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx


class PageClient:
    """
    Args:
        url (`str`): Of the page.
    """

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url.rstrip("/"), timeout=120)
        self.session = secrets.token_hex(5)
        self.config = self.http.get("/config").json()
        self.ids = {part["props"].get("elem_id"): part["id"] for part in self.config["components"]}

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def upload(self, name: str, content: bytes) -> httpx.Response:
        return self.http.post("/gradio_api/upload", files={"files": (name, content)})

    def uploaded(self, name: str, content: bytes) -> dict[str, Any]:
        """What a field holds after a file was dropped into it."""
        return file_at(self.upload(name, content).json()[0], name)

    def join(self, elem_id: str, event: str, values: dict[str, Any]) -> httpx.Response:
        """Put what happens on an event into the queue; fields that are not given have their first value."""
        return self._join(self.function(elem_id, event), {self.ids[name]: value for name, value in values.items()})

    def _join(self, function: dict[str, Any], given: dict[int, Any]) -> httpx.Response:
        fields = {part["id"]: part["props"] for part in self.config["components"]}
        data = [given.get(place, fields[place].get("value")) for place in function["inputs"]]
        body = {"data": data, "fn_index": function["id"], "session_hash": self.session, "trigger_id": None}
        return self.http.post("/gradio_api/queue/join", json=body)

    def messages(self, joined: httpx.Response) -> Iterator[dict[str, Any]]:
        """What the page has to say of an event that was put into the queue, to its end."""
        assert joined.status_code == 200, joined.text
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.session}) as answer:
            for line in answer.iter_lines():
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                yield message
                if message.get("msg") == "process_completed":
                    return
        raise AssertionError("the page ended the connection")

    def ask(self, function: dict[str, Any], given: dict[int, Any]) -> str:
        """All of that, if one of its functions is called with these values, by their fields' ids."""
        joined = self._join(function, given)
        return joined.text if joined.status_code != 200 else str(list(self.messages(joined)))

    def call(self, elem_id: str, event: str, **values: Any) -> dict[str, Any]:
        """What it gives in the end, by the ids of the components that it changes; `error` if it fails."""
        joined = self.join(elem_id, event, {name.replace("_", "-"): value for name, value in values.items()})
        names = {part["id"]: part["props"].get("elem_id") for part in self.config["components"]}
        places = [names.get(place) for place in self.function(elem_id, event)["outputs"]]  # a group has no name
        *_, last = self.messages(joined)
        if not last["success"]:
            return {"error": last["output"].get("error")}
        return dict(zip(places, last["output"]["data"], strict=True))

    def function(self, elem_id: str, event: str) -> dict[str, Any]:
        target = [self.ids[elem_id], event]
        return next(one for one in self.config["dependencies"] if target in [list(pair) for pair in one["targets"]])


def file_at(path: str, name: str = "file") -> dict[str, Any]:
    return {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}
