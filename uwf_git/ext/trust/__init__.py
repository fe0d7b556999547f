"""The trust policy as a guard of every open store."""

from uwf_git.plugin import Extension

EXTENSION = Extension("trust", guard="uwf_git.ext.trust.guard:guard")
