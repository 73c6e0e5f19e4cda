"""Whether diagnoses are right, on tasks whose cause is known."""
