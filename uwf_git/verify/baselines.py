"""A version of a suite's baseline: its node, and the page that says what the node says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uwf_git.base.text import harmless, one_line
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.ids import Hash, name_problem
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.pages import baseline_page
from uwf_git.verify.definition import check_attributes, read_version
from uwf_git.verify.findings import Bad, Report
from uwf_git.verify.nodes import Nodes, files_below
from uwf_git.verify.objects import Objects

_NODES = "baseline/"


def check_baseline(objects: Objects, nodes: Nodes, tree: bytes, name: Hash, report: Report) -> str:
    """The suite whose baseline is in the tree of a commit that says to record the Baseline node `name`. Reports what is
    wrong; raises Bad where there is no baseline."""
    files = files_below(objects, tree, "", report)
    blobs, here = read_version(nodes, files, _NODES, name, "baseline", report)
    for extra in here.keys() - {name} - BUILTIN.keys():
        path = f"{_NODES}{layout.node_file(extra)}"
        report("extra-file", f"{path} is not of the baseline", Oid(raw=blobs[extra]))
    plain = {".gitattributes", "README.md", *(_NODES + layout.node_file(node) for node in blobs)}
    for path in files.keys() - plain:
        report("extra-file", f"{path} does not belong to a version of a baseline")
    check_attributes(objects, files, report)
    payload = here[name].payload
    if problem := name_problem(payload["suite"]):
        raise Bad("wrong-name", f"the name {one_line(payload['suite'], 40)!r} of its suite {problem}")
    _check_page(objects, files, payload, report)
    return str(payload["suite"])


def _check_page(
    objects: Objects, files: Mapping[str, bytes], payload: Mapping[str, Any], report: Report
) -> None:
    if "README.md" not in files:
        report("missing-file", "there is no README.md")
        return
    page = objects.blob(files["README.md"])
    if baseline_page(payload) not in (page, harmless(page.decode("utf-8", "replace")).encode("utf-8")):
        report("wrong-page", "README.md is not what the baseline says", Oid(raw=files["README.md"]))
