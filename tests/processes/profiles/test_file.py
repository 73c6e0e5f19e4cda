"""Two processes that write the same profile."""

import os
import subprocess
import sys
from pathlib import Path

from autotune.profiles import file
from tests.doubles.profiles import profile

WRITER = """
import os, sys
from pathlib import Path
from autotune.profiles import places
os.fsync = lambda _: None  # renaming is what is raced here, not the disk
text = open(sys.argv[2], encoding="utf-8").read()
for _ in range(200):
    places.write_whole(Path(sys.argv[1]), text)
"""


def test_two_writers_never_leave_a_broken_file(tmp_path: Path) -> None:
    path = file.write(tmp_path / "p.yaml", profile())
    texts = [file.dump(profile(baseline_rate=rate)) for rate in (1.5, 2.5)]
    environment = {**os.environ, "PYTHONPATH": str(Path(file.__file__).parents[2])}
    writers = []
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / name).write_text(text, "utf-8")
        command = [sys.executable, "-c", WRITER, str(path), str(tmp_path / name)]
        writers.append(subprocess.Popen(command, env=environment))
    seen = {path.read_text("utf-8")}
    while any(writer.poll() is None for writer in writers):
        seen.add(path.read_text("utf-8"))
    seen.add(path.read_text("utf-8"))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {*texts, file.dump(profile(), "p.yaml")}
    assert seen & set(texts)
