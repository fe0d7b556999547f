"""Windows, by its own calls where Python's would lock others out: a file that Python opens can be neither renamed nor
removed meanwhile."""

from __future__ import annotations

import errno
import ntpath
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from uwf_git.base.system.process import Process as Process

if TYPE_CHECKING:
    import socket
    import subprocess

NAME = "Windows"
O_CLOEXEC = getattr(os, "O_NOINHERIT", 0x80) | getattr(os, "O_BINARY", 0x8000)
O_NONBLOCK = 0
O_NOCTTY = 0
O_DIRECTORY = 1 << 28
O_NOFOLLOW = 1 << 29
O_PATH = 0

END_SIGNALS: tuple[int, ...] = (signal.SIGTERM, getattr(signal, "SIGBREAK", 21))
WAKING: tuple[int, ...] = ()
KILL: int = 9
LINKS_OPEN_FILES = False

_READ, _WRITE = 0x80000000, 0x40000000
_SHARED, _SHARED_WITH_REMOVAL = 3, 7
_NEW, _EXISTING, _ANY = 1, 3, 4
_NORMAL, _FOLDERS_TOO, _NO_LINKS = 0x80, 0x02000000, 0x00200000
_IS_FOLDER, _LEADS_ELSEWHERE = 0x10, 0x400
_LINKS = 0xA000000C, 0xA0000003  # symbolic links and junctions, and not files that are kept in a cloud
_ALONE, _AT_ONCE = 2, 1
_LOCKED = 33
_PLACE = 1 << 30  # of a lock, in units of 4 GiB: far behind any content, which others may read
_PATIENCE = 2.0  # seconds that a file may be in use, by a reader or a virus scanner
_PAUSE = 0.005
_NEW_GROUP, _SUSPENDED = 0x200, 0x4
_QUERY, _END = 0x1000, 0x1
_JOB_LIMITS, _JOB_MEMBERS, _ENDS_WITH_JOB = 9, 3, 0x2000
_SOL_SOCKET, _SO_EXCLUSIVEADDRUSE = 0xFFFF, ~4
_KILLED = 137  # as a shell says of a program that was killed
_SINCE_1601 = 11_644_473_600
_FOR_BATCH = frozenset('"%!&|<>^\r\n')
_FOLDER_LOCK = ".uwf-lock"


def require(what: str) -> None:
    from uwf_git.base.errors import UwfError

    raise UwfError(
        f"{what} are not there on Windows", "run uwf in WSL, with the store in its own file system"
    )


@cache
def _kernel() -> Any:
    import ctypes
    from ctypes import wintypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined, unused-ignore]
    kernel.CreateFileW.restype = wintypes.HANDLE
    kernel.CreateFileW.argtypes = (
        wintypes.LPCWSTR,
        wintypes.DWORD,
        wintypes.DWORD,
        wintypes.LPVOID,
        wintypes.DWORD,
        wintypes.DWORD,
        wintypes.HANDLE,
    )
    return kernel


def _failure(path: str = "") -> OSError:
    import ctypes

    error = ctypes.WinError(ctypes.get_last_error())  # type: ignore[attr-defined, unused-ignore]
    return OSError(error.errno, error.strerror, path or None, error.winerror)


def _handle(descriptor: int) -> Any:
    import ctypes

    return ctypes.c_void_p(import_module("msvcrt").get_osfhandle(descriptor))


def long_path(path: str) -> str:
    """Return a path that may be longer than 260 characters."""
    whole = path if ntpath.isabs(path) else ntpath.join(os.getcwd(), path)  # noqa: PTH109
    if len(whole) < 248 or whole.startswith("\\\\?\\"):
        return path
    whole = ntpath.normpath(whole)
    return f"\\\\?\\UNC\\{whole[2:]}" if whole.startswith("\\\\") else f"\\\\?\\{whole}"


