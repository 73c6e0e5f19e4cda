"""The table of all outcomes, as text, and its totals in ``docs/training.md``."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.same_training import covering
from tests.same_training.outcome import DIFFERENT, EQUAL, REFUSED, Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
BEGIN, END = "<!-- table:begin -->", "<!-- table:end -->"


def text(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Totals, and what was left alone with the reason."""
    total = Counter(outcome.verdict for outcome in outcomes)
    alone = sum(outcome.verdict == EQUAL and bool(outcome.reasons) for outcome in outcomes)
    met, possible = covering.pairs_met()
    head = (
        f"{len(outcomes)} combinations in {seconds:.0f} s: {total[EQUAL]} equal ({alone} of them with something left"
        f" alone or noted, and equal all the same), {total[REFUSED]} refused by the tuner,"
        f" {total[DIFFERENT]} different. They hold {met} of {possible} pairs of values."
    )
    said = Counter(plain(reason) for outcome in outcomes if outcome.verdict != DIFFERENT for reason in outcome.reasons)
    lines = ["| combinations | what was refused, left alone or noted, and why |", "|---|---|"]
    return "\n".join([head, "", *lines, *(f"| {count} | {reason} |" for reason, count in said.most_common())])


def plain(reason: str) -> str:
    """``reason`` without its numbers, so that equal ones count together."""
    return re.sub(r"\b\d+\b", "N", reason).replace("|", "/")


def differences(outcomes: Sequence[Outcome]) -> str:
    """Every difference with the expression that reproduces it."""
    found = [outcome for outcome in outcomes if outcome.verdict == DIFFERENT]
    return "\n".join(f"{outcome.case!r}\n    {outcome.reasons[0]}" for outcome in found)


def write(body: str) -> None:
    """Put the totals of ``body``, its first paragraph, between the page's markers."""
    totals = body.split("\n\n")[0]
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _old, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{totals}\n\n{END}{after}", "utf-8")
