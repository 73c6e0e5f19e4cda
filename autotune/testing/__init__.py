"""Public test doubles, for people who write search methods or test what they build on this project.

simulator   a machine as a formula: exact rates, and trials of it with noise, drift and a price in seconds
machines    the simulated machines that search methods are judged on
bench       a bench whose clock only moves when told to: tests of a whole tuning run take milliseconds
recorded    a machine replayed from recorded files, for probes
profiles    small valid profiles
"""