def open_file(path: str | Path | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file as os.open does elsewhere: folders too, and so that others may rename and remove it meanwhile. A
    folder cannot be renamed or removed while it is open, so what is opened below `dir_fd` is below that folder. `mode`
    counts for nothing: a file has the access list of its folder. Raises OSError."""
    import ctypes

    name = os.fsdecode(path)
    if dir_fd is not None:
        name = os.path.join(path_of(dir_fd), name)  # noqa: PTH118
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    access = {0: _READ, os.O_WRONLY: _WRITE}.get(writes, _READ | _WRITE)
    makes = flags & os.O_CREAT
    how = _NEW if makes and flags & os.O_EXCL else _ANY if makes else _EXISTING
    share = _SHARED if flags & O_DIRECTORY else _SHARED_WITH_REMOVAL
    more = _NORMAL | _FOLDERS_TOO | (_NO_LINKS if flags & O_NOFOLLOW else 0)
    handle = _kernel().CreateFileW(long_path(name), access, share, None, how, more, None)
    if handle is None or handle == ctypes.c_void_p(-1).value:
        raise _failure(name)
    text = flags & (os.O_APPEND | O_CLOEXEC) | (0 if writes else os.O_RDONLY)
    try:
        descriptor: int = import_module("msvcrt").open_osfhandle(handle, text)
    except BaseException:
        _kernel().CloseHandle(ctypes.c_void_p(handle))
        raise
    try:
        _require(descriptor, flags, name)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require(descriptor: int, flags: int, name: str) -> None:
    if not flags & (O_NOFOLLOW | O_DIRECTORY):
        return
    attributes = os.fstat(descriptor).st_file_attributes  # type: ignore[attr-defined, unused-ignore]
    if flags & O_NOFOLLOW and attributes & _LEADS_ELSEWHERE and _is_link(name):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if flags & O_DIRECTORY and not attributes & _IS_FOLDER:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)


def _is_link(name: str) -> bool:
    return os.lstat(name).st_reparse_tag in _LINKS  # type: ignore[attr-defined, unused-ignore]


def path_of(descriptor: int) -> str:
    """Return the path of an open file. Raises OSError."""
    import ctypes

    size = 1 << 15
    name = ctypes.create_unicode_buffer(size)
    if not 0 < _kernel().GetFinalPathNameByHandleW(_handle(descriptor), name, size, 0) < size:
        raise _failure()
    return name.value


def list_folder(descriptor: int) -> list[str]:
    """Return the names in an open folder. Raises OSError."""
    return os.listdir(path_of(descriptor))  # noqa: PTH208


def read_at(descriptor: int, size: int, place: int) -> bytes:
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, size)


def write_at(descriptor: int, data: bytes, place: int) -> int:
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.write(descriptor, data)


def sync(descriptor: int) -> None:
    """Wait until a file is on the disk. A folder's names are in the journal of NTFS, and nothing waits for that; a file
    that is open for reading alone was synced by who wrote it. Raises OSError."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EACCES, errno.EINVAL):
            raise


def replace(source: str | Path, target: str | Path) -> None:
    """Rename a file over another. Raises OSError."""
    try:
        _patiently(lambda: os.replace(long_path(str(source)), long_path(str(target))))  # noqa: PTH105
    except PermissionError as error:
        if os.path.isdir(target):  # noqa: PTH112
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target)) from error
        raise


def remove(path: str | Path) -> None:
    """Take a file away, even one that git made for reading alone. Raises OSError."""
    name = long_path(str(path))
    try:
        os.unlink(name)  # noqa: PTH108
    except PermissionError:
        os.chmod(name, 0o600)  # noqa: PTH101
        _patiently(lambda: os.unlink(name))  # noqa: PTH108


def remove_held(path: str | Path, descriptor: int) -> None:
    """Let go of a file and remove it: its name would stay as long as it is open. Another may find it meanwhile, and
    remove it itself."""
    os.close(descriptor)
    with suppress(FileNotFoundError):
        remove(path)


@contextmanager
def entered(folder: str | Path) -> Iterator[None]:
    here = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)


def _patiently(act: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            act()
            return
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)


