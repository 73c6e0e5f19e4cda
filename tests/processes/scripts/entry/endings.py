"""Scripts that end in many ways, for `test_like_plain`. Each is all of a file; some are no valid text at all."""

AT_EXIT = """
import atexit, sys
value = "alive"
@atexit.register
def last():
    print("last", value, __name__, sys.excepthook)
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
WARNING = """
import warnings
warnings.warn("here")
def f():
    warnings.warn("there", DeprecationWarning, 2)
f()
"""
INTERRUPTED = "import atexit, sys\natexit.register(print, 'handler')\nprint('before')\nraise KeyboardInterrupt\n"

ORDERLY: dict[str, str | bytes] = {
    "end": AT_EXIT,
    "error at exit": AT_EXIT + "1 / 0",
    "thread": THREADS,
    "exit 7": "import sys\nprint('out')\nsys.exit(7)",
    **{f"exit {code}": f"raise SystemExit({code})" for code in ("None", "256", "2.0")},
    "exit words": "import sys\nprint('out')\nsys.exit('words é')",
    "chained": CHAINED,
    "error": "import sys\nsys.stdout.write('no newline')\n[][1]",
    "hook": HOOK,
    "syntax": "print('never')\nif True\n    pass\n",
    "latin-1": "# coding: latin-1\nx = 'é'\nprint(len(x), ascii(x))\nraise ValueError(x)\n".encode("latin-1"),
    "warning": WARNING,
    "interrupt": INTERRUPTED,
    "closed stdout": "import sys\nprint('x')\nsys.stdout.close()\n",
}
"""By name. Text, or bytes where the coding matters."""

UNDER_MPI = ("chained", "exit words", "thread")
