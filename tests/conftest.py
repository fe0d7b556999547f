"""Fixtures: a sealed world per test, the real `uwf` process, and a store to look into."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_samples import GATE, PAIR, WRITES, scripted, write
from commands import begin as in_background
from fault_report import pytest_terminal_summary as pytest_terminal_summary
from hypothesis import HealthCheck, settings
from model_server import ModelServer, serving
from programs import need
from repeated_work import remember
from run_report import RunReport, mark_long_tests, time_given
from warm import KEPT, LOCALE, interpreter_for
from warm import shared as warm_uwf

from uwf_git.base import lifetime
from uwf_git.git.lockfiles import lockfiles_of
from uwf_git.store.instance import Instance
from uwf_git.store.location import init, locate

pytest_plugins = [
    "pytester",
    "site_serving",
    "lived_in",
    "suite_bench",
    "evidence",
    "landing_shop",
    "landing_forge",
    "interop",
]

REPOSITORY = Path(__file__).parent.parent
EXAMPLES = REPOSITORY / "examples"

# What tests call in this process is called as a command of ours calls it; tests/api has what programs of others do.
lifetime.own()
remember()

# How long an example takes says how busy the machine is.
settings.register_profile("uwf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("uwf")

# A shell starts what it puts in the background deaf to Ctrl-C, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup makes it deaf to the end of the terminal, which is right, and its children too, which are told of that by tests.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)

# What git 3 announced as its defaults. Older versions of git ignore what they don't know.
_GIT_3 = """\
[safe]
\tbareRepository = explicit
[init]
\tdefaultObjectFormat = sha256
\tdefaultRefFormat = reftable
\tdefaultBranch = main
"""
_GIT_DEFAULTS = {"3": _GIT_3, "": ""}[os.environ.get("UWF_TEST_GIT_DEFAULTS", "")]


_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30  # bytes; a whole run needs a tenth


def pytest_configure(config: pytest.Config) -> None:
    """Report a quiet run by its progress, in the process that prints, and let its temporary folders be in memory where
    there is room: a step waits for the disk several times."""
    if hasattr(config, "workerinput"):
        return
    if config.get_verbosity() < 0:
        config.pluginmanager.register(RunReport(config))
    if not {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys() and _is_roomy(_MEMORY):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


def _is_roomy(folder: Path) -> bool:
    """Whether programs can be written into a folder and started there, and some gigabytes are free."""
    try:
        state = os.statvfs(folder)
    except (OSError, AttributeError):
        return False
    is_usable = os.access(folder, os.W_OK) and not state.f_flag & os.ST_NOEXEC
    return is_usable and state.f_bavail * state.f_frsize > _ENOUGH


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More workers than there are cores, as tests often wait for processes; fewer with the extended tests, some of
    which take several cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + (2 if "not extended" in config.option.markexpr else 1)


EXTENDED_FOLDERS = {REPOSITORY / "tests" / name for name in ("faults", "fleet", "histories")}
EXTENDED_FIXTURES = {"browser", "page"}
"""Faults, a Temporal server, long histories, a browser: only `make test-all` has them, and what has the mark itself."""


_REST = os.environ.get("UWF_TEST_REST")  # the file of UWF_TEST_SKIPPED of such a run


REPRODUCED_FOLDERS = {REPOSITORY / "tests" / name for name in ("fan_out",)}
"""Their tests leave stores with every kind of record, whose commits are made again."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't load what `make test` leaves out."""
    return (config.option.markexpr == "not extended" and collection_path in EXTENDED_FOLDERS) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark extended tests, and begin with the tests that are given most time, so that none of them is left alone at the
    end. Without the extended tests, a property is tried with a fifth of its examples, and a test that has the mark with
    a sample of its variants. With _REST, keep what a run without the extended tests leaves out, shortens or has
    skipped."""
    mark_beyond_samples(items)
    for item in items:
        if config.option.markexpr == "not extended" and _has_many_examples(item):
            _shorten(item)
        if item.path.parent in EXTENDED_FOLDERS or EXTENDED_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.extended)
        if item.path.parent in REPRODUCED_FOLDERS and item.get_closest_marker("forges") is None:
            item.fixturenames = [*item.fixturenames, "reproduced"]  # type: ignore[attr-defined]
    if _REST:
        skipped = set(Path(_REST).read_text().splitlines())
        done = [item for item in items if not (_is_for_all_only(item) or item.nodeid in skipped)]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item not in set(done)]
    items.sort(key=time_given, reverse=True)


def mark_beyond_samples(items: list[pytest.Item]) -> None:
    """Mark as extended all variants of a test but those of its sample: as many as its mark says, the first, the last,
    and evenly spread between them."""
    families: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if (mark := item.get_closest_marker("sample")) is not None:
            families.setdefault((item.nodeid.partition("[")[0], mark.args[0]), []).append(item)
    for (_, size), variants in families.items():
        last = len(variants) - 1
        sample = {round(place * last / max(size - 1, 1)) for place in range(size)}
        for place, item in enumerate(variants):
            if place not in sample:
                item.add_marker(pytest.mark.extended)


def _is_for_all_only(item: pytest.Item) -> bool:
    return item.get_closest_marker("extended") is not None or _has_many_examples(item)


def _has_many_examples(item: pytest.Item) -> bool:
    examples = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
    return examples is not None and examples.max_examples >= 100


def _shorten(item: pytest.Item) -> None:
    test = item.obj  # type: ignore[attr-defined]
    examples = test._hypothesis_internal_use_settings
    test._hypothesis_internal_use_settings = settings(examples, max_examples=examples.max_examples // 5)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test, or fail it in CI, if a program that its marks name is missing."""
    need(*(name for mark in item.iter_markers("needs") for name in mark.args))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Mark the long tests for the estimate of a run's time. What was loaded stays, so that it need not be looked
    through for garbage again and again."""
    mark_long_tests(session.items)
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """End the process that forks, which takes its folder along; the end of a worker runs no exit handlers."""
    if warm_uwf.cache_info().currsize and (warm := warm_uwf()) is not None:
        warm.close()


_OPEN = 200  # files that a process of tests may have open before those of past tests are closed


@pytest.fixture(autouse=True)
def hermetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An environment of its own, with its HOME: no test can see or touch the user's world, nor what lies above its own
    folder."""
    home = tmp_path / "home"
    work = home / "work"
    work.mkdir(parents=True)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    sealed = {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "GIT_CEILING_DIRECTORIES": f"{tmp_path}{os.pathsep}{tmp_path.parent}",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "false",
        "EDITOR": "false",
        "TZ": "UTC",
        **LOCALE,
        "UWF_STORAGE_ROOT": str(home / "root"),
    }
    for name, value in sealed.items():
        monkeypatch.setenv(name, value)
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Ada Example\n\temail = ada@example.invalid\n" + _GIT_DEFAULTS
    )
    monkeypatch.chdir(work)
    yield home
    # Stores keep files open, and select() takes none beyond 1024.
    lockfiles_of.cache_clear()
    if sum(1 for _ in Path("/proc/self/fd").iterdir()) > _OPEN:
        gc.collect()


