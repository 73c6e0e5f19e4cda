"""The tree of errors is what the module's docstring draws, and its exit codes are inherited."""

from __future__ import annotations

from autotune import errors


def test_every_error_is_drawn_in_the_docstring_and_is_an_autotune_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert len(kinds) == 9
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")
        assert issubclass(kind, errors.AutotuneError) or kind is errors.Interrupted
    assert (errors.ContractError.exit_code, errors.ProfileError.exit_code, errors.LaunchError.exit_code) == (2, 2, 4)
