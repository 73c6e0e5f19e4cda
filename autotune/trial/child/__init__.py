"""The processes of a trial: import the task, fork, apply the settings, train, measure."""
