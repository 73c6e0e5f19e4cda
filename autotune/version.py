"""The tool's version: profiles carry it."""

VERSION = "0.1.0"
