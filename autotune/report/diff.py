"""``autotune diff``: two profiles side by side, differing lines only."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.knobs.knob import LEVELS
from autotune.profiles.format import Profile
from autotune.profiles.records import as_data
from autotune.report import formatting
from autotune.report.verdict import verdict

Row = tuple[str, str, str]


def text(left: Profile, right: Profile, names: tuple[str, str] = ("left", "right")) -> str:
    """The comparison as plain text; ``names`` head the columns."""
    return formatting.plain(render(left, right, names))


def render(left: Profile, right: Profile, names: tuple[str, str] = ("left", "right")) -> RenderableType:
    """What the two were measured on, then gain and differing knobs of each level."""
    rows = differences(left, right)
    if not rows:
        return Text("no difference")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", *names):
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    note = [] if left.key == right.key else [Text("Measured on different machine types: rates do not compare.")]
    return Group(table, *note)


def differences(left: Profile, right: Profile) -> list[Row]:
    """``(what, left, right)`` for everything that differs."""
    rows = [*_head(left, right), *_settings("baseline", left, right)]
    for level in LEVELS:
        rows += [*_gain(level, left, right), *_settings(level, left, right)]
    return rows


def _head(left: Profile, right: Profile) -> list[Row]:
    facts, others = (as_data(profile.machine)["facts"] for profile in (left, right))
    rates = [formatting.rate(profile.baseline_rate, profile.target.unit) for profile in (left, right)]
    rows = [
        ("machine", left.key, right.key),
        *((f"machine {name}", _words(facts.get(name)), _words(others.get(name))) for name in {**facts, **others}),
        *((name, _words(left.software.get(name)), _words(right.software.get(name))) for name in _software(left, right)),
        ("target", left.target.name, right.target.name),
        ("device", left.target.device, right.target.device),
        ("recommended", left.recommended, right.recommended),
        ("baseline rate", rates[0], rates[1]),
    ]
    return [row for row in rows if row[1] != row[2]]


def _software(left: Profile, right: Profile) -> list[str]:
    return list({**left.software, **right.software})


def _gain(level: str, left: Profile, right: Profile) -> list[Row]:
    one, other = (verdict(p, level)[0] if level in p.levels else "-" for p in (left, right))
    return [(f"{level} gain", one, other)] if one != other else []


def _settings(level: str, left: Profile, right: Profile) -> list[Row]:
    one, other = (
        p.baseline if level == "baseline" else p.levels[level].settings if level in p.levels else None
        for p in (left, right)
    )
    if one is None or other is None:
        return []
    return [
        (f"{level} {knob}", formatting.value(mine), formatting.value(theirs))
        for knob, (mine, theirs) in one.difference(other).items()
    ]


def _words(fact: object) -> str:
    return ", ".join(map(str, fact)) or "none" if isinstance(fact, (list, tuple)) else formatting.value(fact)
