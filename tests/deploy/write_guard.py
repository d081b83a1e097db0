"""Refuses every write outside the allowed folders, and every program but Python: an audit hook, loaded as `sitecustomize`.

What was refused is written down, so that code which swallows the error does not hide it.
"""

# ruff: noqa: PTH100, PTH115, PTH118, PTH119  # a hook that imports more than this would watch its own imports
import os
import sys

ALLOWED = tuple(filter(None, os.environ["WRITE_GUARD_ALLOWED"].split(os.pathsep)))
REPORT = os.environ["WRITE_GUARD_REPORT"]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Event → which of its arguments are paths that change.
_PATHS = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.symlink": (1,),
    "os.link": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
    "os.setxattr": (0,),
}
# Their last argument is an open folder, which paths are relative to.
_RELATIVE = {"os.mkdir", "os.remove", "os.rmdir", "os.symlink"}
_PROGRAMS = {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn"}
_report = os.open(REPORT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


def _hook(event, given):
    if event == "open":
        path, mode, flags = given
        writes = flags & _WRITING if isinstance(flags, int) else bool(set(mode or "r") & set("wax+"))
        makes = flags & os.O_CREAT if isinstance(flags, int) else True
        if writes and not isinstance(path, int) and (makes or not _is_device(path)):
            _check(event, path)
    elif event in _PATHS:
        for place in _PATHS[event]:
            _check(event, given[place], given[-1] if event in _RELATIVE else -1)
    elif event == "os.system" or (event in _PROGRAMS and not _is_python(given[0])):
        _refuse(event, given[0])


def _check(event, path, folder=-1):
    text = "" if isinstance(path, int) else os.fsdecode(path)
    if folder != -1:
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    text = os.path.abspath(text)
    if text != "/dev/null" and not any(text == one or text.startswith(f"{one}/") for one in ALLOWED):
        _refuse(event, text)


def _is_device(path):
    """Tell whether this is the driver, which one asks by opening its file to write."""
    return os.fsdecode(path).startswith("/dev/nvidia")


def _is_python(program):
    return os.path.basename(os.fsdecode(program)).startswith("python")


def _refuse(event, what):
    os.write(_report, f"{event} {what!r}\n".encode())
    raise PermissionError(f"the guard refuses {event} {what!r}")


sys.addaudithook(_hook)