def lock(descriptor: int, shared: bool = False, wait: bool = False) -> None:
    """Hold an open file by a place far behind its content. No child has the lock: their `Tree` ends them with this
    process."""
    import ctypes

    class Overlapped(ctypes.Structure):
        _fields_ = (
            ("internal", ctypes.c_void_p),
            ("high", ctypes.c_void_p),
            ("offset", ctypes.c_uint32),
            ("offset_high", ctypes.c_uint32),
            ("event", ctypes.c_void_p),
        )

    handle, place = _handle(descriptor), Overlapped(offset_high=_PLACE)
    _kernel().UnlockFileEx(handle, 0, 1, 0, ctypes.byref(place))  # it may be held in the other way
    how = _AT_ONCE | (0 if shared else _ALONE)
    while not _kernel().LockFileEx(handle, how, 0, 1, 0, ctypes.byref(place)):
        if ctypes.get_last_error() != _LOCKED:  # type: ignore[attr-defined, unused-ignore]
            raise _failure()
        if not wait:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        time.sleep(_PAUSE)  # the call itself could not be interrupted


def lock_for_process(descriptor: int, wait: bool = False) -> None:
    lock(descriptor, wait=wait)


def lock_folder(path: str | Path, wait: bool = False) -> int:
    """Hold a folder by a file in it, since no folder can be locked."""
    descriptor = open_file(Path(path, _FOLDER_LOCK), os.O_RDWR | os.O_CREAT | O_CLOEXEC)
    try:
        lock(descriptor, wait=wait)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def share_content(source: int, target: int) -> None:
    del source, target
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def set_mode(descriptor: int, mode: int) -> None:
    del descriptor, mode  # access lists say more than a mode, and stay


set_mode_unread = set_mode


def is_private(_status: os.stat_result) -> bool:
    return True  # that is for access lists to say, and those of a user's folder do


def bind(listening: socket.socket, address: tuple[str, int]) -> bool:
    # SO_REUSEADDR would share the port with any other program here that asks for it.
    listening.setsockopt(_SOL_SOCKET, _SO_EXCLUSIVEADDRUSE, 1)
    try:
        listening.bind(address)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):  # the second of ports that the system keeps
            raise
        return False
    return True


def user() -> int:
    """Return the number that os.stat gives the owner of each file."""
    return 0


def own_memory() -> tuple[int, int]:
    import ctypes

    counters = (ctypes.c_size_t * 9)()  # the first has two fields of 32 bits
    size, current = ctypes.sizeof(counters), ctypes.c_void_p(-1)
    if _kernel().K32GetProcessMemoryInfo(current, ctypes.byref(counters), size):
        return counters[7], counters[2]
    return 0, 0


def booted_at() -> float:
    import ctypes

    _kernel().GetTickCount64.restype = ctypes.c_uint64
    return time.time() - float(_kernel().GetTickCount64()) / 1000


def boot_id() -> bytes:
    winreg = import_module("winreg")
    name = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, name) as key:
            return str(winreg.QueryValueEx(key, "BootId")[0]).encode()
    except OSError:
        return b""


def file_system(path: str | Path) -> str:
    import ctypes

    root, kind = ctypes.create_unicode_buffer(261), ctypes.create_unicode_buffer(261)
    if _kernel().GetVolumePathNameW(str(path), root, 261) and _kernel().GetVolumeInformationW(
        root, None, 0, None, None, None, kind, 261
    ):
        return kind.value.lower()
    return ""


def is_in_windows() -> bool:
    return False


def keeps_order_of_names(_device: int) -> bool:
    return False


class AskedChild:
    def __init__(self, argv: Sequence[str]) -> None:
        import queue
        import subprocess
        import threading

        self._child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, creationflags=_NEW_GROUP
        )
        self._heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()  # no call here waits for a pipe and a time

    def _listen(self) -> None:
        assert self._child.stdout is not None
        piece = b"-"
        while piece:
            piece = os.read(self._child.stdout.fileno(), 1 << 16)
            self._heard.put(piece)

    def send(self, data: bytes) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(data)
            self._child.stdin.flush()
        except OSError:
            raise BrokenPipeError from None

    def receive(self, seconds: float) -> bytes:
        import queue

        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None

    def forget(self) -> None:
        assert self._child.stdin is not None
        with suppress(OSError):
            self._child.stdin.close()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        self.forget()


