"""Real git servers on loopback: by path, `git daemon`, smart HTTP behind nginx, OpenSSH.

Each is a context manager that gives a `Server`: a folder of bare repositories, the URL to reach them by, and
what the user's .gitconfig has to say for it. A server has a home, keys and ports of its own, is ready when it
has taken a connection, and is gone with its whole process group afterwards.

The benchmarks start these servers too, without pytest.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from programs import program

USER, PASSWORD = "ada", "correct horse"
STARTS = 5
PATIENCE = 20.0

TRANSPORTS = ("path", "daemon", "http", "ssh")


class Server(NamedTuple):
    """Repositories in `folder`, reached below `base`. `config` belongs into the user's .gitconfig. `port` is
    0 and `pid` None where there is no process. `log` tells what was asked of the user's credentials."""

    transport: str
    folder: Path
    base: str
    config: str = ""
    port: int = 0
    pid: int | None = None
    log: Path | None = None

    def url(self, repository: Path) -> str:
        """How a client reaches a repository in the folder."""
        return f"{self.base}/{repository.name}"


# Repositories, and how they refuse


# What every version of git opens, whatever the user's defaults are.
INIT = ("-c", "init.defaultRefFormat=files", "init", "-q", "--object-format=sha1", "--initial-branch=main")


def bare(path: Path, **config: str) -> Path:
    """An empty bare repository. `config` is given with `_` for the dot: receive_denyDeletes="true"."""
    git(*INIT, "--bare", path)
    configured(path, **config)
    return path


def configured(repository: Path, **config: str) -> None:
    """Sets, in a repository's config, what `config` says."""
    for name, value in config.items():
        git("--git-dir", repository, "config", "--add", name.replace("_", ".", 1), value)


HIDES_UWF = {"transfer_hideRefs": "refs/uwf", "receive_hideRefs": "refs/uwf"}
# What a careful forge sets: every object checked, small pushes only, no wishes beyond what is advertised.
CAREFUL = {
    "transfer_fsckObjects": "true",
    "receive_maxInputSize": "2m",
    "uploadpack_allowFilter": "false",
    "uploadpack_allowAnySHA1InWant": "false",
}


def hook(repository: Path, name: str, body: str) -> None:
    """Puts a shell script into a repository as a hook."""
    path = repository / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)


_APPEND_ONLY = """\
zero=$(echo "$2" | tr 0-9a-f 0)
if [ "$3" = "$zero" ]; then echo "nothing is deleted here" >&2; exit 1; fi
if [ "$2" != "$zero" ] && ! git merge-base --is-ancestor "$2" "$3"; then echo "fast-forwards only" >&2; exit 1; fi
"""


def refuses_deletions(repository: Path) -> None:
    """Refuses deletions and what is no fast-forward. The settings of that name protect branches alone, so
    a server that means every ref has a hook."""
    configured(repository, receive_denyDeletes="true", receive_denyNonFastForwards="true")
    hook(repository, "update", _APPEND_ONLY)


def refuses_uwf_by_hook(repository: Path) -> None:
    """An update hook that takes branches and tags only, as many servers have one."""
    hook(
        repository,
        "update",
        'case "$1" in refs/heads/*|refs/tags/*) exit 0;; esac\necho "only branches and tags here" >&2\nexit 1\n',
    )


