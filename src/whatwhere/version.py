"""The version of the package, where its parts can read it without importing all of it."""

VERSION = "0.1.0"