def in_own_group(own: bool, descriptors: Sequence[int], held: bool = False) -> Mapping[str, Any]:
    """A child inherits no descriptors: a lock ends with this process, and `Tree` ends the child then."""
    del descriptors
    return {"creationflags": (_NEW_GROUP if own else 0) | (_SUSPENDED if held else 0)}


def check_arguments(program: str, arguments: Sequence[str]) -> None:
    """The shell that runs a batch file reads its arguments as commands, however they are quoted."""
    if program.lower().endswith((".bat", ".cmd")):
        for argument in arguments:
            if not _FOR_BATCH.isdisjoint(argument):
                raise ValueError("a batch file reads its arguments as commands: name its program")


class Tree:
    """A job: all that its first process starts is in it, and ends when it is closed, also by this process's end."""

    is_known = True

    def __init__(self) -> None:
        import ctypes

        kernel = _kernel()
        kernel.CreateJobObjectW.restype = ctypes.c_void_p
        self._job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
        limits = (ctypes.c_uint64 * 18)()  # JOBOBJECT_EXTENDED_LIMIT_INFORMATION
        limits[2] = _ENDS_WITH_JOB
        kernel.SetInformationJobObject(self._job, _JOB_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits))

    def add(self, child: subprocess.Popen[bytes]) -> None:
        import ctypes

        process = ctypes.c_void_p(int(child._handle))  # type: ignore[attr-defined, unused-ignore]
        if not _kernel().AssignProcessToJobObject(self._job, process):
            error = _failure()
            child.kill()
            raise error
        ntdll = ctypes.WinDLL("ntdll")  # type: ignore[attr-defined, unused-ignore]
        ntdll.NtResumeProcess(process)

    def members(self) -> list[int]:
        import ctypes

        most = 4096
        answer = (ctypes.c_size_t * (1 + most))()
        if not _kernel().QueryInformationJobObject(
            self._job, _JOB_MEMBERS, ctypes.byref(answer), ctypes.sizeof(answer), None
        ):
            return []
        return list(answer[1 : 1 + (answer[0] >> 32)])

    def signal(self, leader: int, *signals: int) -> bool:
        members = self.members()
        if members and KILL in signals:
            _kernel().TerminateJobObject(self._job, _KILLED)
        elif members and signals and leader in members:
            with suppress(OSError):  # without a console nothing can be asked
                os.kill(leader, signal.CTRL_BREAK_EVENT)  # type: ignore[attr-defined, unused-ignore]
        return bool(members)

    def close(self) -> None:
        if self._job:
            _kernel().CloseHandle(self._job)
            self._job.value = None


