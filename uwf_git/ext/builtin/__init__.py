"""The built-in agent: a model with tools, confined to the folder of its step."""

from uwf_git.ext import Extension

EXTENSION = Extension("builtin")
