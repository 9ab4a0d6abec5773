"""Versions of the tables, and the upgrade of a database to the one this code works with."""
