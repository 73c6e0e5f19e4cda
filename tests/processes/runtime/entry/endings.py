"""Scripts that end in many ways, for `test_like_plain`. Each is all of a file; some are no valid text at all."""

from __future__ import annotations

AT_EXIT = """
import atexit, sys
value = "alive"
@atexit.register
def last():
    print("last", value, sorted(name for name in globals() if name.startswith("__")), sys.excepthook)
@atexit.register
def first():
    print("first", flush=True)
class Late:
    def __del__(self):
        print("deleted")
late = Late()
print("done")
"""
CHAINED = """
print("before, in the buffer")
def low():
    return {}["missing"]
def high():
    try:
        low()
    except KeyError as error:
        raise ValueError("first\\nsecond, é") from error
try:
    high()
except ValueError:
    raise RuntimeError("while handling")
"""
THREADS = """
import atexit, threading
def late():
    threading.main_thread().join()
    print("a thread ends after the script")
threading.Thread(target=late).start()
atexit.register(print, "and before the handlers")
print("end of the script")
"""
HOOK = """
import sys
def hook(kind, error, trace):
    print(kind, trace.tb_next, sys.exc_info(), __file__[-9:])
sys.excepthook = hook
1 / 0
"""
LAST_ERROR = """
import atexit, sys
atexit.register(lambda: print(repr(sys.last_value), sys.last_traceback.tb_next))
1 / 0
"""
WARNING = """
import warnings
warnings.warn("here")
def f():
    warnings.warn("there", DeprecationWarning, 2)
f()
"""
SIGNAL = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
signal.pause()
"""
CAUGHT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    raise SystemExit(8)
"""
INTERRUPTED = "import atexit, sys\natexit.register(print, 'handler')\nprint('before')\nraise KeyboardInterrupt\n"

ORDERLY: dict[str, str | bytes] = {
    "end": AT_EXIT,
    "exit at exit": AT_EXIT + "sys.exit()",
    "error at exit": AT_EXIT + "1 / 0",
    "thread": THREADS,
    "thread, error": THREADS + "1 / 0",
    "thread fails": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='one').start()\n",
    "handler fails": "import atexit\natexit.register(lambda: 1 / 0)\n",
    "handler exits": "import atexit, sys\natexit.register(sys.exit, 5)\n",
    **{
        f"exit {code}": f"import sys\nprint('out')\nsys.exit({code})"
        for code in (*("None", "7", "256", "-1", "2**31", "2**64 + 3", "3.5", "'words é'", "Exception('why')"),)
    },
    "exit without stderr": "import sys\nsys.stderr = None\nsys.exit('words')",
    "exit in a finally": "try:\n    1 / 0\nfinally:\n    raise SystemExit(3)",
    "chained": CHAINED,
    "error": "import sys\nsys.stdout.write('no newline')\n[][1]",
    "note": "error = ValueError('x')\nerror.__notes__ = ['a note']\nraise error",
    "error without stderr": "import sys\nsys.stderr = None\n1 / 0",
    "hook": HOOK,
    "hook fails": "import sys\ndef hook(*a):\n    raise ValueError('in the hook')\nsys.excepthook = hook\n1 / 0",
    "hook exits": "import sys\nsys.excepthook = lambda *a: sys.exit(12)\n1 / 0",
    "last error": LAST_ERROR,
    "syntax": "print('never')\nif True\n    pass\n",
    "latin-1": "# coding: latin-1\nx = 'é'\nprint(len(x), ascii(x))\nraise ValueError(x)\n".encode("latin-1"),
    "bom": b"\xef\xbb\xbf" + "x = 'é'\nprint(ascii(x))\n1 / 0\n".encode(),
    "warning": WARNING,
    "interrupt": INTERRUPTED,
    "caught interrupt": CAUGHT,
    "signal": SIGNAL,
    "closed stdout": "import sys\nprint('x')\nsys.stdout.close()\n",
    "full stdout": "import os, sys\nos.close(1)\nprint('x')\n",
}
"""By name. Text, or bytes where the coding matters."""

DEEP: dict[str, str | bytes] = {
    "recursion": "def again():\n    again()\nimport sys\nsys.setrecursionlimit(80)\nagain()",
    "stack": "import traceback\ndef f():\n    traceback.print_stack()\nf()\n",
    "far warning": "import warnings\nwarnings.warn('too far up', stacklevel=3)\n",
}
"""They look below their own first frame."""

UNREADABLE = {
    "null byte": b"x = 1\n\x00\n",
    "not utf-8": "# é\nx = 'é'\n".encode("latin-1"),
    "unknown coding": b"# coding: nonsense\n",
}
"""Python's parser has other words for them if it reads a file itself."""

NATIVE = ("end", "exit at exit", "error at exit", "thread", "exit 7", "syntax", "interrupt", "hook", "closed stdout")
"""Python runs the script itself: some are enough."""
UNDER_MPI = ("chained", "exit 'words é'", "interrupt", "thread")
