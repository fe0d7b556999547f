"""A suite only grows: what two machines add to it is in it, and what somebody else made of one is looked at."""

from __future__ import annotations

import pytest
from conftest import REPOSITORY
from forged import Forger

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.engine.step import step
from uwf_git.ext.evaluation import SUITES
from uwf_git.ext.evaluation.records import (
    COMMAND,
    COMPLETED,
    EXACT,
    JSONATA,
    UNKNOWN,
    USE,
    Case,
    Judge,
    RunResult,
    Score,
    ScoreKey,
    SuiteRun,
    Trial,
    TrialKey,
    identified,
)
from uwf_git.ext.evaluation.sides import side_of
from uwf_git.ext.evaluation.suite import Additions, Suites, result_folder
from uwf_git.format.kinds import Start
from uwf_git.git.repository import BLOB_MODE, Entry, Oid
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.sync.reconcile import unite
from uwf_git.verify.whole import local_refs, verify_refs
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import read_source

REF = SUITES.prefix + "bugs"


@pytest.fixture
def head(instance: Instance) -> Head:
    """The end of a thread."""
    version = instance.registry.put(compile_source(read_source(REPOSITORY / "examples" / "solve-issue.yaml")))
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "Fix it"))
    while not step(instance, thread, "uwf-rehearse").done:
        pass
    return instance.threads.head(thread)


def of_thread(head: Head, name: str = "one", **more: object) -> Case:
    return identified(Case(UNKNOWN, name, start=head.row.start, step=head.node)._replace(**more))


def prompt(name: str, text: str = "Do it") -> Case:
    return identified(Case(UNKNOWN, name, text))


def fixture(instance: Instance, link: str = "a b.txt") -> str:
    """A folder with a program, a file whose name has a space, and a link."""
    write = instance.store.repository.write_blob
    blob = write(b"x\n")
    entries = [
        Entry(BLOB_MODE, "a b.txt", blob),
        Entry("100755", "run", blob),
        Entry("120000", "link", write(link.encode())),
    ]
    return str(instance.store.repository.write_tree(entries))


def findings(instance: Instance) -> set[str]:
    repository = instance.store.repository
    return {each.code for each in verify_refs(repository, local_refs(repository)).findings}


def judged(case: Case, head: Head) -> Additions:
    """A run of a case that was passed."""
    assert head.row.workflow is not None and head.row.start is not None
    key = TrialKey(head.row.workflow, head.row.start, {"planner": "me"}, 1, fixture=case.fixture)
    trial = identified(Trial(UNKNOWN, key, COMPLETED, head.node, steps=head.row.number))
    score = identified(Score(UNKNOWN, ScoreKey(trial.hash, Judge("ok", JSONATA, "true"), None), 1.0, True))
    result = RunResult(case.hash, trial.hash, (score.hash,))
    run = identified(SuiteRun(UNKNOWN, 1, 1, (result,)))
    return Additions(trials=[trial], scores=[score], runs=[run], commits=[head.commit])


def test_a_suite_keeps_the_threads_of_its_cases_and_says_a_thing_once(instance: Instance, head: Head) -> None:
    suites, files = Suites(instance.store), fixture(instance)
    one = of_thread(head, fixture=files, judges=(Judge("tests", USE, "tests"), Judge("same", EXACT, ())))
    first = suites.add("bugs", Additions(cases=[one, prompt("two")], files=[files], commits=[head.commit]))
    second = suites.add("bugs", judged(one, head))
    assert suites.add("bugs", Additions(cases=[one], commits=[head.commit])) == second

    suite = suites.read("bugs")
    assert [case.name for case in suite.cases] == ["one", "two"]
    assert suite.case("one") == one and suite.case(one.hash[:5].lower()) == one
    (result,) = suite.results(suite.runs[0])
    assert (result.name, result.state, result.score) == ("one", "passed", 1.0)
    assert suites.read("bugs", first).runs == ()

    assert findings(instance) == set()
    instance.store.repository.delete_refs(
        {layout.ARCHIVE + head.thread: instance.store.repository.ref(layout.ARCHIVE + head.thread)}
    )  # type: ignore[dict-item]
    (instance.location.git_dir / "uwf" / "index.db").unlink()
    again = Instance(instance.location)
    assert Suites(again.store).read("bugs") == suite
    assert findings(again) == set()


def test_what_two_machines_added_is_put_together_the_same_way_by_both(instance: Instance, head: Head) -> None:
    suites, repository = Suites(instance.store), instance.store.repository
    one, two = of_thread(head), prompt("two")
    base = suites.add("bugs", Additions(cases=[one, two], commits=[head.commit]))
    ours = suites.add("bugs", judged(one, head))
    repository.move_ref(REF, ours, base)
    other = identified(two._replace(prompt="Do it well", replaces=(two.hash,)))
    theirs = suites.add("bugs", Additions(cases=[other, prompt("three")], removed=[one.hash]))

    united = unite(instance.store, ours, theirs)
    assert united == unite(instance.store, theirs, ours)
    assert unite(instance.store, united, ours) == united == unite(instance.store, base, united)
    repository.move_ref(REF, theirs, united)
    suite = suites.read("bugs")
    assert [case.name for case in suite.cases] == ["three", "two"] and len(suite.runs) == 1
    assert suite.case("two").prompt == "Do it well"
    assert suite.results(suite.runs[0])[0].name == "one"
    assert findings(instance) == set()


