"""The tool's version: profiles carry it."""

VERSION = "0.2.0"
