"""Why a training step is as slow as it is (``diagnose``), and what costs speed on this machine (``doctor``)."""
