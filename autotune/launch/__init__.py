"""`Settings` to an environment and a command line for one machine. Data in, data out: nothing is started here."""
