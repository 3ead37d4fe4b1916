"""Shared by the black-box tests: guest programs, policies, and running a command under a policy."""
