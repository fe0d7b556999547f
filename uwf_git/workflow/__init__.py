"""The language of workflows, and which role is next: pure, from YAML to the moderator."""
