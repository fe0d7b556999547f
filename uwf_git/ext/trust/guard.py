"""The guard of stores with a trust policy: no record that others would refuse is made."""

from uwf_git.plugin import guard_by_policy as guard

__all__ = ["guard"]