@pytest.fixture
def reproduced(hermetic: Path, tmp_path: Path) -> Iterator[None]:
    """After the test, every unsigned commit of its stores is made again from the one before, its node and its stamp."""
    yield
    from reproduction import reproduction

    for mark in tmp_path.rglob("uwf/format"):
        assert reproduction(mark.parents[1]).others == ()


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what one test makes and others copy."""
    return tmp_path_factory.mktemp("lasting")


@pytest.fixture
def root(hermetic: Path) -> Path:
    """The storage root."""
    return hermetic / "root"


@pytest.fixture
def instance(root: Path) -> Instance:
    """An instance with an empty store."""
    location = locate(None, os.environ, Path.cwd())
    assert location.root == root
    init(location)
    return Instance(location)


class Result(NamedTuple):
    """How a process ended. `json` parses its standard output, `error` its standard error's last line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, str]:
        return dict(json.loads(self.err.splitlines()[-1])["error"])

    @property
    def warnings(self) -> list[str]:
        """Standard error without the line of a first push."""
        return [line for line in self.err.splitlines() if not line.startswith("uwf: first push to ")]


Uwf = Callable[..., Result]


@pytest.fixture
def uwf(hermetic: Path) -> Uwf:
    """Runs the real `uwf` and expects exit status 0 unless `check` says otherwise (None: any)."""
    warm = warm_uwf()

    def run(
        *args: str | Path,
        input: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        check: int | None = 0,
        timeout: float = 60,
    ) -> Result:
        data = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input
        words, environment = list(map(str, args)), {**os.environ, **(env or {})}
        if warm is not None and warm.can(environment):
            # Within a step it matters when a process was started.
            again = "UWF_NONCE" not in environment
            done = warm.run(words, data, environment, Path.cwd() / (cwd or ""), timeout, again=again)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "uwf_cli.main", *words],
                input=data,
                stdin=subprocess.DEVNULL if data is None else None,
                capture_output=True,
                env=environment,
                cwd=cwd,
                timeout=timeout,
                check=False,
            )
        result = Result(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )
        assert "Traceback" not in result.err, result.err
        if check is not None:
            assert result.code == check, (
                f"uwf {' '.join(map(str, args))}: {result.code}\n{result.out}{result.err}"
            )
        return result

    return run


Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(hermetic: Path) -> Iterator[Begin]:
    """Begins the real `uwf` in the background. What still runs at the end of the test is killed."""
    begun: list[subprocess.Popen[str]] = []

    def started(*args: object, **options: Any) -> subprocess.Popen[str]:
        begun.append(in_background(*args, **options))
        return begun[-1]

    yield started
    for each in begun:
        if each.poll() is None:
            each.kill()
            each.communicate()


@pytest.fixture
def thread(uwf: Uwf) -> str:
    """A fresh thread of the registered workflow `pair`."""
    uwf("workflow", "put", write("pair.yaml", PAIR))
    return str(uwf("thread", "start", "pair", "-p", "Do it").json["thread"])


@pytest.fixture
def gated(uwf: Uwf) -> str:
    """A thread of the registered workflow `gated` whose writer has written, so that its gate, a person's, is next."""
    uwf("workflow", "put", write("gated.yaml", GATE))
    thread = uwf("thread", "start", "gated", "-p", "Announce it").json["thread"]
    uwf("thread", "step", thread, "--agent", scripted(WRITES))
    return str(thread)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A model server that plays what it is told. Its address may have been that of another, whose refusals the kit
    remembers."""
    if (chat := sys.modules.get("uwf_git.engine.kit.chat")) is not None:
        chat._dialects.clear()
    with serving() as running:
        yield running


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes an executable Python program, which a configuration or --agent can name."""

    def write(name: str, body: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{' '.join(interpreter_for(body))}\n{body}")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def config(root: Path) -> Callable[[str], Path]:
    """Writes config.yaml."""

    def write(text: str) -> Path:
        root.mkdir(exist_ok=True)
        path = root / "config.yaml"
        path.write_text(text)
        return path

    return write