def test_two_cases_that_were_given_one_name_are_told_apart(instance: Instance) -> None:
    suites = Suites(instance.store)
    suites.add("bugs", Additions(cases=[prompt("two"), prompt("two", "Another")]))
    suite = suites.read("bugs")
    names = {suite.named[case.hash] for case in suite.cases}
    assert names == {f"two-{case.hash[:4]}" for case in suite.cases} and len(names) == 2


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x", "run\0"])
def test_a_link_that_leads_out_of_a_fixture_is_found(instance: Instance, target: str) -> None:
    files = fixture(instance, target)
    case = identified(prompt("two")._replace(fixture=files))
    Suites(instance.store).add("bugs", Additions(cases=[case], files=[files]))
    assert findings(instance) == {"unsafe-mode"}


def test_a_suite_that_somebody_changed_by_hand_is_named(instance: Instance, head: Head) -> None:
    suites, git = Suites(instance.store), Forger(instance.location.git_dir)
    case = of_thread(head)
    first = suites.add("bugs", Additions(cases=[case], commits=[head.commit]))
    tip = suites.add("bugs", judged(case, head))
    text = git("log", "-1", "--format=%B", str(tip)).strip() + "\n"
    folder = git.folder(f"{tip}^{{tree}}")

    def forged(tree: object, *parents: str, said: str = text) -> set[str]:
        git.point(REF, git.commit(git.tree(tree), list(parents or (str(first), str(head.commit))), said))  # type: ignore[arg-type]
        return findings(instance)

    assert forged(folder) == set()
    assert forged({**folder, "README.md": git.blob(b"# Mine\n")}) == {"changed-file"}
    assert forged({**folder, "more.txt": git.blob(b"x")}) == {"extra-file"}
    assert forged(folder, str(first)) == {"wrong-parent"}
    assert forged(folder, said=text.replace("2 results", "3 results")) == {"wrong-message"}
    gone = {name: each for name, each in folder.items() if name != "cases"}
    assert "changed-file" in forged(gone)
    git.point(REF, str(tip))
    git.point(SUITES.prefix + "others", str(tip))
    assert findings(instance) == {"wrong-name"}


def test_a_case_that_names_files_which_are_not_there_is_found(instance: Instance) -> None:
    case = identified(prompt("two")._replace(fixture="0" * 40))
    Suites(instance.store).add("bugs", Additions(cases=[case]))
    assert findings(instance) == {"missing-file"}


def test_results_make_no_suite_that_is_gone(instance: Instance, head: Head) -> None:
    suites, case = Suites(instance.store), of_thread(head)
    suites.add("bugs", Additions(cases=[case], commits=[head.commit]))
    suites.remove("bugs")
    run = identified(SuiteRun(UNKNOWN, 1, 1, (RunResult(case.hash, case.hash),)))
    with pytest.raises(NotFound, match="suite 'bugs' is gone"):
        suites.add("bugs", Additions(runs=[run]))


def test_a_run_that_names_what_is_none_of_its_trials_is_found_and_read_without_that(
    instance: Instance, head: Head
) -> None:
    suites, case = Suites(instance.store), of_thread(head)
    suites.add("bugs", Additions(cases=[case], commits=[head.commit]))
    run = identified(SuiteRun(UNKNOWN, 1, 1, (RunResult(case.hash, case.hash),)))
    suites.add("bugs", Additions(runs=[run]))
    assert findings(instance) == {"wrong-kind"}
    suite = suites.read("bugs")
    assert suite.results(suite.runs[0]) == []
    assert side_of(suite, suite.runs[0]).scored == ()


def test_no_case_can_hold_a_command(instance: Instance) -> None:
    case = identified(prompt("two")._replace(judges=(Judge("x", COMMAND, ("rm", "-rf")),)))
    with pytest.raises(Invalid, match="breaks its type"):
        Suites(instance.store).add("bugs", Additions(cases=[case]))


def test_a_node_that_two_machines_made_at_other_times_is_one(instance: Instance, head: Head) -> None:
    suites, git = Suites(instance.store), Forger(instance.location.git_dir)
    case = of_thread(head)
    first = suites.add("bugs", Additions(cases=[case], commits=[head.commit]))
    ours = suites.add("bugs", judged(case, head))
    (score,) = suites.read("bugs").scores
    path = f"{result_folder(score)}/{layout.node_file(score)}"
    content = git("show", f"{ours}:{path}", data=b"")
    when = instance.store.get(score).timestamp
    later = git.blob(content.replace(str(when), str(when + 1)).encode())
    tree = instance.store.repository.grown(
        instance.store.repository.commit(ours).tree, {path: Entry(BLOB_MODE, "", Oid(hex=later))}
    )
    message = git("log", "-1", "--format=%B", str(ours)).strip() + "\n"
    theirs = Oid(hex=git.commit(str(tree), [str(first), str(head.commit)], message))
    united = unite(instance.store, ours, theirs)
    assert united not in (ours, theirs) and united == unite(instance.store, theirs, ours)
    instance.store.repository.move_ref(REF, ours, united)
    assert findings(instance) == set()