def git(*args: str | Path, env: Mapping[str, str] | None = None, check: bool = True) -> str:
    """What git prints, without the last newline."""
    done = subprocess.run(
        ["git", *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, f"git {args}: {done.stderr.decode('utf-8', 'replace')}"
    return done.stdout.decode("utf-8", "replace").removesuffix("\n")


def refs(repository: Path | str, *patterns: str) -> dict[str, str]:
    """Every ref that a repository, named by a path or a URL, lists: name to object id; but for the page that a first
    push leaves there."""
    lines = git("ls-remote", str(repository), *patterns).splitlines()
    default = ("refs/heads/main", "refs/heads/master")  # as the git that made it has it
    found = dict(reversed(line.split("\t")) for line in lines)
    page = [found.get("HEAD")] if list(found.values()).count(found.get("HEAD", "")) == 2 else []
    return {
        name: oid
        for name, oid in found.items()
        if name != "HEAD" and not name.endswith("^{}") and not (name in default and oid in page)
    }


# Programs


def git_program(name: str) -> str:
    """The path of a program that git brings along. Skips or fails the test as `program` does."""
    path = Path(git("--exec-path")) / name
    return str(path) if path.exists() else program(name)


# Servers


@contextlib.contextmanager
def serve(transport: str) -> Iterator[Server]:
    """A server of one of TRANSPORTS, with an empty folder."""
    start = {"path": by_path, "daemon": by_daemon, "http": by_http, "ssh": by_ssh}[transport]
    # A short name: the path of a socket may have 107 characters, and pytest's folders are longer.
    with tempfile.TemporaryDirectory(prefix="uwf-", ignore_cleanup_errors=True) as name:
        home = Path(name).resolve()
        (home / "repositories").mkdir()
        (home / ".gitconfig").write_text("[safe]\n\tbareRepository = explicit\n")
        with start(home) as server:
            yield server


@contextlib.contextmanager
def by_path(home: Path) -> Iterator[Server]:
    """No server at all: repositories in a folder that both sides see."""
    yield Server("path", home / "repositories", str(home / "repositories"))


@contextlib.contextmanager
def by_daemon(home: Path) -> Iterator[Server]:
    """`git daemon`, which lets anybody push."""
    folder = home / "repositories"

    def command(port: int) -> Sequence[str]:
        return (
            *(git_program("git-daemon"), "--listen=127.0.0.1", f"--port={port}", "--reuseaddr"),
            *("--export-all", "--enable=receive-pack", f"--base-path={folder}"),
        )

    with listening(command, home) as (port, pid):
        yield Server("daemon", folder, f"git://127.0.0.1:{port}", port=port, pid=pid)


_NGINX = """\
daemon off;
{user}
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {home}/access.log;
  client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi;
  scgi_temp_path {home}/scgi;
{http}
}}
"""

_BACKEND = """\
  client_max_body_size 0;
  server {{
    listen 127.0.0.1:{port};
    auth_basic "git";
    auth_basic_user_file {home}/passwords;
    fastcgi_buffering off;
    fastcgi_read_timeout 60s;
    fastcgi_param SCRIPT_FILENAME {backend};
    fastcgi_param PATH_INFO $uri;
    fastcgi_param GIT_PROJECT_ROOT {home}/repositories;
    fastcgi_param GIT_HTTP_EXPORT_ALL 1;
    fastcgi_param GIT_PROTOCOL $http_git_protocol;
    fastcgi_param REMOTE_USER $remote_user;
    fastcgi_param REMOTE_ADDR $remote_addr;
    fastcgi_param QUERY_STRING $query_string;
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param CONTENT_TYPE $content_type;
    fastcgi_param CONTENT_LENGTH $content_length;
    fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
    location / {{ fastcgi_pass unix:{home}/cgi.sock; }}
    location /small/ {{ fastcgi_pass unix:{home}/cgi.sock; client_max_body_size 64k; }}
  }}
"""

_HELPER = """\
#!/bin/sh
echo "$1" >>{log}
if [ "$1" = get ]; then echo username={user}; echo "password={password}"; fi
"""


def nginx(home: Path, http: str) -> Sequence[str]:
    """The command of an nginx whose files are all in its home. `http` says what it serves."""
    user = f"user {pwd.getpwuid(0).pw_name};" if os.getuid() == 0 else ""
    (home / "nginx.conf").write_text(_NGINX.format(home=home, user=user, http=http))
    return (
        program("nginx"),
        "-p",
        str(home),
        "-e",
        str(home / "error.log"),
        "-c",
        str(home / "nginx.conf"),
    )


@contextlib.contextmanager
def by_http(home: Path) -> Iterator[Server]:
    """`git http-backend` by fcgiwrap behind nginx with basic authentication. The password comes from a
    credential helper, which writes into the log what it was asked for."""
    wrap = program("fcgiwrap")
    backend = git_program("git-http-backend")
    (home / "passwords").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
    log = home / "credentials.log"
    log.touch()
    helper = credential_helper(home / "helper", log, PASSWORD)

    def command(port: int) -> Sequence[str]:
        return nginx(home, _BACKEND.format(home=home, port=port, backend=backend))

    with (
        running((wrap, "-c", "4", "-f", "-s", f"unix:{home}/cgi.sock"), home),
        listening(command, home) as (port, pid),
    ):
        base = f"http://127.0.0.1:{port}"
        config = f'[credential "{base}"]\n\thelper = {helper}\n'
        yield Server("http", home / "repositories", base, config, port, pid, log)


def credential_helper(path: Path, log: Path, password: str) -> Path:
    """A credential helper that knows one password and keeps a log of `get`, `store` and `erase`."""
    path.write_text(_HELPER.format(log=log, user=USER, password=password))
    path.chmod(0o755)
    return path


_SSHD = """\
ListenAddress 127.0.0.1:{port}
HostKey {home}/host
PidFile none
AuthorizedKeysFile {home}/user.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers {user}
PrintMotd no
SetEnv HOME={home} GIT_CONFIG_GLOBAL={home}/.gitconfig GIT_CONFIG_NOSYSTEM=1
"""

_SSH = """\
Host forge
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {home}/user
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {home}/known
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  BatchMode yes
  # Its default takes a second of computing for every dozen of connections.
  KexAlgorithms curve25519-sha256
"""


@contextlib.contextmanager
def by_ssh(home: Path) -> Iterator[Server]:
    """OpenSSH with throw-away keys, run as whoever runs the tests. The host is called `forge`, a name
    that stands in the ssh configuration only."""
    sshd, keygen = program("sshd"), program("ssh-keygen")
    program("ssh")
    if os.getuid() == 0:
        # As root, sshd insists on its empty folder, which the system makes when it starts it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(
            [keygen, "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(home / name)], check=True
        )
    user = pwd.getpwuid(os.getuid()).pw_name

    def command(port: int) -> Sequence[str]:
        (home / "sshd_config").write_text(_SSHD.format(home=home, port=port, user=user))
        (home / "ssh_config").write_text(_SSH.format(home=home, port=port, user=user))
        key = (home / "host.pub").read_text()
        (home / "known").write_text(f"[127.0.0.1]:{port} {key}")
        return (sshd, "-D", "-e", "-f", str(home / "sshd_config"))

    with listening(command, home) as (port, pid):
        config = f"[core]\n\tsshCommand = ssh -F {home}/ssh_config\n"
        yield Server(
            "ssh", home / "repositories", f"forge:{home}/repositories", config, port, pid, home / "stderr"
        )


# Processes


@contextlib.contextmanager
def running(command: Sequence[str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command in a process group of its own, and ends the group with it. It sees nothing of the
    user's world; what it says goes to the file `stderr` in its home."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
    }
    with open(home / "stderr", "ab") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def listening(command: Callable[[int], Sequence[str]], home: Path) -> Iterator[tuple[int, int]]:
    """Runs a command that is told a free port, until it accepts connections there: port and process id.
    Another process may take the port first; then another port is tried."""
    for _ in range(STARTS):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with running(command(port), home) as process:
            if _accepts(port, process):
                yield port, process.pid
                return
    import pytest

    said = (home / "stderr").read_text("utf-8", "replace")
    logged = home / "error.log"
    pytest.fail(f"{command(port)[0]} does not start: {said}{logged.read_text() if logged.exists() else ''}")


def _accepts(port: int, process: subprocess.Popen[bytes]) -> bool:
    for _ in range(int(PATIENCE / 0.02)):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
            return process.poll() is None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            return False
    return False


def children(pid: int) -> list[int]:
    """The processes that a process started and that still run."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid:
                found.append(int(folder.name))
    return found


# A wire that can be cut


class Wire:
    """A TCP proxy on loopback that lets through so many bytes, counted in both directions together, and
    then calls `at_limit` and cuts. Without a limit it counts only. New connections after the cut are
    refused."""

    def __init__(
        self, port: int, limit: int | None = None, at_limit: Callable[[], None] | None = None
    ) -> None:
        self.passed = 0
        self.cut = threading.Event()
        self._to, self._limit, self._at_limit = port, limit, at_limit
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            with self._lock:
                self._ends += [near, far]
            if self.cut.is_set():
                self._close()
                return
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                with self._lock:
                    if self.cut.is_set():
                        return
                    rest = len(data) if self._limit is None else self._limit - self.passed
                    target.sendall(data[:rest])
                    self.passed += min(len(data), rest)
                    if self._limit is None or self.passed < self._limit:
                        continue
                    self.cut.set()
                    if self._at_limit:
                        self._at_limit()
                self._close()
                return
            target.shutdown(socket.SHUT_WR)

    def _close(self) -> None:
        self.cut.set()
        # shutdown wakes the threads that wait in accept and recv, which close alone does not.
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
