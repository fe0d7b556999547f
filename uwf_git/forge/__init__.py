"""Forges and trackers: addresses of issues and repositories, logins, and the REST APIs of GitHub, GitLab, Gitea,
Forgejo and Jira."""