class Outputs:
    """No call here waits for a pipe and a time, so a thread reads each."""

    hears_end = False

    def __init__(
        self, _child: int, streams: Sequence[tuple[IO[bytes] | None, Callable[[bytes], object]]]
    ) -> None:
        import queue
        import threading

        self._heard: queue.SimpleQueue[tuple[Callable[[bytes], object], bytes]] = queue.SimpleQueue()
        self._open = 0
        for stream, take in streams:
            if stream is not None:
                self._open += 1
                threading.Thread(target=self._listen, args=(stream, take), daemon=True).start()

    def _listen(self, stream: IO[bytes], take: Callable[[bytes], object]) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(stream.fileno(), 1 << 16)
            except (OSError, ValueError):  # closed
                data = b""
            self._heard.put((take, data))

    def wait(self, seconds: float | None) -> bool:
        import queue

        try:
            take, data = self._heard.get(timeout=seconds)
        except queue.Empty:
            return False
        if data:
            take(data)
        else:
            self._open -= 1
        return bool(data)

    def drain(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while self._open and time.monotonic() < deadline:
            self.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        pass


def signal_group(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)  # which ends it, whatever the number


def has_processes() -> bool:
    return True


def _parents() -> dict[int, tuple[int, int]]:
    """Return the parent and the number of threads of each process."""
    import ctypes

    class Entry(ctypes.Structure):
        _fields_ = (
            ("size", ctypes.c_uint32),
            ("usage", ctypes.c_uint32),
            ("pid", ctypes.c_uint32),
            ("heap", ctypes.c_size_t),
            ("module", ctypes.c_uint32),
            ("threads", ctypes.c_uint32),
            ("parent", ctypes.c_uint32),
            ("priority", ctypes.c_int32),
            ("flags", ctypes.c_uint32),
            ("name", ctypes.c_wchar * 260),
        )

    kernel = _kernel()
    kernel.CreateToolhelp32Snapshot.restype = ctypes.c_void_p
    snapshot = ctypes.c_void_p(kernel.CreateToolhelp32Snapshot(2, 0))
    entry = Entry(size=ctypes.sizeof(Entry))
    table: dict[int, tuple[int, int]] = {}
    try:
        more = kernel.Process32FirstW(snapshot, ctypes.byref(entry))
        while more:
            table[entry.pid] = entry.parent, entry.threads
            more = kernel.Process32NextW(snapshot, ctypes.byref(entry))
    finally:
        kernel.CloseHandle(snapshot)
    return table


def numbers() -> list[int]:
    return [*_parents()]


def processes(wanted: Iterable[int]) -> Iterator[Process]:
    import ctypes

    kernel, table = _kernel(), _parents()
    kernel.OpenProcess.restype = ctypes.c_void_p
    for pid in wanted:
        opened = kernel.OpenProcess(_QUERY, 0, pid) if pid in table else None
        if not opened:
            continue
        handle = ctypes.c_void_p(opened)
        times, counters = (ctypes.c_uint64 * 4)(), (ctypes.c_size_t * 9)()
        try:
            places = [ctypes.byref(times, 8 * number) for number in range(4)]
            if not kernel.GetProcessTimes(handle, *places):
                continue
            kernel.K32GetProcessMemoryInfo(handle, ctypes.byref(counters), ctypes.sizeof(counters))
        finally:
            kernel.CloseHandle(handle)
        made, ended, in_kernel, in_program = times
        if not ended:
            parent, threads = table[pid]
            yield Process(pid, parent, pid, made, threads, (in_kernel + in_program) / 1e7, counters[2])


def seconds_of(process: Process) -> float:
    return process.start / 1e7 - _SINCE_1601


def environment_of(_pid: int) -> bytes:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def notify(process: Process, *signals: int) -> None:
    import ctypes

    if not signals:
        return
    kernel = _kernel()
    kernel.OpenProcess.restype = ctypes.c_void_p
    if handle := kernel.OpenProcess(_END, 0, process.pid):  # held, its number is not used again
        if is_there(process):
            kernel.TerminateProcess(ctypes.c_void_p(handle), _KILLED)
        kernel.CloseHandle(ctypes.c_void_p(handle))


def is_there(process: Process) -> bool:
    return any(item.start == process.start for item in processes((process.pid,)))


def made_at(path: Path) -> float | None:
    status = path.stat()
    return float(getattr(status, "st_birthtime", status.st_ctime))


def files_of(_pid: int) -> Iterator[tuple[int, str]]:
    return iter(())


def is_closed_in_children(_pid: int, _descriptor: int) -> bool:
    return True


def openers(path: Path) -> dict[int, bool]:
    del path  # no call tells who has a file open
    return {}


def signal_opener(pid: int, path: Path, number: int) -> bool:
    del pid, path, number
    return False


def works_below(_program: str, _folder: Path, _named: Path) -> bool:
    return False


def children() -> list[int]:
    return [process.pid for process in processes(numbers()) if process.parent == os.getpid()]


def adopt_orphans(_yes: bool) -> bool:
    return False
