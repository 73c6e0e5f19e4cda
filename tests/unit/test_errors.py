from __future__ import annotations

import pytest

from autotune import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.AutotuneError, 1),
        (errors.UsageError, 2),
        (errors.ContractError, 2),
        (errors.ProfileError, 2),
        (errors.UserCodeError, 3),
        (errors.NothingUsable, 4),
        (errors.LaunchError, 4),
        (errors.Interrupted, 130),
    ],
)
def test_exit_codes_are_the_documented_ones(kind: type[errors.AutotuneError], code: int) -> None:
    assert kind.exit_code == code


def test_every_error_is_drawn_in_the_docstring_and_is_an_autotune_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert len(kinds) == 9
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")
        assert issubclass(kind, errors.AutotuneError) or kind is errors.Interrupted
