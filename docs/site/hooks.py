"""What the site adds to the documents: pages that lie elsewhere, the sources that pages link, and the examples that
they use.

A link is written for a forge, relative to its file. One that leads out of `docs/` is turned into a link to a page of
`ELSEWHERE`, or to a copy of that file as text below `source/`, so that the site needs no network and no forge. A
page whose sessions use `examples/`, or the script for auditors, links an archive of these: who installed a package has
no checkout.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import subprocess
import zipfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "RELEASING.md": "releasing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
    "examples": "examples.md",
}
"""Files and folders of the repository, and the page for each."""
EXAMPLES = "examples.zip"
_IN_EXAMPLES = ("examples", "docs/audit")
_ORIGINS = {page: name for name, page in ELSEWHERE.items() if name.endswith(".md") and page != "index.md"}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>\w*)(?P<rest>[^\n]*)\n.*?^(?P=fence)`*$", re.MULTILINE | re.DOTALL
)


def on_config(config: MkDocsConfig) -> None:
    # Anchors as forges make them.
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for page, name in _ORIGINS.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, EXAMPLES, content=_archive()))
    for page in files.documentation_pages():
        for target in _links(page.src_uri, page.content_string):
            for copy in _copies(target, config):
                if copy.src_uri not in files.src_uris:
                    files.append(copy)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    origin, here = _origin(page.file.src_uri), posixpath.dirname(page.file.src_uri)

    def turned(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link[1]))
        address = _address(target)
        # An anchor of the front page of a forge names a part that the site has as pages.
        anchor = "" if target == "README.md" else link[2] or ""
        return posixpath.relpath(address, here or ".") + anchor if address else link[0]

    parts: list[str] = []
    end = 0
    for block in _FENCE.finditer(markdown):
        parts += [_LINK.sub(turned, markdown[end : block.start()]), _titled(block)]
        end = block.end()
    text = "".join([*parts, _LINK.sub(turned, markdown[end:])])
    sessions = "".join(block[0] for block in _FENCE.finditer(markdown))
    if not any(f"{folder}/" in sessions for folder in _IN_EXAMPLES):
        return text
    title, _, rest = text.partition("\n")
    archive = posixpath.relpath(EXAMPLES, here or ".")
    return f"{title}\n\nThe files that it uses: [{EXAMPLES}]({archive}), to unpack where you try it.\n{rest}"


def _archive() -> bytes:
    """What sessions use as a ZIP, the same bytes for the same files."""
    words = ("git", "ls-files", "-z", *_IN_EXAMPLES)
    tracked = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(filter(None, tracked)):
            file, entry = ROOT / name, zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if os.access(file, os.X_OK) else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return data.getvalue()


def _titled(block: re.Match[str]) -> str:
    """A block of code with the name of its file above it, in place of words for the tests."""
    name = re.search(r"\bfile=(\S+)", block["rest"])
    title = f' title="{name[1]}"' if name else ""
    _, _, body = block[0].partition("\n")
    return f"{block['fence']}{block['language']}{title}\n{body}"


def _origin(page: str) -> str:
    """The file of the repository that a page is made of."""
    return _ORIGINS.get(page, f"docs/{page}")


def _links(page: str, text: str) -> Iterator[str]:
    """What a page links, relative to the repository."""
    folder = posixpath.dirname(_origin(page))
    for target, _ in _LINK.findall(_FENCE.sub("", text)):
        yield posixpath.normpath(posixpath.join(folder, target))


def _address(target: str) -> str | None:
    """The place of a file of the repository in the site, or None if there is none."""
    if target in ELSEWHERE:
        return ELSEWHERE[target]
    if target.startswith("docs/") and not target.endswith(".py"):
        return target.removeprefix("docs/")
    # MkDocs leaves out files and folders whose name begins with a dot.
    place = "/".join(part.removeprefix(".") for part in target.split("/"))
    if (ROOT / target).is_dir():
        return f"source/{place}/index.html"
    return f"source/{place}.txt" if (ROOT / target).is_file() else None


def _copies(target: str, config: MkDocsConfig) -> Iterator[File]:
    """The files that a link out of the documents needs: a text, or a folder's list and its texts."""
    address = _address(target)
    if address is None or not address.startswith("source/"):
        return
    path = ROOT / target
    if path.is_file():
        yield File.generated(config, address, content=path.read_bytes())
        return
    inside = [file for file in sorted(path.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    items = "".join(
        f'<li><a href="{escape(name)}.txt">{escape(name)}</a></li>'
        for name in (file.relative_to(path).as_posix() for file in inside)
    )
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(target)}</title>'
    yield File.generated(config, address, content=f"{head}<h1>{escape(target)}</h1><ul>{items}</ul></html>")
    for file in inside:
        yield from _copies(file.relative_to(ROOT).as_posix(), config)
