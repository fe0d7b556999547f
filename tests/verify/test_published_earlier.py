"""Whatever a store of uwf was used for, its refs verify in any checkout: with their commits, and by their trees."""

from __future__ import annotations

from pathlib import Path

import pytest
from branches import Clone
from commands import git

from uwf_git.api.check import check_tree

BUNDLE = Path(__file__).parents[1] / "store" / "earlier.bundle"
KINDS = ("threads", "archive", "workflows", "crews", "baselines")
WHOLE = ("evals", "attempts", "nodes")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository with the refs of a store that uwf 0.2 wrote."""
    folder = tmp_path_factory.mktemp("earlier") / "store.git"
    git("init", "-q", "--bare", folder)
    git("--git-dir", folder, "fetch", "--quiet", BUNDLE, "+refs/uwf/*:refs/uwf/*")
    return folder


def refs(earlier: Path, kinds: tuple[str, ...]) -> list[str]:
    patterns = [f"refs/uwf/{kind}/" for kind in kinds]
    return git("--git-dir", earlier, "for-each-ref", "--format=%(refname)", *patterns).split()


def test_every_thread_and_definition_is_verified_with_its_commits_and_by_its_tree_alone(
    earlier: Path, tmp_path: Path
) -> None:
    names = refs(earlier, KINDS)
    assert len(names) >= 15
    for number, name in enumerate(names):
        counts = []
        for depth in ((), ("--depth=1",)):
            clone = Clone(tmp_path / f"{number}-{len(depth)}")
            clone.folder.mkdir()
            clone("init", "-q")
            clone("fetch", "-q", *depth, f"file://{earlier}", name)
            clone("checkout", "-q", "FETCH_HEAD")
            report = check_tree(clone.folder)
            assert report.findings == [], (name, depth, report.findings)
            counts.append(report.to_json()["verified"])
        assert counts[0]["threads"] == counts[1]["threads"] and counts[0]["steps"] >= counts[1]["steps"], name


def test_what_has_no_branches_is_verified_with_its_commits(earlier: Path) -> None:
    names = refs(earlier, WHOLE)
    assert names
    for name in names:
        assert check_tree(earlier, name).findings == [], name
