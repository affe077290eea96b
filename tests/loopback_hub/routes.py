"""The requests which the loopback Hub answers, by name."""

import re


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
