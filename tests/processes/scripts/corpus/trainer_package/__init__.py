"""A package that is started with `python -m trainer_package.train`."""
