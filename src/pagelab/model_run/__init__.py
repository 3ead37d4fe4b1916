"""Campaigns that make a runtime model: they choose layouts, run them, get counts, fit models and judge them."""
