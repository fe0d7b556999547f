"""uwf as an agent of Harbor: `harbor run --agent uwf_git.ext.harbor.agent:UwfAgent`."""

from uwf_git.plugin import Extension

EXTENSION = Extension("harbor")
