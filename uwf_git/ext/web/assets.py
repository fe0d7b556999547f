"""The styles and scripts that pages load, at addresses that change with any of them, so that browsers keep them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from uwf_git.plugin import markup

_PLACE = "/static/"
_FOLDER = Path(__file__).parent / "static"
_KEPT = "private, max-age=31536000, immutable"


@cache
def files() -> Mapping[str, Path]:
    """Return the path of each asset by its name."""
    own = {path.relative_to(_FOLDER).as_posix(): path for path in _FOLDER.rglob("*") if path.is_file()}
    return {"base.css": markup.STYLE_FILE, **own}


@cache
def version() -> str:
    """Return 12 hexadecimal digits that change with any asset: scripts import one another by relative addresses."""
    digest = hashlib.sha256()
    for name, path in sorted(files().items()):
        data = path.read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:12]


def address(path: str) -> str:
    """Return the address on a server of a page, as it is, or of an asset."""
    return f"{_PLACE}{version()}/{path.removeprefix(_PLACE)}" if path.startswith(_PLACE) else path


async def _show(request: Request) -> Response:
    asked, _, name = request.path_params["asset"].partition("/")
    if (path := files().get(name)) is None:
        raise HTTPException(404)
    # An open page of an earlier version gets today's, for once.
    return FileResponse(path, headers={"cache-control": _KEPT} if asked == version() else None)


ROUTE = Route(f"{_PLACE}{{asset:path}}", _show)
