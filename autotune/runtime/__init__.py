"""Apply `Settings` to a training loop, in trials and in the user's training alike, and put everything back."""
