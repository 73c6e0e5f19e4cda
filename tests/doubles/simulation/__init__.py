"""Simulated machines with known best settings, for benchmarks and tests of the search.

simulator   a machine as a formula: exact rates, and trials of it with noise, drift and a price in seconds
machines    the simulated machines that search methods are judged on
"""
