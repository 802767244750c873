"""Runs as TOML files: small ones to begin with, and the published ones as they were."""
