"""Evidence for people without uwf: attestations, reports for auditors, and the origin of code."""

from uwf_git.plugin import Command, Export, Extension

EXTENSION = Extension(
    "attest",
    commands=(
        Command(
            "attest",
            "uwf_git.ext.attest.command:attest",
            "Attest what a thread did: in-toto, cosign, Agent Trace.",
            "Share",
        ),
    ),
    exports=(
        Export("--audit", "uwf_git.ext.attest.command:page", "Audit report as a page. - is standard output."),
        Export("--audit-json", "uwf_git.ext.attest.command:report", "Audit report for verify.py."),
    ),
)
