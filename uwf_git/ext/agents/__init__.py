"""The agents that ship."""

from uwf_git.ext import Extension

EXTENSION = Extension("agents")
