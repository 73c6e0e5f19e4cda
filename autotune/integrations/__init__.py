"""Callbacks for trainers, one file a framework. Each imports its framework, and nothing else of this project does."""
