"""The command line `superbiz`."""
